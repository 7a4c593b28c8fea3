/* bf16 attention where vdpbf16ps multiplies a line as it lies in memory. */
#if defined(__x86_64__)
#define KERN_ISA avx512bf16
#define ATTN_DECODE attn_decode_bf16
#define ATTN_PREFILL attn_prefill_bf16

#include "kern/x86/v16_internal.h"

#define UNITS 4
#define DIMS 4
#define VECS 4
#define W 2
#define STEPS 1
#define SCALED 0
#define COEF_BYTES 4 // a pair of bf16

typedef __m512bh part;
typedef __m512bh coef;

V16 part k_part(const uint8_t *line, int step)
{
    (void)step;
    return (part)_mm512_loadu_si512(line);
}
#define v_part k_part

V16 part part_first(part a)
{
    return (part)_mm512_and_si512((__m512i)a, _mm512_set1_epi32(0xffff));
}

V16 coef coef_load(const void *p, int i)
{
    return (coef)_mm512_set1_epi32(((const int *)p)[i]);
}

V16 void coef_store(void *p, int i16, v16 x)
{
    _mm256_storeu_si256((__m256i *)p + i16, (__m256i)_mm512_cvtneps_pbh(x));
}

V16 v16 k_dot(v16 acc, part a, coef b)
{
    return _mm512_dpbf16_ps(acc, a, b);
}
#define v_dot k_dot

#include "kern/x86/attn_float_internal.h"

#include "kern/x86/attn_tmpl_internal.h"
#endif
