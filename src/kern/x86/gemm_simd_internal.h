/* Vectors of float32 and int32 lanes for matrix kernels, as wide as the including file's instruction set
 * allows: 16 lanes with AVX-512, else 8, of which a panel takes two ("halves").
 *
 * Owns: nothing. Refuses to know: what kernels compute. Threads: pure inlines, static to each file. Lifetime:
 * none. Empty where the compiler's flags give neither AVX-512 nor AVX2. */
#ifndef QR_KERN_X86_GEMM_SIMD_INTERNAL_H
#define QR_KERN_X86_GEMM_SIMD_INTERNAL_H

#include <stdint.h>

// Loops of constant length become straight code, so that arrays of vectors are registers. Instrumented
// builds, whose compiler would take minutes over it, keep the loops.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__clang__)
#define GEMM_UNROLL(n)
#else
#define GEMM_PRAGMA(text) _Pragma(#text)
#define GEMM_UNROLL(n) GEMM_PRAGMA(GCC unroll n)
#endif

#define SIMD_INLINE static inline __attribute__((always_inline, unused))

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
SIMD_INLINE vf vf_quiet_or(vf a, vf b)
{
    vi quiet = vi_or(vi_and(vi_bits(a), vi_set1((int)0xFFFF0000)), vi_set1(0x00400000));
    return _mm256_blendv_ps(b, vf_bits(quiet), _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}
#endif

// clang-format on

#ifdef VL
#include "kern/gemm_internal.h"
#include "kern/pack_layout.h"

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

// Eight quads from four vectors of nibbles; q is at its half.
SIMD_INLINE void quads_of_nibbles(const uint8_t *q, vi w[8])
{
    const vi mask = vi_set1(0x0F0F0F0F);
    GEMM_UNROLL(4) for (int i = 0; i < 4; i++)
    {
        vi v = vi_load(q + 64 * i);
        w[2 * i] = vi_and(v, mask);
        w[2 * i + 1] = vi_and(vi_srl(v, 4), mask);
    }
}

// The four quads of a sub of 16 k, six bits a byte.
SIMD_INLINE void quads_of_sixes(const struct qr_i6sub *q, int h, vi w[4])
{
    const vi low = vi_set1(0x0F0F0F0F), high = vi_set1(0x30303030);
    vi hi = vi_load(q->hi[h * VL]), lo0 = vi_load(q->lo[0][h * VL]), lo1 = vi_load(q->lo[1][h * VL]);
    w[0] = vi_or(vi_and(lo0, low), vi_and(vi_sll(hi, 4), high));
    w[1] = vi_or(vi_and(vi_srl(lo0, 4), low), vi_and(vi_sll(hi, 2), high));
    w[2] = vi_or(vi_and(lo1, low), vi_and(hi, high));
    w[3] = vi_or(vi_and(vi_srl(lo1, 4), low), vi_and(vi_srl(hi, 2), high));
}

// Row r, half h of the panel: the sums reach y as in gemm_store.
SIMD_INLINE void gemm_put(const struct qr_gemm *g, int r, int panel, int h, vf acc)
{
    int out = panel * QR_PANEL + h * VL;
    float lane[VL];
    if (out + VL <= g->w->n) {
        float *y = g->y + (size_t)r * g->ldy + out;
        if (g->bias) acc = vf_add(acc, vf_load(g->bias + out));
        vf_store(y, g->add ? vf_add(vf_load(y), acc) : acc);
        return;
    }
    vf_store(lane, acc);
    for (int i = 0; i < g->w->n - out; i++) gemm_store(g, r, out + i, lane[i]);
}
#endif

#endif
