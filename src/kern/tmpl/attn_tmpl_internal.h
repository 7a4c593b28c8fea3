/* Attention over pages, for one instruction set and one KV type.
 *
 * Owns: the loops; the file that includes it gives KERN_ISA, ATTN_DECODE, ATTN_PREFILL and the words below.
 * Refuses to know: the width of a register, how K and V are rounded. Threads: pure functions. Lifetime:
 * static.
 *
 *   W             values of one lane in a 64-byte line: 4, 2 or 1
 *   STEPS         parts in which a line is multiplied, W / STEPS values of each lane at a time
 *   SCALED        1 where a line holds numbers whatever its bytes, never a NaN, and a token's K and V have a scale each: 16
 *                 float32 behind a unit's K, 16 behind its V
 *   part          a part ready to multiply; part k_part(const uint8_t *line, int step), v_part the same for V
 *   part          part_first(part)           the same with the second value of each lane zeroed (pairs, not SCALED)
 *   coef          W / STEPS multipliers, equal in all lanes;   coef coef_load(const void *p, int i)
 *   COEF_BYTES    bytes that coef i of an array takes
 *   sum           sums of lanes; sum_zero(), k_dot(sum, part, coef), v_dot(sum, part, coef)
 *   q_pack        struct q_form (uint8_t *coefs, const float *q, int d): a query's multipliers
 *   k_value       v16 (sum, const struct q_form *): the products q . k
 *   INTEGER       1 where sums are integers: then p_form (v16i) says how p becomes integers, given the magnitudes of the
 *                 scales of V that a vector sees, and its scale is that of what v_dot makes of them
 *   p_pack        void (uint8_t *coefs, const v16 *p, int u0, int n_units, struct p_form): multipliers of units u0 ..
 *   v_begin       sum (const float *acc, float keep);  v_end: void (sum, float *acc, float keep, float scale)
 *   UNITS, DIMS, VECS   register tile: units of 16 tokens and vectors in q.k, groups of 16 dimensions in p.v
 *
 * Query vectors (row, head) that share a KV head go through a chunk of 64 tokens together, so that a line of
 * K or V comes from memory once and then from L1:
 *
 *   for each chunk      for each VECS vectors:  s = q.k -> softmax -> acc = acc * keep + p.v
 *
 * A vector's own arithmetic is one chain per lane in an order that no tile size changes, so its bits do not
 * depend on which vectors go with it. Tokens that a vector does not see but others of the call do have p = 0;
 * units that nobody sees are not read, and slots past the call's end are not multiplied where they may hold NaN. */
#ifdef ATTN_DECODE

#include <stdbool.h>
#include <string.h>

#include "base/assert.h"
#include "kern/kern_internal.h"
#include "kern/tmpl/attn_cursor_internal.h"
#include "kern/tmpl/v16_internal.h"

#define SPLIT 512
#define LINE_BYTES 64
#define PART_VALUES (W / STEPS)
#define P_BYTES (CHUNK / PART_VALUES * COEF_BYTES) // of a vector's multipliers of V

// Vectors in flight and their running softmax; carved from the task's scratch.
struct vecs {
    int n, d;
    size_t q_bytes; // a vector's multipliers
    uint8_t *q;     // (n, d / PART_VALUES) coefs
    struct q_form *form; // (n)
    float *acc;     // (n, d)
    float *l;       // (n, 16) sums of p by lane
    float *m;       // (n) largest score
    uint8_t *p;     // (VECS, CHUNK / PART_VALUES) coefs of the vectors at work
    float *s;       // (VECS, CHUNK) scores
    float keep[VECS];
    struct p_form p_form[VECS];
};

struct chunk {
    const uint8_t *unit[CHUNK_UNITS], *ahead[CHUNK_UNITS]; // this chunk's and the next one's
    int n_units;
};

// What each vector sees of the chunk at hand: tokens from .. to - 1. Neither falls, because rows ascend.
struct seen {
    const int *from, *to;
};

V16 size_t k_bytes(int d)
{
    return (size_t)d * QR_KV_UNIT * (4 / W);
}

