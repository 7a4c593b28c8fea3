/* Classes D and D15 over the integer formats, for the instruction set of the including file, which defines
 * GEMM_NAME(x) (the full name of a kernel).
 *
 * Owns: nothing. Refuses to know: threads.
 * Threads: pure functions over the caller's memory. Lifetime: static.
 *
 * The rows of activations are first copied into tiles of R rows (16, 8, 4, 2 or 1), so that a micro-kernel
 * walks one pointer with constant offsets. A tile is a sequence over k of
 *   groups of 32:   | scale f32 [R] | corr [R] | x int8 [R][32] |            U4G32, U4G32M, I8G32
 *   groups of 256:  | scale f32 [R] | 8 times: corr [R], x int8 [R][32] |    U4K
 *                   | scale f32 [R] | 16 times: corr [R], x int8 [R][16] |   I6G16
 * In D15 a tile is a sequence of groups of 32 in every format, and where x is there are hi and then lo.
 * Here corr corrects the offset of the stored weights: -8 * sum, -128 * sum or -32 * sum of x (int32), or is
 * what the minimum is multiplied by: sum * scale (float32) in U4G32M, sum (int32) in U4K. A row of a tile is
 * 1.27 * k bytes or less, 2.38 * k in D15; scratch holds ROWS_BLOCK rows. */
#if defined(__AVX2__) && defined(GEMM_NAME)

#include "kern/x86/gemm_simd_internal.h"

#define GEMM_NAME_(x) GEMM_NAME(x)
#define ROWS_MAX 16                                // of a tile
#define ROWS_BLOCK(parts) ((parts) == 1 ? 96 : 48) // 48 * 2.38 * k < QR_GEMM_SCRATCH(k)

struct tile_shape {
    int group;     // k that share a scale
    int sub;       // k that share a corr
    int corr_mul;  // corr = corr_mul * sum
    bool corr_f32; // corr = (float)sum * scale
    int parts;     // int8 numbers an activation: 1, or hi and lo
};

SIMD_INLINE size_t tile_bytes(struct tile_shape t, int rows, int k)
{
    return (size_t)rows * ((size_t)(k / t.group) * 4 + (size_t)(k / t.sub) * 4 + (size_t)k * t.parts);
}

// Copies rows r0 .. r0 + rows - 1 of the activations. The shape is a constant at every call.
SIMD_INLINE void tile_fill(const struct qr_acts *a, const struct tile_shape t, int r0, int rows, uint8_t *out)
{
    const int8_t *row0 = (const int8_t *)(a->a + (size_t)r0 * a->row_bytes);
    const float *scale0 = a->scale + (size_t)r0 * a->ld_scale;
    const int32_t *sum0 = a->sum + (size_t)r0 * a->ld_sum;
    for (int at = 0; at < a->k; at += t.sub) {
        const float *scale = scale0 + at / t.group;
        if (at % t.group == 0) {
            for (int r = 0; r < rows; r++) ((float *)out)[r] = scale[r * a->ld_scale];
            out += 4 * rows;
        }
        for (int r = 0; r < rows; r++) {
            const int8_t *x = row0 + r * a->row_bytes + at;
            int32_t sum = 0;
            if (t.sub == 32)
                sum = sum0[r * a->ld_sum + at / 32];
            else
                for (int i = 0; i < t.sub; i++) sum += t.parts == 1 ? x[i] : 128 * x[i] + x[a->k + i];
            if (t.corr_f32)
                ((float *)out)[r] = (float)sum * scale[r * a->ld_scale];
            else
                ((int32_t *)out)[r] = t.corr_mul * sum;
            uint8_t *to = out + 4 * rows + r * t.sub;
            __builtin_memcpy(to, x, t.sub);
            if (t.parts == 2) __builtin_memcpy(to + rows * t.sub, x + a->k, t.sub);
        }
        out += rows * (4 + t.sub * t.parts);
    }
}

/* Exact dots of weight quads w (four k a lane, one byte each) with n rows x, `stride` bytes apart, added to
 * dot[]. dots_u4: 8 quads of 0..15. dots_u6: 4 quads of 0..63. dots_i8: 8 quads as weights_i8 prepared
 * them. */
#define CHAINS 4 // rows at once: their sums are independent, so that they hide each other's latency
#define CHAINS_OF(R) ((R) < CHAINS ? (R) : CHAINS)
#define FOR_CHAINS(r0, R) GEMM_UNROLL(4) for (int r0 = 0; r0 < (R); r0 += CHAINS)
#define FOR_ROWS(r, n) GEMM_UNROLL(16) for (int r = 0; r < (n); r++)

