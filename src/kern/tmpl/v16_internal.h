/* Sixteen float32 lanes, the shape in which every kernel of kern/ref is specified.
 *
 * Owns: what all spellings of the lanes share: exp, a scale. Refuses to know: kernels.
 * Threads: pure functions. Lifetime: static. Empty where the file is built for no vector set.
 *
 * A kernel written in these has the same bits on AVX2, AVX-512 and NEON: each operation rounds as its scalar twin
 * does, and the horizontal ones follow the tree of kern/ref (N5: lanes 8 apart, 4, 2, 1). */
#ifndef QR_KERN_TMPL_V16_INTERNAL_H
#define QR_KERN_TMPL_V16_INTERNAL_H

#if (defined(__AVX2__) && defined(__FMA__)) || defined(__aarch64__)

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kern/ref/ref_internal.h" // constants of exp

#define V16 static inline __attribute__((always_inline))
#define V16_JOIN3(a, b, c) a##_##b##_##c
#define V16_JOIN(a, b, c) V16_JOIN3(a, b, c)
#define KERN(slot) V16_JOIN(kern, slot, KERN_ISA) // kern_<slot>_<isa>
#define UNROLL _Pragma("GCC unroll 16")

#if defined(__aarch64__)
#include "kern/arm/v16_neon_internal.h"
#else
#include "kern/x86/v16_x86_internal.h"
#endif

// exp(x) as p * 2^n: the polynomial p of kern/ref/ref_internal.h for lanes that are not above 88.37. *t is n + REF_EXP_ROUND.
V16 v16 v16_exp_parts(v16 x, v16 *t)
{
    *t = v16_fma(x, v16_set1(REF_EXP_LOG2E), v16_set1(REF_EXP_ROUND));
    v16 n = v16_sub(*t, v16_set1(REF_EXP_ROUND));
    v16 r = v16_fnma(n, v16_set1(REF_EXP_LN2_HI), x);
    r = v16_fnma(n, v16_set1(REF_EXP_LN2_LO), r);
    v16 p = v16_fma(v16_set1(REF_EXP_C6), r, v16_set1(REF_EXP_C5));
    p = v16_fma(p, r, v16_set1(REF_EXP_C4));
    p = v16_fma(p, r, v16_set1(REF_EXP_C3));
    p = v16_fma(p, r, v16_set1(REF_EXP_C2));
    p = v16_fma(p, r, v16_set1(1.0f));
    return v16_fma(p, r, v16_set1(1.0f));
}

V16 v16 v16_exp_small(v16 x)
{
    v16 t, p = v16_exp_parts(x, &t);
    return v16_where_lt(x, REF_EXP_LO, 0.0f, v16_mul(p, v16_exp2_of_sum(t)));
}

/* A scale for numbers of this largest magnitude (as v16i_magnitude gives it) so that the largest becomes `top`: see
 * ref_token_scale. *inverse 0: all are zero, or one is not a number. */
V16 float v16_scale_of(v16i most, float top, float *inverse)
{
    uint32_t bits = (uint32_t)v16i_hmax(most); // magnitudes compare as integers
    float m;
    memcpy(&m, &bits, sizeof m);
    *inverse = 0;
    if (bits >= 0x7f800000) return NAN;
    if (m < 0x1p-100f) return 0;
    *inverse = top / m;
    return m / top;
}

// To what float16 holds, a NaN kept.
V16 v16 v16_clamp_f16(v16 x)
{
    x = v16_where_gt(x, 65504.0f, 65504.0f, x);
    return v16_where_lt(x, -65504.0f, -65504.0f, x);
}

V16 v16 v16_exp(v16 x)
{
    return v16_where_gt(x, REF_EXP_HI, INFINITY, v16_exp_small(x));
}

#endif
#endif
