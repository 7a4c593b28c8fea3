/* What a run says: rates and distributions, with the names and meanings of `vllm bench serve`.
 *
 * Owns: the arithmetic and the form of results. Refuses to know: how requests were sent.
 * Threads: pure. Lifetime: values.
 *
 * A request's time to first token (TTFT) is from sending to its first chunk, its time per output token (TPOT) what
 * is left to its last chunk over the tokens but one, an inter-token latency (ITL) a gap between chunks, its
 * end-to-end latency (E2EL) from sending to its last chunk. Percentiles are interpolated between ranks. */
#ifndef QR_BENCH_REPORT_H
#define QR_BENCH_REPORT_H

#include <stdio.h>

#include "bench/drive.h"

enum bench_time { BENCH_TTFT, BENCH_TPOT, BENCH_ITL, BENCH_E2EL, BENCH_TIMES };

struct bench_dist {
    double mean, std, p50, p95, p99; // ms; 0 where there is no value
};
struct bench_limits {
    double ms[BENCH_TIMES]; // INFINITY: no limit
    bool any;
};
struct bench_result {
    int n_ok, n_failed, n_good; // n_good: within the limits
    int64_t n_in, n_out, n_chunks, n_cached;
    double duration_s, request_s, good_s, out_s, total_s; // rates a second
    double out_peak_s;                                   // most tokens in one second
    int n_active_peak;
    double cpu_share; // of the client, of one core
    struct bench_dist times[BENCH_TIMES];
};

// The value at p (0 to 100) of n sorted values.
double bench_percentile(const double *sorted, int64_t n, double p);
// Sorts v in place.
struct bench_dist bench_dist_of(double *v, int64_t n);

// "ttft:200 tpot:50", by spaces or commas. QR_EINVAL.
enum qr_status bench_limits_parse(const char *text, struct bench_limits *out, struct qr_error *err) QR_MUST_CHECK;
// Sorts the gaps of the run. QR_ENOMEM.
enum qr_status bench_result_of(struct bench_run *run, const struct bench_limits *limits, struct bench_result *out,
                               struct qr_error *err) QR_MUST_CHECK;
void bench_result_print(const struct bench_result *r, const struct qr_conf *c, const struct bench_load *l,
                        const struct bench_limits *limits, FILE *out);
struct qr_json_writer;
// A JSON object; members as vLLM's --save-result names them. run NULL: no details of requests.
void bench_result_json(const struct bench_result *r, const struct qr_conf *c, const struct bench_load *l,
                       const struct bench_target *t, const struct bench_run *run, struct qr_json_writer *w);

#endif
