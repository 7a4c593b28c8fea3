/* quire inspect: what this processor is, which kernels it gets, what is in a model file. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine.h"
#include "base/mem.h"
#include "base/printable.h"
#include "cmd/cmd.h"
#include "conf/paths.h"
#include "fmt/gguf.h"
#include "kern/gemm.h"
#include "kern/kern.h"

static void help(FILE *out)
{
    fprintf(out,
            "usage: quire inspect WHAT\n\n"
            "  quire inspect cpu                  this processor, its instruction sets, our share of it\n"
            "  quire inspect kernels [ISA]        which kernel serves each operation (with at most ISA)\n"
            "  quire inspect model MODEL          metadata and tensors of a GGUF file\n"
            "  quire inspect tensor MODEL NAME    one tensor: shape, range, first values\n");
}

static int inspect_cpu(void)
{
    char a[16];
    printf("processor    %s\n", qr_machine_cpu_model());
    printf("cores        %d that we may use\n", qr_machine_cpus());
    printf("memory       %s that we may use\n", cmd_bytes(a, (double)qr_machine_memory_bytes()));
    printf("instructions");
    for (int i = 0; i < QR_ISA_COUNT; i++)
        printf(" %s%s", qr_isa_has(qr_isa_detected(), (enum qr_isa)i) ? "" : "no-",
               qr_isa_name((enum qr_isa)i));
    printf("\n");
    return 0;
}

static int inspect_kernels(const char *isa)
{
    struct qr_error err = {0};
    if (qr_isa_limit(isa ? isa : "auto", &err) != QR_OK) return cmd_fail(2, &err);
    uint32_t mask = qr_isa_active();
    printf("%-20s %s\n", "operation", "from");
#define QR_KERNEL(name, ret, params, tol) printf("%-20s %s\n", #name, qr_kern_origin(#name, mask));
#include "kern/kernels.def"
#undef QR_KERNEL
    printf("\n%-8s %-24s %s\n", "KV type", "bytes of K and V a token", "of a head of 64");
    for (enum qr_kvtype t = QR_KV_AUTO + 1; t < QR_KV_COUNT; t++)
        printf("%-8s %zu\n", qr_kvtype_name(t), qr_kv_unit_bytes(t, 64) / QR_KV_UNIT);
    printf("\n%-6s %-8s %-28s %s\n", "class", "weights", "kernel", "rows");
    size_t n;
    const struct qr_gemm_impl *list = qr_gemm_list(&n);
    for (size_t i = 0; i < n; i++) {
        bool usable = list[i].isa < 0 || qr_isa_has(mask, (enum qr_isa)list[i].isa);
        // Shown when it is what some number of rows gets.
        bool chosen = false;
        for (int m = list[i].m_min; usable && !chosen && m <= list[i].m_max && m <= 512; m++)
            chosen = qr_gemm_pick(mask, list[i].cls, list[i].fmt, m) == &list[i];
        if (!chosen) continue;
        static const char *const class_name[QR_CLASS_COUNT] = {"D", "D15", "P", "F"};
        printf("%-6s %-8s %-28s %d", class_name[list[i].cls], qr_wfmt(list[i].fmt)->name, list[i].name,
               list[i].m_min);
        if (list[i].m_max > 4096)
            printf(" or more\n");
        else
            printf(" to %d\n", list[i].m_max);
    }
    return 0;
}

// A file's text as one printable line: everything else is shown by its bytes. Returns the columns used, one a
// character.
static int print_escaped(const char *s, size_t n)
{
    int columns = 0;
    for (size_t i = 0; i < n;) {
        size_t bytes = qr_printable_char(s + i, n - i);
        if (bytes)
            columns += (int)(fwrite(s + i, 1, bytes, stdout) > 0);
        else
            columns += s[i] == '\n' ? printf("\\n") : printf("\\x%02x", (unsigned char)s[i]);
        i += bytes ? bytes : 1;
    }
    return columns;
}

// The greatest count up to n that does not end inside a character.
static size_t whole_chars(const char *s, size_t n)
{
    for (size_t back = 0; back < 4 && back < n; back++)
        if (((unsigned char)s[n - back] & 0xC0) != 0x80) return n - back;
    return n;
}

static void print_name(const char *s, size_t n, int width)
{
    int columns = print_escaped(s, n);
    printf("%*s ", columns < width ? width - columns : 0, "");
}

static void print_value(const struct qr_gguf_kv *kv, uint64_t i)
{
    enum qr_gguf_type t = kv->type == QR_GGUF_ARR ? kv->elem : kv->type;
    if (t == QR_GGUF_STR) {
        size_t n = kv->strs[i].bytes > 100 ? whole_chars(kv->strs[i].data, 100) : kv->strs[i].bytes;
        putchar('"');
        print_escaped(kv->strs[i].data, n);
        printf(kv->strs[i].bytes > 100 ? "\"... (%zu bytes)" : "\"", kv->strs[i].bytes);
    } else if (t == QR_GGUF_BOOL) {
        printf("%s", kv->data[i] ? "true" : "false");
    } else if (t == QR_GGUF_F32 || t == QR_GGUF_F64) {
        printf("%g", qr_gguf_arr_f64(kv, i));
    } else {
        printf("%" PRId64, qr_gguf_arr_i64(kv, i));
    }
}

static void print_kv(const struct qr_gguf_kv *kv)
{
    print_name(kv->key.data, kv->key.bytes, 44);
    if (kv->type != QR_GGUF_ARR) {
        print_value(kv, 0);
    } else {
        printf("[");
        for (uint64_t i = 0; i < kv->n && i < 6; i++) {
            if (i) printf(", ");
            print_value(kv, i);
        }
        printf(kv->n > 6 ? ", ...] (%" PRIu64 ")" : "]", kv->n);
    }
    printf("\n");
}

static void print_tensor_line(const struct qr_gguf_tensor *t)
{
    char shape[96] = "", type[24], b[16];
    size_t at = 0;
    for (int d = 0; d < t->n_dims; d++)
        at += (size_t)snprintf(shape + at, sizeof shape - at, "%s%" PRIu64, d ? " x " : "", t->dims[d]);
    if (t->type)
        snprintf(type, sizeof type, "%s", t->type->name);
    else
        snprintf(type, sizeof type, "type %u, not read", t->type_id);
    print_name(t->name.data, t->name.bytes, 40);
    printf("%-10s %-22s %s\n", type, shape, cmd_bytes(b, (double)t->bytes));
}

static int open_model(const char *name, struct qr_gguf **g)
{
    struct qr_error err = {0};
    char path[4096];
    if (qr_paths_find_model(name, path, sizeof path, &err) != QR_OK) return cmd_fail(1, &err);
    if (qr_gguf_open(path, g, &err) != QR_OK) return cmd_fail(1, &err);
    return 0;
}

static int inspect_model(const char *name)
{
    struct qr_gguf *g = NULL;
    char b[16];
    if (open_model(name, &g)) return 1;
    printf("GGUF version %d, %s, %zu keys, %zu tensors\n\n", qr_gguf_version(g),
           cmd_bytes(b, (double)qr_gguf_file_bytes(g)), qr_gguf_n_kvs(g), qr_gguf_n_tensors(g));
    for (size_t i = 0; i < qr_gguf_n_kvs(g); i++) print_kv(qr_gguf_kv_at(g, i));
    printf("\n");
    for (size_t i = 0; i < qr_gguf_n_tensors(g); i++) print_tensor_line(qr_gguf_tensor_at(g, i));
    qr_gguf_free(&g);
    return 0;
}

static void tensor_stats(const struct qr_gguf_tensor *t)
{
    double sum = 0, sum2 = 0, lo = INFINITY, hi = -INFINITY;
    uint64_t n = t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3], n_bad = 0;
    float v[256];
    uint64_t block = (uint64_t)t->type->block_elems, step = 256 / block * block;
    const uint8_t *p = t->data;
    for (uint64_t i = 0; i < n; i += step) {
        uint64_t m = n - i < step ? n - i : step;
        t->type->unpack(p, v, m);
        p += m / block * (uint64_t)t->type->block_bytes;
        for (uint64_t k = 0; k < m; k++) {
            if (i + k < 16) printf("%s%g", i + k ? " " : "first  ", (double)v[k]);
            if (!isfinite(v[k])) n_bad++;
            sum += (double)v[k];
            sum2 += (double)v[k] * (double)v[k];
            lo = fmin(lo, (double)v[k]);
            hi = fmax(hi, (double)v[k]);
        }
    }
    double mean = n ? sum / (double)n : 0;
    printf("\nvalues %" PRIu64 ": smallest %g, largest %g, mean %g, rms %g", n, lo, hi, mean,
           n ? sqrt(sum2 / (double)n) : 0);
    printf(n_bad ? ", %" PRIu64 " not finite\n" : "\n", n_bad);
}

static int inspect_tensor(const char *model, const char *name)
{
    struct qr_gguf *g = NULL;
    if (open_model(model, &g)) return 1;
    const struct qr_gguf_tensor *t = qr_gguf_tensor(g, name);
    int rc = 0;
    if (!t) {
        struct qr_error err = {0};
        (void)qr_fail(&err, QR_ENOTFOUND, "no tensor is called \"%.100s\" (quire inspect model lists them)",
                      name);
        rc = cmd_fail(1, &err);
    } else {
        print_tensor_line(t);
        if (t->type) tensor_stats(t);
    }
    qr_gguf_free(&g);
    return rc;
}

int cmd_inspect(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "cpu") == 0 && argc == 2) return inspect_cpu();
    if (strcmp(what, "kernels") == 0 && argc <= 3) return inspect_kernels(argc == 3 ? argv[2] : NULL);
    if (strcmp(what, "model") == 0 && argc == 3) return inspect_model(argv[2]);
    if (strcmp(what, "tensor") == 0 && argc == 4) return inspect_tensor(argv[2], argv[3]);
    bool asked = strcmp(what, "--help") == 0 || strcmp(what, "-h") == 0;
    if (argc > 1 && !asked)
        fprintf(stderr,
                "quire: inspect does not know these words: expected cpu, kernels, model or tensor\n\n");
    help(asked ? stdout : stderr);
    return asked ? 0 : 2;
}
