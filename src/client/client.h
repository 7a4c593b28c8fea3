/* An HTTP client of one server: many requests at once on one thread, answers as they come.
 *
 * Owns: its connections, which it keeps alive and uses again. Refuses to know: JSON, models, TLS.
 * Threads: one owner. Lifetime: _new to _free, which drops what is under way.
 *
 * A request is started and then shows up in qr_client_next: an event stream as one EVENT for each event, at the
 * moment it arrives, then DONE; any other answer as DONE alone, with its body. */
#ifndef QR_CLIENT_CLIENT_H
#define QR_CLIENT_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct qr_client;

struct qr_client_conf {
    const char *url;     // "http://host:port" or with a path that goes before every path
    const char *api_key; // sent as a bearer token; NULL or "": none
    int n_conns_max;     // requests at once
    int timeout_ms;      // without a byte of an answer; 0: none
};

// QR_EINVAL: not such a URL; QR_ENOTFOUND: the host has no address; QR_ENOMEM. Connects to nobody yet.
enum qr_status qr_client_new(const struct qr_client_conf *conf, struct qr_client **out,
                             struct qr_error *err) QR_MUST_CHECK;
void qr_client_free(struct qr_client **c);

// Starts a request; `body` (JSON; NULL: none) is copied. QR_AGAIN: n_conns_max are under way; QR_EIO: no
// connection, err says why; QR_ENOMEM. `user` comes back in its events.
enum qr_status qr_client_start(struct qr_client *c, const char *method, const char *path, const void *body,
                               size_t bytes, void *user, struct qr_error *err) QR_MUST_CHECK;
int qr_client_n_active(const struct qr_client *c);

enum qr_client_kind { QR_CLIENT_EVENT, QR_CLIENT_DONE, QR_CLIENT_FAILED };
struct qr_client_event {
    enum qr_client_kind kind;
    void *user;
    int status;       // 200; 0 when no answer came
    const char *text; // the event's data, the body, or why it failed; NUL behind it; until the next call
    size_t bytes;
    uint64_t now_ns; // of the wall clock, when the bytes were read
};
// The next event, waiting at most timeout_ms (-1: for ever; returns when nothing is under way). False: none.
bool qr_client_next(struct qr_client *c, struct qr_client_event *out, int timeout_ms) QR_MUST_CHECK;

// One request and its answer. The body goes to *out (NULL: dropped) and the status is returned; 0: no answer came, err
// says why.
struct qr_buf;
int qr_client_call(struct qr_client *c, const char *method, const char *path, const void *body, size_t bytes,
                   struct qr_buf *out, struct qr_error *err);

#endif
