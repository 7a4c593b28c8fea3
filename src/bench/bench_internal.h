/* What the files of the room share: the functions that bench.def names.
 *
 * Owns: nothing. Refuses to know: how a measurement works. Threads: see bench.h. Lifetime: static. */
#ifndef QR_BENCH_BENCH_INTERNAL_H
#define QR_BENCH_BENCH_INTERNAL_H

#include "bench/bench.h"

#define QR_BENCH(name, model, args, summary)                                                                  \
    enum qr_status bench_##name(const struct bench_args *a, struct qr_error *err) QR_MUST_CHECK;              \
    extern const char bench_##name##_help[];
#include "bench/bench.def"
#undef QR_BENCH

#endif
