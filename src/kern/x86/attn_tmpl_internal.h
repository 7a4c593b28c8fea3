/* Attention over pages, for one instruction set and one KV type.
 *
 * Owns: the loops; the file that includes it gives KERN_ISA, ATTN_DECODE, ATTN_PREFILL and the words below.
 * Refuses to know: the width of a register, how K and V are rounded. Threads: pure functions. Lifetime:
 * static.
 *
 *   W             values of one lane in a 64-byte line: 2 (bf16) or 1 (f32)
 *   line          a line ready to multiply;   line line_load(const uint8_t *)
 *   line          line_first(line)            the same with the second value of each lane zeroed (W = 2)
 *   coef          W multipliers, equal in all lanes;   coef coef_load(const void *p, int i)
 *   v16           line_dot(v16 acc, line, coef)
 *   COEF_BYTES    bytes that coef i of an array takes
 *   coef_store    void (void *p, int i16, v16 x): 16 multipliers, the i16-th such group of the array
 *   UNITS, DIMS, VECS   register tile: units of 16 tokens and vectors in q.k, groups of 16 dimensions in p.v
 *
 * Query vectors (row, head) that share a KV head go through a chunk of 64 tokens together, so that a line of
 * K or V comes from memory once and then from L1:
 *
 *   for each chunk      for each VECS vectors:  s = q.k -> softmax -> acc = acc * keep + p.v
 *
 * A vector's own arithmetic is one chain per lane in an order that no tile size changes, so its bits do not
 * depend on which vectors go with it. Tokens past a vector's end that others of the call see have p = 0;
 * slots past the call's end are not multiplied at all, for they may hold NaN. */
#ifdef ATTN_DECODE

#include <string.h>

#include "base/assert.h"
#include "kern/kern_internal.h"
#include "kern/x86/v16_internal.h"

#define CHUNK 64
#define SPLIT 512
#define CHUNK_UNITS (CHUNK / QR_KV_UNIT)
#define LINE_BYTES 64

// Vectors in flight and their running softmax; carved from the task's scratch.
struct vecs {
    int n, d;
    size_t q_bytes; // a vector's multipliers
    uint8_t *q;     // (n, d / W) coefs
    float *acc;     // (n, d)
    float *l;       // (n, 16) sums of p by lane
    float *m;       // (n) largest score
    uint8_t *p;     // (VECS, CHUNK / W) coefs of the vectors at work
    float *s;       // (VECS, CHUNK) scores
    float keep[VECS];
};

// Where the units of consecutive chunks are.
struct cursor {
    const struct qr_kv_view *kv;
    size_t unit_bytes;
    int block, unit, units_block; // place in the table, place in that block, units a block has
    int left;                     // units until the end of the call
};

struct chunk {
    const uint8_t *unit[CHUNK_UNITS], *ahead[CHUNK_UNITS]; // this chunk's and the next one's
    int n_units;
};

V16 struct cursor cursor_init(const struct qr_kv_view *kv, int end)
{
    return (struct cursor){.kv = kv,
                           .unit_bytes = (size_t)kv->d * QR_KV_UNIT * 2 * (4 / W),
                           .units_block = kv->block_size / QR_KV_UNIT,
                           .left = (end + QR_KV_UNIT - 1) / QR_KV_UNIT};
}

static int cursor_next(struct cursor *c, const uint8_t *unit[CHUNK_UNITS])
{
    int n = c->left < CHUNK_UNITS ? c->left : CHUNK_UNITS;
    c->left -= n;
    for (int i = 0; i < n; i++) {
        unit[i] = c->kv->pool + c->kv->table[c->block] * c->kv->block_bytes + c->kv->head_off +
                  (size_t)c->unit * c->unit_bytes;
        if (++c->unit == c->units_block) {
            c->unit = 0;
            c->block++;
        }
    }
    for (int i = n; n > 0 && i < CHUNK_UNITS; i++) unit[i] = unit[n - 1];
    return n;
}

