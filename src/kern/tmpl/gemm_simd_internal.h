/* Weight formats in vectors of float32 and int32 lanes, as wide as the including file's instruction set allows: 16
 * lanes with AVX-512, 8 with AVX2, 4 with NEON. A panel takes HALVES of them.
 *
 * Owns: how records become vectors. Refuses to know: what kernels compute; x86/ and arm/gemm_vec_internal.h spell the
 * operations. Threads: pure inlines, static to each file. Lifetime: none. Empty where the compiler's flags give no
 * vector set. */
#ifndef QR_KERN_TMPL_GEMM_SIMD_INTERNAL_H
#define QR_KERN_TMPL_GEMM_SIMD_INTERNAL_H

#include <stdint.h>

// Loops of constant length become straight code, so that arrays of vectors are registers. Instrumented
// builds, whose compiler would take minutes over it, keep the loops.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__clang__)
#define GEMM_UNROLL(n)
#else
#define GEMM_PRAGMA(text) _Pragma(#text)
#define GEMM_UNROLL(n) GEMM_PRAGMA(GCC unroll n)
#endif

#define SIMD_INLINE static inline __attribute__((always_inline, unused))

#if defined(__aarch64__)
#include "kern/arm/gemm_vec_internal.h"
#else
#include "kern/x86/gemm_vec_internal.h"
#endif

#ifdef VL
#include "kern/gemm_internal.h"
#include "kern/pack_layout.h"

#define HALVES (16 / VL) // vectors of a panel: 1, 2, or 4 quarters

// Four bytes at p in every lane.
SIMD_INLINE vi vi_bcst(const void *p)
{
    int32_t v;
    __builtin_memcpy(&v, p, sizeof v);
    return vi_set1(v);
}

// Rounds to bf16, to nearest even, and back to float32.
SIMD_INLINE vf vf_round_bf16(vf a)
{
    vi u = vi_bits(a);
    vi odd = vi_and(vi_srl(u, 16), vi_set1(1));
    vi r = vi_and(vi_add(u, vi_add(odd, vi_set1(0x7FFF))), vi_set1((int)0xFFFF0000));
    return vf_quiet_or(a, vf_bits(r));
}

/* ==== Formats. A format is a constant at every call, so that each switch is one case. ==== */

struct fmt_shape {
    int group, sub, top, offset; // kern/wfmts.def
    size_t rec_bytes;
    bool minima;
};
SIMD_INLINE struct fmt_shape shape_of(const enum qr_wfmt fmt)
{
    switch (fmt) {
#define QR_WFMT_INT(NAME, name, group, sub, record, top, offset, minima)                                     \
    case QR_W_##NAME: return (struct fmt_shape){group, sub, top, offset, sizeof(record), minima};
#include "kern/wfmts.def"
    default: return (struct fmt_shape){0};
    }
}

// The scale of a record, and what scales its minima.
SIMD_INLINE vf rec_d(const uint8_t *rec, int h)
{
    return vf_of_f16((const uint16_t *)rec + h * VL);
}
SIMD_INLINE vf rec_m(const uint8_t *rec, int h)
{
    return vf_of_f16((const uint16_t *)rec + 16 + h * VL);
}

// Two consecutive k of 16-bit floats, [lane][2], at p.
SIMD_INLINE void vf_of_f16_pairs(const void *p, vf out[2])
{
    vi both = vi_load(p);
    out[0] = vf_of_f16_low(both);
    out[1] = vf_of_f16_low(vi_srl(both, 16));
}
SIMD_INLINE void vf_of_bf16_pairs(vi both, vf out[2])
{
    out[0] = vf_bits(vi_sll(both, 16));
    out[1] = vf_bits(vi_and(both, vi_set1((int)0xFFFF0000)));
}

#define REC(fmt) ((const struct qr_##fmt *)rec)
// The integer scale of sub s, and its minimum.
SIMD_INLINE vi sub_sc(const enum qr_wfmt fmt, const uint8_t *rec, int s, int h)
{
    switch (fmt) {
    case QR_W_U4K: return vi_of_u8(REC(u4k)->sc[s] + h * VL);
    case QR_W_U5K: return vi_of_u8(REC(u5k)->sc[s] + h * VL);
    case QR_W_I6G16: return vi_of_i8(REC(i6g16)->sc[s] + h * VL);
    case QR_W_T4K: return vi_of_i8(REC(t4k)->sc[s] + h * VL);
    case QR_W_U2G16: return vi_and(vi_of_u8(REC(u2g16)->scm[s] + h * VL), vi_set1(15));
    case QR_W_I3G16: {
        vi lo = vi_and(vi_srl(vi_of_u8(REC(i3g16)->sc_lo[s / 2] + h * VL), s % 2 * 4), vi_set1(15));
        vi hi = vi_and(vi_srl(vi_of_u8(REC(i3g16)->sc_hi[s / 4] + h * VL), s % 4 * 2), vi_set1(3));
        return vi_add(vi_or(lo, vi_sll(hi, 4)), vi_set1(-32));
    }
    default: return vi_set1(1);
    }
}
SIMD_INLINE vi sub_mn(const enum qr_wfmt fmt, const uint8_t *rec, int s, int h)
{
    switch (fmt) {
    case QR_W_U4K: return vi_of_u8(REC(u4k)->mn[s] + h * VL);
    case QR_W_U5K: return vi_of_u8(REC(u5k)->mn[s] + h * VL);
    case QR_W_U2G16: return vi_srl(vi_of_u8(REC(u2g16)->scm[s] + h * VL), 4);
    default: return vi_set1(-1);
    }
}

