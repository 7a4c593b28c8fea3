/* Class P on tiles: bf16 products of 32 k by 32 rows by two panels. The including file defines GEMM_NAME(x) and the words
 * of kern/x86/amx_internal.h.
 *
 * Owns: nothing. Refuses to know: threads.
 * Threads: pure functions over the caller's memory. Lifetime: static.
 *
 * A panel is unpacked to bf16 [k / 2][16][2], whose lines are rows of a tile. While two panels are multiplied, 32 rows at
 * a time, the next two are unpacked between the products, a part of 32 k after every few, so that vectors and tiles work at
 * once. BF16 panels are read as they are. Four tiles are loaded for four products. All of k at once: sums that leave the
 * tiles between parts of k cost more than the first-level cache wins. Where k is no multiple of 32 the last part is padded
 * with zeros on both sides; the last m % 16 rows are copied and padded.
 *   scratch: | four panels | padded rows | last part of 32 rows | sums |
 * An output is one accumulator over k in parts of 32, whatever the number of rows. */
#if defined(__AVX512BF16__) && defined(GEMM_NAME)

#include "base/assert.h"
#include "kern/tmpl/gemm_unpack_tmpl.h"

#define ROWS 16 // of a tile
#define PART 32 // k of a tile product
#define TILE_BYTES (ROWS * 64)

