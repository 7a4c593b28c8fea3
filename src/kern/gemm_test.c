/* Every matrix kernel against portable C (bit for bit in classes D and F), and portable C against sums in
 * double. A failure names the kernel and the case; `quire-test gemm` with the same build repeats it, for all
 * is seeded. */
#include "kern/gemm.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/test.h"
#include "kern/half.h"
#include "kern/isa.h"

#define SEED 0x51D5u
#define M_MAX 70
#define GUARD 0x7FA55A5Au // a NaN that no kernel computes

// What a case runs on: a file type of each format, random rows of it.
static enum qr_qtype type_of(enum qr_wfmt fmt)
{
#define QR_QTYPE(name, id, elems, bytes, packed)                                                             \
    if (fmt == QR_W_##packed) return QR_Q_##name;
#include "kern/qtypes.def"
#undef QR_QTYPE
    fail_msg("no type is packed as %s", qr_wfmt(fmt)->name);
    return QR_Q_F32;
}

struct fixture {
    enum qr_class cls;
    enum qr_wfmt fmt;
    int n, k;
    struct qr_wmat w;
    float *dense;        // (n, k): the weights as float32, rounded to bf16 in class P
    float *hidden;       // (n, k): what of a weight's terms may cancel in it: twice |min| of d * q + min
    float *x;            // (M_MAX, k): the activations as given
    float *x_used;       // (M_MAX, k): what the class makes of them, as float32
    struct qr_acts acts; // M_MAX rows
    uint8_t *acts_mem;
    float *bias; // (n)
    float *y0;   // (M_MAX, ldy): what y holds before
    size_t ldy;
    void *scratch;
};

static uint64_t rnd(uint64_t stream, uint64_t i)
{
    return qr_rand_u64(SEED, stream, i);
}
static float rnd_float(uint64_t stream, uint64_t i)
{
    return (float)(qr_rand_unit(SEED, stream, i) * 2 - 1);
}

// Scales that are finite: ordinary ones, and now and then zero, a denormal, a large one.
static uint16_t rnd_f16(uint64_t i)
{
    static const uint16_t extreme[] = {0x0000, 0x8000, 0x0001, 0x8203, 0x0400, 0x5BFF, 0xDBFF};
    uint64_t v = rnd(11, i);
    if (v % 16 == 0) return extreme[v / 16 % (sizeof extreme / sizeof *extreme)];
    return (uint16_t)((v >> 8 & 0x83FF) | (8 + (v >> 40) % 6) << 10);
}

static void make_row(enum qr_qtype type, uint8_t *row, int k, int r)
{
    static const int f16_at[32][3] = {
        [QR_Q_Q4_0] = {1, 0},      [QR_Q_Q4_1] = {2, 0, 2},   [QR_Q_Q5_0] = {1, 0},    [QR_Q_Q5_1] = {2, 0, 2},
        [QR_Q_Q8_0] = {1, 0},      [QR_Q_Q2_K] = {2, 80, 82}, [QR_Q_Q3_K] = {1, 108},  [QR_Q_Q4_K] = {2, 0, 2},
        [QR_Q_Q5_K] = {2, 0, 2},   [QR_Q_Q6_K] = {1, 208},    [QR_Q_IQ4_NL] = {1, 0},  [QR_Q_IQ4_XS] = {1, 0}};
    const struct qr_qtype_traits *t = qr_qtype(type);
    for (int b = 0; b < k / t->block_elems; b++, row += t->block_bytes) {
        uint64_t id = (uint64_t)r * 4099 + b;
        if (t->block_elems == 1) {
            float v = rnd(3, id) % 13 == 0 ? 0 : rnd_float(2, id) * 3;
            uint16_t h = type == QR_Q_F16 ? rnd_f16(id) : qr_bf16_of_f32(v);
            memcpy(row, type == QR_Q_F32 ? (void *)&v : (void *)&h, t->block_bytes);
            continue;
        }
        // Every fourth block is one byte repeated: all bits, the least int8, the largest, none.
        static const uint8_t same[] = {0xFF, 0x80, 0x7F, 0x00};
        for (int i = 0; i < t->block_bytes; i++)
            row[i] = id % 4 == 0 ? same[id / 4 % 4] : (uint8_t)rnd(5, id * 256 + i);
        for (int i = 0; i < f16_at[type][0]; i++) {
            uint16_t h = rnd_f16(id * 2 + i);
            memcpy(row + f16_at[type][1 + i], &h, 2);
        }
    }
}

// Twice the largest |minimum| of the block that element i of a row belongs to; 0 for types without one.
static float hidden_of(const struct qr_qtype_traits *t, const uint8_t *row, int i)
{
    const uint8_t *block = row + (size_t)(i / t->block_elems) * t->block_bytes;
    if (!qr_wfmt(t->packed)->minima) return 0;
    int at = t->id == QR_Q_Q2_K ? 82 : 2, most = t->id == QR_Q_Q2_K ? 15 : t->block_elems == 256 ? 63 : 1;
    return 2 * fabsf(qr_f32_of_f16(qr_load_u16(block + at))) * (float)most;
}

static void make_weights(struct fixture *f)
{
    const struct qr_qtype_traits *t = qr_qtype(type_of(f->fmt));
    size_t row_bytes = (size_t)f->k / t->block_elems * t->block_bytes;
    uint8_t *file = qr_malloc(QR_MEM_MISC, f->n * row_bytes);
    for (int r = 0; r < f->n; r++) {
        make_row(t->id, file + r * row_bytes, f->k, r);
        t->unpack(file + r * row_bytes, f->dense + (size_t)r * f->k, f->k);
        for (int i = 0; i < f->k; i++)
            f->hidden[(size_t)r * f->k + i] = hidden_of(t, file + r * row_bytes, i);
    }
    qr_wmat_init(&f->w, f->fmt, f->n, f->k);
    f->w.data = qr_pages_alloc(QR_MEM_MISC, qr_wmat_bytes(&f->w));
    memset(f->w.data, 0xFF, qr_wmat_bytes(&f->w)); // the readable tail may be anything
    for (int p = 0; p < f->w.n_panels; p++) {
        const void *rows[QR_PANEL] = {0};
        for (int i = 0; i < QR_PANEL && p * QR_PANEL + i < f->n; i++)
            rows[i] = file + (p * QR_PANEL + i) * row_bytes;
        qr_pack_panel(&f->w, p, t->id, rows);
    }
    qr_free(file);
    if (f->cls != QR_CLASS_P) return;
    for (int i = 0; i < f->n * f->k; i++) f->dense[i] = qr_f32_of_bf16(qr_bf16_of_f32(f->dense[i]));
}

static void make_acts(struct fixture *f)
{
    enum qr_akind kind = qr_akind_of(f->cls, f->fmt);
    size_t bytes = qr_acts_bytes(kind, M_MAX, f->k);
    f->acts_mem = qr_pages_alloc(QR_MEM_MISC, bytes);
    memset(f->acts_mem, 0xFF, bytes); // padding is NaN
    qr_acts_init(&f->acts, kind, M_MAX, f->k, f->acts_mem);
    for (int r = 0; r < M_MAX; r++) {
        float *x = f->x + (size_t)r * f->k, *u = f->x_used + (size_t)r * f->k;
        // Rows of several magnitudes; every seventh is zero, every eleventh all the same (int8 127
        // throughout).
        for (int i = 0; i < f->k; i++)
            x[i] = r % 7 == 6     ? 0
                   : r % 11 == 10 ? -2.5f
                                  : rnd_float(21, (uint64_t)r * f->k + i) * (float)(1 + r % 5);
        qr_acts_set_row(&f->acts, r, x);
        const uint8_t *a = f->acts.a + r * f->acts.row_bytes;
        const float *scale = f->acts.scale ? f->acts.scale + r * f->acts.ld_scale : NULL;
        for (int i = 0; i < f->k; i++) {
            if (kind == QR_A_F32) u[i] = x[i];
            if (kind == QR_A_BF16) u[i] = qr_f32_of_bf16(((const uint16_t *)a)[i]);
            if (kind == QR_A_Q32) u[i] = (float)((const int8_t *)a)[i] * scale[i / 32];
            if (kind == QR_A_Q256) u[i] = (float)((const int8_t *)a)[i] * scale[i / 256];
            const int8_t *v = (const int8_t *)a + i;
            if (kind == QR_A_Q15) u[i] = (float)(128 * v[0] + v[f->k]) * scale[i / 32];
        }
    }
}

static void setup(struct fixture *f, enum qr_class cls, enum qr_wfmt fmt, int n, int k)
{
    *f = (struct fixture){.cls = cls, .fmt = fmt, .n = n, .k = k, .ldy = n + 3};
    f->dense = qr_malloc(QR_MEM_MISC, (size_t)n * k * 4);
    f->hidden = qr_malloc(QR_MEM_MISC, (size_t)n * k * 4);
    f->x = qr_malloc(QR_MEM_MISC, (size_t)M_MAX * k * 4);
    f->x_used = qr_malloc(QR_MEM_MISC, (size_t)M_MAX * k * 4);
    f->bias = qr_malloc(QR_MEM_MISC, n * sizeof(float));
    f->y0 = qr_malloc(QR_MEM_MISC, M_MAX * f->ldy * sizeof(float));
    f->scratch = qr_pages_alloc(QR_MEM_MISC, QR_GEMM_SCRATCH(k) + 64);
    memset(f->scratch, 0xFF, QR_GEMM_SCRATCH(k) + 64);
    for (int i = 0; i < n; i++) f->bias[i] = rnd_float(31, i);
    for (size_t i = 0; i < M_MAX * f->ldy; i++) f->y0[i] = rnd_float(32, i);
    make_weights(f);
    make_acts(f);
}

static void teardown(struct fixture *f)
{
    uint8_t *end = (uint8_t *)f->scratch + QR_GEMM_SCRATCH(f->k);
    for (int i = 0; i < 64; i++) assert_int_equal(end[i], 0xFF);
    qr_pages_free(QR_MEM_MISC, f->scratch, QR_GEMM_SCRATCH(f->k) + 64);
    qr_pages_free(QR_MEM_MISC, f->w.data, qr_wmat_bytes(&f->w));
    qr_pages_free(QR_MEM_MISC, f->acts_mem, qr_acts_bytes(f->acts.kind, M_MAX, f->k));
    qr_free(f->dense);
    qr_free(f->hidden);
    qr_free(f->x);
    qr_free(f->x_used);
    qr_free(f->bias);
    qr_free(f->y0);
}

enum mode { PLAIN, BIAS, ADD, BIAS_ADD, MODES };

// Rows r0 .. r0 + m - 1 into y, an (M_MAX, ldy) array that is filled with GUARD first, or with y0 for ADD.
static void run(const struct fixture *f, qr_gemm_fn *fn, int r0, int m, enum mode mode, int panel0, float *y)
{
    struct qr_acts a = f->acts;
    a.m = m;
    a.a += r0 * a.row_bytes;
    if (a.scale) a.scale += r0 * a.ld_scale, a.sum += r0 * a.ld_sum;
    for (size_t i = 0; i < M_MAX * f->ldy; i++) {
        y[i] = qr_f32_of_bits(GUARD);
        size_t row = i / f->ldy, col = i % f->ldy;
        bool inside = row < (size_t)m && col >= (size_t)panel0 * QR_PANEL && col < (size_t)f->n;
        if (inside && (mode == ADD || mode == BIAS_ADD)) y[i] = f->y0[(r0 + row) * f->ldy + col];
    }
    struct qr_gemm g = {.w = &f->w,
                        .panel0 = panel0,
                        .panel1 = f->w.n_panels,
                        .acts = &a,
                        .y = y,
                        .ldy = f->ldy,
                        .scratch = f->scratch};
    if (mode == BIAS || mode == BIAS_ADD) g.bias = f->bias;
    g.add = mode == ADD || mode == BIAS_ADD;
    fn(&g);
}

static void expect_same(const struct fixture *f, const char *name, int m, enum mode mode, const float *want,
                        const float *got)
{
    for (size_t i = 0; i < M_MAX * f->ldy; i++)
        if (memcmp(want + i, got + i, 4) != 0)
            fail_msg("%s: n %d k %d m %d mode %d seed %#x: row %zu col %zu is %a, not %a", name, f->n, f->k,
                     m, mode, SEED, i / f->ldy, i % f->ldy, got[i], want[i]);
}

// y within rounding of the sum in double: a rounding or two of 2^-24 for each of k terms, of the size of the
// largest.
static void expect_close(const struct fixture *f, const char *name, const float *y)
{
    for (int r = 0; r < M_MAX; r++)
        for (int o = 0; o < f->n; o++) {
            const float *w = f->dense + (size_t)o * f->k, *hidden = f->hidden + (size_t)o * f->k;
            const float *x = f->x_used + (size_t)r * f->k;
            double want = 0, mag = 0;
            for (int i = 0; i < f->k; i++) {
                want += (double)x[i] * w[i];
                mag += fabs((double)x[i]) * (fabs((double)w[i]) + hidden[i]);
            }
            double tol = mag * (f->k * 0x1p-23 + 0x1p-20) + 1e-30;
            if (!(fabs(y[r * f->ldy + o] - want) <= tol))
                fail_msg("%s: n %d k %d seed %#x: row %d col %d is %.9g, not %.9g (tolerance %.3g)", name,
                         f->n, f->k, SEED, r, o, y[r * f->ldy + o], want, tol);
        }
}

// Row counts that cross every tile's border.
static const int rows_tried[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 24, 31, 32, 33, 48, 64, M_MAX};
#define N_ROWS_TRIED (sizeof rows_tried / sizeof *rows_tried)

// All implementations of (cls, fmt), for one shape.
static void check_shape(enum qr_class cls, enum qr_wfmt fmt, int n, int k)
{
    struct fixture f;
    size_t n_impls;
    const struct qr_gemm_impl *impl = qr_gemm_list(&n_impls);
    setup(&f, cls, fmt, n, k);
    float *want = qr_malloc(QR_MEM_MISC, M_MAX * f.ldy * 4), *got = qr_malloc(QR_MEM_MISC, M_MAX * f.ldy * 4);
    for (size_t i = 0; i < N_ROWS_TRIED; i++) {
        int m = rows_tried[i];
        enum mode mode = (enum mode)((i + k) % MODES);
        int panel0 = i % 3 == 2 && f.w.n_panels > 1;
        qr_gemm_fn *ref = qr_gemm_pick(0, cls, fmt, m)->fn;
        run(&f, ref, 0, m, mode, panel0, want);
        for (size_t j = 0; j < n_impls; j++) {
            if (impl[j].cls != cls || impl[j].fmt != fmt || m < impl[j].m_min || m > impl[j].m_max) continue;
            if (impl[j].isa < 0 || !qr_isa_has(qr_isa_detected(), (enum qr_isa)impl[j].isa)) continue;
            run(&f, impl[j].fn, 0, m, mode, panel0, got);
            if (cls != QR_CLASS_P) expect_same(&f, impl[j].name, m, mode, want, got);
            if (m == M_MAX) run(&f, impl[j].fn, 0, m, PLAIN, 0, got), expect_close(&f, impl[j].name, got);
        }
    }
    run(&f, qr_gemm_pick(0, cls, fmt, M_MAX)->fn, 0, M_MAX, PLAIN, 0, want);
    expect_close(&f, qr_gemm_pick(0, cls, fmt, M_MAX)->name, want);
    qr_free(want);
    qr_free(got);
    teardown(&f);
}

// Under every mask of sets, a row has the same bits in any company.
static void check_company(enum qr_class cls, enum qr_wfmt fmt, int n, int k)
{
    struct fixture f;
    setup(&f, cls, fmt, n, k);
    float *all = qr_malloc(QR_MEM_MISC, M_MAX * f.ldy * 4), *got = qr_malloc(QR_MEM_MISC, M_MAX * f.ldy * 4);
    for (uint32_t mask = 0; mask <= qr_isa_detected(); mask = mask * 2 + 1) {
        const struct qr_gemm_impl *big = qr_gemm_pick(mask, cls, fmt, M_MAX);
        run(&f, big->fn, 0, M_MAX, BIAS_ADD, 0, all);
        for (size_t i = 0; i < N_ROWS_TRIED; i++) {
            int m = rows_tried[i], r0 = (int)(rnd(41, i) % (uint64_t)(M_MAX - m + 1));
            const struct qr_gemm_impl *e = qr_gemm_pick(mask, cls, fmt, m);
            run(&f, e->fn, r0, m, BIAS_ADD, 0, got);
            for (int r = 0; r < m; r++)
                if (memcmp(all + (r0 + r) * f.ldy, got + r * f.ldy, n * 4) != 0)
                    fail_msg("%s: n %d k %d m %d seed %#x: row %d differs from %s of %d rows", e->name, n, k,
                             m, SEED, r0 + r, big->name, M_MAX);
        }
    }
    qr_free(all);
    qr_free(got);
    teardown(&f);
}

static void check_class(enum qr_class cls)
{
    static const int outputs[] = {1, 15, 16, 17, 49};
    for (int fmt = 0; fmt < QR_W_COUNT; fmt++) {
        int group = qr_wfmt((enum qr_wfmt)fmt)->group;
        for (size_t i = 0; i < 5; i++) {
            int k = group * (int)(i % 3 + 1);
            if (group == 32 && i == 4) k = 32 * 18; // the width of SmolLM2-135M
            if (group == 1 && i > 1) k = (int)(31 * i + i % 2);
            check_shape(cls, (enum qr_wfmt)fmt, outputs[i], k);
        }
        check_company(cls, (enum qr_wfmt)fmt, 33, group == 1 ? 67 : group * 2);
    }
}

QR_TEST(gemm_class_d_is_the_same_everywhere)
{
    check_class(QR_CLASS_D);
}
QR_TEST(gemm_class_d15_is_the_same_everywhere)
{
    check_class(QR_CLASS_D15);
}
// Whether denormals are flushed; returns how it was. Workers flush them (DESIGN N5), tests do not.
static unsigned fp_mode(unsigned mode)
{
    unsigned before = 0;
#if defined(__x86_64__)
    before = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(mode);
#elif defined(__aarch64__)
    before = __builtin_aarch64_get_fpcr();
    __builtin_aarch64_set_fpcr(mode);
#endif
    return before;
}
// Portable C and kernels agree either way.
QR_TEST(gemm_class_d_is_the_same_with_denormals_flushed)
{
#if defined(__x86_64__)
    const unsigned flush = 0x8040, before = __builtin_ia32_stmxcsr();
#elif defined(__aarch64__)
    const unsigned flush = 1u << 24, before = __builtin_aarch64_get_fpcr();
#else
    const unsigned flush = 0, before = 0;
    QR_SKIP("no such mode on this processor");
#endif
    fp_mode(before | flush);
    for (int fmt = 0; fmt < QR_W_COUNT; fmt++)
        for (int c = QR_CLASS_D; c <= QR_CLASS_D15; c++) {
            check_company((enum qr_class)c, (enum qr_wfmt)fmt, 17, 256);
            check_shape((enum qr_class)c, (enum qr_wfmt)fmt, 17, 256);
        }
    fp_mode(before);
}
QR_TEST(gemm_class_p_is_close_and_blind_to_company)
{
    check_class(QR_CLASS_P);
}
QR_TEST(gemm_class_f_is_the_same_everywhere)
{
    check_class(QR_CLASS_F);
}

QR_TEST(gemm_pick_never_fails)
{
    for (int c = 0; c < QR_CLASS_COUNT; c++)
        for (int f = 0; f < QR_W_COUNT; f++)
            for (uint32_t mask = 0; mask <= qr_isa_detected(); mask = mask * 2 + 1)
                assert_non_null(qr_gemm_pick(mask, (enum qr_class)c, (enum qr_wfmt)f, 1)->fn);
}

QR_TEST(gemm_acts_rows_do_not_share_a_cache_set)
{
    struct qr_acts a;
    static uint8_t mem[64] __attribute__((aligned(64)));
    qr_acts_init(&a, QR_A_BF16, 1, 2048, mem);
    assert_int_equal(a.row_bytes % 64, 0);
    assert_int_equal(a.row_bytes / 64 % 2, 1);
    assert_true(a.row_bytes >= 2048 * 2);
}

// Set in parts or at once: the same bytes.
QR_TEST(gemm_acts_are_set_in_parts)
{
    for (int kind = 0; kind < QR_A_COUNT; kind++) {
        int k = kind == QR_A_F32 || kind == QR_A_BF16 ? 512 + 33 : 768, step = kind == QR_A_Q256 ? 256 : 96;
        size_t bytes = qr_acts_bytes((enum qr_akind)kind, 2, k);
        struct qr_acts whole, parts;
        float *x = qr_malloc(QR_MEM_MISC, (size_t)k * sizeof *x);
        uint8_t *mem = qr_pages_alloc(QR_MEM_MISC, 2 * bytes);
        for (int i = 0; i < k; i++) x[i] = rnd_float(51, (uint64_t)i);
        qr_acts_init(&whole, (enum qr_akind)kind, 2, k, mem);
        qr_acts_init(&parts, (enum qr_akind)kind, 2, k, mem + bytes);
        qr_acts_set_row(&whole, 1, x);
        for (int at = 0; at < k; at += step)
            qr_acts_set_part(&parts, 1, at, k - at < step ? k - at : step, x + at);
        assert_memory_equal(mem, mem + bytes, bytes);
        qr_pages_free(QR_MEM_MISC, mem, 2 * bytes);
        qr_free(x);
    }
}
