#include "kern/gemm.h"

#include <limits.h>
#include <string.h>

#include "base/assert.h"
#include "kern/gemm_internal.h"
#include "kern/kern.h"

#define LINE 64
#define M_ANY INT_MAX
#define QR_ISA_NONE -1

static const struct qr_gemm_impl impls[] = {
#define QR_GEMM(cls, fmt, isa, m_min, m_max, fn)                                                             \
    {&#fn[3], QR_CLASS_##cls, QR_W_##fmt, QR_ISA_##isa, m_min, m_max, fn},
#include "kern/gemm_impls.def"
#undef QR_GEMM
};
#define N_IMPLS (sizeof impls / sizeof *impls)

const struct qr_gemm_impl *qr_gemm_list(size_t *n)
{
    *n = N_IMPLS;
    return impls;
}

const struct qr_gemm_impl *qr_gemm_pick(uint32_t isa_mask, enum qr_class c, enum qr_wfmt f, int m)
{
    for (size_t i = 0; i < N_IMPLS; i++) {
        const struct qr_gemm_impl *e = &impls[i];
        if (e->cls != c || e->fmt != f || m < e->m_min || m > e->m_max) continue;
        if (e->isa < 0 || qr_isa_has(isa_mask, (enum qr_isa)e->isa)) return e;
    }
    QR_ASSERT(!"every (class, format) ends with portable C");
    return NULL;
}

/* Server processors with tiles have a third-level cache and memory so far away that one row gets a half of the weights a
 * second that it gets when it asks for them by itself; 4,096 to 16,384 bytes ahead are alike. A Zen 4's own prefetching is
 * disturbed by it (docs/PERFORMANCE.md). */
size_t qr_gemm_ahead(uint32_t isa_mask)
{
#if defined(__x86_64__)
    return qr_isa_has(isa_mask, QR_ISA_amx) ? 4096 : 0;
#else
    (void)isa_mask;
    return 0;
#endif
}

enum qr_akind qr_akind_of(enum qr_class c, enum qr_wfmt f)
{
    if (c == QR_CLASS_P) return QR_A_BF16;
    if (c == QR_CLASS_F || qr_wfmt(f)->sub == 0) return QR_A_F32;
    if (c == QR_CLASS_D15) return QR_A_Q15;
    return qr_wfmt(f)->group == 256 ? QR_A_Q256 : QR_A_Q32;
}

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

// The parts of the memory of qr_acts: rows, then scales, then sums, each a multiple of a line.
static void acts_sizes(struct qr_acts *a)
{
    static const int elem_bytes[QR_A_COUNT] = {
        [QR_A_F32] = 4, [QR_A_BF16] = 2, [QR_A_Q32] = 1, [QR_A_Q256] = 1, [QR_A_Q15] = 2};
    size_t lines = round_up((size_t)a->k * elem_bytes[a->kind], LINE) / LINE;
    // An odd number of lines: rows begin in different sets of the first-level cache.
    a->row_bytes = (lines | 1) * LINE;
    if (a->kind == QR_A_Q32 || a->kind == QR_A_Q256 || a->kind == QR_A_Q15) {
        a->ld_scale = round_up((size_t)a->k / (a->kind == QR_A_Q256 ? 256 : 32), LINE / sizeof(float));
        a->ld_sum = round_up((size_t)a->k / 32, LINE / sizeof(int32_t));
    }
}

size_t qr_acts_bytes(enum qr_akind kind, int m, int k)
{
    struct qr_acts a = {.kind = kind, .m = m, .k = k};
    acts_sizes(&a);
    return (size_t)m * (a.row_bytes + a.ld_scale * sizeof(float) + a.ld_sum * sizeof(int32_t));
}

void qr_acts_init(struct qr_acts *acts, enum qr_akind kind, int m, int k, void *mem)
{
    QR_ASSERT((uintptr_t)mem % LINE == 0);
    QR_ASSERT((kind != QR_A_Q32 && kind != QR_A_Q15) || k % 32 == 0);
    QR_ASSERT(kind != QR_A_Q256 || k % 256 == 0);
    *acts = (struct qr_acts){.kind = kind, .m = m, .k = k, .a = mem};
    acts_sizes(acts);
    if (!acts->ld_scale) return;
    acts->scale = (float *)(acts->a + (size_t)m * acts->row_bytes);
    acts->sum = (int32_t *)(acts->scale + (size_t)m * acts->ld_scale);
}

void qr_acts_set_part(const struct qr_acts *acts, int r, int k0, int n, const float *x)
{
    QR_DASSERT(r >= 0 && r < acts->m && k0 >= 0 && n >= 0 && k0 + n <= acts->k);
    const struct qr_kern *kern = qr_kern();
    uint8_t *a = acts->a + (size_t)r * acts->row_bytes;
    float *scale = acts->scale ? acts->scale + (size_t)r * acts->ld_scale : NULL;
    int32_t *sum = acts->sum ? acts->sum + (size_t)r * acts->ld_sum + k0 / 32 : NULL;
    int k = acts->k;
    switch (acts->kind) {
    case QR_A_F32: memcpy((float *)a + k0, x, (size_t)n * sizeof *x); break;
    case QR_A_BF16:
        kern->to_bf16(x, n, (uint16_t *)a + k0);
        // Kernels take k in pairs: an odd one meets the zero of the packed weights, and must not be a NaN.
        if (k % 2 && k0 + n == k) ((uint16_t *)a)[k] = 0;
        break;
    case QR_A_Q32: kern->quant_g32(x, n, (int8_t *)a + k0, scale + k0 / 32, sum); break;
    case QR_A_Q256: kern->quant_g256(x, n, (int8_t *)a + k0, scale + k0 / 256, sum); break;
    case QR_A_Q15: kern->quant_q15(x, n, (int8_t *)a + k0, (int8_t *)a + k + k0, scale + k0 / 32, sum); break;
    case QR_A_COUNT: break;
    }
}

void qr_acts_set_row(const struct qr_acts *acts, int r, const float *x)
{
    qr_acts_set_part(acts, r, 0, acts->k, x);
}
