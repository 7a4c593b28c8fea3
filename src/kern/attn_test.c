/* Attention and KV writes of every instruction set against plain attention over contiguous K and V in
 * float64. */
#include "kern/attn.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/test.h"
#include "kern/half.h"
#include "kern/kern.h"

#define GUARD 0x5aU

static uint64_t rng_state;

static uint32_t rng(void)
{
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng_state >> 33);
}

// Uniform in (-1, 1).
static float uniform(void)
{
    return (float)((int)(rng() % 2000001) - 1000000) * 1e-6f;
}

static void *xalloc(size_t bytes)
{
    void *p = NULL;
    assert_int_equal(posix_memalign(&p, 64, (bytes + 63) / 64 * 64), 0);
    return p;
}

// One sequence of n tokens in pages, and the same values in plain rows.
struct seq {
    enum qr_kvtype type;
    int n, d;
    float *k, *v; // (n, d)
    struct qr_kv_view kv;
    uint8_t *pool;
    uint32_t *table;
    int window; // of the rows that attend to it
    float softcap;
};

// Blocks in an order that rng chooses; every byte of the pool that no token owns is a NaN.
static void seq_page(struct seq *s, int block_size, const struct qr_kern *kern)
{
    int n_blocks = (s->n + block_size - 1) / block_size, spare = 3;
    size_t unit = qr_kv_unit_bytes(s->type, s->d), head_off = unit * (size_t)(block_size / 16);
    size_t block_bytes = head_off * 3; // this head lies between two others
    s->pool = xalloc(block_bytes * (size_t)(n_blocks + spare));
    memset(s->pool, 0xff, block_bytes * (size_t)(n_blocks + spare));
    s->table = xalloc(sizeof *s->table * (size_t)n_blocks);
    uint32_t ids[256];
    assert_true(n_blocks + spare <= 256);
    for (int i = 0; i < n_blocks + spare; i++) ids[i] = (uint32_t)i;
    for (int i = n_blocks + spare - 1; i > 0; i--) {
        int j = (int)(rng() % (uint32_t)(i + 1));
        uint32_t t = ids[i];
        ids[i] = ids[j];
        ids[j] = t;
    }
    memcpy(s->table, ids, sizeof *s->table * (size_t)n_blocks);
    s->kv = (struct qr_kv_view){.pool = s->pool,
                                .block_bytes = block_bytes,
                                .head_off = head_off,
                                .table = s->table,
                                .block_size = block_size,
                                .d = s->d};
    qr_kv_write_fn *put = qr_kern_kv(kern, s->type).write;
    for (int i = 0; i < s->n; i++) put(&s->kv, i, s->k + (size_t)i * s->d, s->v + (size_t)i * s->d);
}

static void seq_unpage(struct seq *s)
{
    free(s->pool);
    free(s->table);
}

// x with `bits` of mantissa below its first and no finer than 2^low, by the double's own arithmetic.
static float rounded(double x, int bits, int low)
{
    int e;
    frexp(x, &e);
    double step = ldexp(1, e - 1 - bits > low ? e - 1 - bits : low);
    return (float)(nearbyint(x / step) * step);
}

// What a cache of the type gives back for one token's K or V.
static void as_cached(enum qr_kvtype type, float *x, int d)
{
    double max = 0;
    for (int i = 0; i < d; i++) max = fmax(max, fabs((double)x[i]));
    for (int i = 0; i < d; i++) {
        if (type == QR_KV_BF16) x[i] = rounded(x[i], 7, -133);
        if (type == QR_KV_F16) x[i] = rounded(x[i], 10, -24);
        if (type == QR_KV_INT8) x[i] = (float)(nearbyint(x[i] / max * 127) * max / 127);
        if (type == QR_KV_FP8) {
            double y = x[i] / max * 448;
            if (fabs(y) < 0x1p-6) y = fabs(y) > 0x1p-7 ? copysign(0x1p-6, y) : 0; // no denormals
            x[i] = (float)(rounded(y, 3, -9) * max / 448);
        }
    }
}

