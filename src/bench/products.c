/* Products of packed weights, by the kernels that a step would choose. */
#include <string.h>

#include "base/mem.h"
#include "bench/kernels_internal.h"
#include "kern/isa.h"

const char *kernels_peak_kind(enum qr_class cls, enum qr_wfmt fmt, int isa)
{
    const char *set = qr_isa_name((enum qr_isa)isa);
    if (isa < 0) return NULL;
    if (cls == QR_CLASS_P) return strstr(set, "bf16") || !strcmp(set, "amx") ? "bf16" : "f32";
    return cls != QR_CLASS_F && qr_wfmt(fmt)->sub > 0 ? "int8" : "f32";
}

double kernels_product_ops(const struct kernels_product *p)
{
    return 2.0 * p->rows * p->n * p->k;
}

double kernels_product_share(const struct kernels_product *p, const struct bench_machine *m)
{
    const struct qr_gemm_impl *e = p->impl;
    const char *kind = kernels_peak_kind(e->cls, e->fmt, e->isa);
    double peak = kind ? bench_machine_peak(m, kind) : 0;
    int times = e->cls == QR_CLASS_D15 && qr_wfmt(e->fmt)->sub > 0 ? 2 : 1;
    return peak > 0 ? times * kernels_product_ops(p) / p->ns / peak : 0;
}

static struct qr_wmat matrix_of(enum qr_wfmt fmt, int n, int k)
{
    struct qr_wmat w;
    qr_wmat_init(&w, fmt, n, k);
    return w;
}

double kernels_product_gbs(const struct kernels_product *p)
{
    struct qr_wmat w = matrix_of(p->impl->fmt, p->n, p->k);
    return (double)w.panel_bytes * w.n_panels / p->ns;
}

struct timing {
    const struct kernels_arena *arena;
    qr_gemm_fn *fn;
    struct qr_wmat w;
    struct qr_gemm g;
    size_t i, n_matrices;
};

static void multiply(void *arg)
{
    struct timing *t = arg;
    t->w.data = t->arena->p + t->i * ((qr_wmat_bytes(&t->w) + 63) / 64 * 64);
    if (++t->i == t->n_matrices) t->i = 0;
    t->fn(&t->g);
}

// Of a matrix that the arena does not hold, the first outputs: the head of a large vocabulary.
static int fitting_outputs(const struct kernels_arena *a, const struct kernels_shape *s)
{
    struct qr_wmat w = matrix_of(s->fmt, s->n, s->k);
    size_t n_panels = a->bytes / 2 / w.panel_bytes;
    return n_panels < (size_t)w.n_panels ? (int)n_panels * QR_PANEL : s->n;
}

enum qr_status kernels_time_product(const struct kernels_arena *a, enum qr_class cls, const struct kernels_shape *s, int rows,
                                    struct kernels_product *out, struct qr_error *err)
{
    struct kernels_product p = {
        .impl = qr_gemm_pick(qr_isa_active(), cls, s->fmt, rows), .n = fitting_outputs(a, s), .k = s->k, .rows = rows};
    struct timing t = {.arena = a, .fn = p.impl->fn, .w = matrix_of(s->fmt, p.n, s->k)};
    size_t n_y = (size_t)rows * (size_t)p.n, y_bytes = n_y * sizeof(float), scratch_bytes = QR_GEMM_SCRATCH(s->k);
    size_t acts_bytes = qr_acts_bytes(qr_akind_of(cls, s->fmt), rows, s->k), row_bytes = (size_t)s->k * sizeof(float);
    t.n_matrices = a->bytes / ((qr_wmat_bytes(&t.w) + 63) / 64 * 64);
    float *y = qr_pages_alloc(QR_MEM_MISC, y_bytes), *x = qr_malloc(QR_MEM_MISC, row_bytes);
    void *scratch = qr_pages_alloc(QR_MEM_MISC, scratch_bytes), *mem = qr_pages_alloc(QR_MEM_MISC, acts_bytes);
    bool ok = y && x && scratch && mem;
    if (ok) {
        struct qr_acts acts;
        qr_acts_init(&acts, qr_akind_of(cls, s->fmt), rows, s->k, mem);
        for (int r = 0; r < rows; r++) {
            for (int i = 0; i < s->k; i++) x[i] = (float)((i * 37 + r * 11) % 101 - 50) / 50;
            qr_acts_set_row(&acts, r, x);
        }
        t.g = (struct qr_gemm){
            .w = &t.w, .panel1 = t.w.n_panels, .acts = &acts, .y = y, .ldy = (size_t)p.n, .scratch = scratch,
            .ahead = qr_gemm_ahead(qr_isa_active())};
        p.ns = bench_quick_ns(multiply, &t);
        *out = p;
    }
    if (y) qr_pages_free(QR_MEM_MISC, y, y_bytes);
    if (scratch) qr_pages_free(QR_MEM_MISC, scratch, scratch_bytes);
    if (mem) qr_pages_free(QR_MEM_MISC, mem, acts_bytes);
    qr_free(x);
    return ok ? QR_OK : qr_fail(err, QR_ENOMEM, "no memory for %d rows", rows);
}
