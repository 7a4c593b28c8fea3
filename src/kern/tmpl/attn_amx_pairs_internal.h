/* Words of attn_amx_tmpl.h for KV in bf16, and in fp8, which becomes bf16 a chunk at a time.
 *
 * Owns: nothing. Refuses to know: the walk. Threads: pure functions. Lifetime: static.
 *
 *   qk      S = Q K^T         tiles of 16 vectors by 16 tokens; a unit's K, 32 dimensions of it, is an operand as it lies
 *   exps    P = 2^(S - m)     vectors of 16 tokens; P rounded to bf16
 *   pv      O = O keep + P V  tiles of 16 vectors by 16 dimensions; V of two units side by side is an operand of 32 tokens
 *
 * K of slots that nobody owns spoils scores that are masked; their V is zeroed, for its p is zero and 0 * NaN is NaN.
 * O is multiplied by keep only where that is not 1, which no bit shows. */
#if defined(KERN_ISA)

#define PART 32
#define Q_TILES 1
#define S_TILES 4 // (ROWS, CHUNK) as rows of tokens
#define V_TILES 2 // of two units each; (V_TILES, n_dims)
#define LOG2E 0x1.715476p+0f
#if defined(ATTN_FP8)
#define KV QR_KV_FP8
#define SCALED 1
#define K_TILES(x) (CHUNK_UNITS * (x)->n_parts)
#else
#define KV QR_KV_BF16
#define SCALED 0
#define K_TILES(x) CHUNK_UNITS // of a last half part
#endif

// Of what qk leaves, or of capped scores.
V16 float to_log2(const struct amx_attn *x)
{
    return x->a->softcap != 0 ? LOG2E : x->a->scale * LOG2E;
}

/* ==== Operands. ==== */

// The first n tokens of a line of pairs, or none.
V16 __m512i pairs_first(__m512i line, int n)
{
    if (n >= 2) return line;
    return n == 1 ? _mm512_and_si512(line, _mm512_set1_epi32(0xffff)) : _mm512_setzero_si512();
}

#if SCALED

// Lines of pairs from a line of fours: kern/kvtype/fp8.c says how a code is a bf16.
V16 __m512i bf16_of_codes(__m512i x)
{
    __mmask32 some = _mm512_test_epi16_mask(x, _mm512_set1_epi16(0x7800));
    x = _mm512_ternarylogic_epi32(_mm512_srai_epi16(x, 4), _mm512_set1_epi16((short)0x87f0), _mm512_set1_epi16(0x3800), 0xea);
    return _mm512_maskz_mov_epi16(some, x);
}

V16 void fours_to_pairs(const uint8_t *line, uint8_t *first, uint8_t *second)
{
    __m512i x = _mm512_loadu_si512(line);
    __m512i even = bf16_of_codes(_mm512_slli_epi16(x, 8)), odd = bf16_of_codes(x);
    _mm512_store_si512(first, _mm512_mask_mov_epi16(even, 0xaaaaaaaa, _mm512_slli_epi32(odd, 16)));
    _mm512_store_si512(second, _mm512_mask_mov_epi16(_mm512_srli_epi32(even, 16), 0xaaaaaaaa, odd));
}

static size_t v_offset(int d)
{
    return (size_t)d * QR_KV_UNIT + 64;
}

static void load_k(struct amx_attn *x, const uint8_t *const unit[CHUNK_UNITS])
{
    int n_lines = x->a->kv.d / 4;
    for (int u = x->u0; u < x->n_units; u++) {
        uint8_t *k = x->k_mem + (size_t)u * (size_t)x->n_parts * TILE_BYTES;
        for (int i = 0; i < n_lines; i++) fours_to_pairs(unit[u] + i * 64, k + i * 128, k + i * 128 + 64);
        if (x->a->kv.d % 32) memset(k + n_lines * 128, 0, TILE_BYTES / 2);
        x->k[u] = k;
        v16_store(x->scales + u * 16, v16_load((const float *)(const void *)(unit[u] + v_offset(x->a->kv.d) - 64)));
    }
}

