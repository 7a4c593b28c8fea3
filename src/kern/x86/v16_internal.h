/* Sixteen float32 lanes, the shape in which every kernel of kern/ref is specified.
 *
 * Owns: what both spellings of the lanes share: horizontal sums, exp. Refuses to know: kernels.
 * Threads: pure functions. Lifetime: static. Empty where the file is built for neither set.
 *
 * A kernel written in these has the same bits on AVX2 and AVX-512: each operation rounds as its scalar twin
 * does, and the horizontal ones follow the tree of kern/ref. */
#ifndef QR_KERN_X86_V16_INTERNAL_H
#define QR_KERN_X86_V16_INTERNAL_H

#if defined(__AVX2__) && defined(__FMA__)

#include <immintrin.h>
#include <math.h>
#include <stdint.h>

#include "kern/ref/ref_internal.h" // constants of exp

#define V16 static inline __attribute__((always_inline))
#define V16_JOIN3(a, b, c) a##_##b##_##c
#define V16_JOIN(a, b, c) V16_JOIN3(a, b, c)
#define KERN(slot) V16_JOIN(kern, slot, KERN_ISA) // kern_<slot>_<isa>
#define UNROLL _Pragma("GCC unroll 16")

#if defined(__AVX512F__)
#include "kern/x86/v16_avx512_internal.h"
#else
#include "kern/x86/v16_avx2_internal.h"
#endif

// The tree of N5: lanes 8 apart, 4, 2, 1.
V16 float v16_sum(v16 a)
{
    __m256 s8 = _mm256_add_ps(v16_lo(a), v16_hi(a));
    __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}

V16 float v16_hmax(v16 a)
{
    __m256 s8 = _mm256_max_ps(v16_lo(a), v16_hi(a));
    __m128 s4 = _mm_max_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    __m128 s2 = _mm_max_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_max_ss(s2, _mm_movehdup_ps(s2)));
}

V16 int32_t v16i_sum(v16i a)
{
    __m256i s8 = _mm256_add_epi32(v16i_lo(a), v16i_hi(a));
    __m128i s4 = _mm_add_epi32(_mm256_castsi256_si128(s8), _mm256_extracti128_si256(s8, 1));
    __m128i s2 = _mm_add_epi32(s4, _mm_shuffle_epi32(s4, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s2, _mm_shuffle_epi32(s2, 0xb1)));
}

V16 int32_t v16i_hmax(v16i a)
{
    __m256i s8 = _mm256_max_epi32(v16i_lo(a), v16i_hi(a));
    __m128i s4 = _mm_max_epi32(_mm256_castsi256_si128(s8), _mm256_extracti128_si256(s8, 1));
    __m128i s2 = _mm_max_epi32(s4, _mm_shuffle_epi32(s4, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(s2, _mm_shuffle_epi32(s2, 0xb1)));
}

// The polynomial of kern/ref/ref_internal.h for lanes that are not above 88.37.
V16 v16 v16_exp_small(v16 x)
{
    v16 t = v16_fma(x, v16_set1(REF_EXP_LOG2E), v16_set1(REF_EXP_ROUND));
    v16 n = v16_sub(t, v16_set1(REF_EXP_ROUND));
    v16 r = v16_fnma(n, v16_set1(REF_EXP_LN2_HI), x);
    r = v16_fnma(n, v16_set1(REF_EXP_LN2_LO), r);
    v16 p = v16_fma(v16_set1(REF_EXP_C6), r, v16_set1(REF_EXP_C5));
    p = v16_fma(p, r, v16_set1(REF_EXP_C4));
    p = v16_fma(p, r, v16_set1(REF_EXP_C3));
    p = v16_fma(p, r, v16_set1(REF_EXP_C2));
    p = v16_fma(p, r, v16_set1(1.0f));
    p = v16_fma(p, r, v16_set1(1.0f));
    return v16_where_lt(x, REF_EXP_LO, 0.0f, v16_mul(p, v16_exp2_of_sum(t)));
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
