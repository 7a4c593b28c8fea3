/* One run of a load against one server.
 *
 * Owns: what was seen of each request. Refuses to know: what is printed. Threads: main. Lifetime: bench_run to
 * bench_result_fini. */
#ifndef QR_BENCH_RUN_H
#define QR_BENCH_RUN_H

#include "bench/load.h"
#include "bench/stat.h"

struct bench_target {
    const char *url, *model, *api_key; // model "": the first that /v1/models lists
    int max_concurrency;               // 0: as many as arrive
    bool quiet;                        // no progress line
};

struct bench_goal { // of a request, in ms; 0: none
    double ttft, tpot, e2e;
};

struct bench_result {
    size_t n_ok, n_failed, n_good;
    char failure[200];         // the first one's reason
    double seconds;            // first request sent to last answer ended
    uint64_t n_in, n_out;      // tokens of those that succeeded
    uint64_t n_cached;         // prompt tokens that the server says it had
    int peak_concurrency;
    double peak_out_per_s;     // output tokens in the best whole second
    double client_cpu_s;       // of this process
    struct bench_list ttft, tpot, itl, e2e; // ms
};

// QR_EIO: not one request went through; err says why.
enum qr_status bench_run(const struct bench_target *t, const struct bench_load *load, const struct bench_goal *goal,
                         struct bench_result *out, struct qr_error *err) QR_MUST_CHECK;
void bench_result_fini(struct bench_result *r);

#endif
