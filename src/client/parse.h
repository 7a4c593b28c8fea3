/* An HTTP/1.1 answer, taken apart as its bytes come.
 *
 * Owns: what was received and not yet handed out. Refuses to know: sockets, JSON.
 * Threads: one owner. Lifetime: client_parser_begin for each answer, client_parser_fini at the end.
 *
 * Reads what servers of language models send: a fixed length, chunks, or everything until the connection
 * closes; a plain body, or an event stream (text/event-stream), of which it hands out the data of each event.
 * Source: RFC 9112, and the HTML standard's chapter on server-sent events. */
#ifndef QR_CLIENT_PARSE_H
#define QR_CLIENT_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define CLIENT_HEAD_BYTES_MAX ((size_t)64 << 10)
#define CLIENT_BODY_BYTES_MAX ((size_t)64 << 20) // of a plain body, or of one event

enum client_state {
    CLIENT_HEAD,
    CLIENT_SIZE,    // a chunk's first line
    CLIENT_DATA,    // `left` bytes of a chunk or of the body
    CLIENT_CRLF,    // after a chunk
    CLIENT_TRAILER, // lines after the last chunk
    CLIENT_CLOSE,   // a body that ends with the connection
    CLIENT_DONE,
    CLIENT_BAD
};

struct client_parser {
    enum client_state state;
    int status; // 200; 0 before the head is complete
    bool is_stream, is_chunked, keep_alive;
    uint64_t left;
    struct qr_buf line; // of the head, a chunk's size or a trailer
    size_t head_bytes;
    struct qr_buf body; // decoded
    size_t taken;       // bytes of body that were handed out as events
    size_t scanned;     // bytes of body in which no event ends
    const char *why;    // BAD: what was wrong
};

void client_parser_begin(struct client_parser *p); // keeps the memory of the answer before
void client_parser_fini(struct client_parser *p);
void client_parser_feed(struct client_parser *p, const char *bytes, size_t n);
// The connection has ended: DONE where that ends a body, else BAD.
void client_parser_close(struct client_parser *p);
// The data of the next complete event, valid until the next call of anything. Lines of one event are joined by
// newlines; events without data are passed over.
bool client_parser_event(struct client_parser *p, const char **data, size_t *bytes);

#endif
