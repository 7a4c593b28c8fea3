/* Attention, one query vector at a time (N4).
 *
 *   positions   0 ............ 511 | 512 .......... 1023 | 1024 ..      splits (decode only)
 *   chunks      [64][64] ... [64]  | [64] ...            |              online softmax inside a split
 *
 * For a chunk: s = scale * (q . k); m' = max(m, max s); p = exp(s - m'); the sum l and the accumulators are
 * multiplied by exp(m - m') before they grow. Splits (m, l, acc) merge by the same rule. With bf16 KV, q
 * and p are rounded to bf16 where they meet K and V, and l sums the p before rounding. */
#include "kern/kern_internal.h"
#include "kern/ref/ref_internal.h"

#define CHUNK 64
#define SPLIT 512
#define D_MAX 256

struct softmax {
    float m, l;
    float acc[D_MAX];
};

static const uint8_t *unit_at(const struct qr_kv_view *kv, int pos, enum qr_kvtype t)
{
    size_t block = kv->table[pos / kv->block_size];
    size_t unit = (size_t)(pos % kv->block_size) / QR_KV_UNIT;
    return kv->pool + block * kv->block_bytes + kv->head_off + unit * qr_kv_unit_bytes(t, kv->d);
}

static void load_k(const struct qr_kv_view *kv, int pos, enum qr_kvtype type, float *k)
{
    const uint8_t *u = unit_at(kv, pos, type);
    int t = pos % QR_KV_UNIT;
    for (int i = 0; i < kv->d; i++)
        k[i] = type == QR_KV_F32 ? ((const float *)u)[i * 16 + t]
                                 : qr_f32_of_bf16(((const uint16_t *)u)[(i / 2 * 16 + t) * 2 + i % 2]);
}

static void load_v(const struct qr_kv_view *kv, int pos, enum qr_kvtype type, float *v)
{
    const uint8_t *u = unit_at(kv, pos, type) + qr_kv_unit_bytes(type, kv->d) / 2;
    int t = pos % QR_KV_UNIT;
    for (int i = 0; i < kv->d; i++)
        v[i] = type == QR_KV_F32
                   ? ((const float *)u)[(i / 16 * 16 + t) * 16 + i % 16]
                   : qr_f32_of_bf16(((const uint16_t *)u)[((i / 16 * 8 + t / 2) * 16 + i % 16) * 2 + t % 2]);
}

// The precision in which a value meets K and V.
static float as_stored(float x, enum qr_kvtype type)
{
    return type == QR_KV_F32 ? x : qr_f32_of_bf16(qr_bf16_of_f32(x));
}

// Adds `n` positions from `pos` (one chunk) to s.
static void add_chunk(const struct qr_attn *a, enum qr_kvtype type, const float *q, int pos, int n,
                      struct softmax *s)
{
    int d = a->kv.d;
    float row[D_MAX], p[CHUNK], m = s->m, lane[REF_LANES] = {0};
    for (int t = 0; t < n; t++) {
        float dot = 0;
        load_k(&a->kv, pos + t, type, row);
        for (int i = 0; i < d; i++) dot += q[i] * row[i];
        p[t] = dot * a->scale;
        if (p[t] > m) m = p[t];
    }
    float keep = ref_exp(s->m - m);
    for (int t = 0; t < n; t++) {
        p[t] = ref_exp(p[t] - m);
        lane[t % REF_LANES] += p[t];
        p[t] = as_stored(p[t], type);
    }
    s->m = m;
    s->l = s->l * keep + ref_tree_sum(lane);
    for (int i = 0; i < d; i++) s->acc[i] *= keep;
    for (int t = 0; t < n; t++) {
        load_v(&a->kv, pos + t, type, row);
        for (int i = 0; i < d; i++) s->acc[i] += p[t] * row[i];
    }
}

static void merge(struct softmax *into, const struct softmax *s, int d)
{
    float m = s->m > into->m ? s->m : into->m;
    float a = ref_exp(into->m - m), b = ref_exp(s->m - m);
    into->l = into->l * a + s->l * b;
    for (int i = 0; i < d; i++) into->acc[i] = into->acc[i] * a + s->acc[i] * b;
    into->m = m;
}

static void attend(const struct qr_attn *a, enum qr_kvtype type, int split)
{
    int d = a->kv.d;
    for (int r = 0; r < a->n_rows; r++) {
        for (int g = 0; g < a->n_group; g++) {
            const float *src = a->q + (size_t)r * a->ldq + (size_t)g * d;
            float *out = a->out + (size_t)r * a->ldo + (size_t)g * d, q[D_MAX];
            int end = a->pos0 + r + 1;
            struct softmax all = {.m = -INFINITY};
            for (int i = 0; i < d; i++) q[i] = as_stored(src[i], type);
            for (int from = 0; from < end; from += split) {
                struct softmax s = {.m = -INFINITY};
                int to = end - from < split ? end : from + split;
                for (int pos = from; pos < to; pos += CHUNK)
                    add_chunk(a, type, q, pos, to - pos < CHUNK ? to - pos : CHUNK, &s);
                merge(&all, &s, d);
            }
            for (int i = 0; i < d; i++) out[i] = all.acc[i] / all.l;
        }
    }
}

void kern_attn_decode_bf16_ref(const struct qr_attn *a)
{
    attend(a, QR_KV_BF16, SPLIT);
}

void kern_attn_decode_f32_ref(const struct qr_attn *a)
{
    attend(a, QR_KV_F32, SPLIT);
}

#define UNSPLIT (1 << 30) // beyond any context

void kern_attn_prefill_bf16_ref(const struct qr_attn *a)
{
    attend(a, QR_KV_BF16, UNSPLIT);
}

void kern_attn_prefill_f32_ref(const struct qr_attn *a)
{
    attend(a, QR_KV_F32, UNSPLIT);
}
