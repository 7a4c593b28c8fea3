/* Classes D and D15 over the integer formats on tiles. The including file defines GEMM_NAME(x) and the words of
 * kern/x86/amx_internal.h.
 *
 * Owns: nothing. Refuses to know: threads.
 * Threads: pure functions over the caller's memory. Lifetime: static.
 *
 * Sixteen rows of activations, read where they lie, meet a sub of 32 or 16 k of a panel in a tile product, an exact int32
 * dot. The dots leave the tiles for vectors, where they are scaled as in portable C; while those of one sub are, the tiles
 * multiply the next. The sums of sixteen rows are registers over CHUNK k. For every CHUNK of k a panel is unpacked once to
 * bytes with a sign, offsets taken off, and all rows meet them:
 *   a sub               | quads | d f32 [16] | m f32 [16] |         m only with minima
 *                       | quads | its integer scale f32 [16] |      in groups of 256
 *   a group of 256      | d f32 [16] | dmin f32 [16] | pairs of minima int16 [subs / 2][16][2] |
 * The scales of rows are prepared once a call, sixteen rows beside each other:
 *   a sub               | scale f32 [16] | sum * scale f32 [16] |
 *   a group of 256      | scale f32 [16] | pairs of sums int16 [subs / 2][16][2] |
 * The last rows are copied and padded to sixteen.
 *   scratch: | scales of rows | padded rows | chunk | products | sums of rows | */
#if defined(__AVX512VNNI__) && defined(GEMM_NAME)

#include "base/assert.h"
#include "kern/tmpl/gemm_simd_internal.h"

#define ROWS 16        // of a tile
#define ROWS_BLOCK 128 // rows whose sums and scales scratch holds
#define CHUNK 256      // k: unpacked and with its rows it leaves the first-level cache room; 1024 measured slower
#define TILE_BYTES (ROWS * 64)
#define FOR_ROWS(r, n) GEMM_UNROLL(16) for (int r = 0; r < (n); r++)

// Tiles 0 to 3 are products, 4 and 5 activations, 6 and 7 weights.
#define TILES(sub)                                                                                           \
    {                                                                                                        \
        .palette = 1, .colsb = {64, 64, 64, 64, sub, sub, 64, 64},                                           \
        .rows = {ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, (sub) / 4, (sub) / 4},                                  \
    }
static const struct amx_config tiles_of_32 = TILES(32), tiles_of_16 = TILES(16);

// What differs between kernels, constants in each.
struct amx_shape {
    enum qr_wfmt fmt;
    int parts; // int8 numbers an activation
    int sub, n_subs;
    bool minima, by_group; // by_group: integer sums of the subs of a group of 256
};
SIMD_INLINE struct amx_shape amx_shape_of(const enum qr_wfmt fmt, const int parts)
{
    const struct fmt_shape f = shape_of(fmt);
    return (struct amx_shape){fmt, parts, f.sub, f.group / f.sub, f.minima, parts == 1 && f.group > f.sub};
}
SIMD_INLINE size_t chunk_sub_bytes(const struct amx_shape s)
{
    return 16 * (size_t)s.sub + 64 * (s.minima && !s.by_group ? 2 : 1);
}
SIMD_INLINE size_t chunk_group_bytes(const struct amx_shape s)
{
    return s.by_group ? 64 * (size_t)(2 + s.n_subs / 2) : 0;
}
// Bytes of what is prepared of the scales of sixteen rows.
SIMD_INLINE size_t scales_bytes(const struct amx_shape s, int k)
{
    return s.by_group ? (size_t)(k / 256) * 32 * (size_t)(2 + s.n_subs) : (size_t)(k / s.sub) * 128;
}

/* ==== What is prepared. ==== */

// The quads and scales of sub i of a record.
SIMD_INLINE void unpack_sub(const struct amx_shape s, const uint8_t *rec, int i, uint8_t *out)
{
    const struct fmt_shape f = shape_of(s.fmt);
    const vi offset = _mm512_set1_epi8((char)f.offset);
    float *d = (float *)(out + 16 * s.sub);
    vi w[8];
    sub_quads(s.fmt, rec, i, 0, w);
    GEMM_UNROLL(8)
    for (int j = 0; j < s.sub / 4; j++)
        _mm512_store_si512(out + 64 * j, f.top ? _mm512_sub_epi8(w[j], offset) : w[j]);
    vf sc = s.n_subs > 1 ? vf_of_vi(sub_sc(s.fmt, rec, i, 0)) : vf_zero();
    vf_store(d, s.by_group ? sc : s.n_subs > 1 ? vf_mul(rec_d(rec, 0), sc) : rec_d(rec, 0));
    if (s.minima && !s.by_group) vf_store(d + 16, vf_mul(rec_m(rec, 0), vf_of_vi(sub_mn(s.fmt, rec, i, 0))));
}