// Tiles 0 to 3 are sums, 4 and 5 activations, 6 and 7 weights.
static const struct amx_config tiles = {
    .palette = 1, .colsb = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

struct amx_p {
    const struct qr_gemm *g;
    int n_parts, n_blocks;    // of k, of 32 rows
    struct qr_acts pad;       // the last m % 16 rows
    uint8_t *unpacked[2][2];  // these two panels and the next two
    uint8_t *last;            // (32, PART): the last part of a block's rows, padded
    float *sums;              // (2, 2, 16, 16): tile of rows, panel, row, output
};

// Part i of a panel into `out`. Whole parts of BF16 are read where they are, and only fetched.
__attribute__((noinline)) static void unpack_one(const struct amx_p *a, int panel, int i, uint8_t *out)
{
    const struct qr_wmat *w = a->g->w;
    const uint8_t *from = w->data + (size_t)panel * w->panel_bytes;
    int k0 = i * PART, k1 = k0 + PART < w->k ? k0 + PART : w->k;
    if (k1 - k0 < PART) __builtin_memset(out + (size_t)i * TILE_BYTES, 0, TILE_BYTES);
    if (w->fmt != QR_W_BF16)
        unpack_part(w->fmt, from, k0, k1, EMIT_BF16, out);
    else if (k1 - k0 < PART)
        __builtin_memcpy(out + (size_t)i * TILE_BYTES, from + (size_t)i * TILE_BYTES, (size_t)(k1 - k0 + 1) / 2 * 64);
    else
        for (int line = 0; line < ROWS; line++) __builtin_prefetch(from + (size_t)i * TILE_BYTES + 64 * line, 0, 2);
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

// Sums of R tiles of rows by P panels reach y.
SIMD_INLINE void put(const struct amx_p *a, int panel, int r0, const int R, const int P)
{
    const struct qr_gemm *g = a->g;
    if (!g->bias && !g->add && r0 + R * ROWS <= g->acts->m && (panel + P) * QR_PANEL <= g->w->n) {
        float *y = g->y + (size_t)r0 * g->ldy + (size_t)panel * QR_PANEL;
        AMX_STORE(0, y, g->ldy * sizeof *y);
        if (P > 1) AMX_STORE(1, y + QR_PANEL, g->ldy * sizeof *y);
        if (R > 1) AMX_STORE(2, y + ROWS * g->ldy, g->ldy * sizeof *y);
        if (R > 1 && P > 1) AMX_STORE(3, y + ROWS * g->ldy + QR_PANEL, g->ldy * sizeof *y);
        return;
    }
    AMX_STORE(0, a->sums, 64);
    if (P > 1) AMX_STORE(1, a->sums + 256, 64);
    if (R > 1) AMX_STORE(2, a->sums + 512, 64);
    if (R > 1 && P > 1) AMX_STORE(3, a->sums + 768, 64);
    for (int r = 0; r < R * ROWS && r0 + r < g->acts->m; r++)
        for (int p = 0; p < P; p++)
            gemm_put(g, r0 + r, panel + p, 0, vf_load(a->sums + 512 * (r / ROWS) + 256 * p + 16 * (r % ROWS)));
}

// One block of R tiles of rows against P panels, part by part. Of n_next more panels, block b of n unpacks every n-th
// part, from the b-th on.
SIMD_INLINE void block(const struct amx_p *a, int panel, int i_block, int i_buf, int n_next, const int R, const int P)
{
    const uint8_t *x[2] = {NULL, NULL};
    size_t stride[2] = {0, 0};
    int r0 = i_block * 2 * ROWS, whole = a->g->w->k / PART, wait = i_block;
    for (int t = 0; t < R; t++) x[t] = rows_of(a, r0, t, &stride[t]);
    if (whole < a->n_parts) pad_last(a, r0, R);
    AMX_ZERO(0);
    AMX_ZERO(1);
    AMX_ZERO(2);
    AMX_ZERO(3);
    for (int r = r0; r < r0 + R * ROWS && r < a->g->acts->m; r++) // to be there when the sums are
        for (int p = 0; p < P; p++) __builtin_prefetch(a->g->y + (size_t)r * a->g->ldy + (size_t)(panel + p) * QR_PANEL, 1);
    for (int i = 0; i < a->n_parts; i++) {
        size_t at = i < whole ? 64 * (size_t)i : 0;
        if (i == whole)
            for (int t = 0; t < R; t++) x[t] = a->last + t * TILE_BYTES, stride[t] = 64;
        AMX_LOAD(4, x[0] + at, stride[0]);
        AMX_LOAD(6, part_of(a, panel, i, a->unpacked[i_buf][0]), 64);
        AMX_DOT_BF16(0, 4, 6);
        if (P > 1) {
            AMX_LOAD(7, part_of(a, panel + 1, i, a->unpacked[i_buf][1]), 64);
            AMX_DOT_BF16(1, 4, 7);
        }
        if (R > 1) {
            AMX_LOAD(5, x[1] + at, stride[1]);
            AMX_DOT_BF16(2, 5, 6);
        }
        if (R > 1 && P > 1) AMX_DOT_BF16(3, 5, 7);
        for (int j = 0; j < n_next; j++) {
            if (wait-- > 0) continue;
            unpack_one(a, panel + P + j, i, a->unpacked[i_buf ^ 1][j]);
            wait = a->n_blocks - 1;
        }
    }
    put(a, panel, r0, R, P);
}

#define BLOCK(R, P)                                                                                          \
    static void block_##R##x##P(const struct amx_p *a, int panel, int i_block, int i_buf, int n_next)        \
    {                                                                                                        \
        block(a, panel, i_block, i_buf, n_next, R, P);                                                       \
    }
BLOCK(1, 1)
BLOCK(1, 2)
BLOCK(2, 1)
BLOCK(2, 2)

static void layout(struct amx_p *a)
{
    const struct qr_acts *acts = a->g->acts;
    uint8_t *at = a->g->scratch;
    int n = acts->m % ROWS, r0 = acts->m - n;
    size_t panel_bytes = (size_t)a->n_parts * TILE_BYTES;
    for (int i = 0; i < 4; i++, at += panel_bytes) a->unpacked[i / 2][i % 2] = at;
    qr_acts_init(&a->pad, QR_A_BF16, ROWS, acts->k, at);
    if (n > 0) __builtin_memset(at, 0, ROWS * a->pad.row_bytes);
    for (int r = 0; r < n; r++)
        __builtin_memcpy(a->pad.a + r * a->pad.row_bytes, acts->a + (r0 + r) * acts->row_bytes, acts->row_bytes);
    at += ROWS * a->pad.row_bytes;
    a->last = at;
    a->sums = (float *)(at + 2 * TILE_BYTES);
    QR_DASSERT((uint8_t *)(a->sums + 4 * 256) <= (uint8_t *)a->g->scratch + QR_GEMM_SCRATCH(a->g->w->k));
}

void GEMM_NAME(p)(const struct qr_gemm *g)
{
    typedef void block_fn(const struct amx_p *a, int panel, int i_block, int i_buf, int n_next);
    static block_fn *const blocks[2][2] = {{block_1x1, block_1x2}, {block_2x1, block_2x2}};
    int n_tiles = (g->acts->m + ROWS - 1) / ROWS, n = g->panel1 - g->panel0 < 2 ? 1 : 2, i_buf = 0;
    struct amx_p a = {.g = g, .n_parts = (g->w->k + PART - 1) / PART, .n_blocks = (n_tiles + 1) / 2};
    layout(&a);
    for (int part = 0; part < a.n_parts; part++)
        for (int j = 0; j < n; j++) unpack_one(&a, g->panel0 + j, part, a.unpacked[0][j]);
    amx_config(&tiles);
    for (int p = g->panel0, n_next; p < g->panel1; p += n, n = n_next, i_buf ^= 1) {
        n_next = g->panel1 - p - n < 2 ? g->panel1 - p - n : 2;
        for (int b = 0; b < a.n_blocks; b++) blocks[n_tiles - 2 * b > 1][n - 1](&a, p, b, i_buf, n_next);
    }
    amx_release();
}

#endif
