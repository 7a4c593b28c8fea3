/* An HTTP/1.1 server over libmicrohttpd: requests in, replies and event streams out.
 *
 * Owns: sockets, the one I/O thread, request buffers and their limits.
 * Refuses to know: any word of language models.
 * Threads: the handler runs on the I/O thread and must not block. Every http_req function may be called by
 *   any thread that holds a reference. http_server_free stops the thread.
 * Lifetime: a request is reference counted. The handler's argument is valid during the call; http_req_ref
 *   keeps it beyond, also beyond the server.
 *
 * A request is answered once, by http_reply or by http_stream_begin ... http_stream_end, in the handler or
 * later. If the last reference goes without an answer the client gets 500; if it goes before http_stream_end
 * the connection is cut, so that the client does not take the stream for whole.
 *
 * Framing is decided here: 400, 408, 413, 431, 501, 503 (too many connections) and 505 never reach the
 * handler. Everything else is the handler's. A client that closes its sending side has gone, unless its
 * answer is complete already. Error bodies are conf.error_body's, with one exception: libmicrohttpd finds
 * some malformed requests itself, and sends a page of its own when several connections speak in the same
 * instant and any may be at fault. */
#ifndef QR_HTTP_HTTP_H
#define QR_HTTP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct http_server;
struct http_req;

typedef void http_handler(void *arg, struct http_req *req);
// Called on the I/O thread when the client of a request that is not finished has gone, or the server stops.
// Once at most. It may overlap with another thread's call that ends the answer, so `user` must outlive both.
typedef void http_gone(void *arg, struct http_req *req, void *user);
// Writes the body of an error that the server itself decides (400, 408, 413, 431 ...) as JSON into out. Any
// thread.
typedef size_t http_error_body(void *arg, int status, const char *message, char *out, size_t cap);

struct http_conf {
    const char *host;        // "127.0.0.1", "::1", "0.0.0.0"
    int port;                // 0: any free one; see http_server_port
    size_t body_bytes_max;   // 413 above
    size_t header_bytes_max; // request line and headers together; 431 above
    int n_headers_max;       // 431 above
    int n_conns_max;         // 503 above
    int idle_timeout_s;      // a connection that neither sends nor is owed anything
    int request_timeout_s;   // from the first byte of a request to its last: 408
    size_t stream_bytes_max; // unsent bytes of one stream at which http_stream_write says QR_AGAIN
    http_handler *handler;
    http_gone *gone;
    http_error_body *error_body;
    void *arg; // handed to the three above
};

// QR_EIO names host and port ("port 8000 is taken by another program: choose one with --port").
enum qr_status http_server_new(const struct http_conf *conf, struct http_server **out,
                               struct qr_error *err) QR_MUST_CHECK;
void http_server_free(struct http_server **s); // closes every connection; unanswered requests report gone
int http_server_port(const struct http_server *s);
struct http_stats {
    uint64_t n_requests, n_conns_now, n_streams_now, bytes_in, bytes_out;
};
void http_server_stats(const struct http_server *s, struct http_stats *out);

void http_req_ref(struct http_req *r);
void http_req_unref(struct http_req **r);
const char *http_req_method(const struct http_req *r);
const char *http_req_path(const struct http_req *r);                     // decoded, without the query
const char *http_req_query(const struct http_req *r, const char *name);  // NULL when absent
const char *http_req_header(const struct http_req *r, const char *name); // in any case; NULL when absent
const char *http_req_body(const struct http_req *r, size_t *bytes);      // followed by a NUL
bool http_req_is_local(const struct http_req *r);                        // the peer is a loopback address
bool http_req_is_gone(const struct http_req *r);
void http_req_set_user(struct http_req *r, void *user); // handed to gone
void *http_req_user(const struct http_req *r);

// A header of the answer; before http_reply or http_stream_begin. One with control characters is a bug of the
// caller: it is left out, and the log says so.
void http_add_header(struct http_req *r, const char *name, const char *value);
// The whole answer. Body is copied. HEAD answers carry no body.
void http_reply(struct http_req *r, int status, const char *content_type, const void *body, size_t bytes);

// A chunked answer. Writes are copied and sent by the I/O thread in order; nothing here blocks.
void http_stream_begin(struct http_req *r, int status, const char *content_type);
// QR_OK; QR_AGAIN: taken, and over stream_bytes_max now (a slow reader); QR_ECANCELED: the client has gone;
// QR_ENOMEM: not taken. Writing 0 bytes asks whether the reader has caught up.
enum qr_status http_stream_write(struct http_req *r, const void *data, size_t bytes);
void http_stream_end(struct http_req *r);

#endif
