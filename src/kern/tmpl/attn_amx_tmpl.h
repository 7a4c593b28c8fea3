/* Attention of prompt rows on tiles. The including file defines KERN_ISA, ATTN_PREFILL, ATTN_BF16, ATTN_FP8 or ATTN_INT8, and
 * the words of kern/x86/amx_internal.h.
 *
 * Owns: the walk over chunks. Refuses to know: what tiles hold. Threads: pure functions over the task's scratch.
 * Lifetime: static.
 *
 * Query vectors (row, head) of a call go through a chunk of 64 tokens together, 16 of them a tile: for each chunk, its K and V
 * become operands, then for each tile of vectors attend() adds what it brings. attn_amx_pairs_internal.h (bf16, fp8) and
 * attn_amx_int8_internal.h say how, in these words:
 *
 *   KV, PART      the KV type; dimensions of a part, one tile of K
 *   Q_TILES       tiles that hold a part of 16 vectors
 *   S_TILES, V_TILES, K_TILES(x)   tiles of scores; of V for 16 dimensions; of copied K for the chunk
 *   load_q        queries as operands
 *   load_k, load_v_unit, zero_v_unit   units of a chunk as operands; the last one is of a unit that nobody sees
 *   load_end      what is to be known of the chunk as a whole
 *
 * A row of a tile's sum depends on that row of the left operand alone, so a vector's bits do not depend on the others. */
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

static const struct amx_config tiles = {
    .palette = 1, .colsb = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

struct amx_attn {
    const struct qr_attn *a;
    int row0, n_vecs, n_tiles; // of the call's rows that are under way
    int n_parts, n_dims;       // parts of Q K^T; sixteens of dimensions of P V
    int end;                   // positions that the last row sees
    uint8_t *q;                // (n_tiles, n_parts, Q_TILES) tiles
    float *o;                  // (n_tiles, n_dims) tiles
    float *l;                  // (n_tiles, ROWS, 16) sums of p
    float *m;                  // (n_tiles, ROWS) largest scores
    float *q_scale;            // (n_tiles, ROWS) int8
    int32_t *q_bias;           // (n_tiles, ROWS) int8: -128 * sum of the integers
    // The chunk under way, as operands.
    int pos, u0, n_units;          // first position, units u0 .. n_units - 1 that somebody sees
    bool whole;                    // every vector sees all of it
    const uint8_t *k[CHUNK_UNITS]; // parts, TILE_BYTES each
    uint8_t *k_mem;                // K_TILES
    uint8_t *v;                    // (n_dims, V_TILES), or (V_TILES, n_dims): the includer's
    float *scales;                 // (2, CHUNK) of K and of V where a token has them
    float v_scale, v_inverse;      // int8: of p * scale of V, where the chunk is whole
    // The tile of vectors under way.
    float *s;         // (S_TILES) tiles: scores
    uint8_t *p;       // (2) tiles
    float base[ROWS]; // what is taken from a score
    float keep[ROWS];
    uint32_t moved;   // vectors whose keep is not 1
};

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

V16 __mmask16 lanes_of(struct seen w, int u)
{
    uint64_t to = w.to == CHUNK ? ~(uint64_t)0 : ((uint64_t)1 << w.to) - 1, from = w.from == CHUNK ? 0 : ~(uint64_t)0 << w.from;
    return (__mmask16)((to & from) >> (u * 16));
}

// cap * tanh(s / cap); see kern/ref/attn.c.
static v16 capped(v16 s, float cap)
{
    v16 e = v16_exp(v16_mul(s, v16_set1(2 / cap)));
    return v16_sub(v16_set1(cap), v16_div(v16_set1(2 * cap), v16_add(e, v16_set1(1))));
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

#if defined(ATTN_INT8)
#include "kern/tmpl/attn_amx_int8_internal.h"
#else
#include "kern/tmpl/attn_amx_pairs_internal.h"
#endif

/* ==== The walk. ==== */

// The chunk at x->pos, whose units before the first row's window are left out.
static void load_chunk(struct amx_attn *x, struct cursor *at)
{
    const uint8_t *unit[CHUNK_UNITS];
    int first = window_first(x->a, x->a->pos0 + x->row0 + 1) - x->pos;
    x->n_units = cursor_next(at, unit);
    x->u0 = first > 0 ? first / QR_KV_UNIT : 0;
    x->whole = seen_of(x, 0).to == CHUNK && seen_of(x, x->n_vecs - 1).from == 0;
    load_k(x, unit);
    for (int u = 0; u < CHUNK_UNITS; u++)
        if (u < x->u0 || u >= x->n_units)
            zero_v_unit(x, u);
        else
            load_v_unit(x, unit[u], u, x->end - x->pos - u * QR_KV_UNIT);
    load_end(x);
}

static struct amx_attn begin(const struct qr_attn *a, int row0, int n_rows)
{
    int n = n_rows * a->n_group, d = a->kv.d;
    struct amx_attn x = {.a = a, .row0 = row0, .n_vecs = n, .n_tiles = (n + ROWS - 1) / ROWS, .n_parts = (d + PART - 1) / PART,
                         .n_dims = d / 16, .end = a->pos0 + row0 + n_rows};
    size_t n_all = (size_t)x.n_tiles * ROWS;
    x.q = a->scratch;
    x.o = (float *)(void *)(x.q + (size_t)(x.n_tiles * x.n_parts * Q_TILES) * TILE_BYTES);
    x.l = x.o + n_all * (size_t)d;
    x.m = x.l + n_all * 16;
    x.q_scale = x.m + n_all;
    x.q_bias = (int32_t *)(void *)(x.q_scale + n_all);
    x.scales = (float *)(void *)(x.q_bias + n_all);
    x.s = x.scales + 2 * CHUNK;
    x.p = (uint8_t *)x.s + S_TILES * TILE_BYTES;
    x.v = x.p + 2 * TILE_BYTES;
    x.k_mem = x.v + (size_t)(x.n_dims * V_TILES) * TILE_BYTES;
    uint8_t *end = x.k_mem + (size_t)K_TILES(&x) * TILE_BYTES;
    QR_DASSERT(end <= (uint8_t *)a->scratch + QR_ATTN_SCRATCH(a->n_group, d));
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
    struct cursor at = cursor_init(&a->kv, qr_kv_unit_bytes(KV, a->kv.d), start, x.end);
    for (x.pos = start; x.pos < x.end; x.pos += CHUNK) {
        load_chunk(&x, &at);
        for (int i = 0; i < x.n_tiles; i++) attend(&x, i);
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
#endif
