/* The plain kernels over sixteen lanes; a file that defines KERN_ISA and is built with its flags instantiates
 * them.
 *
 * Owns: rmsnorm, quantising, rope, swiglu, exp, maxima, KV writes for sets of vector instructions. Refuses to know: the width of a
 * register. Threads: pure functions. Lifetime: static. Empty without KERN_ISA. Bits are those of kern/ref on
 * every set: checkasm compares them with tolerance 0. */
#ifdef KERN_ISA

#include <string.h>

#include "kern/kern_internal.h"
#include "kern/tmpl/v16_internal.h"

void KERN(rmsnorm)(const float *x, const float *w, float eps, int n, float *y)
{
    v16 s = v16_set1(0);
    int i = 0;
    for (; i + 16 <= n; i += 16) s = v16_fma(v16_load(x + i), v16_load(x + i), s);
    if (i < n) {
        v16 a = v16_load_n(x + i, n - i);
        s = v16_fma(a, a, s);
    }
    v16 inv = v16_set1(1.0f / sqrtf(v16_sum(s) / (float)n + eps));
    for (i = 0; i + 16 <= n; i += 16)
        v16_store(y + i, v16_mul(v16_mul(v16_load(x + i), inv), v16_load(w + i)));
    if (i < n)
        v16_store_n(y + i, v16_mul(v16_mul(v16_load_n(x + i, n - i), inv), v16_load_n(w + i, n - i)), n - i);
}

// One scale over n values, n a multiple of 32. kern/ref/act_quant.c says what tiny and infinite groups
// become.
V16 float quantise(const float *x, int n, int8_t *q, int32_t *sum)
{
    v16i top16 = v16i_zero();
    for (int i = 0; i < n; i += 16) top16 = v16i_max(top16, v16i_magnitude(v16_load(x + i)));
    int32_t top = v16i_hmax(top16);
    float max;
    memcpy(&max, &top, sizeof max);
    if (top >= 0x7f800000 || max < 0x1p-100f) {
        memset(q, 0, (size_t)n);
        memset(sum, 0, (size_t)n / 32 * sizeof *sum);
        return top >= 0x7f800000 ? NAN : 0.0f;
    }
    v16 inv = v16_set1(127.0f / max);
    for (int i = 0; i < n; i += 32) {
        v16i a = v16i_round(v16_mul(v16_load(x + i), inv));
        v16i b = v16i_round(v16_mul(v16_load(x + i + 16), inv));
        v16i_store_i8(q + i, a);
        v16i_store_i8(q + i + 16, b);
        sum[i / 32] = v16i_sum(v16i_add(a, b));
    }
    return max / 127.0f;
}

void KERN(quant_g32)(const float *x, int k, int8_t *q, float *scale, int32_t *sum)
{
    for (int g = 0; g < k / 32; g++) scale[g] = quantise(x + g * 32, 32, q + g * 32, sum + g);
}

void KERN(quant_g256)(const float *x, int k, int8_t *q, float *scale, int32_t *sum)
{
    for (int g = 0; g < k / 256; g++) scale[g] = quantise(x + g * 256, 256, q + g * 256, sum + g * 8);
}

// A group of 32 to 15 bits.
V16 float quantise15(const float *x, int8_t *hi, int8_t *lo, int32_t *sum)
{
    v16 x0 = v16_load(x), x1 = v16_load(x + 16);
    int32_t top = v16i_hmax(v16i_max(v16i_magnitude(x0), v16i_magnitude(x1)));
    float max;
    memcpy(&max, &top, sizeof max);
    if (top >= 0x7f800000 || max < 0x1p-100f) {
        memset(hi, 0, 32);
        memset(lo, 0, 32);
        *sum = 0;
        return top >= 0x7f800000 ? NAN : 0.0f;
    }
    v16 inv = v16_set1(16256.0f / max);
    v16i a = v16i_round(v16_mul(x0, inv)), b = v16i_round(v16_mul(x1, inv));
    v16i_store_15(hi, lo, a);
    v16i_store_15(hi + 16, lo + 16, b);
    *sum = v16i_sum(v16i_add(a, b));
    return max / 16256.0f;
}

void KERN(quant_q15)(const float *x, int k, int8_t *hi, int8_t *lo, float *scale, int32_t *sum)
{
    for (int g = 0; g < k / 32; g++) scale[g] = quantise15(x + g * 32, hi + g * 32, lo + g * 32, sum + g);
}

void KERN(to_bf16)(const float *x, int n, uint16_t *y)
{
    int i = 0;
    for (; i + 16 <= n; i += 16)
        v16i_store_u16(y + i, v16i_bf16(v16_load(x + i)));
    if (i < n) {
        uint16_t rest[16];
        v16i_store_u16(rest, v16i_bf16(v16_load_n(x + i, n - i)));
        memcpy(y + i, rest, (size_t)(n - i) * sizeof *y);
    }
}

