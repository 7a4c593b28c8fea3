/* Class F over every format, class D over BF16 and F32, and class P: float32 sums, k ascending, one
 * accumulator. A panel is unpacked once into scratch as [k][16] and serves all rows. */
#include <math.h>

#include "kern/gemm_internal.h"
#include "kern/half.h"

static float *unpack(const struct qr_gemm *g, int panel)
{
    float *w = g->scratch; // (k, QR_PANEL)
    for (int lane = 0; lane < QR_PANEL; lane++) qr_panel_unpack_lane(g->w, panel, lane, w + lane, QR_PANEL);
    return w;
}

static int n_lanes(const struct qr_gemm *g, int panel)
{
    int left = g->w->n - panel * QR_PANEL;
    return left < QR_PANEL ? left : QR_PANEL;
}

void qr_gemm_f_ref(const struct qr_gemm *g)
{
    for (int p = g->panel0; p < g->panel1; p++) {
        const float *w = unpack(g, p);
        for (int r = 0; r < g->acts->m; r++) {
            const float *x = (const float *)(g->acts->a + (size_t)r * g->acts->row_bytes);
            float acc[QR_PANEL] = {0};
            for (int i = 0; i < g->w->k; i++)
                for (int lane = 0; lane < QR_PANEL; lane++)
                    acc[lane] = fmaf(x[i], w[i * QR_PANEL + lane], acc[lane]);
            for (int lane = 0; lane < n_lanes(g, p); lane++) gemm_store(g, r, p * QR_PANEL + lane, acc[lane]);
        }
    }
}

void qr_gemm_p_ref(const struct qr_gemm *g)
{
    for (int p = g->panel0; p < g->panel1; p++) {
        float *w = unpack(g, p);
        for (int i = 0; i < g->w->k * QR_PANEL; i++) w[i] = qr_f32_of_bf16(qr_bf16_of_f32(w[i]));
        for (int r = 0; r < g->acts->m; r++) {
            const uint16_t *x = (const uint16_t *)(g->acts->a + (size_t)r * g->acts->row_bytes);
            float acc[QR_PANEL] = {0};
            for (int i = 0; i < g->w->k; i++)
                for (int lane = 0; lane < QR_PANEL; lane++)
                    acc[lane] = fmaf(qr_f32_of_bf16(x[i]), w[i * QR_PANEL + lane], acc[lane]);
            for (int lane = 0; lane < n_lanes(g, p); lane++) gemm_store(g, r, p * QR_PANEL + lane, acc[lane]);
        }
    }
}
