/* Classes D and D15 over the integer formats, for the instruction set of the including file, which defines
 * GEMM_NAME(x) (the full name of a kernel) and GEMM_PARTS: 1 for the kernels of D, 2 for those of D15: a file
 * each, for a compiler takes up to 20 s over one.
 *
 * Owns: nothing. Refuses to know: threads.
 * Threads: pure functions over the caller's memory. Lifetime: static.
 *
 * The rows of activations are first copied into tiles of R rows (16, 8, 4, 3, 2 or 1), so that a micro-kernel
 * walks one pointer with constant offsets. A tile is a sequence over k of
 *   groups of 32:   | scale f32 [R] | corr [R] | x int8 [R][32] |
 *   groups of 256:  | scale f32 [R] | 8 times: corr [R], x int8 [R][32] |    subs of 32
 *                   | scale f32 [R] | 16 times: corr [R], x int8 [R][16] |   subs of 16
 * In D15 a tile is a sequence of groups of 32 in every format, and where x is there are hi and then lo.
 * Here corr corrects the offset of the stored weights: -offset * sum of x (int32), or is what the minimum is
 * multiplied by: sum * scale (float32) where minima meet float32 sums, sum (int32) in groups of 256. A row of a tile is
 * 1.27 * k bytes or less, 2.38 * k in D15; scratch holds ROWS_BLOCK rows. */
#ifdef GEMM_NAME
#ifndef GEMM_PARTS
#error "gemm_d_tmpl.h: GEMM_PARTS says which class: 1 for D, 2 for D15"
#endif

#include "kern/tmpl/gemm_simd_internal.h"

#define GEMM_NAME_(x) GEMM_NAME(x)
#define ROWS_MAX 16                                // of a tile
#define FOR_ROWS(r, n) GEMM_UNROLL(16) for (int r = 0; r < (n); r++)
#define ROWS_BLOCK(parts) ((parts) == 1 ? 96 : 48) // 48 * 2.38 * k < QR_GEMM_SCRATCH(k)

struct tile_shape {
    int group;     // k that share a scale
    int sub;       // k that share a corr
    int corr_mul;  // corr = corr_mul * sum
    bool corr_f32; // corr = (float)sum * scale
    int parts;     // int8 numbers an activation: 1, or hi and lo
};

/* The words of a set: weights, the quads of a sub ready for dots; dots, exact dots of them with n rows x, `stride` bytes
 * apart, added to dot[]; BIAS, what weights adds to bytes with a sign. */
#if defined(__aarch64__)
#include "kern/arm/gemm_dots_internal.h"
#else
#include "kern/x86/gemm_dots_internal.h"
#endif

SIMD_INLINE struct tile_shape tile_shape_of(const enum qr_wfmt fmt, const int parts)
{
    struct fmt_shape f = shape_of(fmt);
    int group = parts == 2 ? 32 : f.group, offset = f.top ? f.offset : BIAS;
    return (struct tile_shape){group, f.sub, f.minima ? 1 : -offset, f.minima && group == 32, parts};
}

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

#define CHAINS 4 // rows at once: their sums are independent, so that they hide each other's latency
#define CHAINS_OF(R) ((R) < CHAINS ? (R) : CHAINS)
#define FOR_CHAINS(r0, R) GEMM_UNROLL(4) for (int r0 = 0; r0 < (R); r0 += CHAINS)
/* dot[r] = corr[r] (where there is one) + the dot of row r of n, in a tile of R rows of a sub. Of two parts the upper
 * counts 128 times. */
SIMD_INLINE void corrected(const enum qr_wfmt fmt, const vi *w, const int8_t *x, const int parts, const int R,
                           const int n, const void *corr, vi *dot)
{
    const int sub = shape_of(fmt).sub;
    FOR_ROWS(r, n) dot[r] = parts == 1 && corr ? vi_bcst((const int32_t *)corr + r) : vi_zero();
    dots(fmt, w, x, sub, n, dot);
    if (parts == 1) return;
    FOR_ROWS(r, n) dot[r] = vi_sll(dot[r], 7);
    dots(fmt, w, x + R * sub, sub, n, dot);
    if (!corr) return;
    FOR_ROWS(r, n) dot[r] = vi_add(dot[r], vi_bcst((const int32_t *)corr + r));
}

/* While several rows keep the processor busy with one panel, the lines of the next are fetched; the
 * hardware's prefetcher alone would start anew at each. Few rows run at the memory's speed: what they fetch, the
 * machine says (qr_gemm_ahead). */
SIMD_INLINE void fetch(const void *rec, const int bytes, size_t ahead, int h)
{
    if (ahead == 0 || h > 0) return;
    for (int i = 0; i < bytes; i += 64) __builtin_prefetch((const char *)rec + ahead + i, 0, 2);
}
#define FEW_ROWS 4
#define AHEAD(g, R) ((R) < FEW_ROWS ? (g)->ahead : (g)->w->panel_bytes)

