/* Matrix kernels: every entry of qr_gemm_list() against portable C. Classes D and F are bit-identical; class
 * P sums in another order than portable C and is compared with the rounding that its sum of magnitudes
 * allows, and bit for bit with the one-row choice of the same instruction sets. */
#include "kern/gemm.h"

#include <math.h>
#include <string.h>

#include "checkasm.h"
#include "emulated.h"
#include "kern/half.h"
#include "kern/isa.h"

struct gemm_case {
    const struct qr_gemm_impl *impl;
    uint32_t mask;
    bool emulated; // impl->fn is not what the list has: no choice can be run in its place
};

// A file type for each format, and where its blocks keep float16 scales.
static const struct source {
    enum qr_qtype type;
    int n_f16, f16_at[2];
} sources[QR_W_COUNT] = {
    [QR_W_U4G32] = {QR_Q_Q4_0, 1, {0}},      [QR_W_U4G32M] = {QR_Q_Q4_1, 2, {0, 2}},
    [QR_W_U4K] = {QR_Q_Q4_K, 2, {0, 2}},     [QR_W_U5G32] = {QR_Q_Q5_0, 1, {0}},
    [QR_W_U5G32M] = {QR_Q_Q5_1, 2, {0, 2}},  [QR_W_U5K] = {QR_Q_Q5_K, 2, {0, 2}},
    [QR_W_I8G32] = {QR_Q_Q8_0, 1, {0}},      [QR_W_I6G16] = {QR_Q_Q6_K, 1, {208}},
    [QR_W_I3G16] = {QR_Q_Q3_K, 1, {108}},    [QR_W_U2G16] = {QR_Q_Q2_K, 2, {80, 82}},
    [QR_W_T4G32] = {QR_Q_IQ4_NL, 1, {0}},    [QR_W_T4K] = {QR_Q_IQ4_XS, 1, {0}},
    [QR_W_F16] = {QR_Q_F16, 1, {0}},         [QR_W_BF16] = {QR_Q_BF16, 0, {0}},
    [QR_W_F32] = {QR_Q_F32, 0, {0}},
};

static void draw_rows(uint8_t *rows, const struct source *s, const struct qr_qtype_traits *t, size_t n_blocks)
{
    for (size_t b = 0; b < n_blocks; b++, rows += t->block_bytes) {
        float w = ca_unit();
        if (s->type == QR_Q_F32) memcpy(rows, &w, sizeof w);
        if (s->type == QR_Q_BF16) memcpy(rows, &(uint16_t){qr_bf16_of_f32(w)}, 2);
        if (s->n_f16 == 0) continue;
        for (int i = 0; i < t->block_bytes; i++) rows[i] = (uint8_t)ca_u32();
        for (int i = 0; i < s->n_f16; i++) { // 2^-13 to 2^-4, either sign
            uint16_t h = (uint16_t)((ca_u32() & 0x83ff) | (uint32_t)(2 + ca_below(9)) << 10);
            memcpy(rows + s->f16_at[i], &h, sizeof h);
        }
    }
}

static struct qr_wmat draw_matrix(enum qr_wfmt fmt, int n, int k)
{
    const struct source *s = &sources[fmt];
    const struct qr_qtype_traits *t = qr_qtype((uint32_t)s->type);
    size_t row_bytes = (size_t)k / t->block_elems * t->block_bytes;
    uint8_t *file = ca_buf(row_bytes * n);
    draw_rows(file, s, t, (size_t)n * k / t->block_elems);
    struct qr_wmat w;
    qr_wmat_init(&w, fmt, n, k);
    w.data = ca_buf64(qr_wmat_bytes(&w));
    for (int p = 0; p < w.n_panels; p++) {
        const void *rows[QR_PANEL];
        for (int i = 0; i < QR_PANEL; i++)
            rows[i] = p * QR_PANEL + i < n ? file + row_bytes * (size_t)(p * QR_PANEL + i) : NULL;
        qr_pack_panel(&w, p, s->type, rows);
    }
    return w;
}