#if defined(__AVX512VNNI__)
#define CORR_I8 -128 // weights_i8 adds 128
SIMD_INLINE vi weights_i8(vi w)
{
    return vi_xor(w, vi_set1((int)0x80808080));
}
SIMD_INLINE void dot_quads(const vi *w, const int n_quads, const int8_t *x, const int stride, const int n,
                           vi *dot)
{
    GEMM_UNROLL(8)
    for (int i = 0; i < n_quads; i++) {
        FOR_ROWS(r, n) dot[r] = _mm512_dpbusd_epi32(dot[r], w[i], vi_bcst(x + r * stride + 4 * i));
    }
}
#define dots_u4(w, x, stride, n, dot) dot_quads(w, 8, x, stride, n, dot)
#define dots_u6(w, x, stride, n, dot) dot_quads(w, 4, x, stride, n, dot)
#define dots_i8(w, x, stride, n, dot) dot_quads(w, 8, x, stride, n, dot)

#else
#define CORR_I8 0
SIMD_INLINE vi weights_i8(vi w)
{
    return w;
}
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
SIMD_INLINE vi dot_i8_quad(vi w, vi x)
{
    return madd(maddubs(abs8(w), sign8(x, w)), vi_set1(0x00010001));
}
// Eight pairs of at most 2 * 15 * 127 stay below 2^15 together: one widening serves the group.
SIMD_INLINE vi dot_u4(const vi *w, const int8_t *x)
{
    vi sum = maddubs(w[0], vi_bcst(x));
    GEMM_UNROLL(8) for (int i = 1; i < 8; i++) sum = add16(sum, maddubs(w[i], vi_bcst(x + 4 * i)));
    return madd(sum, vi_set1(0x00010001));
}
// Two pairs of at most 2 * 63 * 127 stay below 2^15 together.
SIMD_INLINE vi dot_u6(const vi *w, const int8_t *x)
{
    vi lo = add16(maddubs(w[0], vi_bcst(x)), maddubs(w[1], vi_bcst(x + 4)));
    vi hi = add16(maddubs(w[2], vi_bcst(x + 8)), maddubs(w[3], vi_bcst(x + 12)));
    return vi_add(madd(lo, vi_set1(0x00010001)), madd(hi, vi_set1(0x00010001)));
}
SIMD_INLINE vi dot_i8(const vi *w, const int8_t *x)
{
    vi sum = dot_i8_quad(w[0], vi_bcst(x));
    GEMM_UNROLL(8) for (int i = 1; i < 8; i++) sum = vi_add(sum, dot_i8_quad(w[i], vi_bcst(x + 4 * i)));
    return sum;
}
#define DOT_ROWS(one)                                                                                        \
    SIMD_INLINE void dots_##one(const vi *w, const int8_t *x, const int stride, const int n, vi *dot)        \
    {                                                                                                        \
        FOR_ROWS(r, n) dot[r] = vi_add(dot[r], dot_##one(w, x + r * stride));                                \
    }
DOT_ROWS(u4)
DOT_ROWS(u6)
DOT_ROWS(i8)
#endif

/* dot[r] = corr[r] (where there is one) + the dot of row r of n, in a tile of R rows of `sub` k. Of two parts
 * the upper counts 128 times. */
#define CORRECTED(one)                                                                                       \
    SIMD_INLINE void corrected_##one(const vi *w, const int8_t *x, const int parts, const int R,             \
                                     const int n, const void *corr, vi *dot)                                 \
    {                                                                                                        \
        const int sub = SUB_##one;                                                                           \
        FOR_ROWS(r, n) dot[r] = parts == 1 && corr ? vi_bcst((const int32_t *)corr + r) : vi_zero();         \
        dots_##one(w, x, sub, n, dot);                                                                       \
        if (parts == 1) return;                                                                              \
        FOR_ROWS(r, n) dot[r] = vi_sll(dot[r], 7);                                                           \
        dots_##one(w, x + R * sub, sub, n, dot);                                                             \
        if (!corr) return;                                                                                   \
        FOR_ROWS(r, n) dot[r] = vi_add(dot[r], vi_bcst((const int32_t *)corr + r));                          \
    }
#define SUB_u4 32
#define SUB_u6 16
#define SUB_i8 32
CORRECTED(u4)
CORRECTED(u6)
CORRECTED(i8)

