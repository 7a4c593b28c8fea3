/* Sixteen float32 lanes, the shape in which every kernel of kern/ref is specified.
 *
 * Owns: the spelling of lane operations for AVX-512 (one register) and AVX2 (two). Refuses to know: kernels.
 * Threads: pure functions. Lifetime: static. Empty where the file is built for neither set.
 *
 * A kernel written in these has the same bits on both sets: each operation rounds as its scalar twin does, and the
 * horizontal ones follow the tree of kern/ref. */
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

typedef __m512 v16;
typedef __m512i v16i;

V16 __mmask16 v16_first(int n) // the first n lanes, 0 <= n <= 16
{
    return (__mmask16)((1u << n) - 1);
}
V16 v16 v16_set1(float x) { return _mm512_set1_ps(x); }
V16 v16 v16_load(const float *p) { return _mm512_loadu_ps(p); }
V16 void v16_store(float *p, v16 a) { _mm512_storeu_ps(p, a); }
V16 v16 v16_load_n(const float *p, int n) { return _mm512_maskz_loadu_ps(v16_first(n), p); }
V16 void v16_store_n(float *p, v16 a, int n) { _mm512_mask_storeu_ps(p, v16_first(n), a); }
V16 v16 v16_add(v16 a, v16 b) { return _mm512_add_ps(a, b); }
V16 v16 v16_sub(v16 a, v16 b) { return _mm512_sub_ps(a, b); }
V16 v16 v16_mul(v16 a, v16 b) { return _mm512_mul_ps(a, b); }
V16 v16 v16_div(v16 a, v16 b) { return _mm512_div_ps(a, b); }
V16 v16 v16_fma(v16 a, v16 b, v16 c) { return _mm512_fmadd_ps(a, b, c); }
V16 v16 v16_fnma(v16 a, v16 b, v16 c) { return _mm512_fnmadd_ps(a, b, c); }
V16 v16 v16_fms(v16 a, v16 b, v16 c) { return _mm512_fmsub_ps(a, b, c); }
V16 v16 v16_max(v16 a, v16 b) { return _mm512_max_ps(a, b); } // b where either is NaN
V16 v16 v16_first_or(v16 a, int n, v16 rest) { return _mm512_mask_mov_ps(rest, v16_first(n), a); }
V16 v16 v16_where_lt(v16 a, float bound, float then, v16 otherwise)
{
    return _mm512_mask_mov_ps(otherwise, _mm512_cmp_ps_mask(a, v16_set1(bound), _CMP_LT_OQ), v16_set1(then));
}
V16 v16 v16_where_gt(v16 a, float bound, float then, v16 otherwise)
{
    return _mm512_mask_mov_ps(otherwise, _mm512_cmp_ps_mask(a, v16_set1(bound), _CMP_GT_OQ), v16_set1(then));
}
V16 uint32_t v16_eq_bits(v16 a, v16 b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
V16 __m256 v16_lo(v16 a) { return _mm512_castps512_ps256(a); }
V16 __m256 v16_hi(v16 a) { return _mm512_extractf32x8_ps(a, 1); }
// 2^n where t = 1.5 * 2^23 + n.
V16 v16 v16_exp2_of_sum(v16 t)
{
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_add_epi32(_mm512_castps_si512(t), _mm512_set1_epi32(127)), 23));
}
// Even and odd members of 16 pairs.
V16 void v16_load_pairs(const float *p, v16 *even, v16 *odd)
{
    const __m512i e = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    v16 a = v16_load(p), b = v16_load(p + 16);
    *even = _mm512_permutex2var_ps(a, e, b);
    *odd = _mm512_permutex2var_ps(a, _mm512_or_si512(e, _mm512_set1_epi32(1)), b);
}
// Eight complex products x * cs; see kern/ref/rope.c for the order of operations.
V16 v16 v16_rotate(v16 x, v16 cs)
{
    v16 y = _mm512_mul_ps(_mm512_permute_ps(x, 0xb1), _mm512_movehdup_ps(cs));
    return _mm512_fmaddsub_ps(x, _mm512_moveldup_ps(cs), y);
}

