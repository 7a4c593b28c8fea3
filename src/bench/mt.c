#include "bench/mt.h"

#include <math.h>

#define N 624
#define M 397

static void start(struct bench_mt *m, uint32_t seed)
{
    m->state[0] = seed;
    for (uint32_t i = 1; i < N; i++)
        m->state[i] = 1812433253u * (m->state[i - 1] ^ (m->state[i - 1] >> 30)) + i;
    m->at = N;
}

// The published seeding by an array, of one key: that is what a small whole number is to Python.
void bench_mt_seed(struct bench_mt *m, uint32_t seed)
{
    uint32_t *s = m->state, i = 1;
    start(m, 19650218u);
    for (int k = 0; k < N; k++) {
        s[i] = (s[i] ^ ((s[i - 1] ^ (s[i - 1] >> 30)) * 1664525u)) + seed;
        if (++i == N) s[0] = s[N - 1], i = 1;
    }
    for (int k = 0; k < N - 1; k++) {
        s[i] = (s[i] ^ ((s[i - 1] ^ (s[i - 1] >> 30)) * 1566083941u)) - i;
        if (++i == N) s[0] = s[N - 1], i = 1;
    }
    s[0] = 0x80000000u;
}

static uint32_t next_u32(struct bench_mt *m)
{
    uint32_t *s = m->state;
    if (m->at == N) {
        for (int i = 0; i < N; i++) {
            uint32_t y = (s[i] & 0x80000000u) | (s[(i + 1) % N] & 0x7fffffffu);
            s[i] = s[(i + M) % N] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
        }
        m->at = 0;
    }
    uint32_t y = s[m->at++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

double bench_mt_unit(struct bench_mt *m)
{
    uint32_t a = next_u32(m) >> 5, b = next_u32(m) >> 6;
    return (a * 67108864.0 + b) / 9007199254740992.0;
}

// As many top bits as the width of the range has, until they lie within it.
int64_t bench_mt_range(struct bench_mt *m, int64_t lo, int64_t end)
{
    uint32_t n = (uint32_t)(end - lo), r;
    if (n == 0) return lo;
    int bits = 32 - __builtin_clz(n);
    do r = next_u32(m) >> (32 - bits);
    while (r >= n);
    return lo + r;
}

// Kinderman and Monahan's ratio of uniforms.
double bench_mt_normal(struct bench_mt *m, double mean, double sigma)
{
    const double magic = 4 * exp(-0.5) / sqrt(2.0);
    for (;;) {
        double u1 = bench_mt_unit(m), u2 = 1.0 - bench_mt_unit(m);
        double z = magic * (u1 - 0.5) / u2;
        if (z * z / 4.0 <= -log(u2)) return mean + z * sigma;
    }
}

// Marsaglia and Tsang 2000; below 1 by the power of a uniform.
double bench_mt_gamma(struct bench_mt *m, double shape)
{
    if (shape < 1) return bench_mt_gamma(m, shape + 1) * pow(1.0 - bench_mt_unit(m), 1 / shape);
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = bench_mt_normal(m, 0, 1), v = 1 + c * x;
        if (v <= 0) continue;
        v = v * v * v;
        if (log(1.0 - bench_mt_unit(m)) < 0.5 * x * x + d - d * v + d * log(v)) return d * v;
    }
}