// Eight quads from four vectors of nibbles; q is at its half.
SIMD_INLINE void quads_of_nibbles(const uint8_t *q, vi w[8])
{
    const vi mask = vi_set1(0x0F0F0F0F);
    GEMM_UNROLL(4) for (int i = 0; i < 4; i++)
    {
        vi v = vi_load(q + 64 * i);
        w[2 * i] = vi_and(v, mask);
        w[2 * i + 1] = vi_and(vi_srl(v, 4), mask);
    }
}

SIMD_INLINE void quads_of_fives(const struct qr_fives *q, int h, vi w[8])
{
    const vi fifth = vi_set1(0x10101010);
    vi hi = vi_load(q->hi[h * VL]);
    quads_of_nibbles(&q->lo[0][h * VL][0], w);
    GEMM_UNROLL(8) for (int j = 0; j < 8; j++)
    {
        w[j] = vi_or(w[j], vi_and(j < 4 ? vi_sll(hi, 4 - j) : vi_srl(hi, j - 4), fifth));
    }
}

SIMD_INLINE void quads_of_bytes(const int8_t *q, vi w[8])
{
    GEMM_UNROLL(8) for (int i = 0; i < 8; i++) w[i] = vi_load(q + 64 * i);
}

// The four quads of a sub of 16 k, six bits a byte.
SIMD_INLINE void quads_of_sixes(const struct qr_i6sub *q, int h, vi w[4])
{
    const vi low = vi_set1(0x0F0F0F0F), high = vi_set1(0x30303030);
    vi hi = vi_load(q->hi[h * VL]), lo0 = vi_load(q->lo[0][h * VL]), lo1 = vi_load(q->lo[1][h * VL]);
    w[0] = vi_or(vi_and(lo0, low), vi_and(vi_sll(hi, 4), high));
    w[1] = vi_or(vi_and(vi_srl(lo0, 4), low), vi_and(vi_sll(hi, 2), high));
    w[2] = vi_or(vi_and(lo1, low), vi_and(hi, high));
    w[3] = vi_or(vi_and(vi_srl(lo1, 4), low), vi_and(vi_srl(hi, 2), high));
}

SIMD_INLINE void quads_of_twos(const uint8_t *q, vi w[4])
{
    const vi mask = vi_set1(0x03030303);
    vi v = vi_load(q);
    GEMM_UNROLL(4) for (int j = 0; j < 4; j++) w[j] = vi_and(vi_srl(v, 2 * j), mask);
}

// Sub s of a record: pairs of subs share the plane of third bits.
SIMD_INLINE void quads_of_threes(const struct qr_threes *q, int s, int h, vi w[4])
{
    const vi third = vi_set1(0x04040404);
    vi hi = vi_srl(vi_load(q[s / 2].hi[h * VL]), s % 2 * 4);
    quads_of_twos(q[s / 2].lo[s % 2][h * VL], w);
    w[0] = vi_or(w[0], vi_and(vi_sll(hi, 2), third));
    w[1] = vi_or(w[1], vi_and(vi_sll(hi, 1), third));
    w[2] = vi_or(w[2], vi_and(hi, third));
    w[3] = vi_or(w[3], vi_and(vi_srl(hi, 1), third));
}

// Nibbles by what they stand for, as bytes with a sign.
SIMD_INLINE void quads_by_table(vi w[8])
{
    static const int8_t values[16] = {QR_IQ4_VALUES};
    vi table = vi_bcst16(values);
    GEMM_UNROLL(8) for (int i = 0; i < 8; i++) w[i] = vi_lookup16(table, w[i]);
}

// The stored integers of sub s, in its sub / 4 quads.
SIMD_INLINE void sub_quads(const enum qr_wfmt fmt, const uint8_t *rec, int s, int h, vi *w)
{
    switch (fmt) {
    case QR_W_U4G32: quads_of_nibbles(&REC(u4g32)->q[0][h * VL][0], w); break;
    case QR_W_U4G32M: quads_of_nibbles(&REC(u4g32m)->q[0][h * VL][0], w); break;
    case QR_W_U4K: quads_of_nibbles(&REC(u4k)->q[s][0][h * VL][0], w); break;
    case QR_W_U5G32: quads_of_fives(&REC(u5g32)->q, h, w); break;
    case QR_W_U5G32M: quads_of_fives(&REC(u5g32m)->q, h, w); break;
    case QR_W_U5K: quads_of_fives(&REC(u5k)->q[s], h, w); break;
    case QR_W_I8G32: quads_of_bytes(&REC(i8g32)->q[0][h * VL][0], w); break;
    case QR_W_I6G16: quads_of_sixes(&REC(i6g16)->q[s], h, w); break;
    case QR_W_I3G16: quads_of_threes(REC(i3g16)->q, s, h, w); break;
    case QR_W_U2G16: quads_of_twos(&REC(u2g16)->q[s][h * VL][0], w); break;
    case QR_W_T4G32:
        quads_of_nibbles(&REC(t4g32)->q[0][h * VL][0], w);
        quads_by_table(w);
        break;
    case QR_W_T4K:
        quads_of_nibbles(&REC(t4k)->q[s][0][h * VL][0], w);
        quads_by_table(w);
        break;
    default: break;
    }
}
#undef REC

// Row r, half h of the panel: the sums reach y as in gemm_store.
SIMD_INLINE void gemm_put(const struct qr_gemm *g, int r, int panel, int h, vf acc)
{
    int out = panel * QR_PANEL + h * VL;
    float lane[VL];
    if (out + VL <= g->w->n) {
        float *y = g->y + (size_t)r * g->ldy + out;
        if (g->bias) acc = vf_add(acc, vf_load(g->bias + out));
        vf_store(y, g->add ? vf_add(vf_load(y), acc) : acc);
        return;
    }
    vf_store(lane, acc);
    for (int i = 0; i < g->w->n - out; i++) gemm_store(g, r, out + i, lane[i]);
}
#endif

#endif