/* While several rows keep the processor busy with one panel, the lines of the next are fetched; the
 * hardware's prefetcher alone would start anew at each. A single row runs at the memory's speed and needs no
 * help (it loses). */
SIMD_INLINE void fetch_next(const void *rec, const int bytes, size_t panel_bytes, const int R, int h)
{
    if (R < 4 || h > 0) return;
    for (int i = 0; i < bytes; i += 64) _mm_prefetch((const char *)rec + panel_bytes + i, _MM_HINT_T1);
}

// Micro-kernels: R rows (a constant) of the tile against half h of the panel; the next is `next` bytes on.
SIMD_INLINE void micro_u4g32(const uint8_t *panel, size_t next, int k, const uint8_t *tile, const int R,
                             const int parts, int h, vf *acc)
{
    const struct qr_u4g32 *rec = (const struct qr_u4g32 *)panel;
    for (int g = 0; g < k / 32; g++, rec++, tile += R * (8 + 32 * parts)) {
        vi w[8];
        fetch_next(rec, sizeof *rec, next, R, h);
        quads_of_nibbles(&rec->q[0][h * VL][0], w);
        vf d = vf_of_f16(rec->d + h * VL);
        FOR_CHAINS(r0, R)
        {
            vi dot[CHAINS];
            const float *scale = (const float *)tile + r0;
            corrected_u4(w, (const int8_t *)tile + R * 8 + r0 * 32, parts, R, CHAINS_OF(R), scale + R, dot);
            FOR_ROWS(r, CHAINS_OF(R))
            {
                acc[r0 + r] = vf_fma(vf_of_vi(dot[r]), vf_mul(d, vf_set1(scale[r])), acc[r0 + r]);
            }
        }
    }
}

SIMD_INLINE void micro_u4g32m(const uint8_t *panel, size_t next, int k, const uint8_t *tile, const int R,
                              const int parts, int h, vf *acc)
{
    const struct qr_u4g32m *rec = (const struct qr_u4g32m *)panel;
    for (int g = 0; g < k / 32; g++, rec++, tile += R * (8 + 32 * parts)) {
        vi w[8];
        fetch_next(rec, sizeof *rec, next, R, h);
        quads_of_nibbles(&rec->q[0][h * VL][0], w);
        vf d = vf_of_f16(rec->d + h * VL), m = vf_of_f16(rec->m + h * VL);
        FOR_CHAINS(r0, R)
        {
            vi dot[CHAINS];
            const float *scale = (const float *)tile + r0;
            corrected_u4(w, (const int8_t *)tile + R * 8 + r0 * 32, parts, R, CHAINS_OF(R), NULL, dot);
            FOR_ROWS(r, CHAINS_OF(R))
            {
                vf sum = vf_fma(vf_of_vi(dot[r]), vf_mul(d, vf_set1(scale[r])), acc[r0 + r]);
                acc[r0 + r] = vf_fma(m, vf_set1(scale[R + r]), sum);
            }
        }
    }
}

SIMD_INLINE void micro_i8g32(const uint8_t *panel, size_t next, int k, const uint8_t *tile, const int R,
                             const int parts, int h, vf *acc)
{
    const struct qr_i8g32 *rec = (const struct qr_i8g32 *)panel;
    for (int g = 0; g < k / 32; g++, rec++, tile += R * (8 + 32 * parts)) {
        vi w[8];
        fetch_next(rec, sizeof *rec, next, R, h);
        GEMM_UNROLL(8) for (int i = 0; i < 8; i++) w[i] = weights_i8(vi_load(&rec->q[i][h * VL][0]));
        vf d = vf_of_f16(rec->d + h * VL);
        FOR_CHAINS(r0, R)
        {
            vi dot[CHAINS];
            const float *scale = (const float *)tile + r0;
            corrected_i8(w, (const int8_t *)tile + R * 8 + r0 * 32, parts, R, CHAINS_OF(R), scale + R, dot);
            FOR_ROWS(r, CHAINS_OF(R))
            {
                acc[r0 + r] = vf_fma(vf_of_vi(dot[r]), vf_mul(d, vf_set1(scale[r])), acc[r0 + r]);
            }
        }
    }
}

