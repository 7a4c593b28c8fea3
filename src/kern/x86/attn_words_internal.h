/* Lines and multipliers of attn_tmpl_internal.h for each KV type, where the set has no bf16 arithmetic of its
 * own.
 *
 * Owns: nothing. Refuses to know: the loops. Threads: pure functions. Lifetime: static.
 * ATTN_BF16 selects bf16 KV, its absence float32. Multipliers are float32; bf16 ones are rounded to bf16
 * first. */
#ifdef KERN_ISA

#include "kern/x86/v16_internal.h"

#if defined(__AVX512F__)
#define UNITS 4 // 4 x 4 accumulators, and lines and multipliers in the other half of the registers
#define DIMS 4
#else
#define UNITS 1 // 4 accumulators of two registers each, of 16
#define DIMS 1
#endif
#define VECS 4

#if defined(ATTN_BF16)

#define W 2
typedef struct {
    v16 first, second;
} line;
typedef struct {
    v16 first, second;
} coef;
#define COEF_BYTES 8

#if defined(__AVX512F__)
V16 line line_load(const uint8_t *p)
{
    __m512i a = _mm512_loadu_si512(p);
    return (line){_mm512_castsi512_ps(_mm512_slli_epi32(a, 16)),
                  _mm512_castsi512_ps(_mm512_and_si512(a, _mm512_set1_epi32((int)0xffff0000)))};
}
V16 v16 v16_of_bf16(v16i h)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(h, 16));
}
#else
V16 line line_load(const uint8_t *p)
{
    __m256i a = _mm256_loadu_si256((const __m256i *)p), b = _mm256_loadu_si256((const __m256i *)(p + 32));
    __m256i mask = _mm256_set1_epi32((int)0xffff0000);
    return (line){
        {_mm256_castsi256_ps(_mm256_slli_epi32(a, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(b, 16))},
        {_mm256_castsi256_ps(_mm256_and_si256(a, mask)), _mm256_castsi256_ps(_mm256_and_si256(b, mask))}};
}
V16 v16 v16_of_bf16(v16i h)
{
    return (v16){_mm256_castsi256_ps(_mm256_slli_epi32(h.lo, 16)),
                 _mm256_castsi256_ps(_mm256_slli_epi32(h.hi, 16))};
}
#endif
V16 line line_first(line a)
{
    return (line){a.first, v16_set1(0)};
}
V16 coef coef_load(const void *p, int i)
{
    const float *f = (const float *)p + 2 * i;
    return (coef){v16_set1(f[0]), v16_set1(f[1])};
}
V16 void coef_store(void *p, int i16, v16 x)
{
    v16_store((float *)p + i16 * 16, v16_of_bf16(v16i_bf16(x)));
}
V16 v16 line_dot(v16 acc, line a, coef b)
{
    return v16_fma(a.second, b.second, v16_fma(a.first, b.first, acc));
}

#else

#define W 1
typedef v16 line;
typedef v16 coef;
#define COEF_BYTES 4
V16 line line_load(const uint8_t *p)
{
    return v16_load((const float *)p);
}
V16 line line_first(line a)
{
    return a;
}
V16 coef coef_load(const void *p, int i)
{
    return v16_set1(((const float *)p)[i]);
}
V16 void coef_store(void *p, int i16, v16 x)
{
    v16_store((float *)p + i16 * 16, x);
}
V16 v16 line_dot(v16 acc, line a, coef b)
{
    return v16_fma(a, b, acc);
}

#endif
#endif