V16 v16i v16i_zero(void) { return _mm512_setzero_si512(); }
V16 v16i v16i_add(v16i a, v16i b) { return _mm512_add_epi32(a, b); }
V16 v16i v16i_max(v16i a, v16i b) { return _mm512_max_epi32(a, b); }
V16 v16i v16i_magnitude(v16 a) { return _mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32(0x7fffffff)); }
V16 v16i v16i_round(v16 a) { return _mm512_cvtps_epi32(a); }
V16 void v16i_store_i8(int8_t *p, v16i a) { _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(a)); }
V16 __m256i v16i_lo(v16i a) { return _mm512_castsi512_si256(a); }
V16 __m256i v16i_hi(v16i a) { return _mm512_extracti64x4_epi64(a, 1); }
// bf16 of every lane in its low half, as kern/ref rounds; the high half is zero.
V16 v16i v16i_bf16(v16 x)
{
    v16i u = _mm512_castps_si512(x);
    v16i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    v16i r = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    v16i quiet = _mm512_or_si512(u, _mm512_set1_epi32(0x400000));
    return _mm512_srli_epi32(_mm512_mask_mov_epi32(r, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), quiet), 16);
}
V16 __m256i v16i_pack_u16(v16i a) { return _mm512_cvtepi32_epi16(a); }

#else

typedef struct {
    __m256 lo, hi;
} v16;
typedef struct {
    __m256i lo, hi;
} v16i;