SIMD_INLINE void micro_u4k(const uint8_t *panel, size_t next, int k, const uint8_t *tile, const int R, int h,
                           vf *acc)
{
    const struct qr_u4k *rec = (const struct qr_u4k *)panel;
    for (int g = 0; g < k / 256; g++, rec++) {
        vi dot[ROWS_MAX], min[ROWS_MAX];
        const float *scale = (const float *)tile;
        tile += R * 4;
        FOR_ROWS(r, R) dot[r] = min[r] = vi_zero();
        for (int s = 0; s < 8; s++, tile += R * 36) {
            vi w[8];
            fetch_next(rec->q[s], sizeof rec->q[s], next, R, h);
            quads_of_nibbles(&rec->q[s][0][h * VL][0], w);
            vi sc = vi_of_u8(rec->sc[s] + h * VL), mn = vi_of_u8(rec->mn[s] + h * VL);
            FOR_CHAINS(r0, R)
            {
                vi part[CHAINS];
                FOR_ROWS(r, CHAINS_OF(R)) part[r] = vi_zero();
                dots_u4(w, (const int8_t *)tile + R * 4 + r0 * 32, 32, CHAINS_OF(R), part);
                FOR_ROWS(r, CHAINS_OF(R))
                {
                    dot[r0 + r] = vi_add(dot[r0 + r], vi_mul(part[r], sc));
                    min[r0 + r] = vi_add(min[r0 + r], vi_mul(mn, vi_bcst(tile + (r0 + r) * 4)));
                }
            }
        }
        vf d = vf_of_f16(rec->d + h * VL), dmin = vf_of_f16(rec->dmin + h * VL);
        FOR_ROWS(r, R)
        {
            vf s = vf_set1(scale[r]);
            vf sum = vf_fma(vf_of_vi(dot[r]), vf_mul(d, s), acc[r]);
            acc[r] = vf_fnma(vf_of_vi(min[r]), vf_mul(dmin, s), sum);
        }
    }
}

SIMD_INLINE void micro_i6g16(const uint8_t *panel, size_t next, int k, const uint8_t *tile, const int R,
                             int h, vf *acc)
{
    const struct qr_i6g16 *rec = (const struct qr_i6g16 *)panel;
    for (int g = 0; g < k / 256; g++, rec++) {
        vi dot[ROWS_MAX];
        const float *scale = (const float *)tile;
        tile += R * 4;
        FOR_ROWS(r, R) dot[r] = vi_zero();
        for (int s = 0; s < 16; s++, tile += R * 20) {
            const struct qr_i6sub *q = &rec->q[s];
            vi w[4];
            fetch_next(q, sizeof *q, next, R, h);
            quads_of_sixes(q, h, w);
            vi sc = vi_of_i8(rec->sc[s] + h * VL);
            FOR_CHAINS(r0, R)
            {
                vi part[CHAINS];
                FOR_ROWS(r, CHAINS_OF(R)) part[r] = vi_bcst(tile + (r0 + r) * 4);
                dots_u6(w, (const int8_t *)tile + R * 4 + r0 * 16, 16, CHAINS_OF(R), part);
                FOR_ROWS(r, CHAINS_OF(R)) dot[r0 + r] = vi_add(dot[r0 + r], vi_mul(part[r], sc));
            }
        }
        vf d = vf_of_f16(rec->d + h * VL);
        FOR_ROWS(r, R) acc[r] = vf_fma(vf_of_vi(dot[r]), vf_mul(d, vf_set1(scale[r])), acc[r]);
    }
}

SIMD_INLINE void micro15_u4k(const uint8_t *panel, size_t next, int k, const uint8_t *tile, const int R,
                             int h, vf *acc)
{
    const struct qr_u4k *rec = (const struct qr_u4k *)panel;
    for (int g = 0; g < k / 256; g++, rec++) {
        vf d = vf_of_f16(rec->d + h * VL), dmin = vf_of_f16(rec->dmin + h * VL);
        for (int s = 0; s < 8; s++, tile += R * 72) {
            vi w[8];
            fetch_next(rec->q[s], sizeof rec->q[s], next, R, h);
            quads_of_nibbles(&rec->q[s][0][h * VL][0], w);
            vf ds = vf_mul(d, vf_of_vi(vi_of_u8(rec->sc[s] + h * VL)));
            vf dm = vf_mul(dmin, vf_of_vi(vi_of_u8(rec->mn[s] + h * VL)));
            FOR_CHAINS(r0, R)
            {
                vi dot[CHAINS];
                const float *scale = (const float *)tile + r0;
                corrected_u4(w, (const int8_t *)tile + R * 8 + r0 * 32, 2, R, CHAINS_OF(R), NULL, dot);
                FOR_ROWS(r, CHAINS_OF(R))
                {
                    vf sum = vf_fma(vf_of_vi(dot[r]), vf_mul(ds, vf_set1(scale[r])), acc[r0 + r]);
                    acc[r0 + r] = vf_fnma(dm, vf_set1(scale[R + r]), sum);
                }
            }
        }
    }
}

