/* Activations to int8 (N2). Every group is a function of its own values alone. */
#include "kern/kern_internal.h"
#include "kern/ref/ref_internal.h"

/* A group whose largest value is below 2^-100 is zero: 127 / max would not be finite, and no weight brings
 * such values back. A group that holds a NaN or an infinity gets the scale NaN and zeros, so that the
 * output is NaN in all kernels instead of whatever a conversion gives. */
#define TINY 0x1p-100f

/* Scales n values so that their largest becomes `most`; returns what one of the integers
 * stands for. They go to hi where lo is NULL; else v = 128 * hi + lo. */
static float quantise(const float *x, int n, float most, int8_t *hi, int8_t *lo)
{
    uint32_t top = 0; // magnitudes compare as integers, with NaN above infinity above all numbers
    for (int i = 0; i < n; i++) {
        uint32_t u = qr_bits_of_f32(x[i]) & 0x7fffffff;
        if (u > top) top = u;
    }
    float max = qr_f32_of_bits(top);
    if (top >= 0x7f800000 || max < TINY) {
        memset(hi, 0, (size_t)n);
        if (lo) memset(lo, 0, (size_t)n);
        return top >= 0x7f800000 ? NAN : 0.0f;
    }
    float inv = most / max;
    for (int i = 0; i < n; i++) {
        int v = (int)lrintf(x[i] * inv); // ties to even
        int up = lo ? (v + 64) >> 7 : v;
        hi[i] = (int8_t)up;
        if (lo) lo[i] = (int8_t)(v - up * 128);
    }
    return max / most;
}

static int32_t sum32(const int8_t *q)
{
    int32_t s = 0;
    for (int i = 0; i < 32; i++) s += q[i];
    return s;
}

void kern_quant_g32_ref(const float *x, int k, int8_t *q, float *scale, int32_t *sum)
{
    for (int g = 0; g < k / 32; g++) {
        scale[g] = quantise(x + g * 32, 32, 127, q + g * 32, NULL);
        sum[g] = sum32(q + g * 32);
    }
}

void kern_quant_g256_ref(const float *x, int k, int8_t *q, float *scale, int32_t *sum)
{
    for (int g = 0; g < k / 256; g++) scale[g] = quantise(x + g * 256, 256, 127, q + g * 256, NULL);
    for (int g = 0; g < k / 32; g++) sum[g] = sum32(q + g * 32);
}

void kern_quant_q15_ref(const float *x, int k, int8_t *hi, int8_t *lo, float *scale, int32_t *sum)
{
    for (int g = 0; g < k / 32; g++) {
        scale[g] = quantise(x + g * 32, 32, 16256, hi + g * 32, lo + g * 32);
        sum[g] = 128 * sum32(hi + g * 32) + sum32(lo + g * 32);
    }
}

void kern_to_bf16_ref(const float *x, int n, uint16_t *y)
{
    for (int i = 0; i < n; i++) y[i] = qr_bf16_of_f32(x[i]);
}
