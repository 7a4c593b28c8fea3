/* Words of attn_tmpl_internal.h for KV types whose values become float32 lanes, one a part of a line.
 *
 * Owns: nothing. Refuses to know: the loops. Threads: pure functions. Lifetime: static.
 * ATTN_BF16, ATTN_F16, ATTN_F32 or ATTN_FP8 selects the type. Multipliers are float32; bf16 ones are rounded to
 * bf16 first. */
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

V16 part part_first(part a)
{
    return a; // parts have one value a lane
}
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
V16 v16 v16_of_bf16(v16i h)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(h, 16));
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
V16 v16 v16_of_bf16(v16i h)
{
    return (v16){_mm256_castsi256_ps(_mm256_slli_epi32(h.lo, 16)),
                 _mm256_castsi256_ps(_mm256_slli_epi32(h.hi, 16))};
}
#endif
V16 void coef_store(void *p, int i16, v16 x)
{
    v16_store((float *)p + i16 * 16, v16_of_bf16(v16i_bf16(x)));
}

#else

V16 void coef_store(void *p, int i16, v16 x)
{
    v16_store((float *)p + i16 * 16, x);
}

#if defined(ATTN_F16)

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
// A code is the upper bits of a float16 without the second; the conversion takes denormals, flushed or not.
V16 part k_part(const uint8_t *line, int step)
{
    __m256i w = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(line + 16 * step))), 7);
    __m256i h = _mm256_and_si256(w, _mm256_set1_epi16((short)0xbfff));
#if defined(__AVX512F__)
    return _mm512_cvtph_ps(h);
#else
    return (v16){_mm256_cvtph_ps(_mm256_castsi256_si128(h)), _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1))};
#endif
}

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
#endif
#define v_part k_part
#include "kern/x86/attn_float_internal.h"
#endif