SIMD_INLINE void unpack_group(const struct amx_shape s, const uint8_t *rec, uint8_t *out)
{
    vf_store((float *)out, rec_d(rec, 0));
    if (!s.minima) return;
    vf_store((float *)out + 16, rec_m(rec, 0));
    out += 128;
    for (int i = 0; i < s.n_subs; i += 2, out += 64) {
        vi pair = vi_or(sub_mn(s.fmt, rec, i, 0), vi_sll(sub_mn(s.fmt, rec, i + 1, 0), 16));
        _mm512_store_si512(out, pair);
    }
}

// n subs from record rec on.
SIMD_INLINE void unpack_panel(const struct amx_shape s, const uint8_t *rec, int n, uint8_t *subs, uint8_t *groups)
{
    const size_t rec_bytes = shape_of(s.fmt).rec_bytes;
    for (int i = 0; i < n; i += s.n_subs, rec += rec_bytes) {
        for (int j = 0; j < s.n_subs; j++, subs += chunk_sub_bytes(s)) unpack_sub(s, rec, j, subs);
        if (s.by_group) unpack_group(s, rec, groups), groups += chunk_group_bytes(s);
    }
}

static int32_t sum_of_16(const uint8_t *x)
{
    __m128i u = _mm_xor_si128(_mm_loadu_si128((const __m128i *)x), _mm_set1_epi8(-128)); // plus 128
    __m128i s = _mm_sad_epu8(u, _mm_setzero_si128());
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_unpackhi_epi64(s, s))) - 16 * 128;
}
// Sum of the activations of row r over the sub from k0 on; they are kept for 32.
static int32_t sub_sum(const struct qr_acts *a, const struct amx_shape s, int r, int k0)
{
    const uint8_t *x = a->a + (size_t)r * a->row_bytes + k0;
    if (s.sub == 32) return a->sum[(size_t)r * a->ld_sum + k0 / 32];
    return s.parts == 1 ? sum_of_16(x) : 128 * sum_of_16(x) + sum_of_16(x + a->k);
}

// The scales of n <= 16 rows from r0 on, and zeros for rows behind them.
SIMD_INLINE void prepare_scales(const struct amx_shape s, const struct qr_acts *a, int r0, int n, uint8_t *out)
{
    const int group = s.by_group ? 256 : 32, bytes = s.by_group ? 32 * (2 + s.n_subs) : 128;
    if (n < ROWS) __builtin_memset(out, 0, scales_bytes(s, a->k)); // anything could be denormals, which are slow
    for (int r = 0; r < n; r++) {
        const float *scale = a->scale + (size_t)(r0 + r) * a->ld_scale;
        uint8_t *to = out;
        for (int at = 0; at < a->k; at += s.by_group ? 256 : s.sub, to += bytes) {
            float c = scale[at / group], *row = (float *)to + r;
            row[0] = c;
            if (!s.minima) continue;
            if (!s.by_group) row[ROWS] = (float)sub_sum(a, s, r0 + r, at) * c;
            int16_t *pairs = (int16_t *)(to + 64) + 2 * r;
            for (int i = 0; s.by_group && i < s.n_subs; i++)
                pairs[i / 2 * 2 * ROWS + i % 2] = (int16_t)sub_sum(a, s, r0 + r, at + i * s.sub);
        }
    }
}

/* ==== Sixteen rows against a chunk. ==== */

struct amx_job {
    const uint8_t *x;  // of the first row
    size_t stride, lo; // bytes from row to row, and from hi to lo
    const uint8_t *subs, *groups, *scales;
    uint8_t *products; // int32 [part][16][16]
    int n;             // subs
    float *sums;       // [16][16]
    // What this chunk is of the next panel, or NULL: its lines are fetched meanwhile, a few a sub, for a burst of them
    // would stand in the way of all loads.
    const uint8_t *ahead;
};

