/* quire bench kernels: each kernel that this machine chooses, beside what the machine could do. */
#include "base/buf.h"
#include "base/machine.h"
#include "base/mem.h"
#include "base/workers.h"
#include "bench/bench_internal.h"
#include "bench/inproc.h"
#include "bench/kernels_internal.h"
#include "kern/isa.h"

const char bench_kernels_help[] =
    "First what this machine does at most, measured now: operations a second from registers, and bytes a second of a plain\n"
    "read of buffers that fit into each cache, and of memory. Then the kernels that it chooses, on one core, beside that:\n"
    "products of packed weights by class (D: generated tokens; D15: those whose activations need 15 bits, which multiply\n"
    "twice; P: prompts; F: --activations f32) for 1 to 512 rows of activations, attention by KV type, and kernels of one row.\n"
    "Weights and blocks go round 256 MiB of memory, as they do in a step, so one row can be as fast as memory at most, and\n"
    "many rows as fast as arithmetic. Without a model every format is timed; with one, the shapes and formats of its matrices.\n\n"
    "  quire bench kernels\n"
    "  quire bench kernels MODEL             its matrices and its heads\n"
    "  quire bench kernels --isa avx2        as a smaller machine would run\n"
    "  quire bench kernels --json -          every number, also of every count of rows\n";

#define ARENA_BYTES ((size_t)256 << 20)
static const int rows_timed[] = {1, 8, 32, 128, 512};
enum { N_ROWS = sizeof rows_timed / sizeof *rows_timed };
static const char *const class_names[QR_CLASS_COUNT] = {"D", "D15", "P", "F"};

struct measuring {
    const struct bench_args *a;
    FILE *out; // NULL: the JSON is all that is printed
    struct qr_json_writer *w;
    struct bench_machine machine;
    struct kernels_arena arena;
    struct kernels_shapes shapes;
};

/* ==== The machine. ==== */

static void tell_machine(const struct measuring *m)
{
    const struct bench_machine *k = &m->machine;
    if (m->out) {
        fprintf(m->out, "%s, %d cores\n\n", qr_machine_cpu_model(), k->n_cores);
        for (int i = 0; i < k->n_peaks; i++)
            fprintf(m->out, "%-6s by %-12s %8.1f Gop/s a core\n", k->peaks[i].name, k->peaks[i].isa, k->peak_gops[i]);
        for (int i = 0; i < MACHINE_READS; i++)
            fprintf(m->out, "read of %6zu KiB    %8.1f GB/s a core\n", k->read_bytes[i] >> 10, k->read_gbs[i]);
        fprintf(m->out, "read by all cores     %8.1f GB/s\n", k->read_all_gbs);
        fflush(m->out);
    }
    qr_jw_key(m->w, "peaks");
    qr_jw_arr(m->w);
    for (int i = 0; i < k->n_peaks; i++) {
        qr_jw_obj(m->w);
        bench_put_str(m->w, "kind", k->peaks[i].name);
        bench_put_str(m->w, "isa", k->peaks[i].isa);
        bench_put_real(m->w, "gops", k->peak_gops[i]);
        qr_jw_obj_end(m->w);
    }
    qr_jw_arr_end(m->w);
    qr_jw_key(m->w, "reads");
    qr_jw_arr(m->w);
    for (int i = 0; i < MACHINE_READS; i++) {
        qr_jw_obj(m->w);
        bench_put_int(m->w, "bytes", (int64_t)k->read_bytes[i]);
        bench_put_real(m->w, "gbs", k->read_gbs[i]);
        qr_jw_obj_end(m->w);
    }
    qr_jw_arr_end(m->w);
    bench_put_real(m->w, "read_all_gbs", k->read_all_gbs);
}

/* ==== Products. ==== */

static const char *isa_of(int isa)
{
    return isa < 0 ? "ref" : qr_isa_name((enum qr_isa)isa);
}

static double memory_share(const struct measuring *m, double gbs)
{
    double most = bench_machine_memory(&m->machine);
    return most > 0 ? gbs / most : 0;
}

static void put_product(const struct measuring *m, const struct kernels_product *p, const char *tensor)
{
    qr_jw_obj(m->w);
    bench_put_str(m->w, "class", class_names[p->impl->cls]);
    bench_put_str(m->w, "format", qr_wfmt(p->impl->fmt)->name);
    if (tensor[0]) bench_put_str(m->w, "tensor", tensor);
    bench_put_int(m->w, "outputs", p->n);
    bench_put_int(m->w, "inputs", p->k);
    bench_put_int(m->w, "rows", p->rows);
    bench_put_str(m->w, "kernel", p->impl->name);
    bench_put_str(m->w, "isa", isa_of(p->impl->isa));
    bench_put_real(m->w, "ns", p->ns);
    bench_put_real(m->w, "gops", kernels_product_ops(p) / p->ns);
    bench_put_real(m->w, "peak_share", kernels_product_share(p, &m->machine));
    bench_put_real(m->w, "gbs", kernels_product_gbs(p));
    bench_put_real(m->w, "memory_share", memory_share(m, kernels_product_gbs(p)));
    qr_jw_obj_end(m->w);
}

