/* Products with float32 sums, k ascending, one accumulator an output: class F over every format, class D over
 * floats, and class P where there are no bf16 instructions. For the instruction set of the including
 * file, which defines GEMM_NAME(x), the full name of a kernel.
 *
 * Owns: nothing. Refuses to know: threads.
 * Threads: pure functions over the caller's memory. Lifetime: static.
 *
 * Panels of floats are read as they are (class P rounds F16 first); others are unpacked into scratch once as float32 [k][16], which
 * serves all rows. */
#ifdef GEMM_NAME

#include "kern/tmpl/gemm_unpack_tmpl.h"

#define FOR_ROWS(r, n) GEMM_UNROLL(8) for (int r = 0; r < (n); r++)
#define FOR_HALVES(h) GEMM_UNROLL(4) for (int h = 0; h < HALVES; h++)
#define ROWS_MAX 8 // of a tile; 4 where a panel takes several registers
#define FEW_ROWS 4 // fewer run at the memory's speed

// What a micro-kernel reads.
struct operands {
    const uint8_t *w;           // a panel: float32 [k][16] or bf16 [k / 2][16][2]
    const uint8_t *x[ROWS_MAX]; // rows: float32 or bf16
    int k;
    size_t ahead; // bytes of the panel that are fetched so long before they are read, or 0
};

enum operand { F32, BF16, F16 };

// Lines k and k + 1 of a panel, at half h.
SIMD_INLINE void weights_pair(const uint8_t *w, int k, int h, const enum operand type, vf out[2])
{
    const uint8_t *pair = w + 32 * (size_t)k + 4 * h * VL;
    if (type == BF16)
        vf_of_bf16_pairs(vi_load(pair), out);
    else if (type == F16)
        vf_of_f16_pairs(pair, out);
    else {
        out[0] = vf_load((const float *)w + 16 * (size_t)k + h * VL);
        out[1] = vf_load((const float *)w + 16 * (size_t)(k + 1) + h * VL);
    }
}

SIMD_INLINE void acts_pair(const uint8_t *x, int k, const enum operand type, vf out[2])
{
    if (type == BF16)
        vf_of_bf16_pairs(vi_bcst(x + 2 * (size_t)k), out);
    else {
        out[0] = vf_set1(((const float *)x)[k]);
        out[1] = vf_set1(((const float *)x)[k + 1]);
    }
}

// R rows (a constant) of sums over k.
SIMD_INLINE void micro_f(const struct operands *o, const int R, const enum operand wt, const enum operand xt,
                         vf acc[ROWS_MAX][HALVES])
{
    int i = 0;
    FOR_ROWS(r, R) FOR_HALVES(h) acc[r][h] = vf_zero();
    for (; i + 2 <= o->k; i += 2) {
        vf w[HALVES][2], x[2];
        if (o->ahead) __builtin_prefetch(o->w + (wt == F32 ? 64 : 32) * (size_t)i + o->ahead, 0, 2);
        if (o->ahead && wt == F32) __builtin_prefetch(o->w + 64 * (size_t)i + 64 + o->ahead, 0, 2);
        FOR_HALVES(h) weights_pair(o->w, i, h, wt, w[h]);
        FOR_ROWS(r, R)
        {
            acts_pair(o->x[r], i, xt, x);
            FOR_HALVES(h) acc[r][h] = vf_fma(x[0], w[h][0], acc[r][h]);
            FOR_HALVES(h) acc[r][h] = vf_fma(x[1], w[h][1], acc[r][h]);
        }
    }
    if (i == o->k) return;
    // The last of an odd k: a float32 has no neighbour to read, 16-bit floats have their padding.
    FOR_ROWS(r, R) FOR_HALVES(h)
    {
        vf w[2], x[2];
        if (wt != F32)
            weights_pair(o->w, i, h, wt, w);
        else
            w[0] = vf_load((const float *)o->w + 16 * (size_t)i + h * VL);
        if (xt == BF16)
            acts_pair(o->x[r], i, xt, x);
        else
            x[0] = vf_set1(((const float *)o->x[r])[i]);
        acc[r][h] = vf_fma(x[0], w[0], acc[r][h]);
    }
}

