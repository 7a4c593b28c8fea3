/* Classes D and D15 over the integer formats on tiles. The including file defines GEMM_NAME(x) and the words of
 * kern/x86/amx_internal.h.
 *
 * Owns: nothing. Refuses to know: threads.
 * Threads: pure functions over the caller's memory. Lifetime: static.
 *
 * A panel is unpacked once to bytes with a sign, offsets taken off: its quads are rows of a tile as they are. Sixteen
 * rows of activations, read where they lie, meet a sub of 32 or 16 k in one tile product, an exact int32 dot; the sums
 * leave the tiles for float32 and scales, as in portable C. The last rows are copied and padded to sixteen.
 *   scratch: | bytes of a panel | padded rows | products | */
#if defined(__AVX512F__) && defined(GEMM_NAME)

#include "base/assert.h"
#include "kern/tmpl/gemm_simd_internal.h"

#define ROWS 16 // of a tile
#define TILE_BYTES (ROWS * 64)
#define FOR_ROWS(r, n) GEMM_UNROLL(16) for (int r = 0; r < (n); r++)

// Tiles 0 to 3 are products, 4 and 5 activations, 6 and 7 weights.
#define TILES(sub)                                                                                           \
    {                                                                                                        \
        .palette = 1, .colsb = {64, 64, 64, 64, sub, sub, 64, 64},                                           \
        .rows = {ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, (sub) / 4, (sub) / 4},                                  \
    }
static const struct amx_config tiles_of_32 = TILES(32), tiles_of_16 = TILES(16);

SIMD_INLINE void panel_bytes(const enum qr_wfmt fmt, const uint8_t *rec, int k, uint8_t *out)
{
    const struct fmt_shape f = shape_of(fmt);
    const vi offset = _mm512_set1_epi8((char)f.offset);
    for (int at = 0; at < k; at += f.sub) {
        vi w[8];
        int s = at % f.group / f.sub;
        sub_quads(fmt, rec, s, 0, w);
        GEMM_UNROLL(8)
        for (int i = 0; i < f.sub / 4; i++)
            _mm512_store_si512(out + 16 * (size_t)at + 64 * i, f.top ? _mm512_sub_epi8(w[i], offset) : w[i]);
        if (s == f.group / f.sub - 1) rec += f.rec_bytes;
    }
}

// What one tile of rows needs: activations from row r0 on, and the panel.
struct amx_job {
    const struct qr_acts *acts;
    int r0;
    const uint8_t *panel, *bytes;
    uint8_t *products; // [sub][part][row][16] int32
};

#define PRODUCT(c, a, b, x, w)                                                                               \
    AMX_ZERO(c);                                                                                             \
    AMX_LOAD(a, x, stride);                                                                                  \
    AMX_LOAD(b, w, 64);                                                                                      \
    AMX_DOT_I8(c, a, b);

// Products of n subs from k = at on, 1 <= n <= 4 (2 of two parts: hi, then lo).
SIMD_INLINE void products(const struct amx_job *j, const int sub, const int parts, int at, int n, uint8_t *out)
{
    const size_t stride = j->acts->row_bytes;
    const uint8_t *x = j->acts->a + (size_t)j->r0 * stride + at, *w = j->bytes + 16 * (size_t)at;
    if (parts == 2) {
        const uint8_t *lo = x + j->acts->k;
        PRODUCT(0, 4, 6, x, w)
        AMX_ZERO(1);
        AMX_LOAD(5, lo, stride);
        AMX_DOT_I8(1, 5, 6);
        if (n > 1) {
            PRODUCT(2, 4, 7, x + sub, w + 16 * sub)
            AMX_ZERO(3);
            AMX_LOAD(5, lo + sub, stride);
            AMX_DOT_I8(3, 5, 7);
        }
        n *= 2;
    } else {
        PRODUCT(0, 4, 6, x, w)
        if (n > 1) { PRODUCT(1, 5, 7, x + sub, w + 16 * sub) }
        if (n > 2) { PRODUCT(2, 4, 6, x + 2 * sub, w + 32 * sub) }
        if (n > 3) { PRODUCT(3, 5, 7, x + 3 * sub, w + 48 * sub) }
    }
    AMX_STORE(0, out, 64);
    if (n > 1) AMX_STORE(1, out + TILE_BYTES, 64);
    if (n > 2) AMX_STORE(2, out + 2 * TILE_BYTES, 64);
    if (n > 3) AMX_STORE(3, out + 3 * TILE_BYTES, 64);
}

