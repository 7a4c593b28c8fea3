/* Sixteen float32 lanes on x86, and their horizontal operations: lanes 8 apart, 4, 2, 1 (N5).
 *
 * Owns: what AVX2 and AVX-512 share. Refuses to know: kernels. Threads: pure functions. Lifetime: static.
 * Included by tmpl/v16_internal.h alone, which says what the lanes are for. */
#ifndef QR_KERN_X86_V16_X86_INTERNAL_H
#define QR_KERN_X86_V16_X86_INTERNAL_H

#if defined(__AVX2__) && defined(__FMA__)

#include <immintrin.h>
#include <stdint.h>

#if defined(__AVX512F__)
#include "kern/x86/v16_avx512_internal.h"
#else
#include "kern/x86/v16_avx2_internal.h"
#endif

V16 float v16_first_lane(v16 a)
{
    return _mm256_cvtss_f32(v16_lo(a));
}

V16 void v16i_store_u16(uint16_t *p, v16i a) // lanes below 2^16
{
    _mm256_storeu_si256((__m256i *)(void *)p, v16i_pack_u16(a));
}

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

#endif
#endif