SIMD_INLINE void micro15_i6g16(const uint8_t *panel, size_t next, int k, const uint8_t *tile, const int R,
                               int h, vf *acc)
{
    const struct qr_i6g16 *rec = (const struct qr_i6g16 *)panel;
    for (int g = 0; g < k / 256; g++, rec++) {
        vf d = vf_of_f16(rec->d + h * VL);
        const float *scale = (const float *)tile;
        for (int s = 0; s < 16; s++, tile += R * 36) {
            const struct qr_i6sub *q = &rec->q[s];
            vi w[4];
            if (s % 2 == 0) scale = (const float *)tile, tile += R * 4;
            fetch_next(q, sizeof *q, next, R, h);
            quads_of_sixes(q, h, w);
            vf ds = vf_mul(d, vf_of_vi(vi_of_i8(rec->sc[s] + h * VL)));
            FOR_CHAINS(r0, R)
            {
                vi dot[CHAINS];
                corrected_u6(w, (const int8_t *)tile + R * 4 + r0 * 16, 2, R, CHAINS_OF(R),
                             (const int32_t *)tile + r0, dot);
                FOR_ROWS(r, CHAINS_OF(R))
                {
                    acc[r0 + r] = vf_fma(vf_of_vi(dot[r]), vf_mul(ds, vf_set1(scale[r0 + r])), acc[r0 + r]);
                }
            }
        }
    }
}

typedef void micro_fn(const struct qr_gemm *g, int panel, int r0, const uint8_t *tile);
typedef void fill_fn(const struct qr_acts *a, int r0, int rows, uint8_t *out);

// micro[i] takes 1 << i rows, up to rows_max. What the scratch holds of the last block of rows may be used
// again.
static void gemm_d(const struct qr_gemm *g, struct tile_shape shape, fill_fn *fill, micro_fn *const *micro,
                   int rows_max)
{
    int m = g->acts->m, k = g->w->k, rows_block = ROWS_BLOCK(shape.parts);
    for (int block = 0; block < m; block += rows_block) {
        int end = m - block < rows_block ? m : block + rows_block;
        uint8_t *tile = g->scratch;
        for (int r = block, n = rows_max; r < end && !(g->again && m <= rows_block);
             r += n, tile += tile_bytes(shape, n, k)) {
            while (n > end - r) n /= 2;
            fill(g->acts, r, n, tile);
        }
        for (int p = g->panel0; p < g->panel1; p++) {
            tile = g->scratch;
            for (int r = block, n = rows_max; r < end; r += n, tile += tile_bytes(shape, n, k)) {
                while (n > end - r) n /= 2;
                micro[__builtin_ctz((unsigned)n)](g, p, r, tile);
            }
        }
    }
}

// The body of a micro-kernel of a format, to be named for a class.
#define BODY_d_u4g32(p, next, k, tile, R, h, acc) micro_u4g32(p, next, k, tile, R, 1, h, acc)
#define BODY_d_u4g32m(p, next, k, tile, R, h, acc) micro_u4g32m(p, next, k, tile, R, 1, h, acc)
#define BODY_d_i8g32(p, next, k, tile, R, h, acc) micro_i8g32(p, next, k, tile, R, 1, h, acc)
#define BODY_d_u4k micro_u4k
#define BODY_d_i6g16 micro_i6g16
#define BODY_d15_u4g32(p, next, k, tile, R, h, acc) micro_u4g32(p, next, k, tile, R, 2, h, acc)
#define BODY_d15_u4g32m(p, next, k, tile, R, h, acc) micro_u4g32m(p, next, k, tile, R, 2, h, acc)
#define BODY_d15_i8g32(p, next, k, tile, R, h, acc) micro_i8g32(p, next, k, tile, R, 2, h, acc)
#define BODY_d15_u4k micro15_u4k
#define BODY_d15_i6g16 micro15_i6g16