SIMD_INLINE int32_t sum_of_16(const uint8_t *x)
{
    __m128i u = _mm_xor_si128(_mm_loadu_si128((const __m128i *)x), _mm_set1_epi8(-128)); // plus 128
    __m128i s = _mm_sad_epu8(u, _mm_setzero_si128());
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_unpackhi_epi64(s, s))) - 16 * 128;
}
// sum of the activations of row r over the sub from k0 on, which are kept for 32.
SIMD_INLINE int32_t sub_sum(const struct amx_job *j, const int sub, const int parts, int r, int k0)
{
    size_t row = (size_t)(j->r0 + r);
    const uint8_t *x = j->acts->a + row * j->acts->row_bytes + k0;
    if (sub == 32) return j->acts->sum[row * j->acts->ld_sum + k0 / 32];
    return parts == 1 ? sum_of_16(x) : 128 * sum_of_16(x) + sum_of_16(x + j->acts->k);
}

// Float32 sums of subs: D15, and D where a sub is a group.
SIMD_INLINE void rows_by_sub(const enum qr_wfmt fmt, const int parts, const struct amx_job *j, vf *acc)
{
    const struct fmt_shape f = shape_of(fmt);
    const int block = 4 / parts, k = j->acts->k;
    const float *scale = j->acts->scale + (size_t)j->r0 * j->acts->ld_scale;
    for (int at = 0; at < k; at += block * f.sub) {
        int n = k - at < block * f.sub ? (k - at) / f.sub : block;
        products(j, f.sub, parts, at, n, j->products);
        for (int i = 0; i < n; i++) {
            int k0 = at + i * f.sub, s = k0 % f.group / f.sub;
            const uint8_t *rec = j->panel + (size_t)(k0 / f.group) * f.rec_bytes;
            const uint8_t *dots = j->products + (size_t)i * parts * TILE_BYTES;
            vf ds = rec_d(rec, 0), dm = f.minima ? rec_m(rec, 0) : vf_zero();
            if (f.group > f.sub) ds = vf_mul(ds, vf_of_vi(sub_sc(fmt, rec, s, 0)));
            if (f.minima) dm = vf_mul(dm, vf_of_vi(sub_mn(fmt, rec, s, 0)));
            FOR_ROWS(r, ROWS)
            {
                float c = scale[r * j->acts->ld_scale + k0 / 32];
                vi dot = vi_load(dots + 64 * r);
                if (parts == 2) dot = vi_add(vi_sll(dot, 7), vi_load(dots + TILE_BYTES + 64 * r));
                acc[r] = vf_fma(vf_of_vi(dot), vf_mul(ds, vf_set1(c)), acc[r]);
                if (f.minima)
                    acc[r] = vf_fnma(dm, vf_set1((float)sub_sum(j, f.sub, parts, r, k0) * c), acc[r]);
            }
        }
    }
}

// Integer sums of the subs of a group of 256, then float32 sums of groups. Eight rows at once: their sums and those of
// the minima are registers.
SIMD_INLINE void rows_by_group(const enum qr_wfmt fmt, const struct amx_job *j, vf *acc)
{
    const struct fmt_shape f = shape_of(fmt);
    const int n_subs = f.group / f.sub;
    const uint8_t *rec = j->panel;
    for (int g = 0; g < j->acts->k / f.group; g++, rec += f.rec_bytes) {
        for (int s = 0; s < n_subs; s += 4)
            products(j, f.sub, 1, g * f.group + s * f.sub, 4, j->products + (size_t)s * TILE_BYTES);
        vf d = rec_d(rec, 0), dmin = f.minima ? rec_m(rec, 0) : vf_zero();
        for (int r0 = 0; r0 < ROWS; r0 += 8) {
            const float *scale = j->acts->scale + (size_t)(j->r0 + r0) * j->acts->ld_scale + g;
            vi dot[8], min[8];
            FOR_ROWS(r, 8) dot[r] = min[r] = vi_zero();
            for (int s = 0; s < n_subs; s++) {
                const uint8_t *dots = j->products + (size_t)s * TILE_BYTES + 64 * r0;
                vi sc = sub_sc(fmt, rec, s, 0), mn = f.minima ? sub_mn(fmt, rec, s, 0) : vi_zero();
                FOR_ROWS(r, 8)
                {
                    dot[r] = vi_add(dot[r], vi_mul(vi_load(dots + 64 * r), sc));
                    if (!f.minima) continue;
                    int32_t sum = sub_sum(j, f.sub, 1, r0 + r, g * f.group + s * f.sub);
                    min[r] = vi_add(min[r], vi_mul(mn, vi_set1(sum)));
                }
            }
            FOR_ROWS(r, 8)
            {
                vf c = vf_set1(scale[r * j->acts->ld_scale]);
                vf all = vf_fma(vf_of_vi(dot[r]), vf_mul(d, c), acc[r0 + r]);
                acc[r0 + r] = f.minima ? vf_fnma(vf_of_vi(min[r]), vf_mul(dmin, c), all) : all;
            }
        }
    }
}