// One unit's V, half of each tile, of which n_tok tokens are somebody's.
static void load_v_unit(struct amx_attn *x, const uint8_t *unit, int u, int n_tok)
{
    uint8_t *v = x->v + (size_t)(u / 2 * x->n_dims) * TILE_BYTES + u % 2 * (TILE_BYTES / 2);
    const uint8_t *from = unit + v_offset(x->a->kv.d);
    v16 scales = v16_load((const float *)(const void *)(from + x->n_dims * 256));
    for (int b = 0; b < x->n_dims; b++, v += TILE_BYTES, from += 256)
        for (int i = 0; i < 4; i++) fours_to_pairs(from + i * 64, v + i * 128, v + i * 128 + 64);
    v16_store(x->scales + CHUNK + u * 16, v16_first_or(scales, n_tok < QR_KV_UNIT ? n_tok : QR_KV_UNIT, v16_set1(0)));
}

#else

// K is read where it lies, but for a last half part: what lies behind it may be a NaN, which a zero does not silence.
static void load_k(struct amx_attn *x, const uint8_t *const unit[CHUNK_UNITS])
{
    int whole = x->a->kv.d / 32;
    for (int u = x->u0; u < x->n_units; u++) {
        x->k[u] = unit[u];
        if (x->a->kv.d % 32 == 0) continue;
        memcpy(x->k_mem + u * TILE_BYTES, unit[u] + whole * TILE_BYTES, TILE_BYTES / 2);
        memset(x->k_mem + u * TILE_BYTES + TILE_BYTES / 2, 0, TILE_BYTES / 2);
    }
}

static void load_v_unit(struct amx_attn *x, const uint8_t *unit, int u, int n_tok)
{
    uint8_t *v = x->v + (size_t)(u / 2 * x->n_dims) * TILE_BYTES + u % 2 * (TILE_BYTES / 2);
    const uint8_t *from = unit + x->n_dims * (TILE_BYTES / 2);
    if (n_tok >= QR_KV_UNIT) {
        for (int b = 0; b < x->n_dims; b++, v += TILE_BYTES, from += TILE_BYTES / 2)
            UNROLL for (int i = 0; i < 8; i++) _mm512_store_si512(v + i * 64, _mm512_loadu_si512(from + i * 64));
        return;
    }
    for (int b = 0; b < x->n_dims; b++, v += TILE_BYTES, from += TILE_BYTES / 2)
        for (int i = 0; i < 8; i++) _mm512_store_si512(v + i * 64, pairs_first(_mm512_loadu_si512(from + i * 64), n_tok - 2 * i));
}

#endif

static void zero_v_unit(struct amx_attn *x, int u)
{
    for (int b = 0; b < x->n_dims; b++)
        memset(x->v + (size_t)(u / 2 * x->n_dims + b) * TILE_BYTES + u % 2 * (TILE_BYTES / 2), 0, TILE_BYTES / 2);
    if (SCALED) v16_store(x->scales + CHUNK + u * 16, v16_set1(0));
}

static void load_end(struct amx_attn *x)
{
    (void)x;
}

static void load_q(const struct amx_attn *x)
{
    int d = x->a->kv.d, n_group = x->a->n_group;
    memset(x->q, 0, (size_t)x->n_tiles * (size_t)x->n_parts * TILE_BYTES);
    for (int i = 0; i < x->n_vecs; i++) {
        const float *q = x->a->q + (size_t)(x->row0 + i / n_group) * x->a->ldq + (size_t)(i % n_group) * (size_t)d;
        uint8_t *to = x->q + (size_t)(i / ROWS * x->n_parts) * TILE_BYTES + i % ROWS * 64;
        for (int b = 0; b < x->n_dims; b++)
            _mm256_store_si256((__m256i *)(void *)(to + b / 2 * TILE_BYTES + b % 2 * 32),
                               (__m256i)_mm512_cvtneps_pbh(v16_load(q + b * 16)));
    }
}

/* ==== Products. ==== */

V16 const uint8_t *k_part(const struct amx_attn *x, int u, int part)
{
    if (!SCALED && (part + 1) * 32 > x->a->kv.d) return x->k_mem + u * TILE_BYTES;
    return x->k[u] + part * TILE_BYTES;
}

