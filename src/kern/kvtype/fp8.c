/* fp8 (e4m3: sign, 4 bits of exponent, 3 of mantissa, denormals, no infinity) with a float32 scale for each
 * token's K and V in each head: K as [d][16 tokens], V as [d/16][16 tokens][16], each with 16 scales behind it.
 *
 * A code's bits are the upper ones of a float16 without the second: that float16 is the code's value times
 * 2^-8, at most 1.75, and it is what the scale multiplies. So decoding is a shift and the machine's float16
 * conversion, and the scale costs nothing: it multiplies scores, and the weights that meet V. */
#include "kern/ref/attn_internal.h"

#define TOP 1.75f

static size_t values_bytes(struct ref_slot at)
{
    return (size_t)at.d * QR_KV_UNIT;
}

static uint8_t *k_of(struct ref_slot at, int i)
{
    return at.unit + i * 16 + at.t;
}

static float *k_scale(struct ref_slot at)
{
    return (float *)(void *)(at.unit + values_bytes(at)) + at.t;
}

static uint8_t *v_of(struct ref_slot at, int i)
{
    return at.unit + values_bytes(at) + QR_KV_UNIT * sizeof(float) + (i / 16 * 16 + at.t) * 16 + i % 16;
}

static float *v_scale(struct ref_slot at)
{
    return (float *)(void *)(at.unit + 2 * values_bytes(at) + QR_KV_UNIT * sizeof(float)) + at.t;
}

static float value(uint8_t code)
{
    return qr_f32_of_f16((uint16_t)((code & 0x80) << 8 | (code & 0x7F) << 7));
}

// |y| <= 1.75; to nearest, ties to even. Below 2^-14 a step is 2^-17.
static uint8_t code_of(float y)
{
    uint32_t u = qr_bits_of_f32(y), sign = u >> 24 & 0x80, mag = u & 0x7FFFFFFFu;
    if (qr_f32_of_bits(mag) < 0x1p-14f) return (uint8_t)(sign | (uint32_t)rintf(qr_f32_of_bits(mag) * 0x1p17f));
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
    memcpy(out->q, q, (size_t)d * sizeof *q);
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
        float w = p[t] * *v_scale(at[t]);
        for (int i = 0; i < at->d; i++) acc[i] = fmaf(value(*v_of(at[t], i)), w, acc[i]);
    }
}

static const struct ref_kvtype kvtype = {QR_KV_FP8, write, set_query, score, weigh};
KVTYPE_KERNELS(fp8)