// The products of a sub reach tile 0, those of lo tile 1.
SIMD_INLINE void multiply(const struct amx_shape s, const struct amx_job *j, const uint8_t *x, const uint8_t *w)
{
    AMX_LOAD(6, w, 64);
    AMX_LOAD(4, x, j->stride);
    AMX_ZERO(0);
    AMX_DOT_I8(0, 4, 6);
    if (s.parts == 1) return;
    AMX_LOAD(5, x + j->lo, j->stride);
    AMX_ZERO(1);
    AMX_DOT_I8(1, 5, 6);
}

SIMD_INLINE void fetch_ahead(const struct amx_shape s, const struct amx_job *j, int i)
{
    const size_t bytes = shape_of(s.fmt).rec_bytes / (size_t)s.n_subs;
    if (!j->ahead) return;
    GEMM_UNROLL(10)
    for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(j->ahead + (size_t)i * bytes + at, 0, 2);
}

SIMD_INLINE void store_products(const struct amx_shape s, uint8_t *out)
{
    AMX_STORE(0, out, 64);
    if (s.parts == 2) AMX_STORE(1, out + TILE_BYTES, 64);
}

SIMD_INLINE vf dot_of(const struct amx_shape s, const uint8_t *products, int r)
{
    vi dot = vi_load(products + 64 * r);
    return vf_of_vi(s.parts == 1 ? dot : vi_add(vi_sll(dot, 7), vi_load(products + TILE_BYTES + 64 * r)));
}

/* Micro-kernels: the first R rows (a constant) of the tile. */

// Float32 sums of subs: D15, and D where a sub is a group.
SIMD_INLINE void micro_sub(const struct amx_shape s, const int R, const struct amx_job *job)
{
    const struct amx_job j = *job;
    const uint8_t *w = j.subs, *x = j.x;
    const float *scale = (const float *)j.scales;
    vf acc[ROWS];
    FOR_ROWS(r, R) acc[r] = vf_load(j.sums + 16 * r);
    multiply(s, &j, x, w);
    store_products(s, j.products);
    for (int i = 1; i <= j.n; i++, scale += 2 * ROWS) {
        const float *of_w = (const float *)(w + 16 * s.sub);
        vf d = vf_load(of_w), m = s.minima ? vf_load(of_w + 16) : vf_zero();
        w += chunk_sub_bytes(s), x += s.sub;
        if (i < j.n) multiply(s, &j, x, w);
        fetch_ahead(s, &j, i - 1);
        FOR_ROWS(r, R)
        {
            acc[r] = vf_fma(dot_of(s, j.products, r), vf_mul(d, vf_set1(scale[r])), acc[r]);
            if (s.minima) acc[r] = vf_fnma(m, vf_set1(scale[ROWS + r]), acc[r]);
        }
        if (i < j.n) store_products(s, j.products);
    }
    FOR_ROWS(r, R) vf_store(j.sums + 16 * r, acc[r]);
}

/* Subs of a group whose dots, times their integer scales, add up to less than 2^24, so that float32 sums of them are
 * exact: 127 * sub * |q| * |sc| each. */
SIMD_INLINE int exact_subs(const enum qr_wfmt fmt)
{
    switch (fmt) {
    case QR_W_U4K: return 4;    // 15 * 63
    case QR_W_U5K: return 2;    // 31 * 63
    case QR_W_I6G16: return 2;  // 32 * 128
    case QR_W_I3G16: return 16; // 4 * 32
    case QR_W_U2G16: return 16; // 3 * 15
    default: return 1;          // T4K: 127 * 32
    }
}

// What a finished group adds to the sums; `whole` are its dots times scales.
SIMD_INLINE void add_group(const struct amx_shape s, const int R, float *sums, const uint8_t *of_w, const uint8_t *scales,
                           const vi *whole)
{
    const float *scale = (const float *)scales;
    const int32_t *pairs = (const int32_t *)(scales + 4 * ROWS);
    const vf d = vf_load((const float *)of_w), m = vf_load((const float *)of_w + 16);
    FOR_ROWS(r, R)
    {
        vf c = vf_set1(scale[r]), sum = vf_fma(vf_of_vi(whole[r]), vf_mul(d, c), vf_load(sums + 16 * r));
        if (s.minima) {
            vi min = vi_zero();
            GEMM_UNROLL(8)
            for (int i = 0; i < s.n_subs / 2; i++)
                min = _mm512_dpwssd_epi32(min, vi_load(of_w + 128 + 64 * i), vi_set1(pairs[ROWS * i + r]));
            sum = vf_fnma(vf_of_vi(min), vf_mul(m, c), sum);
        }
        vf_store(sums + 16 * r, sum);
    }
}

