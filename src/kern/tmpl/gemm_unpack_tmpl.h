/* Panels as float32 or bf16, for the instruction set of the including file: exactly the file's values, in the
 * order of operations of kern/quant, or those rounded to bf16. Scale times integer has at most 24 bits, so it
 * is exact, and fused with what is added the result is the same.
 *
 * Owns: nothing. Refuses to know: products. Threads: pure functions. Lifetime: static.
 * Empty where the file is built for no vector set. */
#ifndef QR_KERN_TMPL_GEMM_UNPACK_TMPL_H
#define QR_KERN_TMPL_GEMM_UNPACK_TMPL_H

#include "kern/x86/gemm_simd_internal.h"

#if defined(VL)

enum emit {
    EMIT_F32,   // float [k][16]
    EMIT_ROUND, // float [k][16], each rounded to bf16
    EMIT_BF16   // uint16_t [k / 2][16][2], AVX512-BF16 only
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
#endif
    for (int i = 0; i < 4; i++)
        vf_store((float *)out + 16 * (k + i) + h * VL, mode == EMIT_ROUND ? vf_round_bf16(v[i]) : v[i]);
}

// Byte b of each lane, unsigned.
SIMD_INLINE vf vf_of_byte(vi v, int b)
{
    return vf_of_vi(vi_and(vi_srl(v, 8 * b), vi_set1(255)));
}

SIMD_INLINE void unpack_u4g32(const uint8_t *panel, int k, int h, const enum emit mode, void *out)
{
    const struct qr_u4g32 *rec = (const struct qr_u4g32 *)panel;
    for (int g = 0; g < k / 32; g++, rec++) {
        vf d = vf_of_f16(rec->d + h * VL), m = vf_mul(d, vf_set1(-8)), v[4];
        for (int q = 0; q < 8; q++) {
            vi w = vi_and(vi_srl(vi_load(rec->q[q / 2][h * VL]), q % 2 * 4), vi_set1(0x0F0F0F0F));
            for (int b = 0; b < 4; b++) v[b] = vf_fma(d, vf_of_byte(w, b), m);
            emit_quad(out, mode, 32 * g + 4 * q, h, v);
        }
    }
}

SIMD_INLINE void unpack_u4g32m(const uint8_t *panel, int k, int h, const enum emit mode, void *out)
{
    const struct qr_u4g32m *rec = (const struct qr_u4g32m *)panel;
    for (int g = 0; g < k / 32; g++, rec++) {
        vf d = vf_of_f16(rec->d + h * VL), m = vf_of_f16(rec->m + h * VL), v[4];
        for (int q = 0; q < 8; q++) {
            vi w = vi_and(vi_srl(vi_load(rec->q[q / 2][h * VL]), q % 2 * 4), vi_set1(0x0F0F0F0F));
            for (int b = 0; b < 4; b++) v[b] = vf_fma(d, vf_of_byte(w, b), m);
            emit_quad(out, mode, 32 * g + 4 * q, h, v);
        }
    }
}

SIMD_INLINE void unpack_u4k(const uint8_t *panel, int k, int h, const enum emit mode, void *out)
{
    const struct qr_u4k *rec = (const struct qr_u4k *)panel;
    for (int s = 0; s < k / 32; s++, rec += s % 8 == 0) {
        vf ds = vf_mul(vf_of_f16(rec->d + h * VL), vf_of_vi(vi_of_u8(rec->sc[s % 8] + h * VL)));
        vf dm = vf_mul(vf_of_f16(rec->dmin + h * VL), vf_of_vi(vi_of_u8(rec->mn[s % 8] + h * VL))), v[4];
        for (int q = 0; q < 8; q++) {
            vi w = vi_and(vi_srl(vi_load(rec->q[s % 8][q / 2][h * VL]), q % 2 * 4), vi_set1(0x0F0F0F0F));
            for (int b = 0; b < 4; b++) v[b] = vf_fms(ds, vf_of_byte(w, b), dm);
            emit_quad(out, mode, 32 * s + 4 * q, h, v);
        }
    }
}

SIMD_INLINE void unpack_i8g32(const uint8_t *panel, int k, int h, const enum emit mode, void *out)
{
    const struct qr_i8g32 *rec = (const struct qr_i8g32 *)panel;
    for (int g = 0; g < k / 32; g++, rec++) {
        vf d = vf_of_f16(rec->d + h * VL), v[4];
        for (int q = 0; q < 8; q++) {
            vi w = vi_load(rec->q[q][h * VL]);
            for (int b = 0; b < 4; b++) v[b] = vf_mul(vf_of_vi(vi_sra(vi_sll(w, 24 - 8 * b), 24)), d);
            emit_quad(out, mode, 32 * g + 4 * q, h, v);
        }
    }
}

SIMD_INLINE void unpack_i6g16(const uint8_t *panel, int k, int h, const enum emit mode, void *out)
{
    const struct qr_i6g16 *rec = (const struct qr_i6g16 *)panel;
    for (int s = 0; s < k / 16; s++, rec += s % 16 == 0) {
        vf ds = vf_mul(vf_of_f16(rec->d + h * VL), vf_of_vi(vi_of_i8(rec->sc[s % 16] + h * VL)));
        vf m = vf_mul(ds, vf_set1(-32)), v[4];
        vi w[4];
        quads_of_sixes(&rec->q[s % 16], h, w);
        for (int q = 0; q < 4; q++) {
            for (int b = 0; b < 4; b++) v[b] = vf_fma(ds, vf_of_byte(w[q], b), m);
            emit_quad(out, mode, 16 * s + 4 * q, h, v);
        }
    }
}

// Any k. What follows an odd one in bf16 is zero; nothing is written past what a multiple of four takes.
SIMD_INLINE void unpack_f32(const uint8_t *panel, int k, int h, const enum emit mode, void *out)
{
    const float *from = (const float *)panel + h * VL;
    for (int i = 0; i < k; i += 4) {
        vf v[4];
        for (int j = 0; j < 4; j++) v[j] = i + j < k ? vf_load(from + 16 * (size_t)(i + j)) : vf_zero();
        emit_quad(out, mode, i, h, v);
    }
}

typedef void unpack_fn(const uint8_t *panel, int k, void *out);

#define UNPACK(fmt, mode, name)                                                                              \
    static void name##_##fmt(const uint8_t *panel, int k, void *out)                                         \
    {                                                                                                        \
        for (int h = 0; h < HALVES; h++) unpack_##fmt(panel, k, h, mode, out);                               \
    }
// name_<fmt> for every format but BF16, which kernels read as it is, and a table of them by enum qr_wfmt.
#define UNPACK_ALL(mode, name)                                                                               \
    UNPACK(u4g32, mode, name)                                                                                \
    UNPACK(u4g32m, mode, name)                                                                               \
    UNPACK(u4k, mode, name)                                                                                  \
    UNPACK(i8g32, mode, name)                                                                                \
    UNPACK(i6g16, mode, name)                                                                                \
    UNPACK(f32, mode, name)                                                                                  \
    static unpack_fn *const name[QR_W_COUNT] = {                                                             \
        [QR_W_U4G32] = name##_u4g32, [QR_W_U4G32M] = name##_u4g32m, [QR_W_U4K] = name##_u4k,                 \
        [QR_W_I8G32] = name##_i8g32, [QR_W_I6G16] = name##_i6g16,   [QR_W_F32] = name##_f32,                 \
    };
#endif

#endif
