/* Sixteen float32 lanes in two registers of AVX2.
 *
 * Owns: the type v16 and its operations. Refuses to know: kernels. Threads: pure functions. Lifetime: static.
 * Included by tmpl/v16_internal.h alone, through v16_x86_internal.h. */
#ifndef QR_KERN_X86_V16_AVX2_INTERNAL_H
#define QR_KERN_X86_V16_AVX2_INTERNAL_H

#if defined(__AVX2__) && defined(__FMA__)

#include <immintrin.h>
#include <stdint.h>

// One operation a line reads as a table.
// clang-format off
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
V16 v16i v16i_add(v16i a, v16i b)
{
    return (v16i){_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
V16 v16i v16i_max(v16i a, v16i b)
{
    return (v16i){_mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)};
}
V16 v16i v16i_magnitude(v16 a)
{
    __m256i m = _mm256_set1_epi32(0x7fffffff);
    return (v16i){_mm256_and_si256(_mm256_castps_si256(a.lo), m),
                  _mm256_and_si256(_mm256_castps_si256(a.hi), m)};
}
V16 v16i v16i_set1(int32_t x) { return (v16i){_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
V16 v16 v16i_to_v16(v16i a) { return (v16){_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
V16 v16i v16i_round(v16 a) { return (v16i){_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }
V16 __m256i v16i_pack_u16(v16i a) // lanes below 2^16
{
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(a.lo, a.hi), 0xd8);
}
V16 void v16i_store_i8(int8_t *p, v16i a) // lanes within int8
{
    __m256i w = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.lo, a.hi), 0xd8);
    __m128i b = _mm_packs_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1));
    _mm_storeu_si128((__m128i *)p, b);
}
V16 v16i v16i_upper_15(v16i a)
{
    __m256i half = _mm256_set1_epi32(64);
    return (v16i){_mm256_srai_epi32(_mm256_add_epi32(a.lo, half), 7),
                  _mm256_srai_epi32(_mm256_add_epi32(a.hi, half), 7)};
}
V16 void v16i_store_15(int8_t *hi, int8_t *lo, v16i a) // lanes within 128 * 127, as 128 * hi + lo
{
    v16i up = v16i_upper_15(a);
    v16i_store_i8(hi, up);
    v16i_store_i8(lo, (v16i){_mm256_sub_epi32(a.lo, _mm256_slli_epi32(up.lo, 7)),
                             _mm256_sub_epi32(a.hi, _mm256_slli_epi32(up.hi, 7))});
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
V16 __m256i v16i_fp8_8(__m256 y)
{
    __m256i u = _mm256_castps_si256(y), mag = _mm256_and_si256(u, _mm256_set1_epi32(0x7fffffff));
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(mag, 20), _mm256_set1_epi32(1));
    __m256i r = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(mag, _mm256_set1_epi32(0x7ffff)), odd), 20);
    r = _mm256_sub_epi32(r, _mm256_set1_epi32(112 << 3));
    __m256 m = _mm256_castsi256_ps(mag);
    __m256i least = _mm256_and_si256(_mm256_castps_si256(_mm256_cmp_ps(m, _mm256_set1_ps(0x1p-15f), _CMP_GT_OQ)),
                                     _mm256_set1_epi32(8));
    r = _mm256_blendv_epi8(r, least, _mm256_castps_si256(_mm256_cmp_ps(m, _mm256_set1_ps(0x1p-14f), _CMP_LT_OQ)));
    return _mm256_or_si256(r, _mm256_and_si256(_mm256_srli_epi32(u, 24), _mm256_set1_epi32(0x80)));
}
V16 v16i v16i_fp8(v16 y) { return (v16i){v16i_fp8_8(y.lo), v16i_fp8_8(y.hi)}; }
V16 void v16i_store_u8(uint8_t *p, v16i a) // the low bytes of lanes within 0 .. 255
{
    __m256i w = v16i_pack_u16(a);
    _mm_storeu_si128((__m128i *)p, _mm_packus_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1)));
}
V16 void v16_store_f16(uint16_t *p, v16 a)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
}
V16 v16 v16i_f32_of_bf16(v16i h)
{
    return (v16){_mm256_castsi256_ps(_mm256_slli_epi32(h.lo, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(h.hi, 16))};
}
V16 v16i v16i_bf16(v16 x) { return (v16i){v16i_bf16_8(x.lo), v16i_bf16_8(x.hi)}; }
V16 v16 v16_load_f16(const uint8_t *p)
{
    return (v16){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p)),
                 _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p + 16)))};
}
V16 __m256 v16_bf16_of_2(const uint8_t *p, int upper)
{
    __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return _mm256_castsi256_ps(upper ? _mm256_and_si256(a, _mm256_set1_epi32((int)0xffff0000)) : _mm256_slli_epi32(a, 16));
}
V16 v16 v16_load_bf16_of_2(const uint8_t *p, int upper)
{
    return (v16){v16_bf16_of_2(p, upper), v16_bf16_of_2(p + 32, upper)};
}
V16 __m256 v16_fp8_of_4(const uint8_t *p, int i)
{
    __m256i x = _mm256_slli_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p), 24 - 8 * i);
    x = _mm256_and_si256(_mm256_srai_epi32(x, 4), _mm256_set1_epi32((int)0x87f00000));
    return _mm256_mul_ps(_mm256_castsi256_ps(x), _mm256_set1_ps(0x1p112f));
}
V16 v16 v16_load_fp8_of_4(const uint8_t *p, int i) { return (v16){v16_fp8_of_4(p, i), v16_fp8_of_4(p + 32, i)}; }
// clang-format on

#endif
#endif
