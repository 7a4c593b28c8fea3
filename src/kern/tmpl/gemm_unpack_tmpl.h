/* Panels as float32 or bf16, for the instruction set of the including file: exactly the file's values, in the
 * order of operations of kern/quant, or those rounded to bf16. Scale times integer has at most 24 bits, so it
 * is exact, and fused with what is added the result is the same.
 *
 * Owns: nothing. Refuses to know: products. Threads: pure functions. Lifetime: static.
 * Empty where the file is built for no vector set. */
#ifndef QR_KERN_TMPL_GEMM_UNPACK_TMPL_H
#define QR_KERN_TMPL_GEMM_UNPACK_TMPL_H

#include "kern/tmpl/gemm_simd_internal.h"

#if defined(VL)

enum emit {
    EMIT_F32,   // float [k][16]
    EMIT_ROUND, // float [k][16], each rounded to bf16
    EMIT_BF16   // uint16_t [k / 2][16][2]
};

// Four consecutive k, from a multiple of four, of half h.
SIMD_INLINE void emit_quad(void *out, const enum emit mode, int k, int h, const vf v[4])
{
#if defined(__AVX512BF16__)
    if (mode == EMIT_BF16) {
        // The instruction puts its second operand in the lower half; the permutation pairs k with k + 1 a
        // lane.
        const __m512i pair = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8,
                                              23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
        uint16_t *to = (uint16_t *)out + 16 * k;
        _mm512_storeu_si512(to, _mm512_permutexvar_epi16(pair, (__m512i)_mm512_cvtne2ps_pbh(v[1], v[0])));
        _mm512_storeu_si512(to + 32,
                            _mm512_permutexvar_epi16(pair, (__m512i)_mm512_cvtne2ps_pbh(v[3], v[2])));
        return;
    }
#else
    if (mode == EMIT_BF16) {
        for (int i = 0; i < 4; i += 2) {
            vi lower = vi_srl(vi_bits(vf_round_bf16(v[i])), 16), upper = vi_bits(vf_round_bf16(v[i + 1]));
            vf_store((float *)out + 8 * (k + i) + h * VL, vf_bits(vi_or(lower, upper)));
        }
        return;
    }
#endif
    GEMM_UNROLL(4) for (int i = 0; i < 4; i++)
        vf_store((float *)out + 16 * (k + i) + h * VL, mode == EMIT_ROUND ? vf_round_bf16(v[i]) : v[i]);
}

// Byte b of each lane, unsigned.
SIMD_INLINE vf vf_of_byte(vi v, int b)
{
    return vf_of_vi(vi_and(vi_srl(v, 8 * b), vi_set1(255)));
}

// Any integer format: k from `from` on, a multiple of 32, up to k.
SIMD_INLINE void unpack_int(const enum qr_wfmt fmt, const uint8_t *panel, int from, int k, int h,
                            const enum emit mode, void *out)
{
    const struct fmt_shape f = shape_of(fmt);
    const uint8_t *rec = panel + (size_t)(from / f.group) * f.rec_bytes;
    for (int at = from; at < k; at += f.sub) {
        int s = at % f.group / f.sub;
        vi w[8];
        vf v[4], ds = rec_d(rec, h), less = f.minima ? rec_m(rec, h) : vf_zero();
        if (f.group > f.sub) ds = vf_mul(ds, vf_of_vi(sub_sc(fmt, rec, s, h)));
        if (f.minima) less = vf_mul(less, vf_of_vi(sub_mn(fmt, rec, s, h)));
        if (f.offset) less = vf_mul(ds, vf_set1((float)f.offset));
        sub_quads(fmt, rec, s, h, w);
        GEMM_UNROLL(8) for (int q = 0; q < f.sub / 4; q++)
        {
            GEMM_UNROLL(4) for (int b = 0; b < 4; b++)
            {
                if (f.top && f.top < 16)
                    v[b] = vf_fms(ds, vf_of_nibble(vi_srl(w[q], 8 * b)), less);
                else if (f.top)
                    v[b] = vf_fms(ds, vf_of_byte(w[q], b), less);
                else
                    v[b] = vf_mul(ds, vf_of_vi(vi_sra(vi_sll(w[q], 24 - 8 * b), 24)));
            }
            emit_quad(out, mode, at + 4 * q, h, v);
        }
        if (s == f.group / f.sub - 1) rec += f.rec_bytes;
    }
}

// Any k. What follows an odd one in bf16 is zero; nothing is written past what a multiple of four takes.
SIMD_INLINE void unpack_f32(const uint8_t *panel, int from, int k, int h, const enum emit mode, void *out)
{
    const float *lines = (const float *)panel + h * VL;
    for (int i = from; i < k; i += 4) {
        vf v[4];
        GEMM_UNROLL(4) for (int j = 0; j < 4; j++) v[j] = i + j < k ? vf_load(lines + 16 * (size_t)(i + j)) : vf_zero();
        emit_quad(out, mode, i, h, v);
    }
}

// As F32.
SIMD_INLINE void unpack_f16(const uint8_t *panel, int from, int k, int h, const enum emit mode, void *out)
{
    for (int i = from; i < k; i += 4) {
        vf v[4];
        GEMM_UNROLL(2) for (int j = 0; j < 4; j += 2) // the file's odd k ends with a zero
        {
            v[j] = v[j + 1] = vf_zero();
            if (i + j < k) vf_of_f16_pairs(panel + 32 * (size_t)(i + j) + 4 * h * VL, &v[j]);
        }
        emit_quad(out, mode, i, h, v);
    }
}

// k from `from` (a multiple of 32) up to k of a panel of any format but BF16, which kernels read as it is. The mode is a
// constant, the format a case.
SIMD_INLINE void unpack_part(enum qr_wfmt fmt, const uint8_t *panel, int from, int k, const enum emit mode, void *out)
{
    for (int h = 0; h < HALVES; h++) {
        switch (fmt) {
#define QR_WFMT_INT(NAME, ...)                                                                               \
    case QR_W_##NAME: unpack_int(QR_W_##NAME, panel, from, k, h, mode, out); break;
#include "kern/wfmts.def"
        case QR_W_F16: unpack_f16(panel, from, k, h, mode, out); break;
        default: unpack_f32(panel, from, k, h, mode, out); break;
        }
    }
}
SIMD_INLINE void unpack_panel(enum qr_wfmt fmt, const uint8_t *panel, int k, const enum emit mode, void *out)
{
    unpack_part(fmt, panel, 0, k, mode, out);
}
#endif

#endif