static void seq_init(struct seq *s, enum qr_kvtype type, int n, int d)
{
    *s = (struct seq){.type = type, .n = n, .d = d};
    s->k = xalloc(sizeof(float) * (size_t)n * d);
    s->v = xalloc(sizeof(float) * (size_t)n * d);
    for (int i = 0; i < n * d; i++) {
        s->k[i] = uniform() * 3;
        s->v[i] = uniform();
    }
    for (int t = 0; t < n; t++) {
        as_cached(type, s->k + (size_t)t * d, d);
        as_cached(type, s->v + (size_t)t * d, d);
    }
}

static void seq_fini(struct seq *s)
{
    free(s->k);
    free(s->v);
}

// Attention as its definition says, over the last `window` positions, its scores capped.
static void oracle(const struct seq *s, const float *q, int pos, double scale, double *out)
{
    double *p = xalloc(sizeof(double) * (size_t)(pos + 1)), max = -INFINITY, sum = 0;
    int first = s->window > 0 && pos + 1 > s->window ? pos + 1 - s->window : 0;
    for (int t = first; t <= pos; t++) {
        p[t] = 0;
        for (int i = 0; i < s->d; i++) p[t] += (double)q[i] * s->k[(size_t)t * s->d + i];
        p[t] *= scale;
        if (s->softcap > 0) p[t] = s->softcap * tanh(p[t] / s->softcap);
        if (p[t] > max) max = p[t];
    }
    for (int t = first; t <= pos; t++) sum += p[t] = exp(p[t] - max);
    for (int i = 0; i < s->d; i++) {
        out[i] = 0;
        for (int t = first; t <= pos; t++) out[i] += p[t] / sum * s->v[(size_t)t * s->d + i];
    }
    free(p);
}

static qr_attn_fn *attn_fn(const struct qr_kern *k, enum qr_kvtype type, int prefill)
{
    struct qr_kv_kernels of = qr_kern_kv(k, type);
    return prefill ? of.prefill : of.decode;
}

// Rows pos0 .. pos0 + n_rows - 1 with odd strides; checks that nothing but the rows is written.
static void run(qr_attn_fn *fn, const struct seq *s, int n_group, int pos0, int n_rows, const float *q,
                float *out)
{
    size_t width = (size_t)n_group * s->d, ldo = width + 13;
    float *tmp = xalloc(sizeof(float) * (ldo * (size_t)n_rows + 32));
    size_t scratch_bytes = QR_ATTN_SCRATCH(n_group, s->d);
    uint8_t *scratch = xalloc(scratch_bytes + 64);
    memset(tmp, GUARD, sizeof(float) * (ldo * (size_t)n_rows + 32));
    memset(scratch, 0xff, scratch_bytes + 64);
    struct qr_attn a = {.kv = s->kv,
                        .n_group = n_group,
                        .scale = 1.0f / sqrtf((float)s->d),
                        .pos0 = pos0,
                        .n_rows = n_rows,
                        .q = q,
                        .ldq = width,
                        .out = tmp + 16,
                        .ldo = ldo,
                        .scratch = scratch,
                        .window = s->window,
                        .softcap = s->softcap};
    fn(&a);
    const uint8_t *raw = (const uint8_t *)tmp;
    for (int i = 0; i < 64; i++) {
        assert_int_equal(raw[i], GUARD);
        assert_int_equal(scratch[scratch_bytes + (size_t)i], 0xff);
    }
    for (int r = 0; r < n_rows; r++) {
        const uint8_t *gap = (const uint8_t *)(tmp + 16 + (size_t)r * ldo + width);
        for (int i = 0; i < 13 * 4; i++) assert_int_equal(gap[i], GUARD);
        memcpy(out + (size_t)r * width, tmp + 16 + (size_t)r * ldo, sizeof(float) * width);
    }
    free(tmp);
    free(scratch);
}

