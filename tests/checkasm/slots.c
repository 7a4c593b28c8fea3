/* One check for each prototype that kernels.def uses; a slot is matched with its check by type. */
#include <math.h>
#include <string.h>

#include "checkasm.h"
#include "emulated.h"
#include "kern/kern.h"

typedef void norm_fn(const float *, const float *, float, int, float *);
typedef void quant_fn(const float *, int, int8_t *, float *, int32_t *);
typedef void quant15_fn(const float *, int, int8_t *, int8_t *, float *, int32_t *);
typedef void to_bf16_fn(const float *, int, uint16_t *);
typedef void inplace_fn(float *, const float *, int);
typedef void binary_fn(const float *, const float *, int, float *);
typedef void unary_fn(const float *, int, float *);
typedef int index_fn(const float *, int);
typedef int chunks_fn(const float *, int, float *);
typedef float reduce_fn(const float *, int, float);

#define REF(type) ((type *)c->ref)
#define NEW(type) ((type *)c->new)

// Lengths around the register width, and the sizes of real models.
static int draw_length(void)
{
    static const int around[] = {16, 32, 48, 64, 576, 1536, 896, 100};
    int n = around[ca_below(8)];
    switch (ca_below(6)) {
    case 0: return ca_below(2);
    case 1: return n - 1;
    case 2: return n + 1;
    case 3: return 1 + ca_below(70);
    default: return n;
    }
}

static float *draw(int n)
{
    float *x = ca_buf(sizeof *x * (size_t)n);
    ca_fill(x, (size_t)n);
    return x;
}

static float *copy(const float *x, int n)
{
    float *y = ca_buf(sizeof *y * (size_t)n);
    memcpy(y, x, sizeof *y * (size_t)n);
    return y;
}

static float *room(int n)
{
    return ca_buf(sizeof(float) * (size_t)n);
}

#define BENCH_N 1536

struct bench {
    const struct ca_case *c;
    const float *a, *b;
    float *y, *scale;
    int8_t *q;
    int32_t *sum;
    int n;
};

static struct bench bench_of(const struct ca_case *c, int n)
{
    struct bench b = {.c = c, .n = n};
    float *x = room(n), *w = room(n);
    ca_fill_plain(x, (size_t)n, 1);
    ca_fill_plain(w, (size_t)n, 1);
    b.a = x;
    b.b = w;
    b.y = room(n);
    b.q = ca_buf((size_t)n);
    b.scale = room(n / 32 + 1);
    b.sum = ca_buf(sizeof *b.sum * (size_t)(n / 32 + 1));
    return b;
}

static void bench_norm(void *p)
{
    struct bench *b = p;
    ((norm_fn *)b->c->new)(b->a, b->b, 1e-5f, b->n, b->y);
}

static void check_norm(const struct ca_case *c)
{
    int n = draw_length();
    float *x = draw(n), *w = draw(n), *y0 = room(n), *y1 = room(n);
    REF(norm_fn)(x, w, 1e-5f, n, y0);
    NEW(norm_fn)(x, w, 1e-5f, n, y1);
    ca_equal_f32("y", y0, y1, (size_t)n, c->tol, 0);
    if (!ca_benching()) return;
    struct bench b = bench_of(c, BENCH_N);
    ca_bench(bench_norm, &b, BENCH_N * 12.0, CA_GB);
}

static void bench_quant(void *p)
{
    struct bench *b = p;
    ((quant_fn *)b->c->new)(b->a, b->n, b->q, b->scale, b->sum);
}

static void check_quant(const struct ca_case *c)
{
    int group = strstr(c->name, "256") ? 256 : 32, k = group * ca_below(10), n_groups = k / group;
    float *x = draw(k), *s0 = room(n_groups), *s1 = room(n_groups);
    int8_t *q0 = ca_buf((size_t)k), *q1 = ca_buf((size_t)k);
    int32_t *sum0 = ca_buf(sizeof *sum0 * (size_t)k / 32), *sum1 = ca_buf(sizeof *sum1 * (size_t)k / 32);
    REF(quant_fn)(x, k, q0, s0, sum0);
    NEW(quant_fn)(x, k, q1, s1, sum1);
    ca_equal_f32("scale", s0, s1, (size_t)n_groups, c->tol, 0);
    ca_equal_bytes("q", q0, q1, (size_t)k);
    ca_equal_bytes("sum", sum0, sum1, sizeof *sum0 * (size_t)k / 32);
    if (!ca_benching()) return;
    struct bench b = bench_of(c, BENCH_N);
    ca_bench(bench_quant, &b, BENCH_N * 5.0, CA_GB);
}

static void bench_quant15(void *p)
{
    struct bench *b = p;
    ((quant15_fn *)b->c->new)(b->a, b->n, b->q, b->q, b->scale, b->sum);
}