// The last m % 16 rows with zeros behind them, as activations of sixteen rows. What is there already stays.
static void pad_rows(const struct qr_acts *from, struct qr_acts *pad, void *mem, bool filled)
{
    int n = from->m % ROWS, r0 = from->m - n;
    qr_acts_init(pad, from->kind, ROWS, from->k, mem);
    if (filled || n == 0) return;
    __builtin_memset(mem, 0, qr_acts_bytes(from->kind, ROWS, from->k));
    for (int r = 0; r < n; r++) {
        __builtin_memcpy(pad->a + r * pad->row_bytes, from->a + (r0 + r) * from->row_bytes, from->row_bytes);
        __builtin_memcpy(pad->scale + r * pad->ld_scale, from->scale + (r0 + r) * from->ld_scale,
                         from->ld_scale * sizeof *from->scale);
        __builtin_memcpy(pad->sum + r * pad->ld_sum, from->sum + (r0 + r) * from->ld_sum,
                         from->ld_sum * sizeof *from->sum);
    }
}

typedef void bytes_fn(const uint8_t *panel, int k, uint8_t *out);
typedef void tile_rows_fn(const struct amx_job *j, vf *acc);

static void gemm_d_tiles(const struct qr_gemm *g, int sub, bytes_fn *bytes, tile_rows_fn *rows)
{
    const struct qr_acts *acts = g->acts;
    struct qr_acts pad;
    int m = acts->m, k = g->w->k, n_full = m / ROWS * ROWS;
    uint8_t *panel_mem = g->scratch, *pad_mem = panel_mem + 16 * (size_t)k;
    uint8_t *products_mem = pad_mem + (qr_acts_bytes(acts->kind, ROWS, k) + 63) / 64 * 64;
    QR_DASSERT(products_mem + 256 / sub * TILE_BYTES <= (uint8_t *)g->scratch + QR_GEMM_SCRATCH(k) ||
               (k < 256 && products_mem + 4 * TILE_BYTES <= (uint8_t *)g->scratch + QR_GEMM_SCRATCH(k)));
    pad_rows(acts, &pad, pad_mem, g->again);
    amx_config(sub == 32 ? &tiles_of_32 : &tiles_of_16);
    for (int p = g->panel0; p < g->panel1; p++) {
        const uint8_t *panel = g->w->data + (size_t)p * g->w->panel_bytes;
        bytes(panel, k, panel_mem);
        for (int r0 = 0; r0 < m; r0 += ROWS) {
            bool full = r0 < n_full;
            vf acc[ROWS];
            struct amx_job j = {full ? acts : &pad, full ? r0 : 0, panel, panel_mem, products_mem};
            FOR_ROWS(r, ROWS) acc[r] = vf_zero();
            rows(&j, acc);
            for (int r = 0; r < ROWS && r0 + r < m; r++) gemm_put(g, r0 + r, p, 0, acc[r]);
        }
    }
    amx_release();
}

#define GEMM_NAME_(x) GEMM_NAME(x)
#define KERNEL(NAME, name, sub, parts, group)                                                                \
    static void rows_##name(const struct amx_job *j, vf *acc)                                                \
    {                                                                                                        \
        vf sums[ROWS];                                                                                       \
        FOR_ROWS(r, ROWS) sums[r] = vf_zero();                                                               \
        if (parts == 1 && group > 32)                                                                        \
            rows_by_group(NAME, j, sums);                                                                    \
        else                                                                                                 \
            rows_by_sub(NAME, parts, j, sums);                                                               \
        FOR_ROWS(r, ROWS) acc[r] = sums[r];                                                                  \
    }                                                                                                        \
    void GEMM_NAME_(name)(const struct qr_gemm *g)                                                           \
    {                                                                                                        \
        gemm_d_tiles(g, sub, bytes_of_##NAME, rows_##name);                                                  \
    }
#define QR_WFMT_INT(NAME, name, group, sub, record, top, offset, minima)                                     \
    static void bytes_of_QR_W_##NAME(const uint8_t *panel, int k, uint8_t *out)                              \
    {                                                                                                        \
        panel_bytes(QR_W_##NAME, panel, k, out);                                                             \
    }                                                                                                        \
    KERNEL(QR_W_##NAME, d_##name, sub, 1, group)                                                             \
    KERNEL(QR_W_##NAME, d15_##name, sub, 2, group)
#include "kern/wfmts.def"

#endif
