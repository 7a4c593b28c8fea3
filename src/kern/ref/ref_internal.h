/* Arithmetic that every kernel shares, in plain C: this file and its neighbours are the specification.
 *
 * Owns: the exp polynomial and the 16-lane tree. Refuses to know: instruction sets. Threads: pure
 * functions. Lifetime: static.
 *
 * Each fused multiply-add is written fmaf; everything else rounds after every operation (-ffp-
 * contract=off). */
#ifndef QR_KERN_REF_INTERNAL_H
#define QR_KERN_REF_INTERNAL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kern/half.h"

#define REF_LANES 16

/* Lanes are added in halves: 8 apart, 4, 2, 1 (N5). A vector unit does the same with shuffles. */
static inline float ref_tree_sum(const float lane[REF_LANES])
{
    float s[REF_LANES];
    memcpy(s, lane, sizeof s);
    for (int half = REF_LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) s[i] += s[i + half];
    return s[0];
}

/* exp(x) = 2^n * exp(r), n = rint(x * log2 e), |r| <= ln 2 / 2.
 *
 * n comes from adding 1.5 * 2^23, which leaves it in the low bits of the sum; r takes ln 2 in two parts,
 * the upper with 9 trailing zero bits so that n * LN2_HI is exact. exp(r) = 1 + r + r^2 (C2 + C3 r + C4 r^2
 * + C5 r^3 + C6 r^4): the C are the minimax fit of the relative error over the interval (least squares,
 * reweighted by the error until it is level), each rounded to float32 in turn and the rest fitted again:
 * 3.2e-9 before rounding of the operations. Measured over [-87.3, 88.37]: at most 0.87 ulp, 7.5e-8
 * relative. Below -87.3 the result is 0 and above 88.37 it is infinite, so no step meets a denormal. A NaN
 * stays NaN. */
#define REF_EXP_LO -87.3f
#define REF_EXP_HI 88.37f
#define REF_EXP_LOG2E 0x1.715476p+0f
#define REF_EXP_ROUND 12582912.0f
#define REF_EXP_LN2_HI 0x1.62e4p-1f
#define REF_EXP_LN2_LO 0x1.7f7d1cp-20f
#define REF_EXP_C2 0x1.fffffcp-2f
#define REF_EXP_C3 0x1.555492p-3f
#define REF_EXP_C4 0x1.5558bp-5f
#define REF_EXP_C5 0x1.123986p-7f
#define REF_EXP_C6 0x1.6a4cb4p-10f

static inline float ref_exp(float x)
{
    if (x < REF_EXP_LO) return 0.0f;
    if (x > REF_EXP_HI) return INFINITY;
    float t = fmaf(x, REF_EXP_LOG2E, REF_EXP_ROUND);
    float n = t - REF_EXP_ROUND;
    float r = fmaf(n, -REF_EXP_LN2_HI, x);
    r = fmaf(n, -REF_EXP_LN2_LO, r);
    float p = fmaf(REF_EXP_C6, r, REF_EXP_C5);
    p = fmaf(p, r, REF_EXP_C4);
    p = fmaf(p, r, REF_EXP_C3);
    p = fmaf(p, r, REF_EXP_C2);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    return p * qr_f32_of_bits((qr_bits_of_f32(t) + 127) << 23); // the bits above n leave the word
}

#endif