/* Micro-kernels: R rows (a constant) of the tile against half h of the panel; what is `ahead` bytes on is fetched. */

// Float32 sums of subs: D15, and D where a sub is a group.
SIMD_INLINE void micro_sub(const enum qr_wfmt fmt, const uint8_t *rec, size_t ahead, int k, const uint8_t *tile,
                           const int R, const int parts, int h, vf *acc)
{
    const struct fmt_shape f = shape_of(fmt);
    const int n_subs = f.group / f.sub;
    const float *scale = NULL;
    for (int g = 0; g < k / f.group; g++, rec += f.rec_bytes) {
        vf d = rec_d(rec, h), m = f.minima ? rec_m(rec, h) : vf_zero();
        for (int s = 0; s < n_subs; s++, tile += R * (4 + f.sub * parts)) {
            vi w[8];
            if (s * f.sub % 32 == 0) scale = (const float *)tile, tile += R * 4;
            fetch(rec + (size_t)s * (f.rec_bytes / n_subs), (int)f.rec_bytes / n_subs, ahead, h);
            weights(fmt, rec, s, h, w);
            vf ds = n_subs == 1 ? d : vf_mul(d, vf_of_vi(sub_sc(fmt, rec, s, h))), dm = m;
            if (f.minima && n_subs > 1) dm = vf_mul(m, vf_of_vi(sub_mn(fmt, rec, s, h)));
            FOR_CHAINS(r0, R)
            {
                vi dot[CHAINS];
                const float *corr = (const float *)tile + r0;
                corrected(fmt, w, (const int8_t *)tile + R * 4 + r0 * f.sub, parts, R, CHAINS_OF(R),
                          f.minima ? NULL : corr, dot);
                FOR_ROWS(r, CHAINS_OF(R))
                {
                    vf sum = vf_fma(vf_of_vi(dot[r]), vf_mul(ds, vf_set1(scale[r0 + r])), acc[r0 + r]);
                    if (f.minima && n_subs == 1) sum = vf_fma(dm, vf_set1(corr[r]), sum);
                    if (f.minima && n_subs > 1) sum = vf_fnma(dm, vf_set1(corr[r]), sum);
                    acc[r0 + r] = sum;
                }
            }
        }
    }
}

// Integer sums of the subs of a group of 256, then float32 sums of groups.
SIMD_INLINE void micro_group(const enum qr_wfmt fmt, const uint8_t *rec, size_t ahead, int k, const uint8_t *tile,
                             const int R, int h, vf *acc)
{
    const struct fmt_shape f = shape_of(fmt);
    const int n_subs = f.group / f.sub;
    for (int g = 0; g < k / f.group; g++, rec += f.rec_bytes) {
        vi dot[ROWS_MAX], min[ROWS_MAX];
        const float *scale = (const float *)tile;
        tile += R * 4;
        FOR_ROWS(r, R) dot[r] = min[r] = vi_zero();
        for (int s = 0; s < n_subs; s++, tile += R * (4 + f.sub)) {
            vi w[8];
            fetch(rec + (size_t)s * (f.rec_bytes / n_subs), (int)f.rec_bytes / n_subs, ahead, h);
            weights(fmt, rec, s, h, w);
            vi sc = sub_sc(fmt, rec, s, h), mn = f.minima ? sub_mn(fmt, rec, s, h) : vi_zero();
            FOR_CHAINS(r0, R)
            {
                vi part[CHAINS];
                const int32_t *corr = (const int32_t *)tile + r0;
                corrected(fmt, w, (const int8_t *)tile + R * 4 + r0 * f.sub, 1, R, CHAINS_OF(R),
                          f.minima ? NULL : corr, part);
                FOR_ROWS(r, CHAINS_OF(R))
                {
                    dot[r0 + r] = vi_add(dot[r0 + r], vi_mul(part[r], sc));
                    if (f.minima) min[r0 + r] = vi_add(min[r0 + r], vi_mul(mn, vi_bcst(corr + r)));
                }
            }
        }
        vf d = rec_d(rec, h), dmin = f.minima ? rec_m(rec, h) : vf_zero();
        FOR_ROWS(r, R)
        {
            vf s = vf_set1(scale[r]);
            acc[r] = vf_fma(vf_of_vi(dot[r]), vf_mul(d, s), acc[r]);
            if (f.minima) acc[r] = vf_fnma(vf_of_vi(min[r]), vf_mul(dmin, s), acc[r]);
        }
    }
}

