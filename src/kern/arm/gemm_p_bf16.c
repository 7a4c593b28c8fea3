/* Class P with bf16 instructions: bfdot adds the products of two consecutive k to one float32 sum.
 *
 * Panels are unpacked to bf16 [k / 2][16][2], the layout of BF16 panels, which are read as they are. A panel by four
 * rows is 16 sums: with the weights and one broadcast they fill two thirds of the registers. */
#if defined(__aarch64__)

#include "kern/tmpl/gemm_unpack_tmpl.h"

#define ROWS 4
#define FOR_ROWS(r, n) GEMM_UNROLL(4) for (int r = 0; r < (n); r++)
#define FOR_QUARTERS(h) GEMM_UNROLL(4) for (int h = 0; h < HALVES; h++)

SIMD_INLINE bfloat16x8_t bf16_of(vi a)
{
    return vreinterpretq_bf16_s32(a);
}

// R rows (a constant) from r0 by a panel, whose pairs of lines are at w.
SIMD_INLINE void tile(const struct qr_gemm *g, const uint8_t *w, int panel, int r0, const int R)
{
    vf acc[ROWS][HALVES];
    const uint8_t *x[ROWS];
    size_t pairs = (size_t)(g->w->k + 1) / 2;
    FOR_ROWS(r, R) x[r] = g->acts->a + (size_t)(r0 + r) * g->acts->row_bytes;
    FOR_ROWS(r, R) FOR_QUARTERS(h) acc[r][h] = vf_zero();
    for (size_t i = 0; i < pairs; i++) {
        vi wv[HALVES];
        FOR_QUARTERS(h) wv[h] = vi_load(w + 64 * i + 16 * h);
        FOR_ROWS(r, R)
        {
            vi v = vi_bcst(x[r] + 4 * i);
            FOR_QUARTERS(h) acc[r][h] = vbfdotq_f32(acc[r][h], bf16_of(wv[h]), bf16_of(v));
        }
    }
    FOR_ROWS(r, R) FOR_QUARTERS(h) gemm_put(g, r0 + r, panel, h, acc[r][h]);
}

void qr_gemm_p_bf16(const struct qr_gemm *g)
{
    int m = g->acts->m;
    for (int p = g->panel0; p < g->panel1; p++) {
        const uint8_t *w = g->w->data + (size_t)p * g->w->panel_bytes;
        if (g->w->fmt != QR_W_BF16) {
            unpack_panel(g->w->fmt, w, g->w->k, EMIT_BF16, g->scratch);
            w = g->scratch;
        }
        int r = 0;
        for (; m - r >= 4; r += 4) tile(g, w, p, r, 4);
        for (; m - r >= 2; r += 2) tile(g, w, p, r, 2);
        for (; m - r >= 1; r += 1) tile(g, w, p, r, 1);
    }
}

#endif
