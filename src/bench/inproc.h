/* A load on the engine of this process: no HTTP, no JSON.
 *
 * Owns: the requests under way. Refuses to know: servers. Threads: one, which is the library's reader.
 * Lifetime: a call. */
#ifndef QR_BENCH_INPROC_H
#define QR_BENCH_INPROC_H

#include "bench/bench.h"
#include "bench/load.h"

struct bench_inproc {
    double seconds; // from the first request to the last token
    uint64_t n_in, n_out;
};
// Hands all requests of the load to the engine at once and waits for their last tokens; answers have their exact lengths.
// `shown`: a word for the progress line; NULL: none. QR_EIO: a request failed, err says why; else as qr_lib_submit.
enum qr_status bench_inproc_run(struct qr_lib *lib, const struct bench_load *l, const char *shown, struct bench_inproc *out,
                                struct qr_error *err) QR_MUST_CHECK;
// The range of --token-ids as far as the model's vocabulary goes.
enum qr_status bench_inproc_ids(const struct qr_conf *c, const struct qr_lib *lib, struct bench_ids *out,
                                struct qr_error *err) QR_MUST_CHECK;
// A line on the terminal, at most ten times a second: "word: done of total". Ends with done == total. Where standard
// error is no terminal, a line of its own every ten seconds.
void bench_progress(const char *word, uint64_t done, uint64_t total);

#endif