// s[g][unit * 16 ..] = q[g] . k for n_u units from u0; n_g and n_u are constants where this is inlined.
V16 void scores(const struct vecs *v, const struct chunk *c, int i_vec, int n_g, int u0, int n_u)
{
    v16 s[VECS][UNITS];
    const uint8_t *q = v->q + (size_t)i_vec * v->q_bytes, *k[UNITS], *ahead[UNITS];
    UNROLL for (int u = 0; u < n_u; u++)
    {
        k[u] = c->unit[u0 + u];
        ahead[u] = c->ahead[u0 + u];
        UNROLL for (int g = 0; g < n_g; g++) s[g][u] = v16_set1(0);
    }
    for (int i = 0; i < v->d / W; i++) {
        line a[UNITS];
        UNROLL for (int u = 0; u < n_u; u++)
        {
            a[u] = line_load(k[u] + (size_t)i * LINE_BYTES);
            _mm_prefetch(ahead[u] + (size_t)i * LINE_BYTES, _MM_HINT_T1);
        }
        UNROLL for (int g = 0; g < n_g; g++)
        {
            coef b = coef_load(q + (size_t)g * v->q_bytes, i);
            UNROLL for (int u = 0; u < n_u; u++) s[g][u] = line_dot(s[g][u], a[u], b);
        }
    }
    UNROLL for (int g = 0; g < n_g; g++)
    {
        UNROLL for (int u = 0; u < n_u; u++) v16_store(v->s + g * CHUNK + (u0 + u) * 16, s[g][u]);
    }
}

V16 void scores_all(const struct vecs *v, const struct chunk *c, int i_vec, int n_g, int n_units)
{
    int u = 0;
    for (; u + UNITS <= n_units; u += UNITS) scores(v, c, i_vec, n_g, u, UNITS);
    if (UNITS > 2 && u + 2 <= n_units) {
        scores(v, c, i_vec, n_g, u, 2);
        u += 2;
    }
    if (UNITS > 1 && u < n_units) scores(v, c, i_vec, n_g, u, 1);
}

// Scores of vector g of the tile become p; tokens from `valid` on are masked. May be called with valid <= 0.
static inline void softmax(struct vecs *v, int i_vec, int g, int valid, int n_units, float scale)
{
    v16 s[CHUNK_UNITS], low = v16_set1(-INFINITY), top = low;
    UNROLL for (int u = 0; u < CHUNK_UNITS; u++)
    {
        if (u >= n_units) break;
        s[u] = v16_mul(v16_load(v->s + g * CHUNK + u * 16), v16_set1(scale));
        int n = valid - u * 16;
        if (n < 16) s[u] = v16_first_or(s[u], n < 0 ? 0 : n, low);
        top = v16_max(s[u], top);
    }
    float m = v->m[i_vec + g], chunk_max = v16_hmax(top);
    float m_new = chunk_max > m ? chunk_max : m;
    v16 keep = v16_exp_small(v16_set1(m - m_new)), l = v16_mul(v16_load(v->l + (i_vec + g) * 16), keep);
    UNROLL for (int u = 0; u < CHUNK_UNITS; u++)
    {
        if (u >= n_units) break;
        v16 p = v16_exp_small(v16_sub(s[u], v16_set1(m_new)));
        l = v16_add(l, p);
        coef_store(v->p + g * (CHUNK / W) * COEF_BYTES, u, p);
    }
    v16_store(v->l + (i_vec + g) * 16, l);
    v->m[i_vec + g] = m_new;
    v->keep[g] = _mm256_cvtss_f32(v16_lo(keep));
}

// acc[g][16 * b ..] = acc * keep + p . v for n_b groups of dimensions from b0, over the first n_tok tokens.
V16 void weigh(const struct vecs *v, const struct chunk *c, int i_vec, int n_g, int b0, int n_b, int n_tok)
{
    v16 acc[VECS][DIMS];
    float *dst = v->acc + (size_t)i_vec * v->d + b0 * 16;
    UNROLL for (int g = 0; g < n_g; g++)
    {
        UNROLL for (int b = 0; b < n_b; b++) acc[g][b] =
            v16_mul(v16_load(dst + (size_t)g * v->d + b * 16), v16_set1(v->keep[g]));
    }
    size_t first = (size_t)v->d * QR_KV_UNIT * (4 / W) + (size_t)b0 * (16 / W) * LINE_BYTES;
    for (int t = 0; t < n_tok; t += W) {
        size_t at = first + (size_t)(t % QR_KV_UNIT / W) * LINE_BYTES;
        const uint8_t *src = c->unit[t / QR_KV_UNIT] + at, *ahead = c->ahead[t / QR_KV_UNIT] + at;
        line a[DIMS];
        UNROLL for (int b = 0; b < n_b; b++)
        {
            a[b] = line_load(src + b * (16 / W) * LINE_BYTES);
            _mm_prefetch(ahead + b * (16 / W) * LINE_BYTES, _MM_HINT_T1);
        }
        if (W > 1 && t + W > n_tok) {
            UNROLL for (int b = 0; b < n_b; b++) a[b] = line_first(a[b]);
        }
        UNROLL for (int g = 0; g < n_g; g++)
        {
            coef p = coef_load(v->p + g * (CHUNK / W) * COEF_BYTES, t / W);
            UNROLL for (int b = 0; b < n_b; b++) acc[g][b] = line_dot(acc[g][b], a[b], p);
        }
    }
    UNROLL for (int g = 0; g < n_g; g++)
    {
        UNROLL for (int b = 0; b < n_b; b++) v16_store(dst + (size_t)g * v->d + b * 16, acc[g][b]);
    }
}