static double tolerance(enum qr_kvtype type)
{
    // Of values up to 1. Scores reach 50; in bf16 and fp8 p has 8 bits; int8 takes queries of 15 bits.
    return type == QR_KV_BF16 || type == QR_KV_FP8 ? 6e-3 : type == QR_KV_INT8 ? 1e-3 : 1e-5;
}

static void expect_close(const struct seq *s, int n_group, int pos0, int n_rows, const float *q,
                         const float *got)
{
    double want[256];
    size_t width = (size_t)n_group * s->d;
    for (int r = 0; r < n_rows; r++)
        for (int g = 0; g < n_group; g++) {
            float qs[256];
            for (int i = 0; i < s->d; i++) {
                float x = q[(size_t)r * width + (size_t)g * s->d + i];
                qs[i] = s->type == QR_KV_BF16 || s->type == QR_KV_FP8 ? rounded(x, 7, -133) : x;
            }
            oracle(s, qs, pos0 + r, 1.0 / sqrt((double)s->d), want);
            for (int i = 0; i < s->d; i++) {
                double err = fabs(want[i] - got[(size_t)r * width + (size_t)g * s->d + i]);
                if (!(err <= tolerance(s->type)))
                    fail_msg("d %d group %d pos %d row %d head %d dim %d: error %g", s->d, n_group, pos0, r,
                             g, i, err);
            }
        }
}

static const int head_sizes[] = {32, 48, 64, 80, 96, 128, 192, 256};
static const int groups[] = {1, 2, 3, 4, 7, 8, 16};
static const int lengths[] = {1, 15, 16, 17, 63, 64, 65, 511, 512, 513, 1100};
static const int block_sizes[] = {16, 32, 64, 128};
#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

// Prefills the last rows of a sequence (up to 16) and decodes its last one.
static void check_case(enum qr_kvtype type, uint32_t mask, int d, int n_group, int len, int block_size)
{
    struct qr_kern k;
    struct seq s;
    int n_rows = len < 16 ? len : 16, pos0 = len - n_rows;
    size_t width = (size_t)n_group * d;
    float *q = xalloc(sizeof(float) * width * 16), *out = xalloc(sizeof(float) * width * 16);
    for (size_t i = 0; i < width * 16; i++) q[i] = uniform() * 3;
    qr_kern_fill(&k, mask);
    seq_init(&s, type, len, d);
    seq_page(&s, block_size, &k);
    run(attn_fn(&k, type, 1), &s, n_group, pos0, n_rows, q, out);
    expect_close(&s, n_group, pos0, n_rows, q, out);
    run(attn_fn(&k, type, 0), &s, n_group, len - 1, 1, q, out);
    expect_close(&s, n_group, len - 1, 1, q, out);
    seq_unpage(&s);
    seq_fini(&s);
    free(q);
    free(out);
}

// Every set of this machine: mask 0 is portable C, then one more set at a time.
#define EACH_MASK(mask) for (uint32_t mask = 0; mask <= qr_isa_detected(); mask = mask * 2 + 1)

static void check_shapes(enum qr_kvtype type)
{
    rng_state = 7;
    EACH_MASK(mask)
    {
        int at = 0;
        for (int d = 0; d < COUNT(head_sizes); d++)
            for (int g = 0; g < COUNT(groups); g++) {
                int len = lengths[at % 7]; // every head size and ratio, lengths up to 65 in turn
                check_case(type, mask, head_sizes[d], groups[g], len, block_sizes[at % COUNT(block_sizes)]);
                at++;
            }
        for (int n = 0; n < COUNT(lengths); n++) // every length, head sizes and ratios in turn
            check_case(type, mask, head_sizes[n % 3 + 1], groups[n % 3], lengths[n],
                       block_sizes[n % COUNT(block_sizes)]);
    }
}