static void print_product_head(const struct measuring *m)
{
    if (!m->out) return;
    fprintf(m->out, "\nProducts: microseconds; GB/s of weights and its share of a core's read of memory at 1 row, Gop/s and its share of\n"
                    "the peak at more (- where none is known).\n\n%-5s %-7s %6s %6s  %-10s %20s", "class", "format", "out", "in",
            "by", "1 row");
    for (int i = 1; i < N_ROWS; i++) fprintf(m->out, " %14d rows", rows_timed[i]);
    fprintf(m->out, "\n");
}

static void print_share(FILE *out, double share)
{
    if (share > 0)
        fprintf(out, " %3.0f%%", 100 * share);
    else
        fprintf(out, "    -");
}

static void print_product(const struct measuring *m, const struct kernels_product *p, const struct kernels_shape *s)
{
    if (p->rows == 1)
        fprintf(m->out, "%-5s %-7s %6d %6d  %-10s %9.1f %5.1f", class_names[p->impl->cls], qr_wfmt(p->impl->fmt)->name, p->n,
                p->k, isa_of(p->impl->isa), p->ns * 1e-3, kernels_product_gbs(p));
    else
        fprintf(m->out, " %8.0f %5.0f", p->ns * 1e-3, kernels_product_ops(p) / p->ns);
    print_share(m->out, p->rows == 1 ? memory_share(m, kernels_product_gbs(p)) : kernels_product_share(p, &m->machine));
    if (p->rows != rows_timed[N_ROWS - 1]) return;
    if (s->name[0]) fprintf(m->out, "  %s%s", s->name, s->n_tensors > 1 ? ", ..." : "");
    fprintf(m->out, "\n");
    fflush(m->out);
}

// Classes that rows of this run may have; over float weights D15 is D.
static bool is_timed(const struct measuring *m, enum qr_class cls, enum qr_wfmt fmt)
{
    bool f32 = strcmp(m->a->conf->activations, "f32") == 0;
    if (cls == QR_CLASS_F || f32) return cls == QR_CLASS_F && f32;
    if (cls == QR_CLASS_P) return strcmp(m->a->conf->numerics, "exact") != 0;
    return cls == QR_CLASS_D || qr_wfmt(fmt)->sub > 0;
}

static enum qr_status time_products(const struct measuring *m, struct qr_error *err)
{
    int n_done = 0, n_all = m->shapes.n * QR_CLASS_COUNT;
    print_product_head(m);
    qr_jw_key(m->w, "products");
    qr_jw_arr(m->w);
    for (int c = 0; c < QR_CLASS_COUNT; c++)
        for (int i = 0; i < m->shapes.n; i++, n_done++) {
            const struct kernels_shape *s = &m->shapes.v[i];
            for (int r = 0; r < N_ROWS && is_timed(m, (enum qr_class)c, s->fmt); r++) {
                struct kernels_product p;
                enum qr_status st = kernels_time_product(&m->arena, (enum qr_class)c, s, rows_timed[r], &p, err);
                if (st != QR_OK) return st;
                put_product(m, &p, s->name);
                if (m->out) print_product(m, &p, s);
            }
            if (!m->out) bench_progress("products", (uint64_t)n_done + 1, (uint64_t)n_all);
        }
    qr_jw_arr_end(m->w);
    return QR_OK;
}

/* ==== Attention, kernels of one row. ==== */

