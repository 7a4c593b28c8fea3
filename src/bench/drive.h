/* Puts a load on a server and notes when everything came.
 *
 * Owns: the client and the times. Refuses to know: how a load is made, what is printed.
 * Threads: one owner. Lifetime: bench_target_open to bench_target_close; a run until bench_run_free. */
#ifndef QR_BENCH_DRIVE_H
#define QR_BENCH_DRIVE_H

#include "bench/load.h"

struct qr_client;

#define BENCH_CONNS_MAX 4096

struct bench_target {
    struct qr_client *client;
    char url[300], model[200];
    int n_conns;
};
// Asks url for its models, so that a server that is not there is told apart from one that fails: QR_EIO. model NULL:
// the first that it lists.
enum qr_status bench_target_open(const struct qr_conf *c, const char *url, const char *model, int n_conns,
                                 struct bench_target *out, struct qr_error *err) QR_MUST_CHECK;
void bench_target_close(struct bench_target *t);

struct bench_reply {
    uint64_t sent_ns, first_ns, last_ns; // first_ns 0: nothing came
    int32_t n_in, n_out;                 // as the server counts, else as asked for
    int32_t n_chunks, n_cached;
    bool ok, failed; // neither: it was under way
};

struct bench_run {
    int n; // requests sent
    struct bench_reply *replies; // (n), as the load's items
    double *itl_ms;              // (n_itl) every gap between two chunks of a stream
    int64_t n_itl, itl_cap;
    int n_ok, n_failed, n_active_max;
    double duration_s, cpu_s; // cpu_s: of this process
    uint64_t *chunk_ns;       // (n_itl + n) when each chunk came
    int64_t n_chunks, chunks_cap;
    char why[256]; // of the first failure
};
// QR_ENOMEM; QR_EINVAL for options (--extra-body). Requests that fail are in the run. `quiet`: no progress line.
enum qr_status bench_drive(const struct qr_conf *c, struct bench_target *t, const struct bench_load *l, bool quiet,
                           struct bench_run *out, struct qr_error *err) QR_MUST_CHECK;
void bench_run_free(struct bench_run *r);

#endif
