/* Words of attn_amx_tmpl.h for int8 KV: exact integer sums, the bits of kern/kvtype/int8.c.
 *
 * Owns: nothing. Refuses to know: the walk. Threads: pure functions. Lifetime: static.
 *
 *   qk      Q K^T in integers   Q as 128 * hi + lo with signs, K without; 64 dimensions of a unit's K are an operand as it lies
 *   scores  S, and p of it      vectors of 16 tokens; P in integers as 128 * hi + lo
 *   pv      P V in integers     P without signs, V with; 64 tokens of 16 dimensions are an operand
 *   add     O = O keep + scale * that
 *
 * Packing P leaves tokens of a chunk in the order (four of unit 0, four of unit 1, ..): quads of V are copied in that order.
 * Integers know no NaN: what nobody owns is multiplied by zero, but scales of V of such tokens are made zero. */
#if defined(KERN_ISA)

#include "kern/tmpl/attn_int8_scales_internal.h"

#define KV QR_KV_INT8
#define PART 64
#define Q_TILES 2 // hi, lo
#define S_TILES 8 // (2, ROWS, CHUNK) hi and lo as rows of tokens; then sums of P V
#define V_TILES 1
#define K_TILES(x) CHUNK_UNITS // of a head size of 16, whose unit is shorter than a tile

/* ==== Operands. ==== */

static void load_q(const struct amx_attn *x)
{
    int d = x->a->kv.d, n_group = x->a->n_group;
    memset(x->q, 0, (size_t)(x->n_tiles * x->n_parts * Q_TILES) * TILE_BYTES);
    memset(x->q_scale, 0, (size_t)x->n_tiles * ROWS * 2 * sizeof(float)); // and q_bias
    for (int i = 0; i < x->n_vecs; i++) {
        const float *q = x->a->q + (size_t)(x->row0 + i / n_group) * x->a->ldq + (size_t)(i % n_group) * (size_t)d;
        int8_t *to = (int8_t *)x->q + (size_t)(i / ROWS * x->n_parts * Q_TILES) * TILE_BYTES + i % ROWS * 64;
        v16i most = v16i_zero(), all = v16i_zero();
        for (int b = 0; b < d; b += 16) most = v16i_max(most, v16i_magnitude(v16_load(q + b)));
        float inverse;
        x->q_scale[i] = v16_scale_of(most, Q_TOP, &inverse);
        for (int b = 0; b < d; b += 16) {
            v16i y = rounded(v16_load(q + b), inverse);
            int8_t *hi = to + b / PART * Q_TILES * TILE_BYTES + b % PART;
            all = v16i_add(all, y);
            v16i_store_15(hi, hi + TILE_BYTES, y);
        }
        x->q_bias[i] = -128 * v16i_sum(all);
    }
}

// Behind a last part lie scales and V, which meet zeros of Q.
static void load_k(struct amx_attn *x, const uint8_t *const unit[CHUNK_UNITS])
{
    int d = x->a->kv.d;
    for (int u = 0; u < CHUNK_UNITS; u++) {
        const uint8_t *from = unit[u < x->u0 ? x->u0 : u]; // any that may be read
        x->k[u] = from;
        v16_store(x->scales + u * 16, v16_load((const float *)(const void *)(from + d * QR_KV_UNIT)));
        if (d > 16) continue;
        memcpy(x->k_mem + u * TILE_BYTES, from, 16 * 16);
        memset(x->k_mem + u * TILE_BYTES + 16 * 16, 0, TILE_BYTES - 16 * 16);
        x->k[u] = x->k_mem + u * TILE_BYTES;
    }
}

static void load_v_unit(struct amx_attn *x, const uint8_t *unit, int u, int n_tok)
{
    const uint8_t *from = unit + x->a->kv.d * QR_KV_UNIT + 64;
    uint8_t *v = x->v + u * 64;
    for (int b = 0; b < x->n_dims; b++, v += TILE_BYTES, from += 256)
        UNROLL for (int i = 0; i < 4; i++) _mm512_store_si512(v + i * 256, _mm512_loadu_si512(from + i * 64));
    v16 scales = v16_load((const float *)(const void *)from);
    v16_store(x->scales + CHUNK + u * 16, v16_first_or(scales, n_tok < QR_KV_UNIT ? n_tok : QR_KV_UNIT, v16_set1(0)));
}

static void zero_v_unit(struct amx_attn *x, int u)
{
    v16_store(x->scales + CHUNK + u * 16, v16_set1(0));
}

