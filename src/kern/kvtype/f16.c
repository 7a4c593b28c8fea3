/* float16: K as [d][16 tokens], V as [d/16][16 tokens][16]. It has three bits more than bf16 and is summed in
 * float32 with queries and p as they are. What exceeds 65504 is stored as that. */
#include "kern/ref/attn_internal.h"

static uint16_t *k_of(struct ref_slot at, int i)
{
    return (uint16_t *)(void *)at.unit + i * 16 + at.t;
}

static uint16_t *v_of(struct ref_slot at, int i)
{
    return (uint16_t *)(void *)at.unit + at.d * QR_KV_UNIT + (i / 16 * 16 + at.t) * 16 + i % 16;
}

static void write(struct ref_slot at, const float *k, const float *v)
{
    for (int i = 0; i < at.d; i++) {
        *k_of(at, i) = qr_f16_of_f32(k[i]);
        *v_of(at, i) = qr_f16_of_f32(v[i]);
    }
}

static void set_query(struct ref_query *out, const float *q, int d)
{
    memcpy(out->q, q, (size_t)d * sizeof *q);
}

static float score(const struct ref_query *q, struct ref_slot at)
{
    float s = 0;
    for (int i = 0; i < at.d; i++) s = fmaf(qr_f32_of_f16(*k_of(at, i)), q->q[i], s);
    return s;
}

static void weigh(float *acc, const float *p, const struct ref_slot *at, int n)
{
    for (int t = 0; t < n; t++)
        for (int i = 0; i < at->d; i++) acc[i] = fmaf(qr_f32_of_f16(*v_of(at[t], i)), p[t], acc[i]);
}

static const struct ref_kvtype kvtype = {QR_KV_F16, write, set_query, score, weigh};
KVTYPE_KERNELS(f16)
