/* Matrix products over packed weights, by numerics class.
 *
 * Owns: the choice of a kernel. Refuses to know: layers, threads (a caller gives each task a range of
 * panels). Threads: pure functions over the caller's memory. Lifetime: static tables.
 *
 * Classes (DESIGN 5). Each output element is one accumulation over k ascending, by one task (N1).
 *   D  activations quantised to int8 per group, exact int32 dot a group, float32 fma of groups ascending.
 *      Bit-identical in C and on every instruction set (N2). With q the integer of a weight (its
 *      offset taken off), d and m the float16 scales of its group, sc and mn the integers of its sub
 *      (kern/wfmts.def), x the int8 activation, s its group's scale, acc = 0, for each group in turn
 *      (t = d * s is rounded once):
 *        groups of 32   dot = sum q * x                       acc = fmaf((float)dot, t, acc)
 *          with minima                                        acc = fmaf(m, (float)(sum x) * s, acc)
 *        groups of 256  dot = sum over subs of sc * sum q * x acc = fmaf((float)dot, t, acc)
 *          with minima  min = sum over subs of mn * sum x     acc = fmaf(-(float)min, m * s, acc)
 *      No int32 overflows, whatever the bytes. Float weights: float32 activations,
 *      acc = fmaf(x[k], w[k], acc), k ascending; bit-identical too.
 *      Then y = acc, or acc + bias, or y + acc, or y + (acc + bias).
 *   D15  class D where int8 would cost too much of a model's quality: activations of 15 bits, |v| <= 16256,
 *      with one scale s per 32 in every format, held as v = 128 * hi + lo (hi and lo are int8), so that a dot
 *      is 128 * dot(hi) + dot(lo) of the same instructions over the same unpacked weights. Exact int32 dots
 *      over a sub, converted to float32 to nearest even. For each sub in turn:
 *        dot = sum q * v                                     acc = fmaf((float)dot, (d * sc) * s, acc)
 *          with minima                                       acc = fmaf(-(m * mn), (float)(sum v) * s, acc)
 *      where in groups of 32 sc is 1 and mn is -1. No int32 overflows; bit-identical everywhere. Float weights:
 *      as in D.
 *   P  weights and activations rounded once to bf16, float32 accumulation (N3). Same bits for any number of
 *      rows on one instruction set; within tolerance of ref across sets.
 *   F  float32 activations and exact float32 weights, acc = fmaf, k ascending: the specification that
 *      `--activations f32` selects. Bit-identical everywhere. */
#ifndef QR_KERN_GEMM_H
#define QR_KERN_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kern/pack.h"

enum qr_class { QR_CLASS_D, QR_CLASS_D15, QR_CLASS_P, QR_CLASS_F, QR_CLASS_COUNT };

// How a row of activations is stored for a (class, format).
enum qr_akind {
    QR_A_F32,  // float32, as it is
    QR_A_BF16, // bf16, round to nearest even
    QR_A_Q32,  // int8, scale and sum per group of 32
    QR_A_Q256, // int8, scale per group of 256, sum per 32
    QR_A_Q15,  // hi int8 [k], lo int8 [k]; scale and sum of 128 * hi + lo per group of 32
    QR_A_COUNT
};
enum qr_akind qr_akind_of(enum qr_class c, enum qr_wfmt f);

// Activations of m rows in one of the kinds. Row r of `a` begins at byte r * row_bytes (a multiple of 64,
// padded so that rows do not share a cache set); row r of scale at r * ld_scale; of sum at r * ld_sum.
struct qr_acts {
    enum qr_akind kind;
    int m, k;
    uint8_t *a;
    size_t row_bytes;
    float *scale; // NULL for F32 and BF16
    int32_t *sum; // sum of the integers of each 32; NULL for F32 and BF16
    size_t ld_scale, ld_sum;
};
// Bytes for m rows of k in this kind, and the carving of such memory (64-byte aligned) into *acts.
size_t qr_acts_bytes(enum qr_akind kind, int m, int k);
void qr_acts_init(struct qr_acts *acts, enum qr_akind kind, int m, int k, void *mem);
// Converts row r from float32 x[0..k).
void qr_acts_set_row(const struct qr_acts *acts, int r, const float *x);
// Converts elements k0 .. k0 + n - 1 of row r from x[0..n). k0 is a multiple of 256 in Q256, else of 32; n is
// too, or reaches the end of the row.
void qr_acts_set_part(const struct qr_acts *acts, int r, int k0, int n, const float *x);

struct qr_gemm {
    const struct qr_wmat *w;
    int panel0, panel1;         // computes outputs [panel0 * 16, min(n, panel1 * 16))
    const struct qr_acts *acts; // its m rows
    float *y;                   // y[r * ldy + output]
    size_t ldy;
    const float *bias; // NULL, or n floats: added to the product
    bool add;          // y += product + bias instead of y =
    void *scratch;     // QR_GEMM_SCRATCH bytes of the task's own, 64-byte aligned
    // The last use of this scratch was a call of the same function with the same activations: what it
    // prepared of them is still there.
    bool again;
    // Bytes before their use at which kernels of one to three rows ask memory for weights, 0 for not at all: costs or
    // saves time, nothing else. What lies so far behind the last panel need not be mapped.
    size_t ahead;
};
// What `ahead` suits the machine of this mask.
size_t qr_gemm_ahead(uint32_t isa_mask);
#define QR_GEMM_SCRATCH(k) ((size_t)(k)*3 * QR_PANEL * 4 + 98304)

typedef void qr_gemm_fn(const struct qr_gemm *g);

// One implementation in the ordered list of its (class, format): first that accepts wins.
struct qr_gemm_impl {
    const char *name; // "gemm_d_u4g32m_avx512vnni"
    enum qr_class cls;
    enum qr_wfmt fmt;
    int isa;          // enum qr_isa, or -1 for portable C
    int m_min, m_max; // rows it takes
    qr_gemm_fn *fn;
};
const struct qr_gemm_impl *qr_gemm_list(size_t *n); // all, best first within a (class, format); ref last
// Never NULL: ref takes everything. For one (class, fmt) every choice gives the same bits, whatever m.
const struct qr_gemm_impl *qr_gemm_pick(uint32_t isa_mask, enum qr_class c, enum qr_wfmt f, int m);

#endif
