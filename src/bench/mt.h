/* The Mersenne Twister with the draws of Python's `random`, so that a seed gives the load that a Python client makes of it.
 *
 * Owns: its state. Refuses to know: what is drawn for. Threads: one owner. Lifetime: the caller's.
 * Source: Matsumoto and Nishimura 1998 (MT19937); CPython's documentation of `random` for what a seed and each draw are. */
#ifndef QR_BENCH_MT_H
#define QR_BENCH_MT_H

#include <stdint.h>

struct bench_mt {
    uint32_t state[624];
    int at;
};
void bench_mt_seed(struct bench_mt *m, uint32_t seed); // random.Random(seed)
double bench_mt_unit(struct bench_mt *m);              // random(): [0, 1) with 53 bits
int64_t bench_mt_range(struct bench_mt *m, int64_t lo, int64_t end); // randrange(lo, end): lo .. end - 1; end - lo < 2^32
double bench_mt_normal(struct bench_mt *m, double mean, double sigma); // normalvariate()
double bench_mt_gamma(struct bench_mt *m, double shape);               // of scale 1; not Python's draws

#endif
