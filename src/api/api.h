/* The OpenAI-compatible API over lib and http: routes, validation, answers, event streams.
 *
 * Owns: the HTTP server, worker threads that parse and tokenise, the pump thread that turns generation events
 * into answers, the metrics registry. Decides every 4xx but framing. Refuses to know: kv, sched, kernels.
 * Threads: its own. Lifetime: api_start (listening, /health 503), api_ready (a model is there), api_stop. */
#ifndef QR_API_API_H
#define QR_API_API_H

#include "base/status.h"
#include "lib/lib.h"

struct api;

struct api_conf {
    const char *host;
    int port;
    const char *const *keys;
    int n_keys; // API keys; none: open
    const char *const *served_names;
    int n_served_names; // the first is the model's name in answers; none: lib's
    int max_logprobs;
    size_t body_bytes_max;
    int n_workers;              // threads that parse and tokenise
    double default_temperature; // < 0: 1.0 (OpenAI's)
    uint64_t seed;              // draws seeds of requests that bring none; 0: from the clock
    const char *version;
};

// Listens; every route but /health, /ping, /version and /metrics answers 503 until api_ready.
enum qr_status api_start(const struct api_conf *conf, struct api **out, struct qr_error *err) QR_MUST_CHECK;
void api_progress(struct api *a, uint64_t done, uint64_t total); // loading; shown by /health
void api_ready(struct api *a, struct qr_lib *lib);
int api_port(const struct api *a);
// Stops listening, ends live requests with an error event, joins threads. lib may be closed afterwards.
void api_stop(struct api **a);

#endif