V16 size_t v_offset(int d) // of V within a unit
{
    return k_bytes(d) + SCALED * LINE_BYTES;
}

V16 struct cursor cursor_of(const struct qr_kv_view *kv, int start, int end)
{
    return cursor_init(kv, 2 * v_offset(kv->d), start, end);
}

static void chunk_next(struct chunk *c, struct chunk *next, struct cursor *at)
{
    memcpy(c->unit, next->unit, sizeof c->unit);
    next->n_units = cursor_next(at, next->unit);
    memcpy(c->ahead, next->n_units ? next->unit : c->unit, sizeof c->ahead);
}

// s[g][unit * 16 ..] = q[g] . k for n_u units from u0; n_g and n_u are constants where this is inlined.
V16 void scores(const struct vecs *v, const struct chunk *c, int i_vec, int n_g, int u0, int n_u)
{
    sum s[VECS][UNITS];
    const uint8_t *q = v->q + (size_t)i_vec * v->q_bytes, *k[UNITS], *ahead[UNITS];
    UNROLL for (int u = 0; u < n_u; u++)
    {
        k[u] = c->unit[u0 + u];
        ahead[u] = c->ahead[u0 + u];
        UNROLL for (int g = 0; g < n_g; g++) s[g][u] = sum_zero();
    }
    for (int i = 0; i < v->d / W; i++) {
        UNROLL for (int u = 0; u < n_u; u++) __builtin_prefetch(ahead[u] + (size_t)i * LINE_BYTES, 0, 2);
        UNROLL for (int j = 0; j < STEPS; j++)
        {
            part a[UNITS];
            UNROLL for (int u = 0; u < n_u; u++) a[u] = k_part(k[u] + (size_t)i * LINE_BYTES, j);
            UNROLL for (int g = 0; g < n_g; g++)
            {
                coef b = coef_load(q + (size_t)g * v->q_bytes, i * STEPS + j);
                UNROLL for (int u = 0; u < n_u; u++) s[g][u] = k_dot(s[g][u], a[u], b);
            }
        }
    }
    UNROLL for (int u = 0; u < n_u; u++)
    {
        v16 scale = v16_set1(0);
        if (SCALED) {
            scale = v16_load((const float *)(const void *)(k[u] + k_bytes(v->d)));
            __builtin_prefetch(ahead[u] + k_bytes(v->d), 0, 2);
        }
        UNROLL for (int g = 0; g < n_g; g++)
        {
            v16 x = k_value(s[g][u], &v->form[i_vec + g]);
            v16_store(v->s + g * CHUNK + (u0 + u) * 16, SCALED ? v16_mul(x, scale) : x);
        }
    }
}

V16 void scores_all(const struct vecs *v, const struct chunk *c, int i_vec, int n_g, int u0, int n_units)
{
    int u = u0;
    for (; u + UNITS <= n_units; u += UNITS) scores(v, c, i_vec, n_g, u, UNITS);
    if (UNITS > 2 && u + 2 <= n_units) {
        scores(v, c, i_vec, n_g, u, 2);
        u += 2;
    }
    if (UNITS > 1 && u < n_units) scores(v, c, i_vec, n_g, u, 1);
}

// cap * tanh(s / cap); see kern/ref/attn.c.
static v16 capped(v16 s, float cap)
{
    v16 e = v16_exp(v16_mul(s, v16_set1(2 / cap)));
    return v16_sub(v16_set1(cap), v16_div(v16_set1(2 * cap), v16_add(e, v16_set1(1))));
}

// Asks for a share of the next chunk's V, its first dimensions: memory would idle while scores become p. weigh()
// asks for the other ones.
V16 void v_ahead(const struct vecs *v, const struct chunk *c, int g, int n_g)
{
    for (int u = g; u < CHUNK_UNITS; u += n_g) {
        const uint8_t *p = c->ahead[u] + v_offset(v->d), *end = p + (size_t)(v->d / 32) * (16 / W) * LINE_BYTES;
        for (; p < end; p += LINE_BYTES) __builtin_prefetch(p, 0, 2);
    }
}

