/* bf16 attention where bfdot multiplies a line as it lies in memory. */
#if defined(__aarch64__)
#define KERN_ISA bf16
#define ATTN_DECODE attn_decode_bf16
#define ATTN_PREFILL attn_prefill_bf16

#include "kern/tmpl/v16_internal.h"

#define UNITS 1
#define DIMS 1
#define VECS 4
#define W 2
#define STEPS 1
#define SCALED 0
#define COEF_BYTES 4 // a pair of bf16

typedef v16i part;
typedef int32x4_t coef; // equal in all lanes

V16 part k_part(const uint8_t *line, int step)
{
    (void)step;
    part a;
    UNROLL for (int i = 0; i < 4; i++) a.r[i] = vreinterpretq_s32_u8(vld1q_u8(line + 16 * i));
    return a;
}
#define v_part k_part

V16 part part_first(part a)
{
    UNROLL for (int i = 0; i < 4; i++) a.r[i] = vandq_s32(a.r[i], vdupq_n_s32(0xffff));
    return a;
}

V16 coef coef_load(const void *p, int i)
{
    return vdupq_n_s32(((const int32_t *)p)[i]);
}

V16 void coef_store(void *p, int i16, v16 x)
{
    v16i_store_u16((uint16_t *)p + 16 * i16, v16i_bf16(x));
}

V16 v16 k_dot(v16 acc, part a, coef b)
{
    UNROLL for (int i = 0; i < 4; i++)
        acc.r[i] = vbfdotq_f32(acc.r[i], vreinterpretq_bf16_s32(a.r[i]), vreinterpretq_bf16_s32(b));
    return acc;
}
#define v_dot k_dot

#include "kern/tmpl/attn_float_internal.h"

#include "kern/tmpl/attn_tmpl_internal.h"
#endif