// Integer sums of the subs of a group of 256, then float32 sums of groups.
SIMD_INLINE void micro_group(const struct amx_shape s, const int R, const struct amx_job *job)
{
    const struct amx_job j = *job;
    const int exact = exact_subs(s.fmt);
    const uint8_t *w = j.subs, *x = j.x, *of_w = j.groups, *scales = j.scales;
    multiply(s, &j, x, w);
    store_products(s, j.products);
    for (int i = 0; i < j.n; of_w += chunk_group_bytes(s), scales += scales_bytes(s, 256)) {
        vi whole[ROWS];
        FOR_ROWS(r, R) whole[r] = vi_zero();
        for (int run = 0; run < s.n_subs; run += exact) {
            vf sums[ROWS];
            FOR_ROWS(r, R) sums[r] = vf_zero();
            for (int e = 0; e < exact; e++) {
                vf sc = vf_load((const float *)(w + 16 * s.sub));
                w += chunk_sub_bytes(s), x += s.sub;
                fetch_ahead(s, &j, i);
                if (++i < j.n) multiply(s, &j, x, w);
                FOR_ROWS(r, R) sums[r] = vf_fma(dot_of(s, j.products, r), sc, sums[r]);
                if (i < j.n) store_products(s, j.products);
            }
            FOR_ROWS(r, R) whole[r] = vi_add(whole[r], _mm512_cvtps_epi32(sums[r]));
        }
        add_group(s, R, j.sums, of_w, scales, whole);
    }
}

/* ==== A call. ==== */

// The last m % 16 rows with zeros behind them, as activations of sixteen rows.
static void pad_rows(const struct qr_acts *from, struct qr_acts *pad, void *mem, bool filled)
{
    int n = from->m % ROWS, r0 = from->m - n;
    qr_acts_init(pad, from->kind, ROWS, from->k, mem);
    if (filled || n == 0) return;
    __builtin_memset(pad->a, 0, ROWS * pad->row_bytes);
    __builtin_memcpy(pad->a, from->a + (size_t)r0 * from->row_bytes, (size_t)n * from->row_bytes);
}

// Functions of a format and a number of parts.
struct amx_kernel {
    struct amx_shape shape;
    void (*prepare)(const struct qr_acts *a, int r0, int n, uint8_t *out);
    void (*unpack)(const uint8_t *rec, int n, uint8_t *subs, uint8_t *groups);
    void (*micro[2])(const struct amx_job *j); // eight rows, sixteen
};

// Where a call keeps what, in its scratch.
struct amx_room {
    size_t tile_scales; // bytes of the scales of sixteen rows
    uint8_t *scales, *pad, *subs, *groups, *products;
    float *sums;
};
static struct amx_room room_of(const struct qr_gemm *g, const struct amx_shape s)
{
    int k = g->w->k, m = g->acts->m < ROWS_BLOCK ? g->acts->m : ROWS_BLOCK, n_tiles = (m + ROWS - 1) / ROWS;
    struct amx_room room = {.tile_scales = scales_bytes(s, k), .scales = g->scratch};
    room.pad = room.scales + (size_t)n_tiles * room.tile_scales;
    room.subs = room.pad + qr_acts_bytes(g->acts->kind, ROWS, k);
    room.groups = room.subs + CHUNK / s.sub * chunk_sub_bytes(s);
    room.products = room.groups + CHUNK / 256 * chunk_group_bytes(s);
    room.sums = (float *)(room.products + 2 * TILE_BYTES);
    QR_DASSERT((uint8_t *)room.sums + n_tiles * TILE_BYTES <= (uint8_t *)g->scratch + QR_GEMM_SCRATCH(k));
    return room;
}

