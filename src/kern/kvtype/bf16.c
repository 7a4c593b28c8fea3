/* bf16: K as [d/2][16 tokens][2], V as [d/16][8 token pairs][16][2]. Queries and p are rounded to bf16 where
 * they meet K and V. */
#include "kern/ref/attn_internal.h"

static uint16_t *k_of(struct ref_slot at, int i)
{
    return (uint16_t *)(void *)at.unit + (i / 2 * 16 + at.t) * 2 + i % 2;
}

static uint16_t *v_of(struct ref_slot at, int i)
{
    return (uint16_t *)(void *)at.unit + at.d * QR_KV_UNIT + ((i / 16 * 8 + at.t / 2) * 16 + i % 16) * 2 + at.t % 2;
}

static void write(struct ref_slot at, const float *k, const float *v)
{
    for (int i = 0; i < at.d; i++) {
        *k_of(at, i) = qr_bf16_of_f32(k[i]);
        *v_of(at, i) = qr_bf16_of_f32(v[i]);
    }
}

static void set_query(struct ref_query *out, const float *q, int d)
{
    for (int i = 0; i < d; i++) out->q[i] = qr_f32_of_bf16(qr_bf16_of_f32(q[i]));
}

static float score(const struct ref_query *q, struct ref_slot at)
{
    float s = 0;
    for (int i = 0; i < at.d; i++) s = fmaf(qr_f32_of_bf16(*k_of(at, i)), q->q[i], s);
    return s;
}

static void weigh(float *acc, const float *p, const struct ref_slot *at, int n)
{
    for (int t = 0; t < n; t++) {
        float w = qr_f32_of_bf16(qr_bf16_of_f32(p[t]));
        for (int i = 0; i < at->d; i++) acc[i] = fmaf(qr_f32_of_bf16(*v_of(at[t], i)), w, acc[i]);
    }
}

static const struct ref_kvtype kvtype = {QR_KV_BF16, write, set_query, score, weigh};
KVTYPE_KERNELS(bf16)
