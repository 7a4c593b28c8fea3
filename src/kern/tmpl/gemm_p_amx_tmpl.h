/* Class P on tiles: bf16 products of 32 k by 16 rows by a panel. The including file defines GEMM_NAME(x) and the words
 * of kern/x86/amx_internal.h.
 *
 * Owns: nothing. Refuses to know: threads.
 * Threads: pure functions over the caller's memory. Lifetime: static.
 *
 * A panel is unpacked to bf16 [k / 2][16][2], whose lines are rows of a tile. While one panel is multiplied, 64 rows at
 * a time, the next is unpacked between the products, a part of 32 k after every few, so that vectors and tiles work at
 * once. BF16 panels are read as they are. Where k is no multiple of 32 the last part is padded with zeros on both sides;
 * the last m % 16 rows are copied and padded.
 *   scratch: | two panels | padded rows | last part of 64 rows | sums |
 * An output is one accumulator over k in parts of 32, whatever the number of rows. */
#if defined(__AVX512BF16__) && defined(GEMM_NAME)

#include "base/assert.h"
#include "kern/tmpl/gemm_unpack_tmpl.h"

#define ROWS 16 // of a tile
#define PART 32 // k of a tile product
#define BLOCK 4 // tiles of rows at once
#define TILE_BYTES (ROWS * 64)