// Rows block .. end - 1 against a panel.
static void block_panel(const struct qr_gemm *g, const struct amx_kernel *kern, const struct amx_room *room, int block, int end,
                        int panel)
{
    const struct amx_shape s = kern->shape;
    const struct qr_acts *a = g->acts;
    const size_t rec_bytes = (size_t)qr_wfmt(s.fmt)->group_bytes;
    const uint8_t *recs = g->w->data + (size_t)panel * g->w->panel_bytes;
    int n_tiles = (end - block + ROWS - 1) / ROWS;
    __builtin_memset(room->sums, 0, (size_t)n_tiles * TILE_BYTES);
    for (int at = 0; at < a->k; at += CHUNK) {
        int n = (a->k - at < CHUNK ? a->k - at : CHUNK) / s.sub;
        const uint8_t *rec = recs + (size_t)(at / (s.sub * s.n_subs)) * rec_bytes;
        kern->unpack(rec, n, room->subs, room->groups);
        for (int i = 0; i < n_tiles; i++) {
            int r0 = block + i * ROWS;
            struct amx_job j = {
                .x = (r0 + ROWS <= a->m ? a->a + (size_t)r0 * a->row_bytes : room->pad) + at,
                .stride = a->row_bytes,
                .lo = (size_t)a->k,
                .subs = room->subs,
                .groups = room->groups,
                .scales = room->scales + (size_t)i * room->tile_scales + scales_bytes(s, at),
                .products = room->products,
                .n = n,
                .sums = room->sums + i * ROWS * QR_PANEL,
                .ahead = i == 0 ? rec + g->w->panel_bytes : NULL,
            };
            kern->micro[end - r0 > ROWS / 2](&j);
        }
    }
    for (int r = block; r < end; r++) gemm_put(g, r, panel, 0, vf_load(room->sums + (r - block) * QR_PANEL));
}

static void gemm_d_tiles(const struct qr_gemm *g, const struct amx_kernel *kern)
{
    const struct qr_acts *a = g->acts;
    const struct amx_room room = room_of(g, kern->shape);
    struct qr_acts pad;
    bool ready = g->again && a->m <= ROWS_BLOCK;
    pad_rows(a, &pad, room.pad, ready);
    amx_config(kern->shape.sub == 32 ? &tiles_of_32 : &tiles_of_16);
    for (int block = 0; block < a->m; block += ROWS_BLOCK) {
        int end = a->m - block < ROWS_BLOCK ? a->m : block + ROWS_BLOCK;
        uint8_t *scales = room.scales;
        for (int r = block; r < end && !ready; r += ROWS, scales += room.tile_scales)
            kern->prepare(a, r, end - r < ROWS ? end - r : ROWS, scales);
        for (int p = g->panel0; p < g->panel1; p++) block_panel(g, kern, &room, block, end, p);
    }
    amx_release();
}

#define GEMM_NAME_(x) GEMM_NAME(x)
#define MICRO(NAME, name, parts, R)                                                                          \
    static void micro_##name##_##R(const struct amx_job *j)                                                  \
    {                                                                                                        \
        const struct amx_shape s = amx_shape_of(NAME, parts);                                                \
        if (s.by_group)                                                                                      \
            micro_group(s, R, j);                                                                            \
        else                                                                                                 \
            micro_sub(s, R, j);                                                                              \
    }
#define KERNEL(NAME, name, parts)                                                                            \
    MICRO(NAME, name, parts, 8)                                                                              \
    MICRO(NAME, name, parts, 16)                                                                             \
    static void prepare_##name(const struct qr_acts *a, int r0, int n, uint8_t *out)                         \
    {                                                                                                        \
        prepare_scales(amx_shape_of(NAME, parts), a, r0, n, out);                                            \
    }                                                                                                        \
    static void unpack_##name(const uint8_t *rec, int n, uint8_t *subs, uint8_t *groups)                     \
    {                                                                                                        \
        unpack_panel(amx_shape_of(NAME, parts), rec, n, subs, groups);                                       \
    }                                                                                                        \
    void GEMM_NAME_(name)(const struct qr_gemm *g)                                                           \
    {                                                                                                        \
        const struct amx_kernel kern = {                                                                     \
            amx_shape_of(NAME, parts), prepare_##name, unpack_##name, {micro_##name##_8, micro_##name##_16}}; \
        gemm_d_tiles(g, &kern);                                                                              \
    }
#define QR_WFMT_INT(NAME, name, ...)                                                                         \
    KERNEL(QR_W_##NAME, d_##name, 1)                                                                         \
    KERNEL(QR_W_##NAME, d15_##name, 2)
#include "kern/wfmts.def"

#endif