static void check_quant15(const struct ca_case *c)
{
    int k = 32 * ca_below(20), n_groups = k / 32;
    float *x = draw(k), *s0 = room(n_groups), *s1 = room(n_groups);
    int8_t *hi0 = ca_buf((size_t)k), *hi1 = ca_buf((size_t)k), *lo0 = ca_buf((size_t)k),
           *lo1 = ca_buf((size_t)k);
    int32_t *sum0 = ca_buf(sizeof *sum0 * (size_t)n_groups), *sum1 = ca_buf(sizeof *sum1 * (size_t)n_groups);
    REF(quant15_fn)(x, k, hi0, lo0, s0, sum0);
    NEW(quant15_fn)(x, k, hi1, lo1, s1, sum1);
    ca_equal_f32("scale", s0, s1, (size_t)n_groups, c->tol, 0);
    ca_equal_bytes("hi", hi0, hi1, (size_t)k);
    ca_equal_bytes("lo", lo0, lo1, (size_t)k);
    ca_equal_bytes("sum", sum0, sum1, sizeof *sum0 * (size_t)n_groups);
    if (!ca_benching()) return;
    struct bench b = bench_of(c, BENCH_N);
    ca_bench(bench_quant15, &b, BENCH_N * 6.0, CA_GB);
}

static void bench_to_bf16(void *p)
{
    struct bench *b = p;
    ((to_bf16_fn *)b->c->new)(b->a, b->n, (uint16_t *)b->y);
}

static void check_to_bf16(const struct ca_case *c)
{
    int n = draw_length();
    float *x = draw(n);
    uint32_t bits = ca_u32(); // and one value of any bits at all
    if (n) memcpy(&x[ca_below(n)], &bits, sizeof bits);
    uint16_t *y0 = ca_buf(sizeof *y0 * (size_t)(n + n % 2)), *y1 = ca_buf(sizeof *y1 * (size_t)(n + n % 2));
    REF(to_bf16_fn)(x, n, y0);
    NEW(to_bf16_fn)(x, n, y1);
    ca_equal_bytes("y", y0, y1, sizeof *y0 * (size_t)(n + n % 2)); // the odd one is untouched in both
    if (!ca_benching()) return;
    struct bench b = bench_of(c, BENCH_N);
    ca_bench(bench_to_bf16, &b, BENCH_N * 6.0, CA_GB);
}

static void bench_inplace(void *p)
{
    struct bench *b = p;
    ((inplace_fn *)b->c->new)(b->y, b->a, b->n);
}

// Rotations, whose length is even, and sums.
static void check_inplace(const struct ca_case *c)
{
    int n = draw_length();
    if (strstr(c->name, "rope")) n += n % 2;
    float *x = draw(n), *y0 = draw(n), *y1 = copy(y0, n);
    REF(inplace_fn)(y0, x, n);
    NEW(inplace_fn)(y1, x, n);
    ca_equal_f32("y", y0, y1, (size_t)n, c->tol, 0);
    if (!ca_benching()) return;
    struct bench b = bench_of(c, strstr(c->name, "rope") ? 64 : BENCH_N);
    memset(b.y, 0, sizeof *b.y * (size_t)b.n);
    ca_bench(bench_inplace, &b, b.n * 12.0, CA_GB);
}

static void bench_binary(void *p)
{
    struct bench *b = p;
    ((binary_fn *)b->c->new)(b->a, b->b, b->n, b->y);
}

static void check_binary(const struct ca_case *c)
{
    int n = draw_length();
    float *a = draw(n), *b = draw(n), *y0 = room(n), *y1 = room(n);
    REF(binary_fn)(a, b, n, y0);
    NEW(binary_fn)(a, b, n, y1);
    ca_equal_f32("y", y0, y1, (size_t)n, c->tol, 0);
    if (!ca_benching()) return;
    struct bench be = bench_of(c, BENCH_N);
    ca_bench(bench_binary, &be, BENCH_N * 12.0, CA_GB);
}

static void bench_unary(void *p)
{
    struct bench *b = p;
    ((unary_fn *)b->c->new)(b->a, b->n, b->y);
}

static void check_unary(const struct ca_case *c)
{
    int n = draw_length();
    float *x = draw(n), *y0 = room(n), *y1 = room(n);
    REF(unary_fn)(x, n, y0);
    NEW(unary_fn)(x, n, y1);
    ca_equal_f32("y", y0, y1, (size_t)n, c->tol, 0);
    if (!ca_benching()) return;
    struct bench b = bench_of(c, BENCH_N);
    ca_bench(bench_unary, &b, BENCH_N * 8.0, CA_GB);
}

#define VOCAB 49152

static volatile int sink_int;
static volatile float sink_float;

static void bench_index(void *p)
{
    struct bench *b = p;
    sink_int = ((index_fn *)b->c->new)(b->a, b->n);
}

