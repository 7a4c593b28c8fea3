/* Classes D and D15 over the integer formats: the specification (kern/gemm.h has the arithmetic).
 * One output element at a time, groups ascending; never tuned. */
#include <math.h>

#include "kern/gemm_internal.h"
#include "kern/pack/pack_internal.h"

// One row of activations in QR_A_Q32 or QR_A_Q256, or in QR_A_Q15: then v = 128 * x + lo.
struct row {
    const int8_t *x, *lo; // lo is NULL for eight bits
    const float *scale;
};

static int32_t v_of(struct row a, int i)
{
    return a.lo ? 128 * a.x[i] + a.lo[i] : a.x[i];
}

// sum of q * v and sum of v over a sub that begins at k = at.
static int32_t dot_sub(const struct pack_sub *w, int n, struct row a, int at, int32_t *sum)
{
    int32_t dot = 0;
    *sum = 0;
    for (int i = 0; i < n; i++) {
        dot += w->q[i] * v_of(a, at + i);
        *sum += v_of(a, at + i);
    }
    return dot;
}

// Float32 sums of subs: D15, and D where a sub is a group.
static float dot_by_sub(const struct qr_wfmt_traits *t, const struct pack_sub *w, int k, struct row a)
{
    float acc = 0;
    for (int s = 0; s < k / t->sub; s++, w++) {
        int32_t sum;
        float dot = (float)dot_sub(w, t->sub, a, s * t->sub, &sum), scale = a.scale[s * t->sub / 32];
        acc = fmaf(dot, w->d * (float)w->sc * scale, acc);
        if (t->minima) acc = fmaf(-(w->m * (float)w->mn), (float)sum * scale, acc);
    }
    return acc;
}

// Integer sums of the subs of a group of 256, then float32 sums of groups: D.
static float dot_by_group(const struct qr_wfmt_traits *t, const struct pack_sub *w, int k, struct row a)
{
    float acc = 0;
    for (int g = 0; g < k / t->group; g++) {
        int32_t dot = 0, min = 0;
        for (int s = 0; s < t->group / t->sub; s++) {
            int32_t sum;
            dot += w[s].sc * dot_sub(&w[s], t->sub, a, g * t->group + s * t->sub, &sum);
            min += w[s].mn * sum;
        }
        acc = fmaf((float)dot, w->d * a.scale[g], acc);
        if (t->minima) acc = fmaf(-(float)min, w->m * a.scale[g], acc);
        w += t->group / t->sub;
    }
    return acc;
}

static void gemm_d(const struct qr_gemm *g, bool fine)
{
    const struct qr_acts *acts = g->acts;
    const struct qr_wfmt_traits *t = qr_wfmt(g->w->fmt);
    struct pack_sub *subs = g->scratch; // of a lane; 16 k or more each
    _Static_assert(sizeof *subs <= 16 * 2 * QR_PANEL * 4, "a lane's subs fit in QR_GEMM_SCRATCH");
    for (int out = g->panel0 * QR_PANEL; out < g->panel1 * QR_PANEL && out < g->w->n; out++) {
        const uint8_t *panel = g->w->data + (size_t)(out / QR_PANEL) * g->w->panel_bytes;
        for (int s = 0, per = t->group / t->sub; s < g->w->k / t->sub; s++)
            pack_fmt_of(g->w->fmt)->sub(panel + (size_t)(s / per) * t->group_bytes, s % per, out % QR_PANEL,
                                        &subs[s]);
        for (int r = 0; r < acts->m; r++) {
            const int8_t *x = (const int8_t *)(acts->a + (size_t)r * acts->row_bytes);
            struct row a = {x, fine ? x + acts->k : NULL, acts->scale + (size_t)r * acts->ld_scale};
            bool by_group = !fine && t->sub < t->group;
            gemm_store(g, r, out, (by_group ? dot_by_group : dot_by_sub)(t, subs, g->w->k, a));
        }
    }
}

void qr_gemm_d_ref(const struct qr_gemm *g)
{
    gemm_d(g, false);
}

void qr_gemm_d15_ref(const struct qr_gemm *g)
{
    gemm_d(g, true);
}