static void qk(const struct amx_attn *x, int tile)
{
    const uint8_t *q = x->q + (size_t)(tile * x->n_parts) * TILE_BYTES;
    if (x->n_units - x->u0 < CHUNK_UNITS) {
        for (int u = x->u0; u < x->n_units; u++) {
            AMX_ZERO(0);
            for (int i = 0; i < x->n_parts; i++) {
                AMX_LOAD(4, q + i * TILE_BYTES, 64);
                AMX_LOAD(6, k_part(x, u, i), 64);
                AMX_DOT_BF16(0, 4, 6);
            }
            AMX_STORE(0, x->s + u * 16, CHUNK * sizeof(float));
        }
        return;
    }
    AMX_ZERO(0);
    AMX_ZERO(1);
    AMX_ZERO(2);
    AMX_ZERO(3);
    for (int i = 0; i < x->n_parts; i++) {
        AMX_LOAD(4, q + i * TILE_BYTES, 64);
        AMX_LOAD(6, k_part(x, 0, i), 64);
        AMX_DOT_BF16(0, 4, 6);
        AMX_LOAD(7, k_part(x, 1, i), 64);
        AMX_DOT_BF16(1, 4, 7);
        AMX_LOAD(6, k_part(x, 2, i), 64);
        AMX_DOT_BF16(2, 4, 6);
        AMX_LOAD(7, k_part(x, 3, i), 64);
        AMX_DOT_BF16(3, 4, 7);
    }
    AMX_STORE(0, x->s, CHUNK * sizeof(float));
    AMX_STORE(1, x->s + 16, CHUNK * sizeof(float));
    AMX_STORE(2, x->s + 32, CHUNK * sizeof(float));
    AMX_STORE(3, x->s + 48, CHUNK * sizeof(float));
}

static void rescale(const struct amx_attn *x, int tile)
{
    float *o = x->o + (size_t)(tile * x->n_dims) * (ROWS * 16);
    for (uint32_t left = x->moved; left; left &= left - 1) {
        int r = __builtin_ctz(left);
        v16 keep = v16_set1(x->keep[r]);
        for (int b = 0; b < x->n_dims; b++) {
            float *at = o + b * ROWS * 16 + r * 16;
            v16_store(at, v16_mul(v16_load(at), keep));
        }
    }
}

static void pv(const struct amx_attn *x, int tile)
{
    float *o = x->o + (size_t)(tile * x->n_dims) * (ROWS * 16);
    int first = x->u0 / 2, n = (x->n_units + 1) / 2, b = 0;
    rescale(x, tile);
    for (; b + 4 <= x->n_dims; b += 4) {
        float *to = o + b * ROWS * 16;
        AMX_LOAD(0, to, 64);
        AMX_LOAD(1, to + 256, 64);
        AMX_LOAD(2, to + 512, 64);
        AMX_LOAD(3, to + 768, 64);
        for (int i = first; i < n; i++) {
            const uint8_t *v = x->v + (size_t)(i * x->n_dims + b) * TILE_BYTES;
            AMX_LOAD(4, x->p + i * 64, CHUNK * 2);
            AMX_LOAD(6, v, 64);
            AMX_DOT_BF16(0, 4, 6);
            AMX_LOAD(7, v + TILE_BYTES, 64);
            AMX_DOT_BF16(1, 4, 7);
            AMX_LOAD(6, v + 2 * TILE_BYTES, 64);
            AMX_DOT_BF16(2, 4, 6);
            AMX_LOAD(7, v + 3 * TILE_BYTES, 64);
            AMX_DOT_BF16(3, 4, 7);
        }
        AMX_STORE(0, to, 64);
        AMX_STORE(1, to + 256, 64);
        AMX_STORE(2, to + 512, 64);
        AMX_STORE(3, to + 768, 64);
    }
    for (; b < x->n_dims; b++) {
        AMX_LOAD(0, o + b * ROWS * 16, 64);
        for (int i = first; i < n; i++) {
            AMX_LOAD(4, x->p + i * 64, CHUNK * 2);
            AMX_LOAD(6, x->v + (size_t)(i * x->n_dims + b) * TILE_BYTES, 64);
            AMX_DOT_BF16(0, 4, 6);
        }
        AMX_STORE(0, o + b * ROWS * 16, 64);
    }
}