V16 v16 v_scales(const struct vecs *v, const struct chunk *c, int u)
{
    return v16_load((const float *)(const void *)(c->unit[u] + v_offset(v->d) + k_bytes(v->d)));
}

// Of a chunk whose tokens from .. to - 1 are seen.
static struct p_form p_form_of(const struct vecs *v, const struct chunk *c, int from, int to, int u0, int n_units)
{
    v16i most = v16i_zero();
    for (int u = u0; INTEGER && u < n_units; u++) {
        v16 x = v_scales(v, c, u), none = v16_set1(0);
        int n = to - u * 16, skip = from - u * 16;
        if (n < 16) x = v16_first_or(x, n < 0 ? 0 : n, none);
        if (skip > 0) x = v16_first_or(none, skip < 16 ? skip : 16, x);
        most = v16i_max(most, v16i_magnitude(x));
    }
    return p_form(most);
}

// Scores of vector g of the tile become p; tokens outside from .. to - 1 are masked. It may see none.
static inline void softmax(struct vecs *v, const struct chunk *c, int i_vec, int g, int from, int to, int u0,
                           int n_units, const struct qr_attn *a)
{
    v16 s[CHUNK_UNITS], low = v16_set1(-INFINITY), top = low;
    UNROLL for (int u = 0; u < CHUNK_UNITS; u++)
    {
        s[u] = low;
        if (u < u0 || u >= n_units) continue;
        s[u] = v16_mul(v16_load(v->s + g * CHUNK + u * 16), v16_set1(a->scale));
        if (a->softcap != 0) s[u] = capped(s[u], a->softcap);
        int n = to - u * 16, skip = from - u * 16;
        if (n < 16) s[u] = v16_first_or(s[u], n < 0 ? 0 : n, low);
        if (skip > 0) s[u] = v16_first_or(low, skip < 16 ? skip : 16, s[u]);
        top = v16_max(s[u], top);
    }
    float m = v->m[i_vec + g], chunk_max = v16_hmax(top);
    float m_new = chunk_max > m ? chunk_max : m;
    float base = m_new == -INFINITY ? 0 : m_new; // it has seen nothing yet: every p is 0, not a NaN
    v16 keep = v16_exp_small(v16_set1(m - base)), l = v16_mul(v16_load(v->l + (i_vec + g) * 16), keep);
    UNROLL for (int u = 0; u < CHUNK_UNITS; u++)
    {
        if (u < u0 || u >= n_units) continue;
        s[u] = v16_exp_small(v16_sub(s[u], v16_set1(base)));
        l = v16_add(l, s[u]);
        if (SCALED) {
            s[u] = v16_mul(s[u], v_scales(v, c, u));
            int n = to - u * 16; // the scale of a slot that nobody owns may be a NaN
            if (n < 16) s[u] = v16_first_or(s[u], n < 0 ? 0 : n, v16_set1(0));
        }
    }
    p_pack(v->p + g * P_BYTES, s, u0, n_units, v->p_form[g]);
    v16_store(v->l + (i_vec + g) * 16, l);
    v->m[i_vec + g] = m_new;
    v->keep[g] = v16_first_lane(keep);
}

