/* Attention, one query vector at a time (N4).
 *
 *   positions   0 ............ 511 | 512 .......... 1023 | 1024 ..      splits (decode only)
 *   chunks      [64][64] ... [64]  | [64] ...            |              online softmax inside a split
 *
 * For a chunk: s = scale * (q . k), capped; m' = max(m, max s); p = exp(s - m'); the sums l, in 16 lanes, and
 * the accumulators are multiplied by exp(m - m') before they grow. Splits (m, l, acc) merge by the same rule.
 * How q meets K and p meets V is the KV type's. Chunks that a window leaves out are not visited. */
#include "kern/ref/attn_internal.h"

struct softmax {
    float m, l[REF_LANES];
    float acc[REF_D_MAX];
};

static struct ref_slot slot_at(const struct ref_kvtype *type, const struct qr_kv_view *kv, int pos)
{
    size_t block = kv->table[pos / kv->block_size];
    size_t unit = (size_t)(pos % kv->block_size) / QR_KV_UNIT;
    return (struct ref_slot){.unit = kv->pool + block * kv->block_bytes + kv->head_off +
                                     unit * qr_kv_unit_bytes(type->type, kv->d),
                             .t = pos % QR_KV_UNIT,
                             .d = kv->d};
}

void ref_kv_write(const struct ref_kvtype *type, const struct qr_kv_view *kv, int pos, const float *k, const float *v)
{
    type->write(slot_at(type, kv, pos), k, v);
}

// cap * tanh(s / cap) by the one exp: 1 - 2 / (exp(2 s / cap) + 1).
static float capped(float s, float cap)
{
    if (cap == 0) return s;
    return cap - 2 * cap / (ref_exp(s * (2 / cap)) + 1);
}

// Adds positions from .. to - 1, of one chunk.
static void add_chunk(const struct ref_kvtype *type, const struct qr_attn *a, const struct ref_query *q, int from,
                      int to, struct softmax *s)
{
    struct ref_slot at[REF_CHUNK];
    float p[REF_CHUNK], m = s->m;
    int n = to - from;
    for (int t = 0; t < n; t++) {
        at[t] = slot_at(type, &a->kv, from + t);
        p[t] = capped(type->score(q, at[t]) * a->scale, a->softcap);
        if (p[t] > m) m = p[t];
    }
    float keep = ref_exp(s->m - m);
    s->m = m;
    for (int i = 0; i < REF_LANES; i++) s->l[i] *= keep;
    for (int i = 0; i < a->kv.d; i++) s->acc[i] *= keep;
    for (int t = 0; t < n; t++) {
        p[t] = ref_exp(p[t] - m);
        s->l[(from + t) % REF_LANES] += p[t];
    }
    type->weigh(s->acc, p, at, n);
}

static void merge(struct softmax *into, const struct softmax *s, int d)
{
    float m = s->m > into->m ? s->m : into->m;
    float a = ref_exp(into->m - m), b = ref_exp(s->m - m);
    for (int i = 0; i < REF_LANES; i++) into->l[i] = fmaf(into->l[i], a, s->l[i] * b);
    for (int i = 0; i < d; i++) into->acc[i] = fmaf(into->acc[i], a, s->acc[i] * b);
    into->m = m;
}

static void attend_row(const struct ref_kvtype *type, const struct qr_attn *a, const struct ref_query *q, int end,
                       int split, float *out)
{
    struct softmax all = {.m = -INFINITY}, s = all;
    int first = a->window > 0 && a->window < end ? end - a->window : 0, start = first / REF_CHUNK * REF_CHUNK;
    for (int pos = start; pos < end; pos += REF_CHUNK) {
        int next = pos + REF_CHUNK;
        add_chunk(type, a, q, pos < first ? first : pos, next < end ? next : end, &s);
        if (next < end && (split == 0 || next % split != 0)) continue;
        merge(&all, &s, a->kv.d);
        s = (struct softmax){.m = -INFINITY};
    }
    float l = ref_tree_sum(all.l);
    for (int i = 0; i < a->kv.d; i++) out[i] = all.acc[i] / l;
}

void ref_attend(const struct ref_kvtype *type, const struct qr_attn *a, int split)
{
    int d = a->kv.d;
    struct ref_query q;
    for (int r = 0; r < a->n_rows; r++)
        for (int g = 0; g < a->n_group; g++) {
            type->set_query(&q, a->q + (size_t)r * a->ldq + (size_t)g * d, d);
            attend_row(type, a, &q, a->pos0 + r + 1, split, a->out + (size_t)r * a->ldo + (size_t)g * d);
        }
}
