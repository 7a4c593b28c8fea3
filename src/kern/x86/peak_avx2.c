#if defined(__x86_64__)
#include "kern/peak_internal.h"

#include <immintrin.h>

void kern_peak_f32_avx2(uint64_t n_rounds)
{
    const __m256 a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(0.5f);
#define BEGIN(i) __m256 s##i = _mm256_setzero_ps();
#define STEP(i) s##i = _mm256_fmadd_ps(a, b, s##i);
#define KEEP(i) __asm__ volatile("" : "+x"(s##i));
    PEAK_EACH(BEGIN)
    for (uint64_t n = 0; n < n_rounds; n++) {
        PEAK_EACH(STEP)
        PEAK_EACH(KEEP)
    }
}

// As kernels without VNNI multiply: pairs to 16 bits, pairs of those to 32, and the sum.
void kern_peak_int8_avx2(uint64_t n_rounds)
{
    const __m256i a = _mm256_set1_epi8(2), b = _mm256_set1_epi8(3), one = _mm256_set1_epi16(1);
#undef BEGIN
#undef STEP
#define BEGIN(i) __m256i s##i = _mm256_setzero_si256();
#define STEP(i)                                                                                              \
    {                                                                                                        \
        __m256i x = a;                                                                                       \
        __asm__ volatile("" : "+x"(x));                                                                      \
        s##i = _mm256_add_epi32(s##i, _mm256_madd_epi16(_mm256_maddubs_epi16(x, b), one));                   \
    }
    PEAK_EACH(BEGIN)
    for (uint64_t n = 0; n < n_rounds; n++) {
        PEAK_EACH(STEP)
        PEAK_EACH(KEEP)
    }
}

uint64_t kern_peak_read_avx2(const void *p, size_t bytes)
{
    const __m256i *x = p, *end = x + bytes / 32;
    __m256i s0 = _mm256_setzero_si256(), s1 = s0, s2 = s0, s3 = s0;
    for (; x < end; x += 16) {
        for (int i = 0; i < 16; i += 4) {
            s0 = _mm256_xor_si256(s0, _mm256_loadu_si256(x + i));
            s1 = _mm256_xor_si256(s1, _mm256_loadu_si256(x + i + 1));
            s2 = _mm256_xor_si256(s2, _mm256_loadu_si256(x + i + 2));
            s3 = _mm256_xor_si256(s3, _mm256_loadu_si256(x + i + 3));
        }
    }
    s0 = _mm256_xor_si256(_mm256_xor_si256(s0, s1), _mm256_xor_si256(s2, s3));
    uint64_t v[4];
    _mm256_storeu_si256((__m256i *)v, s0);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
#endif