static void tell_attention(const struct measuring *m, const struct kernels_attention *r)
{
    const char *kind = kernels_attention_kind(r);
    double gbs = kernels_attention_bytes(r) / r->ns, gops = kernels_attention_ops(r) / r->ns;
    double peak = kind ? bench_machine_peak(&m->machine, kind) : 0, share = peak > 0 ? gops / peak : 0;
    qr_jw_obj(m->w);
    bench_put_str(m->w, "kernel", r->prefill ? "prefill" : "decode");
    bench_put_str(m->w, "type", qr_kvtype_name(r->type));
    bench_put_str(m->w, "isa", r->isa);
    bench_put_int(m->w, "rows", r->rows);
    bench_put_int(m->w, "context", r->context);
    bench_put_int(m->w, "query_heads", r->n_group);
    bench_put_int(m->w, "head_size", r->d);
    bench_put_real(m->w, "ns", r->ns);
    bench_put_real(m->w, "gops", gops);
    bench_put_real(m->w, "peak_share", share);
    bench_put_real(m->w, "gbs", gbs);
    bench_put_real(m->w, "memory_share", memory_share(m, gbs));
    qr_jw_obj_end(m->w);
    if (!m->out) return;
    if (r->prefill)
        fprintf(m->out, "  %-10s %8.1f us %6.0f Gop/s", r->isa, r->ns * 1e-3, gops);
    else
        fprintf(m->out, "%-5s %-10s %8.1f us %6.1f GB/s", qr_kvtype_name(r->type), r->isa, r->ns * 1e-3, gbs);
    print_share(m->out, r->prefill ? share : memory_share(m, gbs));
    if (r->prefill) fprintf(m->out, "\n");
}

static enum qr_status time_attention(const struct measuring *m, struct qr_error *err)
{
    qr_jw_key(m->w, "attention");
    qr_jw_arr(m->w);
    for (enum qr_kvtype t = QR_KV_AUTO + 1; t < QR_KV_COUNT; t++)
        for (int prefill = 0; prefill < 2; prefill++) {
            struct kernels_attention r;
            enum qr_status st = kernels_time_attention(&m->arena, &m->shapes, t, prefill, &r, err);
            if (st != QR_OK) return st;
            if (m->out && t == QR_KV_AUTO + 1 && !prefill)
                fprintf(m->out, "\nAttention of a KV head of %d and its %d query heads over %d tokens: 1 generated row;"
                                " 16 prompt rows.\n\n", r.d, r.n_group, r.context);
            tell_attention(m, &r);
        }
    qr_jw_arr_end(m->w);
    return QR_OK;
}

static void time_plain(const struct measuring *m)
{
    struct kernels_plain v[KERNELS_PLAIN_MAX];
    int n = kernels_time_plain(m->shapes.width, v);
    if (m->out) fprintf(m->out, "\nKernels of one row, over %d values in the first-level cache.\n\n", v[0].n);
    qr_jw_key(m->w, "plain");
    qr_jw_arr(m->w);
    for (int i = 0; i < n; i++) {
        qr_jw_obj(m->w);
        bench_put_str(m->w, "kernel", v[i].name);
        bench_put_str(m->w, "isa", v[i].isa);
        bench_put_int(m->w, "values", v[i].n);
        bench_put_real(m->w, "ns", v[i].ns);
        bench_put_real(m->w, "gbs", v[i].bytes / v[i].ns);
        qr_jw_obj_end(m->w);
        if (m->out) fprintf(m->out, "%-10s %-10s %8.0f ns %6.1f GB/s\n", v[i].name, v[i].isa, v[i].ns, v[i].bytes / v[i].ns);
    }
    qr_jw_arr_end(m->w);
}

static enum qr_status measure(struct measuring *m, struct qr_error *err)
{
    bench_machine_measure((int)m->a->conf->threads, &m->machine);
    tell_machine(m);
    m->arena = (struct kernels_arena){.p = qr_pages_alloc(QR_MEM_MISC, ARENA_BYTES), .bytes = ARENA_BYTES};
    if (!m->arena.p) return qr_fail(err, QR_ENOMEM, "no memory for %zu MiB of weights", ARENA_BYTES >> 20);
    memset(m->arena.p, 0x3c, m->arena.bytes);
    enum qr_status st = time_products(m, err);
    if (st == QR_OK) st = time_attention(m, err);
    if (st == QR_OK) time_plain(m);
    qr_pages_free(QR_MEM_MISC, m->arena.p, m->arena.bytes);
    return st;
}

enum qr_status bench_kernels(const struct bench_args *a, struct qr_error *err)
{
    struct measuring m = {.a = a, .out = bench_json_only(a) ? NULL : a->out};
    struct qr_buf b = {0};
    struct qr_json_writer w;
    enum qr_status st = QR_OK;
    if (a->lib)
        st = kernels_model_shapes(a->lib->model_path, &m.shapes, err);
    else
        kernels_typical_shapes(&m.shapes);
    if (st != QR_OK) return st;
    m.w = &w;
    qr_workers_fp_mode();
    qr_jw_init(&w, &b);
    qr_jw_obj(&w);
    bench_put_origin(&w);
    st = measure(&m, err);
    qr_jw_obj_end(&w);
    if (st == QR_OK) st = bench_save(a, &b, err);
    qr_buf_fini(&b);
    return st;
}
