/* Words of attn_tmpl_internal.h for KV types whose values become float32 lanes, one a part of a line.
 *
 * Owns: nothing. Refuses to know: the loops. Threads: pure functions. Lifetime: static.
 * ATTN_BF16, ATTN_F16, ATTN_F32 or ATTN_FP8 selects the type. Multipliers are float32; those of bf16 and fp8 are
 * rounded to bf16 first. */
#ifdef KERN_ISA

#include "kern/tmpl/v16_internal.h"

#define VECS 4
#if defined(__AVX512F__)
#define UNITS 4 // 4 x 4 accumulators, and parts and multipliers in the other half of the registers
#define DIMS 4
#else
#define UNITS 1 // 4 accumulators of two registers each, of 16; of four each, of 32, with NEON
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
V16 part k_part(const uint8_t *line, int step)
{
    return v16_load_bf16_of_2(line, step);
}
#elif defined(ATTN_F16)

#define W 2
#define STEPS 2
#define SCALED 0
V16 part k_part(const uint8_t *line, int step)
{
    return v16_load_f16(line + 32 * step);
}

#elif defined(ATTN_FP8)

#define W 4
#define STEPS 4
#define SCALED 1
V16 part k_part(const uint8_t *line, int step)
{
    return v16_load_fp8_of_4(line, step);
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
#define v_part k_part
V16 void coef_store(void *p, int i16, v16 x)
{
#if defined(ATTN_BF16) || defined(ATTN_FP8)
    x = v16i_f32_of_bf16(v16i_bf16(x));
#endif
    v16_store((float *)p + i16 * 16, x);
}
#include "kern/tmpl/attn_float_internal.h"
#endif
