/* What the files of this room share: the server, its connections and its requests.
 *
 * Owns: nothing; it declares. Refuses to know: what a request asks for.
 * Threads: "io" marks what only the I/O thread touches; "lock" what a request's lock guards.
 * Lifetime: a connection lives from accept to close, on the I/O thread. A request lives as long as anyone
 * holds it, and holds the server structure, so a late http_stream_write never meets freed memory. */
#ifndef QR_HTTP_HTTP_INTERNAL_H
#define QR_HTTP_HTTP_INTERNAL_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "http/http.h"

// What an epoll event is about: the first field of everything that is watched.
enum watch_kind { WATCH_WAKE, WATCH_MHD, WATCH_CONN, WATCH_LINGER };

// A connection waits for a request, receives one, was refused and may read why, is owed an answer, or is shut
// and waits for MHD to see it. One list each; a list has one time limit (the last two have none), so it is
// ordered by deadline.
enum conn_phase { CONN_IDLE, CONN_RECEIVING, CONN_REFUSED, CONN_OWED, CONN_SHUT, CONN_PHASES };

struct http_conn { // io
    enum watch_kind kind;
    enum conn_phase phase;
    struct http_conn *prev, *next; // in the list of its phase
    uint64_t deadline_ms;
    uint64_t bytes_done; // what had been read of it when its last request was whole
    struct MHD_Connection *mhd;
    struct http_conn *next_nudge; // in the server's list of those to nudge
    struct http_req *req;         // from its request line to its last byte out
    int fd;
    bool suspended;   // MHD does not look at it until it is resumed
    bool peer_closed; // the client has closed its side
    bool early;       // bytes came while an answer was owed: the next request has begun
    bool answered;    // at least one request was served
    bool closing;     // it ends with the answer that is owed
    bool unnamed;     // MHD sent an error page to some connection, and this may be the one
    bool fresh;       // in the server's list of those that MHD reads now
    bool local;       // the peer is this machine
    bool linger;      // unread bytes are likely: close gently
};

/* A closed connection whose client may still be sending. Closing at once would make the kernel answer with a
 * reset, which can destroy the reply before the client reads it; so the socket is read until it ends, for a
 * while. */
struct http_linger { // io
    enum watch_kind kind;
    int fd;
    uint64_t deadline_ms;
    struct http_linger *prev, *next;
};

struct http_pair {
    const char *name, *value;
};

enum http_answer { ANSWER_NONE, ANSWER_REPLY, ANSWER_STREAM };

struct http_req {
    struct http_server *server;  // held
    struct http_conn *conn;      // io; NULL once the connection is done with it
    struct http_req *next_ready; // the server's lock
    bool ready;                  // the server's lock
    atomic_int refs;             // everyone: the connection, the application, the ready list
    // Fixed before the handler sees the request.
    char *block; // every string below; one allocation
    const char *method, *path;
    struct http_pair *headers, *query;
    int n_headers, n_query;
    struct qr_buf body;
    char *target; // as it came
    bool local, head, http_1_0;
    // io
    bool head_seen, expects_100;
    bool served;        // the handler was called
    int error;          // the status that framing decided, 0 for none
    uint64_t swallowed; // bytes of a refused body that were read and dropped
    pthread_mutex_t lock;
    // lock
    int n_app; // references of the application
    void *user;
    enum http_answer answer;
    bool gone, ended, aborted, waiting, close;
    int status;
    const char *content_type; // in `extra`
    struct http_pair *extra;  // headers of the answer, owned strings
    int n_extra;
    char *out; // unsent bytes [out_from, out_bytes)
    size_t out_bytes, out_from, out_cap;
};

struct conn_list {
    struct http_conn *first, *last;
};

// Connections that may be the one MHD complains about; with more than these fresh at once none is named.
#define FRESH_MAX 32

struct http_server {
    struct http_conf conf;
    char *host;
    int port, listen_fd, epoll_fd, wake_fd;
    struct MHD_Daemon *mhd;
    pthread_t thread;
    bool thread_started;
    enum watch_kind watch_wake, watch_mhd;
    atomic_int refs;
    atomic_bool stopping;
    atomic_uint_fast64_t n_requests, n_conns, n_streams, bytes_in, bytes_out;
    pthread_mutex_t lock;
    struct http_req *ready; // lock
    bool woken;             // lock: wake_fd is readable already
    bool over;              // lock: the I/O thread has ended
    // io
    uint64_t now_ms;
    struct conn_list conns[CONN_PHASES];
    struct http_linger *linger_first, *linger_last;
    int n_linger;
    struct http_conn *nudge;
    struct http_conn *fresh[FRESH_MAX];
    int n_fresh;
};

uint64_t http_now_ms(void);
void http_server_hold(struct http_server *s);
void http_server_drop(struct http_server *s);
// Any thread: asks the I/O thread to look at r.
void http_notify(struct http_req *r);

// conn.c
void http_conn_phase(struct http_server *s, struct http_conn *c, enum conn_phase phase);
void http_conn_fresh(struct http_server *s, struct http_conn *c); // MHD is about to read bytes of c
// After MHD_run: makes MHD look again at connections whose stream it closed from within, which it else
// forgets.
bool http_conn_nudge_all(struct http_server *s); // false when there were none
void http_conn_stale(struct http_server *s);     // MHD has read whatever there was
void http_conn_request_whole(struct http_conn *c); // what comes later belongs to the next one
void http_conn_event(struct http_server *s, struct http_conn *c, uint32_t events);
void http_conn_resume(struct http_conn *c);
void http_conn_started(struct http_server *s, struct MHD_Connection *m, void **context);
void http_conn_closed(struct http_server *s, struct http_conn *c);
// Sends one error reply past MHD, which has no way to send ours, and shuts the sending side.
void http_conn_refuse(struct http_server *s, struct http_conn *c, int status, const char *message);
// MHD is about to answer some connection with an error page of its own: if it is clear which, refuses it
// first.
void http_conn_mhd_error(struct http_server *s, int status);
int http_conn_expire(struct http_server *s); // returns ms to the next deadline, -1 for none
void http_linger_event(struct http_server *s, struct http_linger *l);
void http_linger_close(struct http_server *s, struct http_linger *l);
const char *http_error_message(int status);
size_t http_error_json(const struct http_server *s, int status, const char *message, char *out, size_t cap);

// request.c
struct http_req *http_req_new(struct http_server *s, struct http_conn *c, const char *target);
void http_req_hold(struct http_req *r);
void http_req_drop(struct http_req *r);
// io: the client will get no more of this request. Tells the application if it was still at work on it.
void http_req_lost(struct http_req *r);
// io: moves unsent bytes of a stream to `to`: their number, 0 when it waits for more, or MHD's code for its
// end.
ssize_t http_stream_take(struct http_req *r, char *to, size_t cap);
void http_req_answer_error(struct http_req *r, int status);

// head.c: fills method, path, query, headers; returns 0 or the status of the error.
int http_head_read(struct http_server *s, struct MHD_Connection *m, struct http_req *r, const char *method,
                   const char *version);

// mhd.c
struct MHD_Daemon *http_mhd_start(struct http_server *s);

#endif
