/* Words of attn_tmpl_internal.h for KV types whose values become float32 lanes, one a part of a line.
 *
 * Owns: nothing. Refuses to know: the loops. Threads: pure functions. Lifetime: static.
 * ATTN_BF16, ATTN_F16, ATTN_F32 or ATTN_FP8 selects the type. Multipliers are float32; those of bf16 and fp8 are
 * rounded to bf16 first. */
#ifdef KERN_ISA

#include "kern/x86/v16_internal.h"

#define VECS 4
#if defined(__AVX512F__)
#define UNITS 4 // 4 x 4 accumulators, and parts and multipliers in the other half of the registers
#define DIMS 4
#else
#define UNITS 1 // 4 accumulators of two registers each, of 16
#define DIMS 1
#endif

typedef v16 part;
typedef v16 coef;
#define COEF_BYTES 4

V16 coef coef_load(const void *p, int i)
{
    return v16_set1(((const float *)p)[i]);
}
V16 v16 k_dot(v16 acc, part a, coef b)
{
    return v16_fma(a, b, acc);
}
V16 v16 v_dot(v16 acc, part a, coef b)
{
    return v16_fma(a, b, acc);
}

#if defined(ATTN_BF16)

#define W 2
#define STEPS 2
#define SCALED 0
#if defined(__AVX512F__)
V16 part k_part(const uint8_t *line, int step)
{
    __m512i a = _mm512_loadu_si512(line);
    return _mm512_castsi512_ps(step ? _mm512_and_si512(a, _mm512_set1_epi32((int)0xffff0000)) : _mm512_slli_epi32(a, 16));
}
#else
V16 __m256 half_line(const uint8_t *p, int step)
{
    __m256i a = _mm256_loadu_si256((const __m256i *)p);
    return _mm256_castsi256_ps(step ? _mm256_and_si256(a, _mm256_set1_epi32((int)0xffff0000)) : _mm256_slli_epi32(a, 16));
}
V16 part k_part(const uint8_t *line, int step)
{
    return (v16){half_line(line, step), half_line(line + 32, step)};
}
#endif
#elif defined(ATTN_F16)

#define W 2
#define STEPS 2
#define SCALED 0
V16 part k_part(const uint8_t *line, int step)
{
    const uint8_t *p = line + 32 * step;
#if defined(__AVX512F__)
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
#else
    return (v16){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                 _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 16)))};
#endif
}

#elif defined(ATTN_FP8)

#define W 4
#define STEPS 4
#define SCALED 1
// Value `step` of each lane: its code at the top, shifted down to where a float32 has it; 2^112 is what its exponent lacks.
#if defined(__AVX512F__)
V16 part k_part(const uint8_t *line, int step)
{
    __m512i x = _mm512_slli_epi32(_mm512_loadu_si512(line), 24 - 8 * step);
    x = _mm512_and_si512(_mm512_srai_epi32(x, 4), _mm512_set1_epi32((int)0x87f00000));
    return _mm512_mul_ps(_mm512_castsi512_ps(x), _mm512_set1_ps(0x1p112f));
}
#else
V16 __m256 half_line(const uint8_t *p, int step)
{
    __m256i x = _mm256_slli_epi32(_mm256_loadu_si256((const __m256i *)p), 24 - 8 * step);
    x = _mm256_and_si256(_mm256_srai_epi32(x, 4), _mm256_set1_epi32((int)0x87f00000));
    return _mm256_mul_ps(_mm256_castsi256_ps(x), _mm256_set1_ps(0x1p112f));
}
V16 part k_part(const uint8_t *line, int step)
{
    return (v16){half_line(line, step), half_line(line + 32, step)};
}
#endif

#else

#define W 1
#define STEPS 1
#define SCALED 0
V16 part k_part(const uint8_t *line, int step)
{
    (void)step;
    return v16_load((const float *)(const void *)line);
}

#endif
#define v_part k_part
V16 void coef_store(void *p, int i16, v16 x)
{
#if defined(ATTN_BF16) || defined(ATTN_FP8)
    x = v16i_f32_of_bf16(v16i_bf16(x));
#endif
    v16_store((float *)p + i16 * 16, x);
}
#include "kern/x86/attn_float_internal.h"
#endif