#define EACH_TYPE(type) for (enum qr_kvtype type = QR_KV_AUTO + 1; type < QR_KV_COUNT; type++)

QR_TEST(attn_equals_plain_attention)
{
    EACH_TYPE(type) check_shapes(type);
}

// Windows from one token to more than there are, soft caps, and both; tokens before the windows are NaN.
static void check_window(enum qr_kvtype type, uint32_t mask, int window, float softcap)
{
    struct qr_kern k;
    struct seq s;
    int len = 700, d = 48, n_group = 3, n_rows = 16, pos0 = len - n_rows;
    size_t width = (size_t)n_group * d;
    float *q = xalloc(sizeof(float) * width * 16), *out = xalloc(sizeof(float) * width * 16),
          *one = xalloc(sizeof(float) * width);
    for (size_t i = 0; i < width * 16; i++) q[i] = uniform() * 3;
    qr_kern_fill(&k, mask);
    seq_init(&s, type, len, d);
    s.window = window;
    s.softcap = softcap;
    seq_page(&s, 16, &k);
    for (int b = 0; window > 0 && b < (pos0 + 1 - window) / 16; b++)
        memset(s.pool + s.table[b] * s.kv.block_bytes + s.kv.head_off, 0xff, qr_kv_unit_bytes(type, d));
    for (int prefill = 0; prefill < 2; prefill++) {
        run(attn_fn(&k, type, prefill), &s, n_group, pos0, n_rows, q, out);
        expect_close(&s, n_group, pos0, n_rows, q, out);
        for (int r = 0; r < n_rows; r++) {
            run(attn_fn(&k, type, prefill), &s, n_group, pos0 + r, 1, q + (size_t)r * width, one);
            assert_memory_equal(one, out + (size_t)r * width, width * sizeof *one);
        }
    }
    seq_unpage(&s);
    seq_fini(&s);
    free(q);
    free(out);
    free(one);
}

QR_TEST(attn_windows_and_soft_caps)
{
    static const int windows[] = {1, 15, 16, 17, 63, 64, 65, 180, 511, 690, 5000};
    rng_state = 23;
    EACH_MASK(mask)
    {
        EACH_TYPE(type)
        {
            for (int i = 0; i < COUNT(windows); i++) check_window(type, mask, windows[i], i % 3 == 2 ? 5 : 0);
            check_window(type, mask, 0, 2);
        }
    }
}

// A row's bits depend on its own positions alone: not on rows of the call, block size, block order, heads
// beside it.
static void check_invariance(enum qr_kvtype type, uint32_t mask, int d, int n_group, int len)
{
    struct qr_kern k;
    struct seq s;
    size_t width = (size_t)n_group * d;
    float *q = xalloc(sizeof(float) * width * 16), *all = xalloc(sizeof(float) * width * 16);
    float *one = xalloc(sizeof(float) * width * 16);
    for (size_t i = 0; i < width * 16; i++) q[i] = uniform() * 3;
    qr_kern_fill(&k, mask);
    seq_init(&s, type, len, d);
    for (int prefill = 0; prefill < 2; prefill++) {
        qr_attn_fn *fn = attn_fn(&k, type, prefill);
        seq_page(&s, 16, &k);
        run(fn, &s, n_group, len - 16, 16, q, all);
        for (int r = 0; r < 16; r++) {
            run(fn, &s, n_group, len - 16 + r, 1, q + (size_t)r * width, one);
            assert_memory_equal(one, all + (size_t)r * width, width * sizeof *one);
        }
        run(fn, &s, n_group, len - 11, 7, q + 5 * width, one);
        assert_memory_equal(one, all + 5 * width, 7 * width * sizeof *one);
        float *head = xalloc(sizeof(float) * 16 * (size_t)d),
              *head_out = xalloc(sizeof(float) * 16 * (size_t)d);
        int g = n_group - 1; // alone, without the heads that shared its lines
        for (int r = 0; r < 16; r++)
            memcpy(head + (size_t)r * d, q + (size_t)r * width + (size_t)g * d, sizeof(float) * (size_t)d);
        run(fn, &s, 1, len - 16, 16, head, head_out);
        for (int r = 0; r < 16; r++)
            assert_memory_equal(head_out + (size_t)r * d, all + (size_t)r * width + (size_t)g * d,
                                sizeof(float) * (size_t)d);
        free(head);
        free(head_out);
        seq_unpage(&s);
        for (int b = 0; b < COUNT(block_sizes); b++) {
            seq_page(&s, block_sizes[b], &k); // another order as well
            run(fn, &s, n_group, len - 16, 16, q, one);
            assert_memory_equal(one, all, 16 * width * sizeof *one);
            seq_unpage(&s);
        }
    }
    seq_fini(&s);
    free(q);
    free(all);
    free(one);
}