V16 void weigh_all(const struct vecs *v, const struct chunk *c, int i_vec, int n_g, int n_tok)
{
    int b = 0, n_b = v->d / 16;
    for (; b + DIMS <= n_b; b += DIMS) weigh(v, c, i_vec, n_g, b, DIMS, n_tok);
    if (DIMS > 2 && b + 2 <= n_b) {
        weigh(v, c, i_vec, n_g, b, 2, n_tok);
        b += 2;
    }
    if (DIMS > 1 && b < n_b) weigh(v, c, i_vec, n_g, b, 1, n_tok);
}

// valid[i]: tokens of this chunk that vector i sees, at most CHUNK; not falling, because rows ascend.
V16 void chunk_n(struct vecs *v, const struct chunk *c, const int *valid, int i_vec, int n_g, float scale)
{
    int n_tok = valid[i_vec + n_g - 1];
    if (n_tok <= 0) return; // to all of them the chunk is future
    int n_units = (n_tok + QR_KV_UNIT - 1) / QR_KV_UNIT;
    scores_all(v, c, i_vec, n_g, n_units);
    for (int g = 0; g < n_g; g++) softmax(v, i_vec, g, valid[i_vec + g], n_units, scale);
    weigh_all(v, c, i_vec, n_g, n_tok);
}

static void chunk_vecs(struct vecs *v, const struct chunk *c, const int *valid, float scale)
{
    int i = 0;
    for (; i + VECS <= v->n; i += VECS) chunk_n(v, c, valid, i, VECS, scale);
    switch (v->n - i) {
    case 3: chunk_n(v, c, valid, i, 3, scale); break;
    case 2: chunk_n(v, c, valid, i, 2, scale); break;
    case 1: chunk_n(v, c, valid, i, 1, scale); break;
    default: break;
    }
}

static void vecs_clear(struct vecs *v)
{
    memset(v->acc, 0, (size_t)v->n * v->d * sizeof *v->acc);
    memset(v->l, 0, (size_t)v->n * 16 * sizeof *v->l);
    for (int i = 0; i < v->n; i++) v->m[i] = -INFINITY;
}

// Scratch of n vectors; returns what follows.
static uint8_t *vecs_carve(struct vecs *v, int n, int d, uint8_t *mem)
{
    *v = (struct vecs){.n = n, .d = d, .q_bytes = (size_t)d / W * COEF_BYTES};
    v->acc = (float *)mem;
    v->l = v->acc + (size_t)n * d;
    v->m = v->l + (size_t)n * 16;
    v->s = v->m + (n + 15) / 16 * 16;
    v->p = (uint8_t *)(v->s + VECS * CHUNK);
    v->q = v->p + VECS * (CHUNK / W) * COEF_BYTES;
    return v->q + (size_t)n * v->q_bytes;
}

static void vecs_set_q(struct vecs *v, int i, const float *q)
{
    for (int b = 0; b < v->d / 16; b++) coef_store(v->q + (size_t)i * v->q_bytes, b, v16_load(q + b * 16));
}

static void vec_finish(const struct vecs *v, int i, float *out)
{
    v16 l = v16_set1(v16_sum(v16_load(v->l + i * 16)));
    for (int b = 0; b < v->d; b += 16)
        v16_store(out + b, v16_div(v16_load(v->acc + (size_t)i * v->d + b), l));
}

