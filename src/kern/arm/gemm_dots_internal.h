/* Exact dots of bytes on ARM, for tmpl/gemm_d_tmpl.h, which says what the words are.
 *
 * Owns: nothing. Refuses to know: tiles. Threads: pure inlines. Lifetime: static.
 *
 * Weights and activations have a sign. Without sdot a product of bytes has 16 bits (128 * 127 fits), and pairs of them are
 * added to 32. */
#if defined(__aarch64__) && defined(GEMM_NAME)

#define BIAS 0
#define weights sub_quads

#if defined(__ARM_FEATURE_DOTPROD)
SIMD_INLINE void dots(const enum qr_wfmt fmt, const vi *w, const int8_t *x, const int stride, const int n, vi *dot)
{
    GEMM_UNROLL(8)
    for (int i = 0; i < shape_of(fmt).sub / 4; i++) {
        FOR_ROWS(r, n)
        {
            int8x16_t four = vreinterpretq_s8_s32(vi_bcst(x + r * stride + 4 * i));
            dot[r] = vdotq_s32(dot[r], vreinterpretq_s8_s32(w[i]), four);
        }
    }
}
#else
SIMD_INLINE vi dot_row(const vi *w, const int n_quads, const int8_t *x)
{
    vi lo = vi_zero(), hi = vi_zero(); // pairs of lanes 0 and 1, of 2 and 3
    GEMM_UNROLL(8)
    for (int i = 0; i < n_quads; i++) {
        int8x16_t a = vreinterpretq_s8_s32(w[i]), b = vreinterpretq_s8_s32(vi_bcst(x + 4 * i));
        lo = vpadalq_s16(lo, vmull_s8(vget_low_s8(a), vget_low_s8(b)));
        hi = vpadalq_s16(hi, vmull_high_s8(a, b));
    }
    return vpaddq_s32(lo, hi);
}
SIMD_INLINE void dots(const enum qr_wfmt fmt, const vi *w, const int8_t *x, const int stride, const int n, vi *dot)
{
    FOR_ROWS(r, n) dot[r] = vi_add(dot[r], dot_row(w, shape_of(fmt).sub / 4, x + r * stride));
}
#endif

#endif