static struct qr_acts acts_of(enum qr_akind kind, int m, int k, const float *x)
{
    struct qr_acts a;
    qr_acts_init(&a, kind, m, k, ca_buf64(qr_acts_bytes(kind, m, k)));
    for (int r = 0; r < m; r++) qr_acts_set_row(&a, r, x + (size_t)r * k);
    return a;
}

static void fill_activations(float *x, size_t n, bool bounded)
{
    if (bounded)
        ca_fill_plain(x, n, 2);
    else
        ca_fill(x, n);
}

// Class P: |difference| is at most what rounding a sum of these magnitudes can make, twice over.
static void compare_p(const struct qr_gemm *g, const float *y0, const float *y1, const float *x)
{
    float *row = ca_buf(sizeof *row * (size_t)g->w->k);
    int end = g->panel1 * QR_PANEL < g->w->n ? g->panel1 * QR_PANEL : g->w->n;
    for (int o = g->panel0 * QR_PANEL; o < end; o++) {
        qr_wmat_row(g->w, o, row);
        for (int r = 0; r < g->acts->m && !ca_failed(); r++) {
            double sum = 1;
            for (int i = 0; i < g->w->k; i++) sum += fabs((double)row[i] * x[(size_t)r * g->w->k + i]);
            double a = y0[(size_t)r * g->ldy + o], b = y1[(size_t)r * g->ldy + o];
            if (!(fabs(a - b) <= sum * 1e-6 * (4 + sqrt(g->w->k))))
                ca_fail("m %d n %d k %d row %d output %d: expected %.9g, got %.9g", g->acts->m, g->w->n,
                        g->w->k, r, o, a, b);
        }
    }
}

// Row by row with the choice for one row: the same bits (DESIGN N3).
static void compare_rows(const struct qr_gemm *g, const struct gemm_case *gc, const float *y0,
                         const float *y1, const float *x)
{
    const struct qr_gemm_impl *one = qr_gemm_pick(gc->mask, gc->impl->cls, gc->impl->fmt, 1);
    if (gc->emulated && gc->impl->cls == QR_CLASS_P) one = gc->impl;
    float *y = ca_buf(sizeof *y * g->ldy);
    for (int r = 0; r < g->acts->m; r += 1 + g->acts->m / 3) {
        struct qr_acts acts = acts_of(g->acts->kind, 1, g->w->k, x + (size_t)r * g->w->k);
        struct qr_gemm h = *g;
        h.acts = &acts;
        memcpy(y, y0 + (size_t)r * g->ldy, sizeof *y * g->ldy);
        h.y = y;
        one->fn(&h);
        ca_equal_f32("row alone", y, y1 + (size_t)r * g->ldy, g->ldy, 0, 0);
    }
}

struct bench_gemm {
    const struct qr_gemm_impl *impl;
    struct qr_gemm g;
    struct qr_wmat w[8]; // so much weight that the second-level cache does not hold it
    int at;
};

static void bench_gemm(void *p)
{
    struct bench_gemm *b = p;
    b->g.w = &b->w[b->at++ % 8];
    b->impl->fn(&b->g);
}

static void time_gemm(const struct ca_case *c, const struct qr_gemm_impl *e)
{
    int n = 576, k = 1536, ms[2] = {e->m_min, e->isa < 0 ? 2 : e->m_max < 64 ? e->m_max : 64};
    struct bench_gemm b = {.impl = e};
    for (int i = 0; i < 8; i++) b.w[i] = draw_matrix(e->fmt, n, k);
    for (int i = 0; i < (ms[0] < ms[1] ? 2 : 1); i++) {
        int m = ms[i];
        float *x = ca_buf(sizeof *x * (size_t)m * k);
        ca_fill_plain(x, (size_t)m * k, 1);
        struct qr_acts acts = acts_of(qr_akind_of(e->cls, e->fmt), m, k, x);
        b.g = (struct qr_gemm){.panel1 = b.w[0].n_panels, .acts = &acts, .ldy = (size_t)n, .ahead = qr_gemm_ahead(qr_isa_active())};
        b.g.y = ca_buf(sizeof *b.g.y * (size_t)m * n);
        b.g.scratch = ca_buf64(QR_GEMM_SCRATCH(k));
        ca_bench(bench_gemm, &b, 2.0 * m * n * k, CA_GFLOP);
        if (m == 1) ca_bench(bench_gemm, &b, (double)qr_wmat_bytes(&b.w[0]), CA_GB);
    }
}