// Scale and inverse of the weights of a vector that sees w.
static void weights_of(const struct amx_attn *x, struct seen w, float *scale, float *inverse)
{
    v16i most = v16i_zero();
    UNROLL for (int u = 0; u < CHUNK_UNITS; u++)
    {
        v16i y = v16i_magnitude(v16_load(x->scales + CHUNK + u * 16));
        most = _mm512_mask_max_epi32(most, lanes_of(w, u), most, y);
    }
    *scale = v16_scale_of(most, P_TOP, inverse);
}

static void load_end(struct amx_attn *x)
{
    if (x->whole) weights_of(x, (struct seen){0, CHUNK}, &x->v_scale, &x->v_inverse);
}

/* ==== Scores. ==== */

#define S_LO (ROWS * CHUNK) // of lower halves behind upper ones

static void qk(const struct amx_attn *x, int tile)
{
    const uint8_t *q = x->q + (size_t)(tile * x->n_parts * Q_TILES) * TILE_BYTES;
    for (int u = x->u0 / 2 * 2; u < x->n_units; u += 2) {
        float *s = x->s + u * 16;
        AMX_ZERO(0);
        AMX_ZERO(1);
        AMX_ZERO(2);
        AMX_ZERO(3);
        for (int i = 0; i < x->n_parts; i++) {
            AMX_LOAD(4, q + 2 * i * TILE_BYTES, 64);
            AMX_LOAD(6, x->k[u] + i * TILE_BYTES, 64);
            AMX_DOT_SU8(0, 4, 6);
            AMX_LOAD(5, q + (2 * i + 1) * TILE_BYTES, 64);
            AMX_DOT_SU8(1, 5, 6);
            AMX_LOAD(7, x->k[u + 1] + i * TILE_BYTES, 64);
            AMX_DOT_SU8(2, 4, 7);
            AMX_DOT_SU8(3, 5, 7);
        }
        AMX_STORE(0, s, CHUNK * sizeof(float));
        AMX_STORE(1, s + S_LO, CHUNK * sizeof(float));
        AMX_STORE(2, s + 16, CHUNK * sizeof(float));
        AMX_STORE(3, s + S_LO + 16, CHUNK * sizeof(float));
    }
}

V16 v16i ints_of(const float *hi, const float *lo)
{
    return v16i_add(_mm512_slli_epi32(_mm512_loadu_si512(hi), 7), _mm512_loadu_si512(lo));
}

// The largest score of a row whose integers become scores; -inf where the vector does not see.
V16 v16 scores_of(const struct amx_attn *x, int tile, int r, bool plain)
{
    int i = tile * ROWS + r;
    float *s = x->s + r * CHUNK;
    v16 scale = v16_set1(x->a->scale), q_scale = v16_set1(x->q_scale[i]), low = v16_set1(-INFINITY), top = low;
    v16i bias = v16i_set1(x->q_bias[i]);
    struct seen w = {0, CHUNK};
    if (!plain && !x->whole) w = seen_of(x, i);
    UNROLL for (int u = 0; u < CHUNK_UNITS; u++)
    {
        v16 y = v16_mul(v16i_to_v16(v16i_add(ints_of(s + u * 16, s + S_LO + u * 16), bias)), q_scale);
        y = v16_mul(v16_mul(y, v16_load(x->scales + u * 16)), scale);
        if (!plain && x->a->softcap != 0) y = capped(y, x->a->softcap);
        if (!plain) y = _mm512_mask_mov_ps(low, lanes_of(w, u), y);
        v16_store(s + u * 16, y);
        top = v16_max(y, top); // passes over a NaN
    }
    return top;
}

static void maxima(struct amx_attn *x, int tile)
{
    v16 top[ROWS];
    float *m = x->m + tile * ROWS;
    if (x->whole && x->a->softcap == 0) {
        for (int r = 0; r < ROWS; r++) top[r] = scores_of(x, tile, r, true);
    } else {
        for (int r = 0; r < ROWS; r++) top[r] = scores_of(x, tile, r, false);
    }
    v16 before = v16_load(m), now = v16_max(max_of_each(top), before);
    v16 base = v16_where_lt(now, -FLT_MAX, 0, now); // it has seen nothing yet: every p is 0, not a NaN
    v16_store(m, now);
    v16_store(x->base, base);
    v16_store(x->keep, v16_exp_small(v16_sub(before, base)));
}