QR_TEST(attn_bits_depend_on_own_positions_only)
{
    rng_state = 11;
    EACH_MASK(mask)
    {
        EACH_TYPE(type)
        {
            check_invariance(type, mask, 64, 3, 70);
            check_invariance(type, mask, 80, 5, 16);
            check_invariance(type, mask, 32, 2, 519);
        }
    }
}

// Rows that a decode call computes are the prefill's within tolerance, over more than two splits.
QR_TEST(attn_decode_is_prefill_within_tolerance)
{
    rng_state = 13;
    EACH_MASK(mask)
    {
        EACH_TYPE(type)
        {
            struct qr_kern k;
            struct seq s;
            float q[3 * 64], a[3 * 64], b[3 * 64];
            qr_kern_fill(&k, mask);
            seq_init(&s, type, 1100, 64);
            seq_page(&s, 32, &k);
            for (int i = 0; i < 3 * 64; i++) q[i] = uniform() * 3;
            run(attn_fn(&k, s.type, 0), &s, 3, 1099, 1, q, a);
            run(attn_fn(&k, s.type, 1), &s, 3, 1099, 1, q, b);
            for (int i = 0; i < 3 * 64; i++) assert_true(fabsf(a[i] - b[i]) <= tolerance(s.type));
            seq_unpage(&s);
            seq_fini(&s);
        }
    }
}

// Scores so far apart that all weight falls on one token, in a chunk and split of its own.
QR_TEST(attn_follows_a_dominant_token)
{
    rng_state = 17;
    EACH_MASK(mask)
    {
        EACH_TYPE(type)
            for (int prefill = 0; prefill < 2; prefill++) {
                struct qr_kern k;
                struct seq s;
                float q[64], out[64];
                qr_kern_fill(&k, mask);
                seq_init(&s, type, 700, 64);
                for (int i = 0; i < 64; i++) {
                    q[i] = 8;
                    s.k[600 * 64 + i] = 512;
                }
                seq_page(&s, 16, &k);
                run(attn_fn(&k, s.type, prefill), &s, 1, 699, 1, q, out);
                double tol = type == QR_KV_INT8 ? 5e-5 : type == QR_KV_FP8 ? 5e-3 : 0; // their weights are rounded
                for (int i = 0; i < 64; i++) assert_true(fabs((double)out[i] - s.v[600 * 64 + i]) <= tol);
                seq_unpage(&s);
                seq_fini(&s);
            }
    }
}

// The layout of kern/attn.h, spelt out once more from its drawing: where value i of token t of a unit lies.
static size_t k_place(enum qr_kvtype type, int i, int t)
{
    if (type == QR_KV_BF16) return (size_t)(i / 2 * 32 + t * 2 + i % 2);
    if (type == QR_KV_INT8 || type == QR_KV_FP8) return (size_t)(i / 4 * 64 + t * 4 + i % 4);
    return (size_t)(i * 16 + t);
}

