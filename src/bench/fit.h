/* A cost table from measured steps (DESIGN 4): the seven numbers with which
 *   max(floor, fixed + rows) + prompt fixed + prompt rows in tiles of 16 + context + query x context
 * comes closest to the times, in relative terms. None is below 0.
 *
 * Owns: the arithmetic. Refuses to know: how steps were made. Threads: pure. Lifetime: values. */
#ifndef QR_BENCH_FIT_H
#define QR_BENCH_FIT_H

#include <stddef.h>

#include <stdbool.h>

#include "core/costs.h"

struct fit_sample {
    struct qr_work work;
    double ns;
};
// false: the samples do not tell the numbers apart.
bool fit_costs(const struct fit_sample *samples, size_t n, struct qr_costs *out);
// |predicted - measured| / measured of a sample.
double fit_error(const struct qr_costs *c, const struct fit_sample *s);

#endif