// Tiles 0 to 3 are sums, 4 to 6 activations, 7 weights.
static const struct amx_config tiles = {
    .palette = 1, .colsb = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

struct amx_p {
    const struct qr_gemm *g;
    int n_parts, n_blocks;  // of k, of rows
    struct qr_acts pad;     // the last m % 16 rows
    uint8_t *panels[2];     // unpacked: this one and the next
    uint8_t *last;          // (BLOCK * 16, PART): the last part of a block's rows, padded
    float *sums;            // (BLOCK, 16, 16)
};

// Part i of a panel into `out`.
static void unpack_one(const struct amx_p *a, int panel, int i, uint8_t *out)
{
    const struct qr_wmat *w = a->g->w;
    const uint8_t *from = w->data + (size_t)panel * w->panel_bytes;
    int k0 = i * PART, k1 = k0 + PART < w->k ? k0 + PART : w->k;
    if (k1 - k0 < PART) __builtin_memset(out + (size_t)i * TILE_BYTES, 0, TILE_BYTES);
    if (w->fmt != QR_W_BF16)
        unpack_part(w->fmt, from, k0, k1, EMIT_BF16, out);
    else if (k1 - k0 < PART) // whole parts are read where they are
        __builtin_memcpy(out + (size_t)i * TILE_BYTES, from + (size_t)i * TILE_BYTES, (size_t)(k1 - k0 + 1) / 2 * 64);
}

static const uint8_t *part_of(const struct amx_p *a, int panel, int i, const uint8_t *unpacked)
{
    const struct qr_wmat *w = a->g->w;
    if (w->fmt == QR_W_BF16 && (i + 1) * PART <= w->k)
        return w->data + (size_t)panel * w->panel_bytes + (size_t)i * TILE_BYTES;
    return unpacked + (size_t)i * TILE_BYTES;
}

// Where the rows of tile t of the block from r0 on lie, and the bytes from row to row.
static const uint8_t *rows_of(const struct amx_p *a, int r0, int t, size_t *stride)
{
    const struct qr_acts *acts = a->g->acts;
    int r = r0 + t * ROWS;
    *stride = r + ROWS <= acts->m ? acts->row_bytes : a->pad.row_bytes;
    return r + ROWS <= acts->m ? acts->a + (size_t)r * acts->row_bytes : a->pad.a;
}

// Copies the last part of a block's rows: what lies behind a row may be a NaN, which a zero does not silence.
static void pad_last(const struct amx_p *a, int r0, int n_tiles)
{
    int k0 = (a->n_parts - 1) * PART, n_pairs = (a->g->w->k - k0 + 1) / 2;
    for (int t = 0; t < n_tiles; t++) {
        size_t stride;
        const uint8_t *x = rows_of(a, r0, t, &stride);
        for (int r = 0; r < ROWS; r++) {
            __m512i v = _mm512_maskz_loadu_epi32((__mmask16)((1u << n_pairs) - 1), x + r * stride + 2 * (size_t)k0);
            _mm512_store_si512(a->last + (size_t)(t * ROWS + r) * 64, v);
        }
    }
}

// One block of n_tiles times 16 rows against one panel, part by part; the next panel is unpacked on the way.
static void block(const struct amx_p *a, int panel, int i_block, int n_tiles, const uint8_t *w, uint8_t *next)
{
    const uint8_t *x[BLOCK];
    size_t stride[BLOCK];
    int r0 = i_block * BLOCK * ROWS, whole = a->g->w->k / PART;
    for (int t = 0; t < n_tiles; t++) x[t] = rows_of(a, r0, t, &stride[t]);
    if (whole < a->n_parts) pad_last(a, r0, n_tiles);
    AMX_ZERO(0);
    AMX_ZERO(1);
    AMX_ZERO(2);
    AMX_ZERO(3);
    for (int i = 0; i < a->n_parts; i++) {
        size_t at = i < whole ? 64 * (size_t)i : 0;
        if (i == whole)
            for (int t = 0; t < n_tiles; t++) x[t] = a->last + t * TILE_BYTES, stride[t] = 64;
        AMX_LOAD(7, part_of(a, panel, i, w), 64);
        AMX_LOAD(4, x[0] + at, stride[0]);
        AMX_DOT_BF16(0, 4, 7);
        if (n_tiles > 1) {
            AMX_LOAD(5, x[1] + at, stride[1]);
            AMX_DOT_BF16(1, 5, 7);
        }
        if (n_tiles > 2) {
            AMX_LOAD(6, x[2] + at, stride[2]);
            AMX_DOT_BF16(2, 6, 7);
        }
        if (n_tiles > 3) {
            AMX_LOAD(4, x[3] + at, stride[3]);
            AMX_DOT_BF16(3, 4, 7);
        }
        // Block b of n unpacks the parts that are b modulo n.
        if (next && i % a->n_blocks == i_block % a->n_blocks) unpack_one(a, panel + 1, i, next);
    }
    AMX_STORE(0, a->sums, 64);
    if (n_tiles > 1) AMX_STORE(1, a->sums + 256, 64);
    if (n_tiles > 2) AMX_STORE(2, a->sums + 512, 64);
    if (n_tiles > 3) AMX_STORE(3, a->sums + 768, 64);
    for (int r = 0; r < n_tiles * ROWS && r0 + r < a->g->acts->m; r++)
        gemm_put(a->g, r0 + r, panel, 0, vf_load(a->sums + 16 * r));
}

static void layout(struct amx_p *a)
{
    const struct qr_acts *acts = a->g->acts;
    uint8_t *at = a->g->scratch;
    int n = acts->m % ROWS, r0 = acts->m - n;
    size_t panel_bytes = (size_t)a->n_parts * TILE_BYTES;
    a->panels[0] = at;
    a->panels[1] = at + panel_bytes;
    at += 2 * panel_bytes;
    qr_acts_init(&a->pad, QR_A_BF16, ROWS, acts->k, at);
    __builtin_memset(at, 0, ROWS * a->pad.row_bytes);
    for (int r = 0; r < n; r++)
        __builtin_memcpy(a->pad.a + r * a->pad.row_bytes, acts->a + (r0 + r) * acts->row_bytes, acts->row_bytes);
    at += ROWS * a->pad.row_bytes;
    a->last = at;
    a->sums = (float *)(at + BLOCK * TILE_BYTES);
    QR_DASSERT((uint8_t *)(a->sums + BLOCK * 256) <= (uint8_t *)a->g->scratch + QR_GEMM_SCRATCH(a->g->w->k));
}

void GEMM_NAME(p)(const struct qr_gemm *g)
{
    int n_tiles = (g->acts->m + ROWS - 1) / ROWS, i = 0;
    struct amx_p a = {.g = g, .n_parts = (g->w->k + PART - 1) / PART, .n_blocks = (n_tiles + BLOCK - 1) / BLOCK};
    layout(&a);
    for (int part = 0; part < a.n_parts; part++) unpack_one(&a, g->panel0, part, a.panels[0]);
    amx_config(&tiles);
    for (int p = g->panel0; p < g->panel1; p++, i ^= 1)
        for (int b = 0; b < a.n_blocks; b++) {
            int n = n_tiles - b * BLOCK < BLOCK ? n_tiles - b * BLOCK : BLOCK;
            block(&a, p, b, n, a.panels[i], p + 1 < g->panel1 ? a.panels[i ^ 1] : NULL);
        }
    amx_release();
}

#endif