static size_t v_place(enum qr_kvtype type, int i, int t)
{
    if (type == QR_KV_BF16) return (size_t)(i / 16 * 256 + t / 2 * 32 + i % 16 * 2 + t % 2);
    if (type == QR_KV_INT8 || type == QR_KV_FP8) return (size_t)(i / 16 * 256 + t / 4 * 64 + i % 16 * 4 + t % 4);
    return (size_t)(i / 16 * 256 + t * 16 + i % 16);
}

static double fp8_value(uint8_t code)
{
    int e = code >> 3 & 15, m = code & 7;
    return (code & 0x80 ? -1 : 1) * (e ? ldexp(8 + m, e - 10) : ldexp(m, -9));
}

static double value_at(enum qr_kvtype type, const uint8_t *p, size_t i, double scale, int bias)
{
    switch (type) {
    case QR_KV_BF16: return qr_f32_of_bf16(qr_load_u16(p + 2 * i));
    case QR_KV_F16: return qr_f32_of_f16(qr_load_u16(p + 2 * i));
    case QR_KV_F32: return ((const float *)(const void *)p)[i];
    case QR_KV_INT8: return ((int8_t)(p[i] - bias)) * scale;
    default: return fp8_value(p[i]) * scale / 256;
    }
}

QR_TEST(attn_kv_write_follows_the_layout)
{
    rng_state = 19;
    EACH_MASK(mask)
    {
        EACH_TYPE(type)
        {
            bool scaled = type == QR_KV_INT8 || type == QR_KV_FP8;
            for (int d = 16; d <= 256; d += 48) {
                struct qr_kern k;
                struct seq s;
                qr_kern_fill(&k, mask);
                seq_init(&s, type, 37, d);
                seq_page(&s, 32, &k);
                size_t unit = qr_kv_unit_bytes(type, d), half = unit / 2;
                assert_int_equal(unit, (type == QR_KV_F32 ? 128 : scaled ? 32 : 64) * d + (scaled ? 128 : 0));
                for (int t = 0; t < 37; t++) {
                    const uint8_t *u = s.pool + s.table[t / 32] * s.kv.block_bytes + s.kv.head_off +
                                       (size_t)(t % 32 / 16) * unit;
                    double ks = 1, vs = 1;
                    if (scaled) {
                        ks = ((const float *)(const void *)(u + half - 64))[t % 16];
                        vs = ((const float *)(const void *)(u + unit - 64))[t % 16];
                    }
                    for (int i = 0; i < d; i++) {
                        double tol = scaled ? 3e-6 : 0, x = s.k[t * d + i], y = s.v[t * d + i];
                        double got_k = value_at(type, u, k_place(type, i, t % 16), ks, 128);
                        double got_v = value_at(type, u + half, v_place(type, i, t % 16), vs, 0);
                        assert_true(fabs(got_k - x) <= tol && fabs(got_v - y) <= tol);
                    }
                }
                seq_unpage(&s);
                seq_fini(&s);
            }
        }
    }
}

QR_TEST(attn_knows_kv_types_by_name)
{
    struct qr_error err = {0};
    enum qr_kvtype t = QR_KV_COUNT;
    EACH_TYPE(type)
    {
        assert_int_equal(qr_kvtype_parse(qr_kvtype_name(type), &t, &err), QR_OK);
        assert_int_equal(t, type);
    }
    assert_int_equal(qr_kvtype_parse("auto", &t, &err), QR_OK);
    assert_int_equal(t, QR_KV_AUTO);
    assert_int_equal(qr_kvtype_parse("fp8_e4m3", &t, &err), QR_OK);
    assert_int_equal(t, QR_KV_FP8);
    assert_int_equal(qr_kvtype_parse("fp4", &t, &err), QR_EINVAL);
    assert_string_equal(err.msg, "expected auto, bf16, f16, f32, int8, fp8, got \"fp4\"");
}