typedef void micro_fn(const struct qr_gemm *g, int panel, int r0, const uint8_t *tile);
typedef void fill_fn(const struct qr_acts *a, int r0, int rows, uint8_t *out);

// Rows of the next tile, where `left` are left and n was the last one's.
static int tile_rows(int n, int left)
{
    while (n > left) n = n == 4 ? 3 : n == 3 ? 2 : n / 2;
    return n;
}

// micro[n] takes n rows, up to rows_max. What the scratch holds of the last block of rows may be used again.
static void gemm_d(const struct qr_gemm *g, struct tile_shape shape, fill_fn *fill, micro_fn *const *micro,
                   int rows_max)
{
    int m = g->acts->m, k = g->w->k, rows_block = ROWS_BLOCK(shape.parts);
    for (int block = 0; block < m; block += rows_block) {
        int end = m - block < rows_block ? m : block + rows_block;
        uint8_t *tile = g->scratch;
        for (int r = block, n = rows_max; r < end && !(g->again && m <= rows_block);
             r += n, tile += tile_bytes(shape, n, k)) {
            n = tile_rows(n, end - r);
            fill(g->acts, r, n, tile);
        }
        for (int p = g->panel0; p < g->panel1; p++) {
            tile = g->scratch;
            for (int r = block, n = rows_max; r < end; r += n, tile += tile_bytes(shape, n, k)) {
                n = tile_rows(n, end - r);
                micro[n](g, p, r, tile);
            }
        }
    }
}

// The micro-kernel of a format and a number of parts with R rows.
#define MICRO(fmt, NAME, parts, R)                                                                           \
    static void micro_##fmt##_##R(const struct qr_gemm *g, int panel, int r0, const uint8_t *tile)           \
    {                                                                                                        \
        const uint8_t *p = g->w->data + (size_t)panel * g->w->panel_bytes;                                   \
        for (int h = 0; h < HALVES; h++) {                                                                   \
            vf acc[R];                                                                                       \
            FOR_ROWS(r, R) acc[r] = vf_zero();                                                               \
            if (parts == 1 && shape_of(NAME).group > 32)                                                     \
                micro_group(NAME, p, AHEAD(g, R), g->w->k, tile, R, h, acc);                           \
            else                                                                                             \
                micro_sub(NAME, p, AHEAD(g, R), g->w->k, tile, R, parts, h, acc);                      \
            FOR_ROWS(r, R) gemm_put(g, r0 + r, panel, h, acc[r]);                                            \
        }                                                                                                    \
    }

/* Rows that registers allow. 32 of them: 8 quads, 2 scales, 16 sums and what the inner products need, where sums of
 * minima do not take as many again. 16 of them: 8 quads, 4 sums. */
#define ROWS_OF(parts, group, minima) (VL < 16 ? 4 : parts == 1 && group > 32 && minima ? 8 : 16)
#define MICRO_IF(fmt, R, most) ((R) <= (most) ? micro_##fmt##_##R : NULL)

// The kernel of a format and a number of parts.
#define KERNEL(fmt, NAME, parts, most)                                                                       \
    MICRO(fmt, NAME, parts, 1)                                                                               \
    MICRO(fmt, NAME, parts, 2)                                                                               \
    MICRO(fmt, NAME, parts, 3)                                                                               \
    MICRO(fmt, NAME, parts, 4)                                                                               \
    MICRO(fmt, NAME, parts, 8)                                                                               \
    MICRO(fmt, NAME, parts, 16)                                                                              \
    static void fill_##fmt(const struct qr_acts *a, int r0, int rows, uint8_t *out)                          \
    {                                                                                                        \
        tile_fill(a, tile_shape_of(NAME, parts), r0, rows, out);                                             \
    }                                                                                                        \
    void GEMM_NAME_(fmt)(const struct qr_gemm *g)                                                            \
    {                                                                                                        \
        static micro_fn *const micro[ROWS_MAX + 1] = {                                                       \
            [1] = micro_##fmt##_1, [2] = micro_##fmt##_2, [3] = micro_##fmt##_3, [4] = micro_##fmt##_4,      \
            [8] = MICRO_IF(fmt, 8, most), [16] = MICRO_IF(fmt, 16, most)};                                   \
        gemm_d(g, tile_shape_of(NAME, parts), fill_##fmt, micro, most);                                      \
    }

#if GEMM_PARTS == 1
#define QR_WFMT_INT(NAME, name, group, sub, record, top, offset, minima)                                     \
    KERNEL(d_##name, QR_W_##NAME, 1, ROWS_OF(1, group, minima))
#else
#define QR_WFMT_INT(NAME, name, group, sub, record, top, offset, minima)                                     \
    KERNEL(d15_##name, QR_W_##NAME, 2, ROWS_OF(2, group, minima))
#endif
#include "kern/wfmts.def"

#endif
