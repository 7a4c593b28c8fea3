/* Class D over the integer formats: the specification (kern/gemm.h has the arithmetic).
 * One output element at a time, groups ascending; never tuned. */
#include <math.h>

#include "kern/gemm_internal.h"
#include "kern/half.h"
#include "kern/pack_layout.h"

// One row of activations in QR_A_Q32 or QR_A_Q256, or in QR_A_Q15: then v = 128 * x + lo.
struct row {
    const int8_t *x, *lo;
    const float *scale;
    const int32_t *sum; // per 32
};

typedef float dot_fn(const void *panel, int k, int lane, struct row a);

static void gemm_d(const struct qr_gemm *g, dot_fn *dot)
{
    const struct qr_acts *acts = g->acts;
    for (int p = g->panel0; p < g->panel1; p++) {
        const uint8_t *panel = g->w->data + (size_t)p * g->w->panel_bytes;
        for (int lane = 0; lane < QR_PANEL && p * QR_PANEL + lane < g->w->n; lane++)
            for (int r = 0; r < acts->m; r++) {
                const int8_t *x = (const int8_t *)(acts->a + (size_t)r * acts->row_bytes);
                struct row a = {x, x + acts->k, acts->scale + (size_t)r * acts->ld_scale,
                                acts->sum + (size_t)r * acts->ld_sum};
                gemm_store(g, r, p * QR_PANEL + lane, dot(panel, g->w->k, lane, a));
            }
    }
}

// sum of q * x over 32 nibbles of a lane.
static int32_t dot_nibbles(const uint8_t (*q)[16][4], int lane, const int8_t *x)
{
    int32_t dot = 0;
    for (int i = 0; i < 32; i++) dot += (q[i / 8][lane][i % 4] >> i / 4 % 2 * 4 & 15) * x[i];
    return dot;
}

static float dot_u4g32(const void *panel, int k, int lane, struct row a)
{
    const struct qr_u4g32 *w = panel;
    float acc = 0;
    for (int g = 0; g < k / 32; g++) {
        int32_t dot = dot_nibbles(w[g].q, lane, a.x + 32 * g) - 8 * a.sum[g];
        acc = fmaf((float)dot, qr_f32_of_f16(w[g].d[lane]) * a.scale[g], acc);
    }
    return acc;
}

static float dot_u4g32m(const void *panel, int k, int lane, struct row a)
{
    const struct qr_u4g32m *w = panel;
    float acc = 0;
    for (int g = 0; g < k / 32; g++) {
        int32_t dot = dot_nibbles(w[g].q, lane, a.x + 32 * g);
        acc = fmaf((float)dot, qr_f32_of_f16(w[g].d[lane]) * a.scale[g], acc);
        acc = fmaf(qr_f32_of_f16(w[g].m[lane]), (float)a.sum[g] * a.scale[g], acc);
    }
    return acc;
}

static float dot_u4k(const void *panel, int k, int lane, struct row a)
{
    const struct qr_u4k *w = panel;
    float acc = 0;
    for (int g = 0; g < k / 256; g++) {
        int32_t dot = 0, min = 0;
        for (int s = 0; s < 8; s++) {
            dot += w[g].sc[s][lane] * dot_nibbles(w[g].q[s], lane, a.x + 256 * g + 32 * s);
            min += w[g].mn[s][lane] * a.sum[8 * g + s];
        }
        acc = fmaf((float)dot, qr_f32_of_f16(w[g].d[lane]) * a.scale[g], acc);
        acc = fmaf(-(float)min, qr_f32_of_f16(w[g].dmin[lane]) * a.scale[g], acc);
    }
    return acc;
}

static float dot_i8g32(const void *panel, int k, int lane, struct row a)
{
    const struct qr_i8g32 *w = panel;
    float acc = 0;
    for (int g = 0; g < k / 32; g++) {
        int32_t dot = 0;
        for (int i = 0; i < 32; i++) dot += w[g].q[i / 4][lane][i % 4] * a.x[32 * g + i];
        acc = fmaf((float)dot, qr_f32_of_f16(w[g].d[lane]) * a.scale[g], acc);
    }
    return acc;
}

// The weight i (0..15) of a lane, -32 .. 31.
static int six_of(const struct qr_i6sub *sub, int lane, int i)
{
    int lo = sub->lo[i / 8][lane][i % 4] >> i / 4 % 2 * 4 & 15;
    int hi = sub->hi[lane][i % 4] >> i / 4 * 2 & 3;
    return (lo | hi << 4) - 32;
}

static float dot_i6g16(const void *panel, int k, int lane, struct row a)
{
    const struct qr_i6g16 *w = panel;
    float acc = 0;
    for (int g = 0; g < k / 256; g++) {
        int32_t dot = 0;
        for (int i = 0; i < 256; i++) {
            int q = six_of(&w[g].q[i / 16], lane, i % 16);
            dot += w[g].sc[i / 16][lane] * q * a.x[256 * g + i];
        }
        acc = fmaf((float)dot, qr_f32_of_f16(w[g].d[lane]) * a.scale[g], acc);
    }
    return acc;
}

