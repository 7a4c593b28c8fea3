/* Attention of prompt rows on tiles, over KV in bf16, or in fp8 that becomes bf16 a chunk at a time. The including file
 * defines KERN_ISA, ATTN_PREFILL, ATTN_BF16 or ATTN_FP8, and the words of kern/x86/amx_internal.h.
 *
 * Owns: the loops. Refuses to know: who owns a block. Threads: pure functions over the task's scratch. Lifetime: static.
 *
 * Query vectors (row, head) of a call go through a chunk of 64 tokens together, 16 of them a tile:
 *
 *   qk      S = Q K^T       tiles of 16 vectors by 16 tokens; a unit's K, 32 dimensions of it, is an operand as it lies
 *   exps    P = 2^(S - m)   vectors of 16 tokens; P rounded to bf16
 *   pv      O = O keep + P V  tiles of 16 vectors by 16 dimensions; V of two units side by side is an operand of 32 tokens
 *
 * A row of a tile's sum depends on that row of the left operand alone, so a vector's bits do not depend on the others.
 * K of slots that nobody owns spoils scores that are masked; their V is zeroed, for its p is zero and 0 * NaN is NaN.
 * O is multiplied by keep only where that is not 1, which no bit shows. */
#if defined(__AVX512BF16__) && defined(ATTN_PREFILL)

#include <float.h>
#include <stdbool.h>
#include <string.h>

#include "base/assert.h"
#include "kern/kern_internal.h"
#include "kern/tmpl/attn_cursor_internal.h"
#include "kern/tmpl/v16_internal.h"

#define ROWS 16 // of a tile: query vectors
#define TILE_BYTES (ROWS * 64)
#define LOG2E 0x1.715476p+0f
#if defined(ATTN_FP8)
#define SCALED 1
#else
#define SCALED 0
#endif

