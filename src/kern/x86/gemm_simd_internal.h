/* Vectors of float32 and int32 lanes for matrix kernels, as wide as the including file's instruction set allows:
 * 16 lanes with AVX-512, else 8, of which a panel takes two ("halves").
 *
 * Owns: nothing. Refuses to know: formats. Threads: pure inlines, static to each file. Lifetime: none.
 * Empty where the compiler's flags give neither AVX-512 nor AVX2. */
#ifndef QR_KERN_X86_GEMM_SIMD_INTERNAL_H
#define QR_KERN_X86_GEMM_SIMD_INTERNAL_H

#include <stdint.h>

#define SIMD_INLINE static inline __attribute__((always_inline, unused))

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
SIMD_INLINE vf vf_quiet_or(vf a, vf b)
{
    vi quiet = vi_or(vi_and(vi_bits(a), vi_set1((int)0xFFFF0000)), vi_set1(0x00400000));
    return _mm256_blendv_ps(b, vf_bits(quiet), _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}
#endif

#ifdef VL
#define HALVES (16 / VL)

// Four bytes at p in every lane.
SIMD_INLINE vi vi_bcst(const void *p)
{
    int32_t v;
    __builtin_memcpy(&v, p, sizeof v);
    return vi_set1(v);
}

// Rounds to bf16, to nearest even, and back to float32.
SIMD_INLINE vf vf_round_bf16(vf a)
{
    vi u = vi_bits(a);
    vi odd = vi_and(vi_srl(u, 16), vi_set1(1));
    vi r = vi_and(vi_add(u, vi_add(odd, vi_set1(0x7FFF))), vi_set1((int)0xFFFF0000));
    return vf_quiet_or(a, vf_bits(r));
}
#endif

#endif
