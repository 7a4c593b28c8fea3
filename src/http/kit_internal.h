/* What the tests of this room share: a server whose handler does what the path says, and a client of raw
 * bytes.
 *
 * Owns: a struct kit's server and the requests that its handler kept. Refuses to know: cmocka's state.
 * Threads: the test's own, and the server's I/O thread in the handler. Lifetime: kit_start ... kit_stop.
 *
 * Paths: /echo answers with "METHOD path?q\n" and the body; /hold keeps the request for kit_take; /stream
 * begins a stream and keeps it; /events?n=N streams N short events at once; /big?n=N answers N bytes; /none
 * drops the request; /header?v=V answers with header X-Test: V. */
#ifndef QR_HTTP_KIT_INTERNAL_H
#define QR_HTTP_KIT_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "http/http.h"

#define KIT_MS 20000 // the bound of every wait: only failures reach it
#define KIT_HELD 4096

struct kit {
    struct http_server *server;
    pthread_mutex_t lock;
    pthread_cond_t change;
    struct http_req *held[KIT_HELD]; // in order of arrival
    int n_held, n_taken, n_gone;
    atomic_int n_handled;
    size_t live_bytes; // of HTTP's memory before it started
};

struct http_conf kit_conf(void);                             // small limits
void kit_start(struct kit *k, const struct http_conf *conf); // NULL: kit_conf
void kit_stop(struct kit *k);                                // drops what is still held; no memory may be left of it
struct http_req *kit_take(struct kit *k); // the next held request; the caller owns the reference
void kit_wait_gone(struct kit *k, int n); // until n requests have reported gone

void kit_wait_conns(struct kit *k, uint64_t n); // until the server has n connections

uint64_t kit_now_us(void);
int kit_connect(const struct kit *k);
void kit_send(int fd, const void *data, size_t n); // all of it
void kit_puts(int fd, const char *s);

struct kit_reply {
    int status;
    char head[8192], *body;
    size_t body_bytes;
    bool cut, chunked; // the connection ended before the reply did
};
void kit_read(int fd, bool head_only, struct kit_reply *out); // one reply, 1xx skipped
void kit_reply_fini(struct kit_reply *r);
const char *kit_header(const struct kit_reply *r, const char *name); // static storage; NULL when absent
bool kit_at_end(int fd);                                             // the server has closed; waits for it
// Sends text on a new connection, expects the status and a JSON error (for >= 400), and closes.
void kit_expect(const struct kit *k, const char *text, size_t n, int status);

#endif