static void check_gemm(const struct ca_case *c)
{
    static const int ms[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 145};
    const struct gemm_case *gc = c->extra;
    const struct qr_gemm_impl *e = gc->impl;
    int group = qr_wfmt(e->fmt)->group;
    int k = group == 1 ? 1 + ca_below(300) : group * (1 + ca_below(group == 32 ? 12 : 3)),
        n = 1 + ca_below(70);
    int m = ms[ca_below((int)(sizeof ms / sizeof *ms))];
    if (m < e->m_min) m = e->m_min;
    if (m > e->m_max) m = e->m_max;
    struct qr_wmat w = draw_matrix(e->fmt, n, k);
    float *x = ca_buf(sizeof *x * (size_t)m * k), *bias = ca_buf(sizeof *bias * (size_t)n);
    fill_activations(x, (size_t)m * k, e->cls == QR_CLASS_P);
    ca_fill_plain(bias, (size_t)n, 1);
    struct qr_acts acts = acts_of(qr_akind_of(e->cls, e->fmt), m, k, x);
    struct qr_gemm g = {.w = &w, .acts = &acts, .ldy = (size_t)n + (size_t)ca_below(9), .add = ca_below(2)};
    g.ahead = ca_below(2) ? 4096 : 0;
    g.panel0 = ca_below(w.n_panels);
    g.panel1 = g.panel0 + 1 + ca_below(w.n_panels - g.panel0);
    if (ca_below(2)) g.bias = bias;
    size_t size = g.ldy * (size_t)m;
    float *start = ca_buf(sizeof *start * size), *y0 = ca_buf(sizeof *y0 * size),
          *y1 = ca_buf(sizeof *y1 * size);
    ca_fill_plain(start, size, 1);
    memcpy(y0, start, sizeof *y0 * size);
    memcpy(y1, start, sizeof *y1 * size);
    g.scratch = ca_buf64(QR_GEMM_SCRATCH(k));
    memset(g.scratch, 0xFF, QR_GEMM_SCRATCH(k)); // NaN
    g.y = y0;
    ((qr_gemm_fn *)c->ref)(&g);
    g.y = y1;
    ((qr_gemm_fn *)c->new)(&g);
    if (e->cls == QR_CLASS_P)
        compare_p(&g, y0, y1, x);
    else
        ca_equal_f32("y", y0, y1, size, 0, 0);
    compare_rows(&g, gc, start, y1, x);
    if (!ca_failed() && ca_benching()) time_gemm(c, e);
}

static void run_gemm(const struct gemm_case *gc, const char *isa)
{
    const struct qr_gemm_impl *e = gc->impl;
    ca_run(&(struct ca_case){.name = e->name,
                             .ref = (ca_any_fn *)qr_gemm_pick(0, e->cls, e->fmt, 1)->fn,
                             .new = (ca_any_fn *)e->fn,
                             .extra = gc,
                             .check = check_gemm},
           isa);
}

void ca_gemms(uint32_t mask, const char *isa)
{
    size_t n;
    const struct qr_gemm_impl *list = qr_gemm_list(&n);
    for (size_t i = 0; i < n; i++)
        if (!strcmp(list[i].isa < 0 ? "ref" : qr_isa_name((enum qr_isa)list[i].isa), isa))
            run_gemm(&(struct gemm_case){&list[i], mask, false}, isa);
}

void ca_gemms_emulated(uint32_t mask, const char *isa)
{
#if defined(__x86_64__)
#define M_ANY (1 << 30)
    static const struct qr_gemm_impl list[] = {
#define QR_GEMM(...)
#define QR_AMX(cls, fmt, m_min, m_max, fn) {&#fn[3], QR_CLASS_##cls, QR_W_##fmt, QR_ISA_amx, m_min, m_max, fn##_emu},
#include "kern/gemm_impls.def"
#undef QR_GEMM
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        run_gemm(&(struct gemm_case){&list[i], mask, true}, isa);
#endif
}