// One tile: R rows from r0.
#define TILE_F(R, wt, xt)                                                                            \
    static void tile_##R##_##wt##_##xt(const struct qr_gemm *g, struct operands *o, int panel, int r0)  \
    {                                                                                                        \
        vf acc[ROWS_MAX][HALVES];                                                                            \
        FOR_ROWS(r, R) o->x[r] = g->acts->a + (size_t)(r0 + r) * g->acts->row_bytes;                         \
        micro_f(o, R, wt, xt, acc);                                                                  \
        FOR_ROWS(r, R) FOR_HALVES(h) gemm_put(g, r0 + r, panel, h, acc[r][h]);                               \
    }

// All rows against one panel, for a pair of operand types.
#if VL == 16
#define TILE_8(wt, xt) TILE_F(8, wt, xt)
#define CALL_8(wt, xt)                                                                               \
    for (; m - r >= 8; r += 8) tile_8_##wt##_##xt(g, o, panel, r);
#else
#define TILE_8(wt, xt)
#define CALL_8(wt, xt)
#endif
#define TILES_F(wt, xt)                                                                              \
    TILE_F(1, wt, xt)                                                                                \
    TILE_F(2, wt, xt)                                                                                \
    TILE_F(4, wt, xt)                                                                                \
    TILE_8(wt, xt)                                                                                   \
    static void rows_##wt##_##xt(const struct qr_gemm *g, struct operands *o, int panel)                \
    {                                                                                                        \
        int r = 0, m = g->acts->m;                                                                           \
        CALL_8(wt, xt)                                                                               \
        for (; m - r >= 4; r += 4) tile_4_##wt##_##xt(g, o, panel, r);                                  \
        for (; m - r >= 2; r += 2) tile_2_##wt##_##xt(g, o, panel, r);                                  \
        for (; m - r >= 1; r += 1) tile_1_##wt##_##xt(g, o, panel, r);                                  \
    }
TILES_F(F32, F32)
TILES_F(BF16, F32)
TILES_F(F16, F32)
TILES_F(F32, BF16)
TILES_F(BF16, BF16)

typedef void rows_fn(const struct qr_gemm *g, struct operands *o, int panel);

// Panels that are read as they are, one after the other even for a single row: one stream is read faster than
// several, by more than the latency of fma costs.
static void gemm_direct(const struct qr_gemm *g, rows_fn *rows)
{
    struct operands o = {.k = g->w->k, .ahead = g->acts->m < FEW_ROWS ? g->ahead : 0};
    for (int p = g->panel0; p < g->panel1; p++) {
        o.w = g->w->data + (size_t)p * g->w->panel_bytes;
        rows(g, &o, p);
    }
}

static void gemm_unpacked(const struct qr_gemm *g, const enum emit mode, rows_fn *rows)
{
    struct operands o = {.w = g->scratch, .k = g->w->k};
    for (int p = g->panel0; p < g->panel1; p++) {
        const uint8_t *panel = g->w->data + (size_t)p * g->w->panel_bytes;
        if (mode == EMIT_ROUND)
            unpack_panel(g->w->fmt, panel, g->w->k, EMIT_ROUND, g->scratch);
        else
            unpack_panel(g->w->fmt, panel, g->w->k, EMIT_F32, g->scratch);
        rows(g, &o, p);
    }
}

// Class F, and class D over floats.
void GEMM_NAME(f)(const struct qr_gemm *g)
{
    switch (g->w->fmt) {
    case QR_W_F32: gemm_direct(g, rows_F32_F32); break;
    case QR_W_BF16: gemm_direct(g, rows_BF16_F32); break;
    case QR_W_F16: gemm_direct(g, rows_F16_F32); break;
    default: gemm_unpacked(g, EMIT_F32, rows_F32_F32); break;
    }
}

// Class P: activations are bf16.
void GEMM_NAME(p)(const struct qr_gemm *g)
{
    if (g->w->fmt == QR_W_BF16)
        gemm_direct(g, rows_BF16_BF16);
    else
        gemm_unpacked(g, EMIT_ROUND, rows_F32_BF16);
}

#endif