/* ==== 15 bits. ==== */

// The dot of 32 nibbles with v = 128 * hi + lo, from k = at on.
static int32_t dot15_nibbles(const uint8_t (*q)[16][4], int lane, struct row a, int at)
{
    return 128 * dot_nibbles(q, lane, a.x + at) + dot_nibbles(q, lane, a.lo + at);
}

static float dot15_u4g32(const void *panel, int k, int lane, struct row a)
{
    const struct qr_u4g32 *w = panel;
    float acc = 0;
    for (int g = 0; g < k / 32; g++) {
        int32_t dot = dot15_nibbles(w[g].q, lane, a, 32 * g) - 8 * a.sum[g];
        acc = fmaf((float)dot, qr_f32_of_f16(w[g].d[lane]) * a.scale[g], acc);
    }
    return acc;
}

static float dot15_u4g32m(const void *panel, int k, int lane, struct row a)
{
    const struct qr_u4g32m *w = panel;
    float acc = 0;
    for (int g = 0; g < k / 32; g++) {
        int32_t dot = dot15_nibbles(w[g].q, lane, a, 32 * g);
        acc = fmaf((float)dot, qr_f32_of_f16(w[g].d[lane]) * a.scale[g], acc);
        acc = fmaf(qr_f32_of_f16(w[g].m[lane]), (float)a.sum[g] * a.scale[g], acc);
    }
    return acc;
}

static float dot15_u4k(const void *panel, int k, int lane, struct row a)
{
    const struct qr_u4k *w = panel;
    float acc = 0;
    for (int g = 0; g < k / 32; g++) {
        const struct qr_u4k *rec = &w[g / 8];
        float d = qr_f32_of_f16(rec->d[lane]) * rec->sc[g % 8][lane];
        float m = -(qr_f32_of_f16(rec->dmin[lane]) * rec->mn[g % 8][lane]);
        acc = fmaf((float)dot15_nibbles(rec->q[g % 8], lane, a, 32 * g), d * a.scale[g], acc);
        acc = fmaf(m, (float)a.sum[g] * a.scale[g], acc);
    }
    return acc;
}

static float dot15_i8g32(const void *panel, int k, int lane, struct row a)
{
    const struct qr_i8g32 *w = panel;
    float acc = 0;
    for (int g = 0; g < k / 32; g++) {
        int32_t dot = 0;
        for (int i = 0; i < 32; i++)
            dot += w[g].q[i / 4][lane][i % 4] * (128 * a.x[32 * g + i] + a.lo[32 * g + i]);
        acc = fmaf((float)dot, qr_f32_of_f16(w[g].d[lane]) * a.scale[g], acc);
    }
    return acc;
}

static float dot15_i6g16(const void *panel, int k, int lane, struct row a)
{
    const struct qr_i6g16 *w = panel;
    float acc = 0;
    for (int s = 0; s < k / 16; s++) {
        const struct qr_i6g16 *rec = &w[s / 16];
        int32_t dot = 0;
        for (int i = 0; i < 16; i++)
            dot += six_of(&rec->q[s % 16], lane, i) * (128 * a.x[16 * s + i] + a.lo[16 * s + i]);
        float d = qr_f32_of_f16(rec->d[lane]) * rec->sc[s % 16][lane];
        acc = fmaf((float)dot, d * a.scale[s / 2], acc);
    }
    return acc;
}

void qr_gemm_d_u4g32_ref(const struct qr_gemm *g)
{
    gemm_d(g, dot_u4g32);
}
void qr_gemm_d_u4g32m_ref(const struct qr_gemm *g)
{
    gemm_d(g, dot_u4g32m);
}
void qr_gemm_d_u4k_ref(const struct qr_gemm *g)
{
    gemm_d(g, dot_u4k);
}
void qr_gemm_d_i8g32_ref(const struct qr_gemm *g)
{
    gemm_d(g, dot_i8g32);
}
void qr_gemm_d_i6g16_ref(const struct qr_gemm *g)
{
    gemm_d(g, dot_i6g16);
}
void qr_gemm_d15_u4g32_ref(const struct qr_gemm *g)
{
    gemm_d(g, dot15_u4g32);
}
void qr_gemm_d15_u4g32m_ref(const struct qr_gemm *g)
{
    gemm_d(g, dot15_u4g32m);
}
void qr_gemm_d15_u4k_ref(const struct qr_gemm *g)
{
    gemm_d(g, dot15_u4k);
}
void qr_gemm_d15_i8g32_ref(const struct qr_gemm *g)
{
    gemm_d(g, dot15_i8g32);
}
void qr_gemm_d15_i6g16_ref(const struct qr_gemm *g)
{
    gemm_d(g, dot15_i6g16);
}
