#if defined(__x86_64__)
#include "kern/peak_internal.h"

#include <immintrin.h>

void kern_peak_int8_avx512vnni(uint64_t n_rounds)
{
    const __m512i a = _mm512_set1_epi8(1), b = _mm512_set1_epi8(1);
#define BEGIN(i) __m512i s##i = _mm512_setzero_si512();
#define STEP(i) s##i = _mm512_dpbusd_epi32(s##i, a, b);
#define KEEP(i) __asm__ volatile("" : "+v"(s##i));
    PEAK_EACH(BEGIN)
    for (uint64_t n = 0; n < n_rounds; n++) {
        PEAK_EACH(STEP)
        PEAK_EACH(KEEP)
    }
}
#endif