static const struct amx_config tiles = {
    .palette = 1, .colsb = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

struct amx_attn {
    const struct qr_attn *a;
    int row0, n_vecs, n_tiles; // of the call's rows that are under way
    int n_parts, n_dims;       // parts of 32 dimensions of Q K^T, of 16 of P V
    int end;                   // positions that the last row sees
    float to_log2;             // of what qk leaves, or of capped scores
    uint8_t *q;                // (n_tiles, n_parts) tiles
    float *o;                  // (n_tiles, n_dims) tiles
    float *l;                  // (n_tiles, ROWS, 16) sums of p
    float *m;                  // (n_tiles, ROWS) largest scores
    // The chunk under way, as operands.
    int pos, u0, n_units;          // first position, units u0 .. n_units - 1 that somebody sees
    bool whole;                    // every vector sees all of it
    const uint8_t *k[CHUNK_UNITS]; // parts of 32 dimensions, TILE_BYTES each
    uint8_t *k_mem;                // (CHUNK_UNITS, n_parts) tiles, or with bf16 (CHUNK_UNITS) tiles of a last half part
    uint8_t *v;                    // (2, n_dims) tiles
    float *scales;                 // (2, CHUNK) of K and of V, SCALED
    // The tile of vectors under way.
    float *s;         // (ROWS, CHUNK) scores
    uint8_t *p;       // (ROWS, CHUNK) bf16
    float base[ROWS]; // what is taken from a scaled score
    float keep[ROWS];
    uint32_t moved;   // vectors whose keep is not 1
};

/* ==== Operands. ==== */

// The first n tokens of a line of pairs, or none.
V16 __m512i pairs_first(__m512i line, int n)
{
    if (n >= 2) return line;
    return n == 1 ? _mm512_and_si512(line, _mm512_set1_epi32(0xffff)) : _mm512_setzero_si512();
}

#if SCALED

// Lines of pairs from a line of fours: kern/kvtype/fp8.c says how a code is a bf16.
V16 __m512i bf16_of_codes(__m512i x)
{
    __mmask32 some = _mm512_test_epi16_mask(x, _mm512_set1_epi16(0x7800));
    x = _mm512_ternarylogic_epi32(_mm512_srai_epi16(x, 4), _mm512_set1_epi16((short)0x87f0), _mm512_set1_epi16(0x3800), 0xea);
    return _mm512_maskz_mov_epi16(some, x);
}

V16 void fours_to_pairs(const uint8_t *line, uint8_t *first, uint8_t *second)
{
    __m512i x = _mm512_loadu_si512(line);
    __m512i even = bf16_of_codes(_mm512_slli_epi16(x, 8)), odd = bf16_of_codes(x);
    _mm512_store_si512(first, _mm512_mask_mov_epi16(even, 0xaaaaaaaa, _mm512_slli_epi32(odd, 16)));
    _mm512_store_si512(second, _mm512_mask_mov_epi16(_mm512_srli_epi32(even, 16), 0xaaaaaaaa, odd));
}

static size_t v_offset(int d)
{
    return (size_t)d * QR_KV_UNIT + 64;
}

static void load_k(struct amx_attn *x, const uint8_t *const unit[CHUNK_UNITS])
{
    int n_lines = x->a->kv.d / 4;
    for (int u = x->u0; u < x->n_units; u++) {
        uint8_t *k = x->k_mem + (size_t)u * (size_t)x->n_parts * TILE_BYTES;
        for (int i = 0; i < n_lines; i++) fours_to_pairs(unit[u] + i * 64, k + i * 128, k + i * 128 + 64);
        if (x->a->kv.d % 32) memset(k + n_lines * 128, 0, TILE_BYTES / 2);
        x->k[u] = k;
        v16_store(x->scales + u * 16, v16_load((const float *)(const void *)(unit[u] + v_offset(x->a->kv.d) - 64)));
    }
}

// One unit's V, half of each tile, of which n_tok tokens are somebody's.
static void load_v_unit(struct amx_attn *x, const uint8_t *unit, int u, int n_tok)
{
    uint8_t *v = x->v + (size_t)(u / 2 * x->n_dims) * TILE_BYTES + u % 2 * (TILE_BYTES / 2);
    const uint8_t *from = unit + v_offset(x->a->kv.d);
    v16 scales = v16_load((const float *)(const void *)(from + x->n_dims * 256));
    for (int b = 0; b < x->n_dims; b++, v += TILE_BYTES, from += 256)
        for (int i = 0; i < 4; i++) fours_to_pairs(from + i * 64, v + i * 128, v + i * 128 + 64);
    v16_store(x->scales + CHUNK + u * 16, v16_first_or(scales, n_tok < QR_KV_UNIT ? n_tok : QR_KV_UNIT, v16_set1(0)));
}

#else

// K is read where it lies, but for a last half part: what lies behind it may be a NaN, which a zero does not silence.
static void load_k(struct amx_attn *x, const uint8_t *const unit[CHUNK_UNITS])
{
    int whole = x->a->kv.d / 32;
    for (int u = x->u0; u < x->n_units; u++) {
        x->k[u] = unit[u];
        if (x->a->kv.d % 32 == 0) continue;
        memcpy(x->k_mem + u * TILE_BYTES, unit[u] + whole * TILE_BYTES, TILE_BYTES / 2);
        memset(x->k_mem + u * TILE_BYTES + TILE_BYTES / 2, 0, TILE_BYTES / 2);
    }
}

static void load_v_unit(struct amx_attn *x, const uint8_t *unit, int u, int n_tok)
{
    uint8_t *v = x->v + (size_t)(u / 2 * x->n_dims) * TILE_BYTES + u % 2 * (TILE_BYTES / 2);
    const uint8_t *from = unit + x->n_dims * (TILE_BYTES / 2);
    if (n_tok >= QR_KV_UNIT) {
        for (int b = 0; b < x->n_dims; b++, v += TILE_BYTES, from += TILE_BYTES / 2)
            UNROLL for (int i = 0; i < 8; i++) _mm512_store_si512(v + i * 64, _mm512_loadu_si512(from + i * 64));
        return;
    }
    for (int b = 0; b < x->n_dims; b++, v += TILE_BYTES, from += TILE_BYTES / 2)
        for (int i = 0; i < 8; i++) _mm512_store_si512(v + i * 64, pairs_first(_mm512_loadu_si512(from + i * 64), n_tok - 2 * i));
}

#endif

static void zero_v_unit(struct amx_attn *x, int u)
{
    for (int b = 0; b < x->n_dims; b++)
        memset(x->v + (size_t)(u / 2 * x->n_dims + b) * TILE_BYTES + u % 2 * (TILE_BYTES / 2), 0, TILE_BYTES / 2);
    if (SCALED) v16_store(x->scales + CHUNK + u * 16, v16_set1(0));
}

// What a vector sees of a chunk: tokens from .. to - 1.
struct seen {
    int from, to;
};

static struct seen seen_of(const struct amx_attn *x, int i_vec)
{
    int i = i_vec < x->n_vecs ? i_vec : x->n_vecs - 1; // vectors that pad the last tile do as its last
    int row_end = x->a->pos0 + x->row0 + i / x->a->n_group + 1, from = window_first(x->a, row_end) - x->pos, to = row_end - x->pos;
    return (struct seen){from < 0 ? 0 : from > CHUNK ? CHUNK : from, to < 0 ? 0 : to > CHUNK ? CHUNK : to};
}

// The chunk at x->pos, whose units before the first row's window are left out.
static void load_chunk(struct amx_attn *x, struct cursor *at)
{
    const uint8_t *unit[CHUNK_UNITS];
    int first = window_first(x->a, x->a->pos0 + x->row0 + 1) - x->pos;
    x->n_units = cursor_next(at, unit);
    x->u0 = first > 0 ? first / QR_KV_UNIT : 0;
    x->whole = seen_of(x, 0).to == CHUNK && seen_of(x, x->n_vecs - 1).from == 0;
    load_k(x, unit);
    for (int u = x->u0 / 2 * 2; u < (x->n_units + 1) / 2 * 2; u++)
        if (u < x->u0 || u >= x->n_units)
            zero_v_unit(x, u);
        else
            load_v_unit(x, unit[u], u, x->end - x->pos - u * QR_KV_UNIT);
}

static void load_q(const struct amx_attn *x)
{
    int d = x->a->kv.d, n_group = x->a->n_group;
    memset(x->q, 0, (size_t)x->n_tiles * (size_t)x->n_parts * TILE_BYTES);
    for (int i = 0; i < x->n_vecs; i++) {
        const float *q = x->a->q + (size_t)(x->row0 + i / n_group) * x->a->ldq + (size_t)(i % n_group) * (size_t)d;
        uint8_t *to = x->q + (size_t)(i / ROWS * x->n_parts) * TILE_BYTES + i % ROWS * 64;
        for (int b = 0; b < x->n_dims; b++)
            _mm256_store_si256((__m256i *)(void *)(to + b / 2 * TILE_BYTES + b % 2 * 32),
                               (__m256i)_mm512_cvtneps_pbh(v16_load(q + b * 16)));
    }
}

/* ==== Products. ==== */

V16 const uint8_t *k_part(const struct amx_attn *x, int u, int part)
{
    if (!SCALED && (part + 1) * 32 > x->a->kv.d) return x->k_mem + u * TILE_BYTES;
    return x->k[u] + part * TILE_BYTES;
}

static void qk(const struct amx_attn *x, int tile)
{
    const uint8_t *q = x->q + (size_t)(tile * x->n_parts) * TILE_BYTES;
    if (x->n_units - x->u0 < CHUNK_UNITS) {
        for (int u = x->u0; u < x->n_units; u++) {
            AMX_ZERO(0);
            for (int i = 0; i < x->n_parts; i++) {
                AMX_LOAD(4, q + i * TILE_BYTES, 64);
                AMX_LOAD(6, k_part(x, u, i), 64);
                AMX_DOT_BF16(0, 4, 6);
            }
            AMX_STORE(0, x->s + u * 16, CHUNK * sizeof(float));
        }
        return;
    }
    AMX_ZERO(0);
    AMX_ZERO(1);
    AMX_ZERO(2);
    AMX_ZERO(3);
    for (int i = 0; i < x->n_parts; i++) {
        AMX_LOAD(4, q + i * TILE_BYTES, 64);
        AMX_LOAD(6, k_part(x, 0, i), 64);
        AMX_DOT_BF16(0, 4, 6);
        AMX_LOAD(7, k_part(x, 1, i), 64);
        AMX_DOT_BF16(1, 4, 7);
        AMX_LOAD(6, k_part(x, 2, i), 64);
        AMX_DOT_BF16(2, 4, 6);
        AMX_LOAD(7, k_part(x, 3, i), 64);
        AMX_DOT_BF16(3, 4, 7);
    }
    AMX_STORE(0, x->s, CHUNK * sizeof(float));
    AMX_STORE(1, x->s + 16, CHUNK * sizeof(float));
    AMX_STORE(2, x->s + 32, CHUNK * sizeof(float));
    AMX_STORE(3, x->s + 48, CHUNK * sizeof(float));
}

static void rescale(const struct amx_attn *x, int tile)
{
    float *o = x->o + (size_t)(tile * x->n_dims) * (ROWS * 16);
    for (uint32_t left = x->moved; left; left &= left - 1) {
        int r = __builtin_ctz(left);
        v16 keep = v16_set1(x->keep[r]);
        for (int b = 0; b < x->n_dims; b++) {
            float *at = o + b * ROWS * 16 + r * 16;
            v16_store(at, v16_mul(v16_load(at), keep));
        }
    }
}

static void pv(const struct amx_attn *x, int tile)
{
    float *o = x->o + (size_t)(tile * x->n_dims) * (ROWS * 16);
    int first = x->u0 / 2, n = (x->n_units + 1) / 2, b = 0;
    rescale(x, tile);
    for (; b + 4 <= x->n_dims; b += 4) {
        float *to = o + b * ROWS * 16;
        AMX_LOAD(0, to, 64);
        AMX_LOAD(1, to + 256, 64);
        AMX_LOAD(2, to + 512, 64);
        AMX_LOAD(3, to + 768, 64);
        for (int i = first; i < n; i++) {
            const uint8_t *v = x->v + (size_t)(i * x->n_dims + b) * TILE_BYTES;
            AMX_LOAD(4, x->p + i * 64, CHUNK * 2);
            AMX_LOAD(6, v, 64);
            AMX_DOT_BF16(0, 4, 6);
            AMX_LOAD(7, v + TILE_BYTES, 64);
            AMX_DOT_BF16(1, 4, 7);
            AMX_LOAD(6, v + 2 * TILE_BYTES, 64);
            AMX_DOT_BF16(2, 4, 6);
            AMX_LOAD(7, v + 3 * TILE_BYTES, 64);
            AMX_DOT_BF16(3, 4, 7);
        }
        AMX_STORE(0, to, 64);
        AMX_STORE(1, to + 256, 64);
        AMX_STORE(2, to + 512, 64);
        AMX_STORE(3, to + 768, 64);
    }
    for (; b < x->n_dims; b++) {
        AMX_LOAD(0, o + b * ROWS * 16, 64);
        for (int i = first; i < n; i++) {
            AMX_LOAD(4, x->p + i * 64, CHUNK * 2);
            AMX_LOAD(6, x->v + (size_t)(i * x->n_dims + b) * TILE_BYTES, 64);
            AMX_DOT_BF16(0, 4, 6);
        }
        AMX_STORE(0, o + b * ROWS * 16, 64);
    }
}

/* ==== Softmax. ==== */

/* 2^x for x <= 0 or a NaN: x = n + r with n the integer below; 1 + r (C1 + r (C2 + r C3)) is the minimax fit of the relative
 * error over 0 .. 1 that is 1 at 0: 8.6e-5, a twentieth of what rounding p to bf16 does. -inf gives 0. */
V16 v16 exp2_rough(v16 x)
{
    v16 r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    v16 p = v16_fma(v16_set1(0x1.3baaa6p-4f), r, v16_set1(0x1.d2378ap-3f));
    p = v16_fma(p, r, v16_set1(0x1.63e658p-1f));
    p = v16_fma(p, r, v16_set1(1.0f));
    return _mm512_scalef_ps(p, x);
}

// cap * tanh(s / cap); see kern/ref/attn.c.
static v16 capped(v16 s, float cap)
{
    v16 e = v16_exp(v16_mul(s, v16_set1(2 / cap)));
    return v16_sub(v16_set1(cap), v16_div(v16_set1(2 * cap), v16_add(e, v16_set1(1))));
}

V16 __mmask16 lanes_of(struct seen w, int u)
{
    uint64_t to = w.to == CHUNK ? ~(uint64_t)0 : ((uint64_t)1 << w.to) - 1, from = w.from == CHUNK ? 0 : ~(uint64_t)0 << w.from;
    return (__mmask16)((to & from) >> (u * 16));
}

// Scales and caps scores where that is asked for, and makes -inf of those that a vector does not see.
static void prepare(struct amx_attn *x, int tile)
{
    if (x->whole && !SCALED && x->a->softcap == 0) return;
    for (int r = 0; r < ROWS; r++) {
        struct seen w = x->whole ? (struct seen){0, CHUNK} : seen_of(x, tile * ROWS + r);
        for (int u = 0; u < CHUNK_UNITS; u++) {
            v16 y = v16_load(x->s + r * CHUNK + u * 16);
            if (SCALED) y = v16_mul(y, v16_load(x->scales + u * 16));
            if (x->a->softcap != 0) y = capped(v16_mul(y, v16_set1(x->a->scale)), x->a->softcap);
            v16_store(x->s + r * CHUNK + u * 16, _mm512_mask_mov_ps(v16_set1(-INFINITY), lanes_of(w, u), y));
        }
    }
}

// Lane r: the largest of y[r]'s lanes. Two registers become one of twice as many vectors, four times.
V16 v16 max_of_each(v16 y[ROWS])
{
    UNROLL for (int i = 0; i < 16; i += i % 4 == 3 ? 5 : 1)
        y[i] = v16_max(_mm512_shuffle_f32x4(y[i], y[i + 4], 0x44), _mm512_shuffle_f32x4(y[i], y[i + 4], 0xee));
    UNROLL for (int i = 0; i < 4; i++)
        y[i] = v16_max(_mm512_shuffle_f32x4(y[i], y[i + 8], 0x88), _mm512_shuffle_f32x4(y[i], y[i + 8], 0xdd));
    UNROLL for (int i = 0; i < 4; i += 2)
        y[i] = v16_max(_mm512_shuffle_ps(y[i], y[i + 1], 0x44), _mm512_shuffle_ps(y[i], y[i + 1], 0xee));
    return v16_max(_mm512_shuffle_ps(y[0], y[2], 0x88), _mm512_shuffle_ps(y[0], y[2], 0xdd));
}

// The largest score of every vector, and what follows from it for the chunk.
static void maxima(struct amx_attn *x, int tile)
{
    v16 top[ROWS], low = v16_set1(-INFINITY);
    float *m = x->m + tile * ROWS;
    UNROLL for (int r = 0; r < ROWS; r++)
    {
        top[r] = low; // passes over a NaN
        UNROLL for (int u = 0; u < CHUNK_UNITS; u++) top[r] = v16_max(v16_load(x->s + r * CHUNK + u * 16), top[r]);
    }
    v16 before = v16_load(m), now = v16_max(max_of_each(top), before);
    v16 base = v16_where_lt(now, -FLT_MAX, 0, now); // it has seen nothing yet: every p is 0, not a NaN
    v16 keep = exp2_rough(v16_mul(v16_sub(before, base), v16_set1(x->to_log2)));
    v16_store(m, now);
    v16_store(x->base, v16_mul(base, v16_set1(x->to_log2)));
    v16_store(x->keep, keep);
    x->moved = 0xffff & ~v16_eq_bits(keep, v16_set1(1));
}

// Scores become p.
static void exps(const struct amx_attn *x, int tile)
{
    v16 to_log2 = v16_set1(x->to_log2);
    for (int r = 0; r < ROWS; r++) {
        float *l_of = x->l + (tile * ROWS + r) * 16;
        v16 p[CHUNK_UNITS], base = v16_set1(x->base[r]), l = v16_mul(v16_load(l_of), v16_set1(x->keep[r]));
        UNROLL for (int u = 0; u < CHUNK_UNITS; u++)
            p[u] = exp2_rough(v16_fms(v16_load(x->s + r * CHUNK + u * 16), to_log2, base));
        v16_store(l_of, v16_add(l, v16_add(v16_add(p[0], p[1]), v16_add(p[2], p[3]))));
        UNROLL for (int u = 0; SCALED && u < CHUNK_UNITS; u++) p[u] = v16_mul(p[u], v16_load(x->scales + CHUNK + u * 16));
        _mm512_store_si512(x->p + r * CHUNK * 2, (__m512i)_mm512_cvtne2ps_pbh(p[1], p[0]));
        _mm512_store_si512(x->p + r * CHUNK * 2 + 64, (__m512i)_mm512_cvtne2ps_pbh(p[3], p[2]));
    }
}

/* ==== The walk. ==== */

static struct amx_attn begin(const struct qr_attn *a, int row0, int n_rows)
{
    int n = n_rows * a->n_group, d = a->kv.d;
    struct amx_attn x = {.a = a, .row0 = row0, .n_vecs = n, .n_tiles = (n + ROWS - 1) / ROWS, .n_parts = (d + 31) / 32,
                         .n_dims = d / 16, .end = a->pos0 + row0 + n_rows, .to_log2 = a->softcap != 0 ? LOG2E : a->scale * LOG2E};
    size_t n_all = (size_t)x.n_tiles * ROWS;
    x.q = a->scratch;
    x.o = (float *)(void *)(x.q + (size_t)(x.n_tiles * x.n_parts) * TILE_BYTES);
    x.l = x.o + n_all * (size_t)d;
    x.m = x.l + n_all * 16;
    x.scales = x.m + n_all;
    x.s = x.scales + 2 * CHUNK;
    x.p = (uint8_t *)(x.s + ROWS * CHUNK);
    x.v = x.p + ROWS * CHUNK * 2;
    x.k_mem = x.v + (size_t)(2 * x.n_dims) * TILE_BYTES;
    QR_DASSERT(x.k_mem + (size_t)(CHUNK_UNITS * (SCALED ? x.n_parts : 1)) * TILE_BYTES <= (uint8_t *)a->scratch + QR_ATTN_SCRATCH(a->n_group, d));
    load_q(&x);
    memset(x.o, 0, n_all * (size_t)(d + 16) * sizeof(float)); // and l
    for (size_t i = 0; i < n_all; i++) x.m[i] = -INFINITY;
    return x;
}

static void finish(const struct amx_attn *x)
{
    const struct qr_attn *a = x->a;
    for (int i = 0; i < x->n_vecs; i++) {
        v16 l = v16_set1(v16_sum(v16_load(x->l + i * 16)));
        const float *o = x->o + (size_t)(i / ROWS * x->n_dims) * (ROWS * 16) + i % ROWS * 16;
        float *out = a->out + (size_t)(x->row0 + i / a->n_group) * a->ldo + (size_t)(i % a->n_group) * (size_t)a->kv.d;
        for (int b = 0; b < x->n_dims; b++) v16_store(out + b * 16, v16_div(v16_load(o + b * ROWS * 16), l));
    }
}

static void prefill_rows(const struct qr_attn *a, int row0, int n_rows)
{
    struct amx_attn x = begin(a, row0, n_rows);
    int start = window_first(a, a->pos0 + row0 + 1) / CHUNK * CHUNK;
    struct cursor at = cursor_init(&a->kv, qr_kv_unit_bytes(SCALED ? QR_KV_FP8 : QR_KV_BF16, a->kv.d), start, x.end);
    for (x.pos = start; x.pos < x.end; x.pos += CHUNK) {
        load_chunk(&x, &at);
        for (int i = 0; i < x.n_tiles; i++) {
            qk(&x, i);
            prepare(&x, i);
            maxima(&x, i);
            exps(&x, i);
            pv(&x, i);
        }
    }
    finish(&x);
}

void KERN(ATTN_PREFILL)(const struct qr_attn *a)
{
    QR_ASSERT(a->n_group >= 1 && a->n_group <= 16 && a->scale > 0);
    amx_config(&tiles);
    for (int row = 0; row < a->n_rows; row += QR_ATTN_ROWS_MAX) {
        int left = a->n_rows - row;
        prefill_rows(a, row, left < QR_ATTN_ROWS_MAX ? left : QR_ATTN_ROWS_MAX);
    }
    amx_release();
}

#undef ROWS
#undef TILE_BYTES
#undef LOG2E
#endif
