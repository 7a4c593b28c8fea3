/* Class P with bf16 instructions: vdpbf16ps adds the products of two consecutive k to one float32 sum.
 *
 * Panels are unpacked, in threes, to bf16 [k / 2][16][2], the layout of BF16 panels, which are read as they
 * are. Three panels by eight rows are 24 sums: with the weights and one broadcast they fill the registers. */
#if defined(__x86_64__)

#include "kern/tmpl/gemm_unpack_tmpl.h"

#define PANELS 3
#define ROWS 8
#define FOR_ROWS(r, n) GEMM_UNROLL(8) for (int r = 0; r < (n); r++)
#define FOR_PANELS(p, n) GEMM_UNROLL(3) for (int p = 0; p < (n); p++)

// R rows from r0 by P panels (constants) from `panel`; w[p] is at panel p's first line.
SIMD_INLINE void tile(const struct qr_gemm *g, const uint8_t *const w[PANELS], int panel, int r0, const int R,
                      const int P)
{
    __m512 acc[ROWS][PANELS];
    const uint8_t *x[ROWS];
    size_t pairs = (size_t)(g->w->k + 1) / 2;
    FOR_ROWS(r, R) x[r] = g->acts->a + (size_t)(r0 + r) * g->acts->row_bytes;
    FOR_ROWS(r, R) FOR_PANELS(p, P) acc[r][p] = _mm512_setzero_ps();
    for (size_t i = 0; i < pairs; i++) {
        __m512i wv[PANELS];
        FOR_PANELS(p, P) wv[p] = _mm512_load_si512(w[p] + 64 * i);
        FOR_ROWS(r, R)
        {
            __m512bh v = (__m512bh)vi_bcst(x[r] + 4 * i);
            FOR_PANELS(p, P) acc[r][p] = _mm512_dpbf16_ps(acc[r][p], (__m512bh)wv[p], v);
        }
    }
    FOR_ROWS(r, R) FOR_PANELS(p, P) gemm_put(g, r0 + r, panel + p, 0, acc[r][p]);
}

#define TILE(R, P)                                                                                           \
    static void tile_##R##x##P(const struct qr_gemm *g, const uint8_t *const *w, int panel, int r0)          \
    {                                                                                                        \
        tile(g, w, panel, r0, R, P);                                                                         \
    }
#define TILES(P)                                                                                             \
    TILE(1, P)                                                                                               \
    TILE(2, P)                                                                                               \
    TILE(4, P)                                                                                               \
    TILE(8, P)                                                                                               \
    static void rows_##P(const struct qr_gemm *g, const uint8_t *const *w, int panel)                        \
    {                                                                                                        \
        int r = 0, m = g->acts->m;                                                                           \
        for (; m - r >= 8; r += 8) tile_8x##P(g, w, panel, r);                                               \
        for (; m - r >= 4; r += 4) tile_4x##P(g, w, panel, r);                                               \
        for (; m - r >= 2; r += 2) tile_2x##P(g, w, panel, r);                                               \
        for (; m - r >= 1; r += 1) tile_1x##P(g, w, panel, r);                                               \
    }
TILES(1)
TILES(2)
TILES(3)

void qr_gemm_p_avx512bf16(const struct qr_gemm *g)
{
    typedef void rows_fn(const struct qr_gemm *g, const uint8_t *const *w, int panel);
    static rows_fn *const rows[PANELS] = {rows_1, rows_2, rows_3};
    const uint8_t *w[PANELS];
    // A multiple of four k is written; a float32 matrix may have any k.
    size_t unpacked_bytes = (size_t)(g->w->k + 3) / 4 * 4 * 2 * QR_PANEL;
    for (int p = g->panel0, n; p < g->panel1; p += n) {
        n = g->panel1 - p < PANELS ? g->panel1 - p : PANELS;
        for (int i = 0; i < n; i++) {
            const uint8_t *panel = g->w->data + (size_t)(p + i) * g->w->panel_bytes;
            w[i] = panel;
            if (g->w->fmt == QR_W_BF16) continue;
            w[i] = (uint8_t *)g->scratch + i * unpacked_bytes;
            unpack_panel(g->w->fmt, panel, g->w->k, EMIT_BF16, (uint8_t *)g->scratch + i * unpacked_bytes);
        }
        rows[n - 1](g, w, p);
    }
}

#endif
