/* Words of attn_tmpl_internal.h where vdpbf16ps multiplies pairs of bf16: a line of bf16 KV as it lies in memory, a line of
 * fp8 KV as two of bf16, the even and the odd values of each four.
 *
 * Owns: nothing. Refuses to know: the loops. Threads: pure functions. Lifetime: static. */
#ifdef KERN_ISA

#include "kern/tmpl/v16_internal.h"

#define UNITS 4
#define DIMS 4
#define VECS 4
#define COEF_BYTES 4 // a pair of bf16

typedef __m512bh part;
typedef __m512bh coef;

V16 coef coef_load(const void *p, int i)
{
    return (coef)_mm512_set1_epi32(((const int *)p)[i]);
}

V16 v16 k_dot(v16 acc, part a, coef b)
{
    return _mm512_dpbf16_ps(acc, a, b);
}
#define v_dot k_dot

#if defined(ATTN_FP8)

#define W 4
#define STEPS 2
#define SCALED 1

// A code at the top of its word, shifted down to where a bf16 has it, under three ones of exponent; zero is zero.
V16 part k_part(const uint8_t *line, int step)
{
    __m512i x = _mm512_loadu_si512(line);
    if (step == 0) x = _mm512_slli_epi16(x, 8);
    __mmask32 some = _mm512_test_epi16_mask(x, _mm512_set1_epi16(0x7800));
    // (x >> 4 & 0x87f0) | 0x3800
    x = _mm512_ternarylogic_epi32(_mm512_srai_epi16(x, 4), _mm512_set1_epi16((short)0x87f0), _mm512_set1_epi16(0x3800), 0xea);
    return (part)_mm512_maskz_mov_epi16(some, x);
}

V16 void coef_store(void *p, int i16, v16 x)
{
    __m256i h = (__m256i)_mm512_cvtneps_pbh(x);
    _mm256_storeu_si256((__m256i *)p + i16, _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(h, 0xd8), 0xd8));
}

#else

#define W 2
#define STEPS 1
#define SCALED 0

V16 part k_part(const uint8_t *line, int step)
{
    (void)step;
    return (part)_mm512_loadu_si512(line);
}

V16 part part_first(part a)
{
    return (part)_mm512_and_si512((__m512i)a, _mm512_set1_epi32(0xffff));
}

V16 void coef_store(void *p, int i16, v16 x)
{
    _mm256_storeu_si256((__m256i *)p + i16, (__m256i)_mm512_cvtneps_pbh(x));
}

#endif
#define v_part k_part
#include "kern/tmpl/attn_float_internal.h"

#endif