void KERN(rope_norm)(float *x, const float *cs, int d_rot)
{
    int i = 0;
    for (; i + 16 <= d_rot; i += 16) v16_store(x + i, v16_rotate(v16_load(x + i), v16_load(cs + i)));
    if (i < d_rot)
        v16_store_n(x + i, v16_rotate(v16_load_n(x + i, d_rot - i), v16_load_n(cs + i, d_rot - i)),
                    d_rot - i);
}

void KERN(rope_neox)(float *x, const float *cs, int d_rot)
{
    int half = d_rot / 2, i = 0;
    float *y = x + half;
    for (; i + 16 <= half; i += 16) {
        v16 a = v16_load(x + i), b = v16_load(y + i), c, s;
        v16_load_pairs(cs + 2 * i, &c, &s);
        v16_store(x + i, v16_fms(a, c, v16_mul(b, s)));
        v16_store(y + i, v16_fma(b, c, v16_mul(a, s)));
    }
    for (; i < half; i++) {
        float a = x[i], b = y[i], c = cs[2 * i], s = cs[2 * i + 1];
        x[i] = fmaf(a, c, -(b * s));
        y[i] = fmaf(b, c, a * s);
    }
}

V16 v16 silu_times(v16 gate, v16 up)
{
    v16 e = v16_exp(v16_sub(v16_set1(-0.0f), gate)); // -0 - x is -x, zeros included
    return v16_mul(v16_div(gate, v16_add(v16_set1(1.0f), e)), up);
}

void KERN(swiglu)(const float *gate, const float *up, int n, float *y)
{
    int i = 0;
    for (; i + 16 <= n; i += 16) v16_store(y + i, silu_times(v16_load(gate + i), v16_load(up + i)));
    if (i < n) v16_store_n(y + i, silu_times(v16_load_n(gate + i, n - i), v16_load_n(up + i, n - i)), n - i);
}

void KERN(vec_add)(float *y, const float *x, int n)
{
    int i = 0;
    for (; i + 16 <= n; i += 16) v16_store(y + i, v16_add(v16_load(y + i), v16_load(x + i)));
    if (i < n) v16_store_n(y + i, v16_add(v16_load_n(y + i, n - i), v16_load_n(x + i, n - i)), n - i);
}

void KERN(vec_exp)(const float *x, int n, float *y)
{
    int i = 0;
    for (; i + 16 <= n; i += 16) v16_store(y + i, v16_exp(v16_load(x + i)));
    if (i < n) v16_store_n(y + i, v16_exp(v16_load_n(x + i, n - i)), n - i);
}

/* Two passes: the largest value, then its first place. Looking for the place while comparing costs more than
 * reading the row again from L2. */
int KERN(argmax)(const float *x, int n)
{
    v16 low = v16_set1(-INFINITY), m[4] = {low, low, low, low};
    int i = 0;
    for (; i + 64 <= n; i += 64) {
        UNROLL for (int j = 0; j < 4; j++) m[j] = v16_max(v16_load(x + i + j * 16), m[j]);
    }
    for (; i + 16 <= n; i += 16) m[0] = v16_max(v16_load(x + i), m[0]);
    if (i < n) m[0] = v16_max(v16_first_or(v16_load_n(x + i, n - i), n - i, low), m[0]);
    float max = v16_hmax(v16_max(v16_max(m[0], m[1]), v16_max(m[2], m[3])));
    v16 want = v16_set1(max);
    for (i = 0; i + 16 <= n; i += 16) {
        uint32_t at = v16_eq_bits(v16_load(x + i), want);
        if (at) return i + __builtin_ctz(at);
    }
    for (; i < n; i++)
        if (x[i] == max) return i;
    return 0; // nothing but NaN
}

int KERN(chunk_max)(const float *x, int n, float *max)
{
    v16 low = v16_set1(-INFINITY);
    int c = 0;
    for (; c * 64 + 64 <= n; c++, x += 64) {
        v16 a = v16_max(v16_load(x), low), b = v16_max(v16_load(x + 16), low);
        a = v16_max(v16_load(x + 32), a), b = v16_max(v16_load(x + 48), b);
        max[c] = v16_hmax(v16_max(a, b));
    }
    int left = n - c * 64;
    if (left == 0) return c;
    v16 m = low;
    for (; left >= 16; left -= 16, x += 16) m = v16_max(v16_load(x), m);
    if (left > 0) m = v16_max(v16_first_or(v16_load_n(x, left), left, low), m);
    max[c] = v16_hmax(m);
    return c + 1;
}

float KERN(sum_exp)(const float *x, int n, float max)
{
    v16 m = v16_set1(max), s = v16_set1(0);
    int i = 0;
    for (; i + 16 <= n; i += 16) s = v16_add(s, v16_exp(v16_sub(v16_load(x + i), m)));
    if (i < n) {
        v16 e = v16_exp(v16_sub(v16_load_n(x + i, n - i), m));
        s = v16_add(s, v16_first_or(e, n - i, v16_set1(0)));
    }
    return v16_sum(s);
}

#endif