/* ==== Softmax. ==== */

/* 2^x for x <= 0 or a NaN: x = n + r with n the integer below; 1 + r (C1 + r (C2 + r C3)) is the minimax fit of the relative
 * error over 0 .. 1 that is 1 at 0: 8.6e-5, a twentieth of what rounding p to bf16 does. -inf gives 0. */
V16 v16 exp2_rough(v16 x)
{
    v16 r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    v16 p = v16_fma(v16_set1(0x1.3baaa6p-4f), r, v16_set1(0x1.d2378ap-3f));
    p = v16_fma(p, r, v16_set1(0x1.63e658p-1f));
    p = v16_fma(p, r, v16_set1(1.0f));
    return _mm512_scalef_ps(p, x);
}

// Scales and caps scores where that is asked for, and makes -inf of those that a vector does not see.
static void prepare(struct amx_attn *x, int tile)
{
    if (x->whole && !SCALED && x->a->softcap == 0) return;
    for (int r = 0; r < ROWS; r++) {
        struct seen w = x->whole ? (struct seen){0, CHUNK} : seen_of(x, tile * ROWS + r);
        for (int u = 0; u < CHUNK_UNITS; u++) {
            v16 y = v16_load(x->s + r * CHUNK + u * 16);
            if (SCALED) y = v16_mul(y, v16_load(x->scales + u * 16));
            if (x->a->softcap != 0) y = capped(v16_mul(y, v16_set1(x->a->scale)), x->a->softcap);
            v16_store(x->s + r * CHUNK + u * 16, _mm512_mask_mov_ps(v16_set1(-INFINITY), lanes_of(w, u), y));
        }
    }
}

// The largest score of every vector, and what follows from it for the chunk.
static void maxima(struct amx_attn *x, int tile)
{
    v16 top[ROWS], low = v16_set1(-INFINITY);
    float *m = x->m + tile * ROWS;
    UNROLL for (int r = 0; r < ROWS; r++)
    {
        top[r] = low; // passes over a NaN
        UNROLL for (int u = 0; u < CHUNK_UNITS; u++) top[r] = v16_max(v16_load(x->s + r * CHUNK + u * 16), top[r]);
    }
    v16 before = v16_load(m), now = v16_max(max_of_each(top), before);
    v16 base = v16_where_lt(now, -FLT_MAX, 0, now); // it has seen nothing yet: every p is 0, not a NaN
    v16 keep = exp2_rough(v16_mul(v16_sub(before, base), v16_set1(to_log2(x))));
    v16_store(m, now);
    v16_store(x->base, v16_mul(base, v16_set1(to_log2(x))));
    v16_store(x->keep, keep);
    x->moved = 0xffff & ~v16_eq_bits(keep, v16_set1(1));
}

// Scores become p.
static void exps(const struct amx_attn *x, int tile)
{
    v16 factor = v16_set1(to_log2(x));
    for (int r = 0; r < ROWS; r++) {
        float *l_of = x->l + (tile * ROWS + r) * 16;
        v16 p[CHUNK_UNITS], base = v16_set1(x->base[r]), l = v16_mul(v16_load(l_of), v16_set1(x->keep[r]));
        UNROLL for (int u = 0; u < CHUNK_UNITS; u++)
            p[u] = exp2_rough(v16_fms(v16_load(x->s + r * CHUNK + u * 16), factor, base));
        v16_store(l_of, v16_add(l, v16_add(v16_add(p[0], p[1]), v16_add(p[2], p[3]))));
        UNROLL for (int u = 0; SCALED && u < CHUNK_UNITS; u++) p[u] = v16_mul(p[u], v16_load(x->scales + CHUNK + u * 16));
        _mm512_store_si512(x->p + r * CHUNK * 2, (__m512i)_mm512_cvtne2ps_pbh(p[1], p[0]));
        _mm512_store_si512(x->p + r * CHUNK * 2 + 64, (__m512i)_mm512_cvtne2ps_pbh(p[3], p[2]));
    }
}

static void attend(struct amx_attn *x, int tile)
{
    qk(x, tile);
    prepare(x, tile);
    maxima(x, tile);
    exps(x, tile);
    pv(x, tile);
}

#undef LOG2E
#endif