// v16_exp_small's bits: 2^n meets no denormal, so that it may be multiplied in at once.
V16 v16 exp_of(v16 x)
{
    v16 t, p = v16_exp_parts(x, &t), n = v16_sub(t, v16_set1(REF_EXP_ROUND));
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, v16_set1(REF_EXP_LO), _CMP_NLT_UQ), p, n);
}

// 64 weights as bytes: tokens in the order that V has.
V16 void pack(uint8_t *hi, uint8_t *lo, const v16i w[CHUNK_UNITS])
{
    __m512i a = _mm512_packus_epi32(w[0], w[1]), b = _mm512_packus_epi32(w[2], w[3]), low = _mm512_set1_epi16(127);
    _mm512_store_si512(hi, _mm512_packus_epi16(_mm512_srli_epi16(a, 7), _mm512_srli_epi16(b, 7)));
    _mm512_store_si512(lo, _mm512_packus_epi16(_mm512_and_si512(a, low), _mm512_and_si512(b, low)));
}

static void exps(const struct amx_attn *x, int tile, float scale[ROWS])
{
    for (int r = 0; r < ROWS; r++) {
        float *l_of = x->l + (tile * ROWS + r) * 16, inverse = x->v_inverse;
        v16 base = v16_set1(x->base[r]), l = v16_mul(v16_load(l_of), v16_set1(x->keep[r]));
        v16i w[CHUNK_UNITS];
        scale[r] = x->v_scale;
        if (!x->whole) weights_of(x, seen_of(x, tile * ROWS + r), &scale[r], &inverse);
        UNROLL for (int u = 0; u < CHUNK_UNITS; u++)
        {
            v16 p = exp_of(v16_sub(v16_load(x->s + r * CHUNK + u * 16), base));
            l = v16_add(l, p);
            w[u] = rounded(v16_mul(p, v16_load(x->scales + CHUNK + u * 16)), inverse);
        }
        v16_store(l_of, l);
        pack(x->p + r * 64, x->p + TILE_BYTES + r * 64, w);
    }
}

/* ==== Sums. ==== */

// o = o * keep + scale * integers, of 16 dimensions of every vector.
static void add(const struct amx_attn *x, float *o, const float *hi, const float *lo, const float scale[ROWS])
{
    for (int r = 0; r < ROWS; r++, o += 16, hi += 16, lo += 16) {
        v16 kept = v16_mul(v16_load(o), v16_set1(x->keep[r]));
        v16_store(o, v16_fma(v16i_to_v16(ints_of(hi, lo)), v16_set1(scale[r]), kept));
    }
}

static void pv(const struct amx_attn *x, int tile, const float scale[ROWS])
{
    float *o = x->o + (size_t)(tile * x->n_dims) * (ROWS * 16), *s = x->s;
    int b = 0;
    AMX_LOAD(4, x->p, 64);
    AMX_LOAD(5, x->p + TILE_BYTES, 64);
    for (; b + 2 <= x->n_dims; b += 2, o += 2 * ROWS * 16) {
        AMX_ZERO(0);
        AMX_ZERO(1);
        AMX_ZERO(2);
        AMX_ZERO(3);
        AMX_LOAD(6, x->v + b * TILE_BYTES, 64);
        AMX_DOT_US8(0, 4, 6);
        AMX_DOT_US8(1, 5, 6);
        AMX_LOAD(7, x->v + (b + 1) * TILE_BYTES, 64);
        AMX_DOT_US8(2, 4, 7);
        AMX_DOT_US8(3, 5, 7);
        AMX_STORE(0, s, 64);
        AMX_STORE(1, s + 256, 64);
        AMX_STORE(2, s + 512, 64);
        AMX_STORE(3, s + 768, 64);
        add(x, o, s, s + 256, scale);
        add(x, o + ROWS * 16, s + 512, s + 768, scale);
    }
    if (b == x->n_dims) return;
    AMX_ZERO(0);
    AMX_ZERO(1);
    AMX_LOAD(6, x->v + b * TILE_BYTES, 64);
    AMX_DOT_US8(0, 4, 6);
    AMX_DOT_US8(1, 5, 6);
    AMX_STORE(0, s, 64);
    AMX_STORE(1, s + 256, 64);
    add(x, o, s, s + 256, scale);
}

static void attend(struct amx_attn *x, int tile)
{
    float scale[ROWS];
    qk(x, tile);
    maxima(x, tile);
    exps(x, tile, scale);
    pv(x, tile, scale);
}

#undef S_LO
#endif