static void check_index(const struct ca_case *c)
{
    int n = draw_length();
    float *x = draw(n);
    if (n && ca_below(2)) x[ca_below(n)] = x[ca_below(n)]; // ties
    if (ca_below(8) == 0)
        for (int i = 0; i < n; i++) x[i] = ca_below(3) ? NAN : -INFINITY;
    int want = REF(index_fn)(x, n), got = NEW(index_fn)(x, n);
    if (want != got) ca_fail("index of %d: expected %d, got %d", n, want, got);
    if (!ca_benching()) return;
    struct bench b = bench_of(c, VOCAB);
    ca_bench(bench_index, &b, VOCAB * 4.0, CA_GB);
}

static void bench_chunks(void *p)
{
    struct bench *b = p;
    sink_int = ((chunks_fn *)b->c->new)(b->a, b->n, b->y);
}

// Of zeros either may be the largest.
static void check_chunks(const struct ca_case *c)
{
    int n = draw_length(), most = n / 64 + 1;
    float *x = draw(n), *y0 = room(most), *y1 = room(most);
    for (int i = ca_below(2) ? n : 0; i < n; i++)
        if (ca_below(2)) x[i] = ca_below(3) ? NAN : -INFINITY;
    int want = REF(chunks_fn)(x, n, y0), got = NEW(chunks_fn)(x, n, y1);
    if (want != got) ca_fail("chunks of %d: expected %d, got %d", n, want, got);
    for (int i = 0; i < want; i++)
        if (y0[i] != y1[i]) ca_fail("maximum %d of %d: expected %a, got %a", i, n, (double)y0[i], (double)y1[i]);
    if (!ca_benching()) return;
    struct bench b = bench_of(c, VOCAB);
    ca_bench(bench_chunks, &b, VOCAB * 4.0, CA_GB);
}

static void bench_reduce(void *p)
{
    struct bench *b = p;
    sink_float = ((reduce_fn *)b->c->new)(b->a, b->n, 1);
}

static void check_reduce(const struct ca_case *c)
{
    int n = draw_length();
    float *x = draw(n), max = ca_unit() * 10;
    float y0 = REF(reduce_fn)(x, n, max), y1 = NEW(reduce_fn)(x, n, max);
    ca_equal_f32("result", &y0, &y1, 1, c->tol, 0);
    if (!ca_benching()) return;
    struct bench b = bench_of(c, VOCAB);
    ca_bench(bench_reduce, &b, VOCAB * 4.0, CA_GB);
}

void check_kv_write(const struct ca_case *c);
void check_attn(const struct ca_case *c);

#define CHECK_OF(fn)                                                                                         \
    _Generic((fn), norm_fn *                                                                                 \
             : check_norm, quant_fn *                                                                        \
             : check_quant, quant15_fn *                                                                     \
             : check_quant15, to_bf16_fn *                                                                   \
             : check_to_bf16, inplace_fn *                                                                   \
             : check_inplace, binary_fn *                                                                    \
             : check_binary, unary_fn *                                                                      \
             : check_unary, index_fn *                                                                       \
             : check_index, chunks_fn *                                                                      \
             : check_chunks, reduce_fn *                                                                     \
             : check_reduce, qr_kv_write_fn *                                                                \
             : check_kv_write, qr_attn_fn *                                                                  \
             : check_attn)

void ca_slots(uint32_t mask, const char *isa)
{
    struct qr_kern ref, k;
    qr_kern_fill(&ref, 0);
    qr_kern_fill(&k, mask);
#define QR_KERNEL(slot, ret, params, tolerance)                                                              \
    if (!strcmp(qr_kern_origin(#slot, mask), isa))                                                           \
        ca_run(&(struct ca_case){.name = #slot,                                                              \
                                 .ref = (ca_any_fn *)ref.slot,                                               \
                                 .new = (ca_any_fn *)k.slot,                                                 \
                                 .tol = tolerance,                                                           \
                                 .check = CHECK_OF(k.slot)},                                                 \
               isa);
#include "kern/kernels.def"
#undef QR_KERNEL
}

#if defined(__x86_64__)
// The kernel of a slot over emulated tiles, or NULL.
static ca_any_fn *emulated(const char *slot)
{
#define QR_IMPL(isa, name)
#define QR_AMX_IMPL(name)                                                                                    \
    if (!strcmp(slot, #name)) return (ca_any_fn *)kern_##name##_amx_emu;
#include "kern/x86/x86.def"
#undef QR_IMPL
    return NULL;
}

void ca_slots_emulated(const char *isa)
{
    struct qr_kern ref;
    qr_kern_fill(&ref, 0);
#define QR_KERNEL(slot, ret, params, tolerance)                                                              \
    if (emulated(#slot))                                                                                     \
        ca_run(&(struct ca_case){.name = #slot,                                                              \
                                 .ref = (ca_any_fn *)ref.slot,                                               \
                                 .new = emulated(#slot),                                                     \
                                 .tol = tolerance,                                                           \
                                 .check = CHECK_OF(ref.slot)},                                               \
               isa);
#include "kern/kernels.def"
#undef QR_KERNEL
}
#endif
