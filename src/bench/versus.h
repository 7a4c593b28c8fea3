/* Two servers under the same load, by turns: ratios, which hold where seconds do not.
 *
 * Owns: the pairs. Refuses to know: how a run is driven. Threads: one. Lifetime: a call. */
#ifndef QR_BENCH_VERSUS_H
#define QR_BENCH_VERSUS_H

#include "bench/bench.h"
#include "bench/report.h"

struct qr_json_writer;
// Runs --pairs times against --base-url (A) and --vs (B), prints the ratios A/B of the pairs and adds "versus" and "runs"
// to the object of w. A failed request fails it: who refuses work would win.
enum qr_status bench_versus(const struct bench_args *a, struct bench_ids ids, const struct bench_limits *limits,
                            struct qr_json_writer *w, struct qr_error *err) QR_MUST_CHECK;

#endif
