/* Sixteen float32 lanes in one register of AVX-512.
 *
 * Owns: the type v16 and its operations. Refuses to know: kernels. Threads: pure functions. Lifetime: static.
 * Included by tmpl/v16_internal.h alone, through v16_x86_internal.h. */
#ifndef QR_KERN_X86_V16_AVX512_INTERNAL_H
#define QR_KERN_X86_V16_AVX512_INTERNAL_H

#if defined(__AVX512F__)

#include <immintrin.h>
#include <stdint.h>

// One operation a line reads as a table.
// clang-format off
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
V16 v16i v16i_magnitude(v16 a)
{
    return _mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32(0x7fffffff));
}
V16 v16i v16i_set1(int32_t x) { return _mm512_set1_epi32(x); }
V16 v16 v16i_to_v16(v16i a) { return _mm512_cvtepi32_ps(a); }
V16 v16i v16i_round(v16 a) { return _mm512_cvtps_epi32(a); }
V16 void v16i_store_i8(int8_t *p, v16i a) { _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(a)); }
V16 void v16i_store_15(int8_t *hi, int8_t *lo, v16i a) // lanes within 128 * 127, as 128 * hi + lo
{
    v16i up = _mm512_srai_epi32(_mm512_add_epi32(a, _mm512_set1_epi32(64)), 7);
    v16i_store_i8(hi, up);
    v16i_store_i8(lo, _mm512_sub_epi32(a, _mm512_slli_epi32(up, 7)));
}
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
// fp8 codes of lanes up to 1.75, as kern/kvtype/fp8.c rounds, in their low bytes.
V16 v16i v16i_fp8(v16 y)
{
    v16i u = _mm512_castps_si512(y), mag = v16i_magnitude(y);
    v16i odd = _mm512_and_si512(_mm512_srli_epi32(mag, 20), _mm512_set1_epi32(1));
    v16i r = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(mag, _mm512_set1_epi32(0x7ffff)), odd), 20);
    r = _mm512_sub_epi32(r, _mm512_set1_epi32(112 << 3));
    v16 m = _mm512_castsi512_ps(mag);
    v16i least = _mm512_maskz_set1_epi32(_mm512_cmp_ps_mask(m, v16_set1(0x1p-15f), _CMP_GT_OQ), 8);
    r = _mm512_mask_mov_epi32(r, _mm512_cmp_ps_mask(m, v16_set1(0x1p-14f), _CMP_LT_OQ), least);
    return _mm512_or_si512(r, _mm512_and_si512(_mm512_srli_epi32(u, 24), _mm512_set1_epi32(0x80)));
}
V16 void v16i_store_u8(uint8_t *p, v16i a) { _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(a)); }
V16 void v16_store_f16(uint16_t *p, v16 a)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
V16 v16 v16i_f32_of_bf16(v16i h) { return _mm512_castsi512_ps(_mm512_slli_epi32(h, 16)); }
V16 __m256i v16i_pack_u16(v16i a) { return _mm512_cvtepi32_epi16(a); }
V16 v16 v16_load_f16(const uint8_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p)); }
// The lower or the upper bf16 of each of 16 pairs.
V16 v16 v16_load_bf16_of_2(const uint8_t *p, int upper)
{
    v16i a = _mm512_loadu_si512(p);
    return _mm512_castsi512_ps(upper ? _mm512_and_si512(a, _mm512_set1_epi32((int)0xffff0000)) : _mm512_slli_epi32(a, 16));
}
// Value i of each lane's four of fp8: its code at the top, shifted down to where a float32 has it; 2^112 is what its exponent
// lacks.
V16 v16 v16_load_fp8_of_4(const uint8_t *p, int i)
{
    __m512i x = _mm512_slli_epi32(_mm512_loadu_si512(p), 24 - 8 * i);
    x = _mm512_and_si512(_mm512_srai_epi32(x, 4), _mm512_set1_epi32((int)0x87f00000));
    return _mm512_mul_ps(_mm512_castsi512_ps(x), _mm512_set1_ps(0x1p112f));
}
// clang-format on

#endif
#endif
