/* Figures of a sample: mean, percentiles, medians of ratios.
 *
 * Owns: growing lists of numbers. Refuses to know: units. Threads: one owner. Lifetime: {0} is empty;
 * bench_list_fini frees it. */
#ifndef QR_BENCH_STAT_H
#define QR_BENCH_STAT_H

#include <stdbool.h>
#include <stddef.h>

struct bench_list {
    double *v;
    size_t n, cap;
    bool failed; // memory: later numbers are lost
};

void bench_list_add(struct bench_list *l, double x);
void bench_list_fini(struct bench_list *l);
double bench_mean(const struct bench_list *l); // NAN of nothing
// The value that a share p of the sample is not above, between neighbours by straight line (as numpy's default);
// sorts the list. NAN of nothing.
double bench_percentile(struct bench_list *l, double p);
double bench_max(const struct bench_list *l);

#endif
