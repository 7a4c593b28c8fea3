/* int8 with a float32 scale for each token's K and V in each head:
 *   K  [d/4][16 tokens][4] bytes k + 128, then 16 scales         k = rint(x * (127 / max)), scale = max / 127
 *   V  [d/16][4 token quads][16][4] bytes v, then 16 scales
 *
 * Both products are exact integers, so the bits are the same on every instruction set. A query becomes 15 bits
 * (|i| <= 16256 = 128 * 127) with a scale of its own: s = (sum of i * k) * scale of q * scale of k. The weights
 * p * scale of v of a chunk become integers up to 32640 = 255 * 128, for p = 1 and the largest scale of v that the
 * query sees there: what a chunk adds is one scale times the sum of integers. */
#include "kern/ref/attn_internal.h"

#define P_TOP 32640.0f

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

static int8_t *v_of(struct ref_slot at, int i)
{
    uint8_t *v = at.unit + values_bytes(at) + QR_KV_UNIT * sizeof(float);
    return (int8_t *)v + ((i / 16 * 4 + at.t / 4) * 16 + i % 16) * 4 + at.t % 4;
}

static float *v_scale(struct ref_slot at)
{
    return (float *)(void *)(at.unit + 2 * values_bytes(at) + QR_KV_UNIT * sizeof(float)) + at.t;
}

static void write(struct ref_slot at, const float *k, const float *v)
{
    float k_inverse, v_inverse;
    *k_scale(at) = ref_token_scale(k, at.d, 127, &k_inverse);
    *v_scale(at) = ref_token_scale(v, at.d, 127, &v_inverse);
    for (int i = 0; i < at.d; i++) { // an inverse of 0 may meet an infinity
        *k_of(at, i) = (uint8_t)((k_inverse > 0 ? (int)rintf(k[i] * k_inverse) : 0) + 128);
        *v_of(at, i) = (int8_t)(v_inverse > 0 ? (int)rintf(v[i] * v_inverse) : 0);
    }
}

static void set_query(struct ref_query *out, const float *q, int d)
{
    float inverse;
    out->scale = ref_token_scale(q, d, 16256, &inverse);
    for (int i = 0; i < d; i++) out->i[i] = (int16_t)(inverse > 0 ? (int)rintf(q[i] * inverse) : 0);
}

static float score(const struct ref_query *q, struct ref_slot at)
{
    int32_t s = 0; // at most 256 * 16256 * 128
    for (int i = 0; i < at.d; i++) s += q->i[i] * (*k_of(at, i) - 128);
    return (float)s * q->scale * *k_scale(at);
}

static void weigh(float *acc, const float *p, const struct ref_slot *at, int n)
{
    float scales[REF_CHUNK], inverse;
    for (int t = 0; t < n; t++) scales[t] = *v_scale(at[t]);
    float scale = ref_token_scale(scales, n, P_TOP, &inverse); // p is at most 1
    int32_t sum[REF_D_MAX] = {0}; // at most 64 * 32640 * 127
    for (int t = 0; t < n; t++) {
        int weight = inverse > 0 ? (int)rintf(p[t] * scales[t] * inverse) : 0;
        for (int i = 0; i < at->d; i++) sum[i] += weight * *v_of(at[t], i);
    }
    for (int i = 0; i < at->d; i++) acc[i] = fmaf((float)sum[i], scale, acc[i]);
}

static const struct ref_kvtype kvtype = {QR_KV_INT8, write, set_query, score, weigh};
KVTYPE_KERNELS(int8)
