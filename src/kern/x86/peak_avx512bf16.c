#if defined(__x86_64__)
#include "kern/peak_internal.h"

#include <immintrin.h>

void kern_peak_bf16_avx512bf16(uint64_t n_rounds)
{
    const __m512bh a = (__m512bh)_mm512_set1_epi16(0x3f00), b = (__m512bh)_mm512_set1_epi16(0x3f00);
#define BEGIN(i) __m512 s##i = _mm512_setzero_ps();
#define STEP(i) s##i = _mm512_dpbf16_ps(s##i, a, b);
#define KEEP(i) __asm__ volatile("" : "+v"(s##i));
    PEAK_EACH(BEGIN)
    for (uint64_t n = 0; n < n_rounds; n++) {
        PEAK_EACH(STEP)
        PEAK_EACH(KEEP)
    }
}
#endif