// acc[g][16 * b ..] = acc * keep + p . v for n_b groups of dimensions from b0, over tokens t0 .. n_tok - 1.
V16 void weigh(const struct vecs *v, const struct chunk *c, int i_vec, int n_g, int b0, int n_b, int t0, int n_tok)
{
    sum acc[VECS][DIMS];
    float *dst = v->acc + (size_t)i_vec * v->d + b0 * 16;
    UNROLL for (int g = 0; g < n_g; g++)
    {
        UNROLL for (int b = 0; b < n_b; b++) acc[g][b] = v_begin(dst + (size_t)g * v->d + b * 16, v->keep[g]);
    }
    size_t first = v_offset(v->d) + (size_t)b0 * (16 / W) * LINE_BYTES;
    for (int t = t0; t < n_tok; t += W) {
        size_t at = first + (size_t)(t % QR_KV_UNIT / W) * LINE_BYTES;
        const uint8_t *src = c->unit[t / QR_KV_UNIT] + at, *ahead = c->ahead[t / QR_KV_UNIT] + at;
        UNROLL for (int b = 0; b < n_b; b++)
        {
            if (b0 + b >= v->d / 32) __builtin_prefetch(ahead + b * (16 / W) * LINE_BYTES, 0, 2);
        }
        UNROLL for (int j = 0; j < STEPS; j++)
        {
            part a[DIMS];
            if (!SCALED && j > 0 && t + j * PART_VALUES >= n_tok) break;
            UNROLL for (int b = 0; b < n_b; b++) a[b] = v_part(src + b * (16 / W) * LINE_BYTES, j);
#if !SCALED && W / STEPS == 2
            if (t + 2 > n_tok) {
                UNROLL for (int b = 0; b < n_b; b++) a[b] = part_first(a[b]);
            }
#endif
            UNROLL for (int g = 0; g < n_g; g++)
            {
                coef p = coef_load(v->p + g * P_BYTES, t / PART_VALUES + j);
                UNROLL for (int b = 0; b < n_b; b++) acc[g][b] = v_dot(acc[g][b], a[b], p);
            }
        }
    }
    UNROLL for (int g = 0; g < n_g; g++)
    {
        UNROLL for (int b = 0; b < n_b; b++)
            v_end(acc[g][b], dst + (size_t)g * v->d + b * 16, v->keep[g], v->p_form[g].scale);
    }
}

// Groups of dimensions descending, an order that no bit depends on: int8's long contexts take an eighth less time so
// (docs/PERFORMANCE.md, measured on a Zen 4; why is not known).
V16 void weigh_all(const struct vecs *v, const struct chunk *c, int i_vec, int n_g, int t0, int n_tok)
{
    int b = v->d / 16;
    for (int u = t0 / 16; SCALED && u * 16 < n_tok; u++)
        __builtin_prefetch(c->ahead[u] + v_offset(v->d) + k_bytes(v->d), 0, 2);
    for (; b >= DIMS; b -= DIMS) weigh(v, c, i_vec, n_g, b - DIMS, DIMS, t0, n_tok);
    if (DIMS > 2 && b >= 2) {
        weigh(v, c, i_vec, n_g, b - 2, 2, t0, n_tok);
        b -= 2;
    }
    if (DIMS > 1 && b > 0) weigh(v, c, i_vec, n_g, 0, 1, t0, n_tok);
}

V16 void chunk_n(struct vecs *v, const struct chunk *c, struct seen seen, int i_vec, int n_g, const struct qr_attn *a)
{
    int n_tok = seen.to[i_vec + n_g - 1], from = seen.from[i_vec] > 0 ? seen.from[i_vec] : 0;
    if (n_tok <= from) return; // to all of them the chunk is future, or before their windows
    int u0 = from / QR_KV_UNIT, n_units = (n_tok + QR_KV_UNIT - 1) / QR_KV_UNIT;
    scores_all(v, c, i_vec, n_g, u0, n_units);
    for (int g = 0; g < n_g; g++) {
        int i = i_vec + g, lo = seen.from[i] > 0 ? seen.from[i] : 0, hi = seen.to[i];
        bool as_before = g > 0 && hi == seen.to[i - 1] && lo == (seen.from[i - 1] > 0 ? seen.from[i - 1] : 0);
        v_ahead(v, c, g, n_g);
        v->p_form[g] = as_before ? v->p_form[g - 1] : p_form_of(v, c, lo, hi, u0, n_units);
        softmax(v, c, i_vec, g, lo, hi, u0, n_units, a);
    }
    weigh_all(v, c, i_vec, n_g, u0 * QR_KV_UNIT, n_tok);
}

