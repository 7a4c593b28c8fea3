/* Exact dots of bytes on x86, for tmpl/gemm_d_tmpl.h, which says what the words are.
 *
 * Owns: nothing. Refuses to know: tiles. Threads: pure inlines. Lifetime: static.
 *
 * VNNI multiplies unsigned weights by signed activations. Without it pairs of products are added to 16 bits, which
 * must not overflow. */
#if defined(__AVX2__) && defined(GEMM_NAME)

#if defined(__AVX512VNNI__)
#define BIAS 128 // what is added to bytes with a sign, for an instruction whose weights have none
#else
#define BIAS 0
#endif

#if defined(__AVX512VNNI__)
SIMD_INLINE void weights(const enum qr_wfmt fmt, const uint8_t *rec, int s, int h, vi *w)
{
    sub_quads(fmt, rec, s, h, w);
    if (shape_of(fmt).top) return;
    GEMM_UNROLL(8) for (int i = 0; i < 8; i++) w[i] = vi_xor(w[i], vi_set1((int)0x80808080));
}
SIMD_INLINE void dots(const enum qr_wfmt fmt, const vi *w, const int8_t *x, const int stride, const int n, vi *dot)
{
    GEMM_UNROLL(8)
    for (int i = 0; i < shape_of(fmt).sub / 4; i++) {
        FOR_ROWS(r, n) dot[r] = _mm512_dpbusd_epi32(dot[r], w[i], vi_bcst(x + r * stride + 4 * i));
    }
}

#else
#define weights sub_quads
#if VL == 16
SIMD_INLINE vi maddubs(vi u8, vi i8)
{
    return _mm512_maddubs_epi16(u8, i8);
}
SIMD_INLINE vi add16(vi a, vi b)
{
    return _mm512_add_epi16(a, b);
}
SIMD_INLINE vi madd(vi a, vi b)
{
    return _mm512_madd_epi16(a, b);
}
SIMD_INLINE vi abs8(vi a)
{
    return _mm512_abs_epi8(a);
}
// x where w >= 0, -x elsewhere.
SIMD_INLINE vi sign8(vi x, vi w)
{
    return _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w), vi_zero(), x);
}
#else
SIMD_INLINE vi maddubs(vi u8, vi i8)
{
    return _mm256_maddubs_epi16(u8, i8);
}
SIMD_INLINE vi add16(vi a, vi b)
{
    return _mm256_add_epi16(a, b);
}
SIMD_INLINE vi madd(vi a, vi b)
{
    return _mm256_madd_epi16(a, b);
}
SIMD_INLINE vi abs8(vi a)
{
    return _mm256_abs_epi8(a);
}
SIMD_INLINE vi sign8(vi x, vi w)
{
    return _mm256_sign_epi8(x, w);
}
#endif
// |w| <= 128 as unsigned, its sign moved to x, whose least value is -127: a pair stays below 2^15.
SIMD_INLINE vi dot_i8(const vi *w, const int n_quads, const int8_t *x)
{
    vi sum = vi_zero();
    GEMM_UNROLL(8)
    for (int i = 0; i < n_quads; i++) {
        vi pairs = maddubs(abs8(w[i]), sign8(vi_bcst(x + 4 * i), w[i]));
        sum = vi_add(sum, madd(pairs, vi_set1(0x00010001)));
    }
    return sum;
}
// Pairs of at most 2 * top * 127 add up below 2^15 for so many quads: one widening serves them.
SIMD_INLINE vi dot_u(const vi *w, const int n_quads, const int top, const int8_t *x)
{
    const int together = 32767 / (2 * top * 127);
    vi all = vi_zero(), sum = maddubs(w[0], vi_bcst(x));
    GEMM_UNROLL(8)
    for (int i = 1; i < n_quads; i++) {
        vi pairs = maddubs(w[i], vi_bcst(x + 4 * i));
        if (i % together == 0) all = vi_add(all, madd(sum, vi_set1(0x00010001)));
        sum = i % together == 0 ? pairs : add16(sum, pairs);
    }
    return vi_add(all, madd(sum, vi_set1(0x00010001)));
}
SIMD_INLINE void dots(const enum qr_wfmt fmt, const vi *w, const int8_t *x, const int stride, const int n, vi *dot)
{
    const struct fmt_shape f = shape_of(fmt);
    FOR_ROWS(r, n)
    {
        const int8_t *row = x + r * stride;
        dot[r] = vi_add(dot[r], f.top ? dot_u(w, f.sub / 4, f.top, row) : dot_i8(w, f.sub / 4, row));
    }
}
#endif

#endif
