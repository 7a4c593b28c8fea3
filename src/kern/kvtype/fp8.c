/* fp8 (e4m3: sign, 4 bits of exponent, 3 of mantissa) with a float32 scale for each token's K and V in each head:
 *   K  [d/4][16 tokens][4] codes, then 16 scales
 *   V  [d/16][4 token quads][16][4] codes, then 16 scales
 *
 * A token's largest value becomes the largest code. Denormal codes (below 2^-14 of that, about) are not used: what is
 * nearer to zero than to the smallest other code is zero. So a code is a bf16 whose exponent has three more bits, all
 * ones: decoding is two shifts and a mask, or a multiplication by 2^112 where 0 should stay 0. That bf16 is e4m3's value
 * times 2^-8, at most 1.75, and it is what the scale multiplies. The scale costs nothing: it multiplies scores, and the
 * weights that meet V. Queries and weights are rounded to bf16 where they meet K and V. */
#include "kern/ref/attn_internal.h"

#define TOP 1.75f

static size_t values_bytes(struct ref_slot at)
{
    return (size_t)at.d * QR_KV_UNIT;
}

static uint8_t *k_of(struct ref_slot at, int i)
{
    return at.unit + (i / 4 * 16 + at.t) * 4 + i % 4;
}

static float *k_scale(struct ref_slot at)
{
    return (float *)(void *)(at.unit + values_bytes(at)) + at.t;
}

static uint8_t *v_of(struct ref_slot at, int i)
{
    uint8_t *v = at.unit + values_bytes(at) + QR_KV_UNIT * sizeof(float);
    return v + ((i / 16 * 4 + at.t / 4) * 16 + i % 16) * 4 + at.t % 4;
}

static float *v_scale(struct ref_slot at)
{
    return (float *)(void *)(at.unit + 2 * values_bytes(at) + QR_KV_UNIT * sizeof(float)) + at.t;
}

static float value(uint8_t code)
{
    uint32_t sign = (uint32_t)(code & 0x80) << 24;
    return qr_f32_of_bits((code & 0x78) ? sign | 112u << 23 | (uint32_t)(code & 0x7F) << 20 : sign);
}

// |y| <= 1.75; to nearest, ties to even.
static uint8_t code_of(float y)
{
    uint32_t u = qr_bits_of_f32(y), sign = u >> 24 & 0x80, mag = u & 0x7FFFFFFFu;
    if (qr_f32_of_bits(mag) < 0x1p-14f) return (uint8_t)(sign | (qr_f32_of_bits(mag) > 0x1p-15f ? 8 : 0));
    return (uint8_t)(sign | (((mag + 0x7FFFF + (mag >> 20 & 1)) >> 20) - (112u << 3)));
}

static void write(struct ref_slot at, const float *k, const float *v)
{
    float k_inverse, v_inverse;
    *k_scale(at) = ref_token_scale(k, at.d, TOP, &k_inverse);
    *v_scale(at) = ref_token_scale(v, at.d, TOP, &v_inverse);
    for (int i = 0; i < at.d; i++) { // an inverse of 0 may meet an infinity
        *k_of(at, i) = k_inverse > 0 ? code_of(k[i] * k_inverse) : 0;
        *v_of(at, i) = v_inverse > 0 ? code_of(v[i] * v_inverse) : 0;
    }
}

static void set_query(struct ref_query *out, const float *q, int d)
{
    for (int i = 0; i < d; i++) out->q[i] = qr_f32_of_bf16(qr_bf16_of_f32(q[i]));
}

static float score(const struct ref_query *q, struct ref_slot at)
{
    float s = 0;
    for (int i = 0; i < at.d; i++) s = fmaf(value(*k_of(at, i)), q->q[i], s);
    return s * *k_scale(at);
}

static void weigh(float *acc, const float *p, const struct ref_slot *at, int n)
{
    for (int t = 0; t < n; t++) {
        float w = qr_f32_of_bf16(qr_bf16_of_f32(p[t] * *v_scale(at[t])));
        for (int i = 0; i < at->d; i++) acc[i] = fmaf(value(*v_of(at[t], i)), w, acc[i]);
    }
}

static const struct ref_kvtype kvtype = {QR_KV_FP8, write, set_query, score, weigh};
KVTYPE_KERNELS(fp8)