static void chunk_vecs(struct vecs *v, const struct chunk *c, struct seen seen, const struct qr_attn *a)
{
    int i = 0;
    for (; i + VECS <= v->n; i += VECS) chunk_n(v, c, seen, i, VECS, a);
    switch (v->n - i) {
    case 3: chunk_n(v, c, seen, i, 3, a); break;
    case 2: chunk_n(v, c, seen, i, 2, a); break;
    case 1: chunk_n(v, c, seen, i, 1, a); break;
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
    *v = (struct vecs){.n = n, .d = d, .q_bytes = (size_t)d / PART_VALUES * COEF_BYTES};
    v->acc = (float *)mem;
    v->l = v->acc + (size_t)n * d;
    v->m = v->l + (size_t)n * 16;
    v->s = v->m + (n + 15) / 16 * 16;
    v->p = (uint8_t *)(v->s + VECS * CHUNK);
    v->form = (struct q_form *)(v->p + VECS * P_BYTES);
    v->q = (uint8_t *)(v->form + (n + 15) / 16 * 16);
    return v->q + (size_t)n * v->q_bytes;
}

static void vecs_set_q(struct vecs *v, int i, const float *q)
{
    v->form[i] = q_pack(v->q + (size_t)i * v->q_bytes, q, v->d);
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

// The last chunk asks for the first one of the worker's next task, in all its units: those that it has itself ask on
// their way, as ever.
static void ahead_of_task(struct chunk *c, const struct qr_attn *a, int n_units)
{
    struct cursor at = cursor_of(a->ahead, 0, a->ahead_end);
    int n = cursor_next(&at, c->ahead);
    for (int u = n_units; u < n; u++) {
        for (size_t i = 0; i < at.unit_bytes; i += LINE_BYTES) __builtin_prefetch(c->ahead[u] + i, 0, 2);
    }
}

static void decode_row(const struct qr_attn *a, int row)
{
    struct vecs all, v;
    int n = a->n_group, d = a->kv.d, end = a->pos0 + row + 1, from[16], to[16];
    int first = window_first(a, end), start = first / CHUNK * CHUNK;
    uint8_t *rest = vecs_carve(&all, n, d, a->scratch);
    vecs_carve(&v, n, d, rest);
    for (int g = 0; g < n; g++) vecs_set_q(&v, g, a->q + (size_t)row * a->ldq + (size_t)g * d);
    vecs_clear(&all);
    struct cursor at = cursor_of(&a->kv, start, end);
    struct chunk c, next;
    next.n_units = cursor_next(&at, next.unit);
    for (int pos = start; pos < end; pos += CHUNK) {
        if (pos % SPLIT == 0 || pos == start) vecs_clear(&v);
        chunk_next(&c, &next, &at);
        if (a->ahead && row == a->n_rows - 1 && pos + CHUNK >= end)
            ahead_of_task(&c, a, (end - pos + QR_KV_UNIT - 1) / QR_KV_UNIT);
        for (int g = 0; g < n; g++) {
            from[g] = first - pos;
            to[g] = end - pos < CHUNK ? end - pos : CHUNK;
        }
        chunk_vecs(&v, &c, (struct seen){from, to}, a);
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
    int from[16 * QR_ATTN_ROWS_MAX], to[16 * QR_ATTN_ROWS_MAX];
    int start = window_first(a, pos0 + 1) / CHUNK * CHUNK;
    vecs_carve(&v, n_rows * n_group, d, a->scratch);
    for (int i = 0; i < v.n; i++)
        vecs_set_q(&v, i, a->q + (size_t)(row0 + i / n_group) * a->ldq + (size_t)(i % n_group) * d);
    vecs_clear(&v);
    struct cursor at = cursor_of(&a->kv, start, end);
    struct chunk c, next;
    next.n_units = cursor_next(&at, next.unit);
    for (int pos = start; pos < end; pos += CHUNK) {
        chunk_next(&c, &next, &at);
        for (int i = 0; i < v.n; i++) {
            int row_end = pos0 + i / n_group + 1;
            to[i] = row_end - pos < CHUNK ? row_end - pos : CHUNK;
            from[i] = window_first(a, row_end) - pos;
        }
        chunk_vecs(&v, &c, (struct seen){from, to}, a);
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

#undef SPLIT
#undef LINE_BYTES
#endif
