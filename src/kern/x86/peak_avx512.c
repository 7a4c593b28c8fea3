#if defined(__x86_64__)
#include "kern/peak_internal.h"

#include <immintrin.h>

void kern_peak_f32_avx512(uint64_t n_rounds)
{
    const __m512 a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(0.5f);
#define BEGIN(i) __m512 s##i = _mm512_setzero_ps();
#define STEP(i) s##i = _mm512_fmadd_ps(a, b, s##i);
#define KEEP(i) __asm__ volatile("" : "+v"(s##i));
    PEAK_EACH(BEGIN)
    for (uint64_t n = 0; n < n_rounds; n++) {
        PEAK_EACH(STEP)
        PEAK_EACH(KEEP)
    }
}

// As kernels without VNNI multiply: pairs to 16 bits, pairs of those to 32, and the sum.
void kern_peak_int8_avx512(uint64_t n_rounds)
{
    const __m512i a = _mm512_set1_epi8(2), b = _mm512_set1_epi8(3), one = _mm512_set1_epi16(1);
#undef BEGIN
#undef STEP
#define BEGIN(i) __m512i s##i = _mm512_setzero_si512();
#define STEP(i)                                                                                              \
    {                                                                                                        \
        __m512i x = a;                                                                                       \
        __asm__ volatile("" : "+v"(x));                                                                      \
        s##i = _mm512_add_epi32(s##i, _mm512_madd_epi16(_mm512_maddubs_epi16(x, b), one));                   \
    }
    PEAK_EACH(BEGIN)
    for (uint64_t n = 0; n < n_rounds; n++) {
        PEAK_EACH(STEP)
        PEAK_EACH(KEEP)
    }
}

uint64_t kern_peak_read_avx512(const void *p, size_t bytes)
{
    const char *x = p, *end = x + bytes;
    __m512i s0 = _mm512_setzero_si512(), s1 = s0, s2 = s0, s3 = s0;
    for (; x < end; x += 512) {
        for (int i = 0; i < 512; i += 256) {
            s0 = _mm512_xor_si512(s0, _mm512_loadu_si512(x + i));
            s1 = _mm512_xor_si512(s1, _mm512_loadu_si512(x + i + 64));
            s2 = _mm512_xor_si512(s2, _mm512_loadu_si512(x + i + 128));
            s3 = _mm512_xor_si512(s3, _mm512_loadu_si512(x + i + 192));
        }
    }
    s0 = _mm512_xor_si512(_mm512_xor_si512(s0, s1), _mm512_xor_si512(s2, s3));
    uint64_t v[8];
    _mm512_storeu_si512(v, s0);
    return v[0] ^ v[1] ^ v[2] ^ v[3] ^ v[4] ^ v[5] ^ v[6] ^ v[7];
}
#endif