// The micro-kernel of a class and format with R rows, a constant.
#define MICRO(fmt, R)                                                                                        \
    static void micro_##fmt##_##R(const struct qr_gemm *g, int panel, int r0, const uint8_t *tile)           \
    {                                                                                                        \
        const uint8_t *p = g->w->data + (size_t)panel * g->w->panel_bytes;                                   \
        for (int h = 0; h < HALVES; h++) {                                                                   \
            vf acc[R];                                                                                       \
            FOR_ROWS(r, R) acc[r] = vf_zero();                                                               \
            BODY_##fmt(p, g->w->panel_bytes, g->w->k, tile, R, h, acc);                                      \
            FOR_ROWS(r, R) gemm_put(g, r0 + r, panel, h, acc[r]);                                            \
        }                                                                                                    \
    }

// The kernel of a class and format: micro-kernels of 1, 2, 4 and, where registers allow, more rows.
#define KERNEL(fmt, ...)                                                                                     \
    static void fill_##fmt(const struct qr_acts *a, int r0, int rows, uint8_t *out)                          \
    {                                                                                                        \
        tile_fill(a, shape_##fmt, r0, rows, out);                                                            \
    }                                                                                                        \
    void GEMM_NAME_(fmt)(const struct qr_gemm *g)                                                            \
    {                                                                                                        \
        static micro_fn *const micro[] = {__VA_ARGS__};                                                      \
        gemm_d(g, shape_##fmt, fill_##fmt, micro, 1 << (sizeof micro / sizeof *micro - 1));                  \
    }
#define KERNEL_4(fmt)                                                                                        \
    MICRO(fmt, 1)                                                                                            \
    MICRO(fmt, 2)                                                                                            \
    MICRO(fmt, 4)                                                                                            \
    KERNEL(fmt, micro_##fmt##_1, micro_##fmt##_2, micro_##fmt##_4)
#define KERNEL_8(fmt)                                                                                        \
    MICRO(fmt, 1)                                                                                            \
    MICRO(fmt, 2)                                                                                            \
    MICRO(fmt, 4)                                                                                            \
    MICRO(fmt, 8)                                                                                            \
    KERNEL(fmt, micro_##fmt##_1, micro_##fmt##_2, micro_##fmt##_4, micro_##fmt##_8)
#define KERNEL_16(fmt)                                                                                       \
    MICRO(fmt, 1)                                                                                            \
    MICRO(fmt, 2)                                                                                            \
    MICRO(fmt, 4)                                                                                            \
    MICRO(fmt, 8)                                                                                            \
    MICRO(fmt, 16)                                                                                           \
    KERNEL(fmt, micro_##fmt##_1, micro_##fmt##_2, micro_##fmt##_4, micro_##fmt##_8, micro_##fmt##_16)

static const struct tile_shape shape_d_u4g32 = {32, 32, -8, false, 1};
static const struct tile_shape shape_d_u4g32m = {32, 32, 1, true, 1};
static const struct tile_shape shape_d_i8g32 = {32, 32, CORR_I8, false, 1};
static const struct tile_shape shape_d_u4k = {256, 32, 1, false, 1};
static const struct tile_shape shape_d_i6g16 = {256, 16, -32, false, 1};
static const struct tile_shape shape_d15_u4g32 = {32, 32, -8, false, 2};
static const struct tile_shape shape_d15_u4g32m = {32, 32, 1, true, 2};
static const struct tile_shape shape_d15_i8g32 = {32, 32, CORR_I8, false, 2};
static const struct tile_shape shape_d15_u4k = {32, 32, 1, true, 2};
static const struct tile_shape shape_d15_i6g16 = {32, 16, -32, false, 2};

#if VL == 16 // 32 registers: 8 quads, 2 scales, 16 sums and what the inner products need
KERNEL_16(d_u4g32)
KERNEL_16(d_u4g32m)
KERNEL_16(d_i8g32)
KERNEL_8(d_u4k)
KERNEL_16(d_i6g16)
KERNEL_16(d15_u4g32)
KERNEL_16(d15_u4g32m)
KERNEL_16(d15_i8g32)
KERNEL_16(d15_u4k)
KERNEL_16(d15_i6g16)
#else // 16 registers: 8 quads, 4 sums
KERNEL_4(d_u4g32)
KERNEL_4(d_u4g32m)
KERNEL_4(d_i8g32)
KERNEL_4(d_u4k)
KERNEL_4(d_i6g16)
KERNEL_4(d15_u4g32)
KERNEL_4(d15_u4g32m)
KERNEL_4(d15_i8g32)
KERNEL_4(d15_u4k)
KERNEL_4(d15_i6g16)
#endif

#endif