V16 __m256i v16_first8(int n) // all ones in the first n of 8 lanes; any n
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
V16 v16 v16_set1(float x) { return (v16){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
V16 v16 v16_load(const float *p) { return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
V16 void v16_store(float *p, v16 a)
{
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}
V16 v16 v16_load_n(const float *p, int n)
{
    return (v16){_mm256_maskload_ps(p, v16_first8(n)), _mm256_maskload_ps(p + 8, v16_first8(n - 8))};
}
V16 void v16_store_n(float *p, v16 a, int n)
{
    _mm256_maskstore_ps(p, v16_first8(n), a.lo);
    _mm256_maskstore_ps(p + 8, v16_first8(n - 8), a.hi);
}
V16 v16 v16_add(v16 a, v16 b) { return (v16){_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
V16 v16 v16_sub(v16 a, v16 b) { return (v16){_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
V16 v16 v16_mul(v16 a, v16 b) { return (v16){_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
V16 v16 v16_div(v16 a, v16 b) { return (v16){_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
V16 v16 v16_fma(v16 a, v16 b, v16 c)
{
    return (v16){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
V16 v16 v16_fnma(v16 a, v16 b, v16 c)
{
    return (v16){_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)};
}
V16 v16 v16_fms(v16 a, v16 b, v16 c)
{
    return (v16){_mm256_fmsub_ps(a.lo, b.lo, c.lo), _mm256_fmsub_ps(a.hi, b.hi, c.hi)};
}
V16 v16 v16_max(v16 a, v16 b) { return (v16){_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
V16 v16 v16_first_or(v16 a, int n, v16 rest)
{
    return (v16){_mm256_blendv_ps(rest.lo, a.lo, _mm256_castsi256_ps(v16_first8(n))),
                 _mm256_blendv_ps(rest.hi, a.hi, _mm256_castsi256_ps(v16_first8(n - 8)))};
}
V16 v16 v16_where_lt(v16 a, float bound, float then, v16 otherwise)
{
    __m256 b = _mm256_set1_ps(bound), t = _mm256_set1_ps(then);
    return (v16){_mm256_blendv_ps(otherwise.lo, t, _mm256_cmp_ps(a.lo, b, _CMP_LT_OQ)),
                 _mm256_blendv_ps(otherwise.hi, t, _mm256_cmp_ps(a.hi, b, _CMP_LT_OQ))};
}
V16 v16 v16_where_gt(v16 a, float bound, float then, v16 otherwise)
{
    __m256 b = _mm256_set1_ps(bound), t = _mm256_set1_ps(then);
    return (v16){_mm256_blendv_ps(otherwise.lo, t, _mm256_cmp_ps(a.lo, b, _CMP_GT_OQ)),
                 _mm256_blendv_ps(otherwise.hi, t, _mm256_cmp_ps(a.hi, b, _CMP_GT_OQ))};
}
V16 uint32_t v16_eq_bits(v16 a, v16 b)
{
    uint32_t lo = (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(a.lo, b.lo, _CMP_EQ_OQ));
    uint32_t hi = (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(a.hi, b.hi, _CMP_EQ_OQ));
    return lo | hi << 8;
}
V16 __m256 v16_lo(v16 a) { return a.lo; }
V16 __m256 v16_hi(v16 a) { return a.hi; }
V16 __m256 v16_exp2_of_sum8(__m256 t)
{
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_castps_si256(t), _mm256_set1_epi32(127)), 23));
}
V16 v16 v16_exp2_of_sum(v16 t) { return (v16){v16_exp2_of_sum8(t.lo), v16_exp2_of_sum8(t.hi)}; }
V16 __m256 v16_every_other(__m256 a, __m256 b, int odd)
{
    __m256 s = odd ? _mm256_shuffle_ps(a, b, 0xdd) : _mm256_shuffle_ps(a, b, 0x88);
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(s), 0xd8));
}
V16 void v16_load_pairs(const float *p, v16 *even, v16 *odd)
{
    v16 a = v16_load(p), b = v16_load(p + 16);
    *even = (v16){v16_every_other(a.lo, a.hi, 0), v16_every_other(b.lo, b.hi, 0)};
    *odd = (v16){v16_every_other(a.lo, a.hi, 1), v16_every_other(b.lo, b.hi, 1)};
}
V16 __m256 v16_rotate8(__m256 x, __m256 cs)
{
    __m256 y = _mm256_mul_ps(_mm256_permute_ps(x, 0xb1), _mm256_movehdup_ps(cs));
    return _mm256_fmaddsub_ps(x, _mm256_moveldup_ps(cs), y);
}
V16 v16 v16_rotate(v16 x, v16 cs) { return (v16){v16_rotate8(x.lo, cs.lo), v16_rotate8(x.hi, cs.hi)}; }

V16 v16i v16i_zero(void) { return (v16i){_mm256_setzero_si256(), _mm256_setzero_si256()}; }
V16 v16i v16i_add(v16i a, v16i b) { return (v16i){_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)}; }
V16 v16i v16i_max(v16i a, v16i b) { return (v16i){_mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)}; }
V16 v16i v16i_magnitude(v16 a)
{
    __m256i m = _mm256_set1_epi32(0x7fffffff);
    return (v16i){_mm256_and_si256(_mm256_castps_si256(a.lo), m), _mm256_and_si256(_mm256_castps_si256(a.hi), m)};
}
V16 v16i v16i_round(v16 a) { return (v16i){_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }
V16 __m256i v16i_pack_u16(v16i a) // lanes below 2^16
{
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(a.lo, a.hi), 0xd8);
}
V16 void v16i_store_i8(int8_t *p, v16i a) // lanes within int8
{
    __m256i w = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.lo, a.hi), 0xd8);
    _mm_storeu_si128((__m128i *)p, _mm_packs_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1)));
}
V16 __m256i v16i_lo(v16i a) { return a.lo; }
V16 __m256i v16i_hi(v16i a) { return a.hi; }
V16 __m256i v16i_bf16_8(__m256 x)
{
    __m256i u = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
    __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_srli_epi32(_mm256_blendv_epi8(r, quiet, nan), 16);
}
V16 v16i v16i_bf16(v16 x) { return (v16i){v16i_bf16_8(x.lo), v16i_bf16_8(x.hi)}; }

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

V16 v16 v16_exp(v16 x)
{
    return v16_where_gt(x, REF_EXP_HI, INFINITY, v16_exp_small(x));
}

#endif
#endif