// A finished split joins those before it, in order.
static void vecs_merge(struct vecs *into, const struct vecs *v)
{
    for (int i = 0; i < v->n; i++) {
        float m = v->m[i] > into->m[i] ? v->m[i] : into->m[i];
        v16 a = v16_exp_small(v16_set1(into->m[i] - m)), b = v16_exp_small(v16_set1(v->m[i] - m));
        into->m[i] = m;
        v16_store(into->l + i * 16,
                  v16_fma(v16_load(into->l + i * 16), a, v16_mul(v16_load(v->l + i * 16), b)));
        float *y = into->acc + (size_t)i * v->d;
        const float *x = v->acc + (size_t)i * v->d;
        for (int j = 0; j < v->d; j += 16)
            v16_store(y + j, v16_fma(v16_load(y + j), a, v16_mul(v16_load(x + j), b)));
    }
}

static void decode_row(const struct qr_attn *a, int row)
{
    struct vecs all, v;
    int n = a->n_group, d = a->kv.d, end = a->pos0 + row + 1, valid[16];
    uint8_t *rest = vecs_carve(&all, n, d, a->scratch);
    vecs_carve(&v, n, d, rest);
    for (int g = 0; g < n; g++) vecs_set_q(&v, g, a->q + (size_t)row * a->ldq + (size_t)g * d);
    vecs_clear(&all);
    struct cursor at = cursor_init(&a->kv, end);
    struct chunk c, next;
    next.n_units = cursor_next(&at, next.unit);
    for (int pos = 0; pos < end; pos += CHUNK) {
        if (pos % SPLIT == 0) vecs_clear(&v);
        memcpy(c.unit, next.unit, sizeof c.unit);
        next.n_units = cursor_next(&at, next.unit);
        memcpy(c.ahead, next.n_units ? next.unit : c.unit, sizeof c.ahead);
        for (int g = 0; g < n; g++) valid[g] = end - pos < CHUNK ? end - pos : CHUNK;
        chunk_vecs(&v, &c, valid, a->scale);
        if ((pos + CHUNK) % SPLIT == 0 || pos + CHUNK >= end) vecs_merge(&all, &v);
    }
    for (int g = 0; g < n; g++) vec_finish(&all, g, a->out + (size_t)row * a->ldo + (size_t)g * d);
}

void KERN(ATTN_DECODE)(const struct qr_attn *a)
{
    QR_ASSERT(a->n_group >= 1 && a->n_group <= 16);
    for (int row = 0; row < a->n_rows; row++) decode_row(a, row);
}

static void prefill_rows(const struct qr_attn *a, int row0, int n_rows)
{
    struct vecs v;
    int n_group = a->n_group, d = a->kv.d, pos0 = a->pos0 + row0, end = pos0 + n_rows;
    int valid[16 * QR_ATTN_ROWS_MAX];
    vecs_carve(&v, n_rows * n_group, d, a->scratch);
    for (int i = 0; i < v.n; i++)
        vecs_set_q(&v, i, a->q + (size_t)(row0 + i / n_group) * a->ldq + (size_t)(i % n_group) * d);
    vecs_clear(&v);
    struct cursor at = cursor_init(&a->kv, end);
    struct chunk c, next;
    next.n_units = cursor_next(&at, next.unit);
    for (int pos = 0; pos < end; pos += CHUNK) {
        memcpy(c.unit, next.unit, sizeof c.unit);
        next.n_units = cursor_next(&at, next.unit);
        memcpy(c.ahead, next.n_units ? next.unit : c.unit, sizeof c.ahead);
        for (int i = 0; i < v.n; i++) {
            int n = pos0 + i / n_group + 1 - pos;
            valid[i] = n < CHUNK ? n : CHUNK;
        }
        chunk_vecs(&v, &c, valid, a->scale);
    }
    for (int i = 0; i < v.n; i++)
        vec_finish(&v, i, a->out + (size_t)(row0 + i / n_group) * a->ldo + (size_t)(i % n_group) * d);
}

void KERN(ATTN_PREFILL)(const struct qr_attn *a)
{
    QR_ASSERT(a->n_group >= 1 && a->n_group <= 16);
    for (int row = 0; row < a->n_rows; row += QR_ATTN_ROWS_MAX) {
        int left = a->n_rows - row;
        prefill_rows(a, row, left < QR_ATTN_ROWS_MAX ? left : QR_ATTN_ROWS_MAX);
    }
}

#undef CHUNK
#undef SPLIT
#undef CHUNK_UNITS
#undef LINE_BYTES
#endif
