/* Vectors of float32 and int32 lanes for matrix kernels on x86: 16 lanes with AVX-512, else 8.
 *
 * Owns: nothing. Refuses to know: formats, what kernels compute. Threads: pure inlines, static to each file. Lifetime:
 * none. Empty where the compiler's flags give neither AVX-512 nor AVX2. Included by tmpl/gemm_simd_internal.h alone. */
#ifndef QR_KERN_X86_GEMM_VEC_INTERNAL_H
#define QR_KERN_X86_GEMM_VEC_INTERNAL_H

#include <stdint.h>

#ifndef SIMD_INLINE
#define SIMD_INLINE static inline __attribute__((always_inline, unused))
#endif

// One line an operation:
// clang-format off
#if defined(__AVX512BW__)
#include <immintrin.h>

#define VL 16 // lanes
typedef __m512 vf;
typedef __m512i vi;

SIMD_INLINE vf vf_zero(void) { return _mm512_setzero_ps(); }
SIMD_INLINE vf vf_set1(float f) { return _mm512_set1_ps(f); }
SIMD_INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
SIMD_INLINE void vf_store(float *p, vf v) { _mm512_storeu_ps(p, v); }
SIMD_INLINE vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
SIMD_INLINE vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
SIMD_INLINE vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
SIMD_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
SIMD_INLINE vf vf_fms(vf a, vf b, vf c) { return _mm512_fmsub_ps(a, b, c); }
SIMD_INLINE vf vf_fnma(vf a, vf b, vf c) { return _mm512_fnmadd_ps(a, b, c); }
SIMD_INLINE vf vf_of_vi(vi a) { return _mm512_cvtepi32_ps(a); }
SIMD_INLINE vf vf_bits(vi a) { return _mm512_castsi512_ps(a); }
SIMD_INLINE vi vi_bits(vf a) { return _mm512_castps_si512(a); }
SIMD_INLINE vf vf_of_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
SIMD_INLINE vi vi_zero(void) { return _mm512_setzero_si512(); }
SIMD_INLINE vi vi_set1(int32_t i) { return _mm512_set1_epi32(i); }
SIMD_INLINE vi vi_load(const void *p) { return _mm512_loadu_si512(p); }
SIMD_INLINE vi vi_of_u8(const uint8_t *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)); }
SIMD_INLINE vi vi_of_i8(const int8_t *p) { return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)); }
SIMD_INLINE vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
SIMD_INLINE vi vi_mul(vi a, vi b) { return _mm512_mullo_epi32(a, b); }
SIMD_INLINE vi vi_and(vi a, vi b) { return _mm512_and_si512(a, b); }
SIMD_INLINE vi vi_or(vi a, vi b) { return _mm512_or_si512(a, b); }
SIMD_INLINE vi vi_xor(vi a, vi b) { return _mm512_xor_si512(a, b); }
SIMD_INLINE vi vi_srl(vi a, int n) { return _mm512_srli_epi32(a, (unsigned)n); }
SIMD_INLINE vi vi_sra(vi a, int n) { return _mm512_srai_epi32(a, (unsigned)n); }
SIMD_INLINE vi vi_sll(vi a, int n) { return _mm512_slli_epi32(a, (unsigned)n); }
// Sixteen bytes in every 128 bits, and the byte of such a table at each byte of i (0..15).
SIMD_INLINE vi vi_bcst16(const void *p) { return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)p)); }
SIMD_INLINE vi vi_lookup16(vi table, vi i) { return _mm512_shuffle_epi8(table, i); }
// The lower four bits of every lane: one look-up, on a port that conversions leave free.
SIMD_INLINE vf vf_of_nibble(vi a)
{
    return _mm512_permutexvar_ps(a, _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
}
// Float16 in the lower half of every lane.
SIMD_INLINE vf vf_of_f16_low(vi a) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(a)); }
// Where a is NaN: its upper half with the quiet bit; elsewhere b.
SIMD_INLINE vf vf_quiet_or(vf a, vf b)
{
    vi quiet = vi_or(vi_and(vi_bits(a), vi_set1((int)0xFFFF0000)), vi_set1(0x00400000));
    return _mm512_mask_mov_ps(b, _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), vf_bits(quiet));
}

#elif defined(__AVX2__)
#include <immintrin.h>

#define VL 8
typedef __m256 vf;
typedef __m256i vi;

SIMD_INLINE vf vf_zero(void) { return _mm256_setzero_ps(); }
SIMD_INLINE vf vf_set1(float f) { return _mm256_set1_ps(f); }
SIMD_INLINE vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
SIMD_INLINE void vf_store(float *p, vf v) { _mm256_storeu_ps(p, v); }
SIMD_INLINE vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
SIMD_INLINE vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
SIMD_INLINE vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
SIMD_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
SIMD_INLINE vf vf_fms(vf a, vf b, vf c) { return _mm256_fmsub_ps(a, b, c); }
SIMD_INLINE vf vf_fnma(vf a, vf b, vf c) { return _mm256_fnmadd_ps(a, b, c); }
SIMD_INLINE vf vf_of_vi(vi a) { return _mm256_cvtepi32_ps(a); }
SIMD_INLINE vf vf_bits(vi a) { return _mm256_castsi256_ps(a); }
SIMD_INLINE vi vi_bits(vf a) { return _mm256_castps_si256(a); }
SIMD_INLINE vf vf_of_f16(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
SIMD_INLINE vi vi_zero(void) { return _mm256_setzero_si256(); }
SIMD_INLINE vi vi_set1(int32_t i) { return _mm256_set1_epi32(i); }
SIMD_INLINE vi vi_load(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
SIMD_INLINE vi vi_of_u8(const uint8_t *p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)); }
SIMD_INLINE vi vi_of_i8(const int8_t *p) { return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)); }
SIMD_INLINE vi vi_add(vi a, vi b) { return _mm256_add_epi32(a, b); }
SIMD_INLINE vi vi_mul(vi a, vi b) { return _mm256_mullo_epi32(a, b); }
SIMD_INLINE vi vi_and(vi a, vi b) { return _mm256_and_si256(a, b); }
SIMD_INLINE vi vi_or(vi a, vi b) { return _mm256_or_si256(a, b); }
SIMD_INLINE vi vi_xor(vi a, vi b) { return _mm256_xor_si256(a, b); }
SIMD_INLINE vi vi_srl(vi a, int n) { return _mm256_srli_epi32(a, n); }
SIMD_INLINE vi vi_sra(vi a, int n) { return _mm256_srai_epi32(a, n); }
SIMD_INLINE vi vi_sll(vi a, int n) { return _mm256_slli_epi32(a, n); }
SIMD_INLINE vi vi_bcst16(const void *p) { return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p)); }
SIMD_INLINE vi vi_lookup16(vi table, vi i) { return _mm256_shuffle_epi8(table, i); }
SIMD_INLINE vf vf_of_nibble(vi a) { return _mm256_cvtepi32_ps(_mm256_and_si256(a, _mm256_set1_epi32(15))); }
SIMD_INLINE vf vf_of_f16_low(vi a)
{
    const vi low = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1,
                                    0, 1, 4, 5, 8, 9, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1);
    vi pairs = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(a, low), 0x08);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(pairs));
}
SIMD_INLINE vf vf_quiet_or(vf a, vf b)
{
    vi quiet = vi_or(vi_and(vi_bits(a), vi_set1((int)0xFFFF0000)), vi_set1(0x00400000));
    return _mm256_blendv_ps(b, vf_bits(quiet), _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}
#endif

// clang-format on

#endif
