/* KV writes and attention: pages in any order, ragged lengths, every slot that no token owns a NaN. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "checkasm.h"
#include "kern/kern.h"

void check_kv_write(const struct ca_case *c);
void check_attn(const struct ca_case *c);

static enum qr_kvtype type_of(const struct ca_case *c)
{
    enum qr_kvtype t = QR_KV_AUTO;
    if (qr_kvtype_parse(strrchr(c->name, '_') + 1, &t, NULL) != QR_OK) ca_fail("no KV type of this name");
    return t;
}

// A pool of n_blocks blocks with this head between two others, its table shuffled, all bytes ones: NaN in every
// float, scales too.
static struct qr_kv_view draw_view(enum qr_kvtype type, int d, int block_size, int n_blocks)
{
    size_t head_bytes = qr_kv_unit_bytes(type, d) * (size_t)(block_size / QR_KV_UNIT);
    struct qr_kv_view kv = {
        .block_bytes = head_bytes * 3, .head_off = head_bytes, .block_size = block_size, .d = d};
    uint32_t *table = ca_buf(sizeof *table * (size_t)n_blocks);
    for (int i = 0; i < n_blocks; i++) {
        int j = ca_below(i + 1);
        table[i] = table[j];
        table[j] = (uint32_t)i;
    }
    kv.table = table;
    kv.pool = ca_buf64(kv.block_bytes * (size_t)n_blocks);
    memset(kv.pool, 0xff, kv.block_bytes * (size_t)n_blocks);
    return kv;
}

static const int head_sizes[] = {16, 32, 48, 64, 80, 96, 128, 192, 256};

struct bench_write {
    qr_kv_write_fn *fn;
    struct qr_kv_view kv;
    const float *k;
    int pos;
};

static void bench_write(void *p)
{
    struct bench_write *b = p;
    b->fn(&b->kv, b->pos++ % 64, b->k, b->k);
}

void check_kv_write(const struct ca_case *c)
{
    int d = head_sizes[ca_below(9)], block_size = 16 << ca_below(4), n = 2 * block_size;
    struct qr_kv_view a = draw_view(type_of(c), d, block_size, 2), b = a;
    size_t bytes = a.block_bytes * 2;
    b.pool = ca_buf64(bytes);
    memcpy(b.pool, a.pool, bytes);
    float *k = ca_buf(sizeof *k * (size_t)d), *v = ca_buf(sizeof *v * (size_t)d);
    for (int i = 0; i < 9; i++) {
        int pos = ca_below(n);
        ca_fill(k, (size_t)d);
        ca_fill(v, (size_t)d);
        ((qr_kv_write_fn *)c->ref)(&a, pos, k, v);
        ((qr_kv_write_fn *)c->new)(&b, pos, k, v);
    }
    ca_equal_bytes("pool", a.pool, b.pool, bytes);
    if (!ca_benching()) return;
    struct bench_write be = {.fn = (qr_kv_write_fn *)c->new, .kv = draw_view(type_of(c), 64, 16, 4)};
    float *src = ca_buf(sizeof *src * 64);
    ca_fill_plain(src, 64, 1);
    be.k = src;
    ca_bench(bench_write, &be, 64 * 2 * 4, CA_GB);
}

static void fill_tokens(const struct ca_case *c, const struct qr_kv_view *kv, int n)
{
    struct qr_kern ref;
    float k[256], v[256];
    qr_kern_fill(&ref, 0);
    for (int pos = 0; pos < n; pos++) {
        ca_fill_plain(k, (size_t)kv->d, 3);
        ca_fill_plain(v, (size_t)kv->d, 1);
        qr_kern_kv(&ref, type_of(c)).write(kv, pos, k, v);
    }
}

// What lies before the first row's window may have another owner, or none.
static void forget_tokens(const struct qr_attn *a, enum qr_kvtype type, int first)
{
    size_t head_bytes = qr_kv_unit_bytes(type, a->kv.d) * (size_t)(a->kv.block_size / QR_KV_UNIT);
    for (int b = 0; b < first / a->kv.block_size; b++)
        memset(a->kv.pool + a->kv.table[b] * a->kv.block_bytes + a->kv.head_off, 0xff, head_bytes);
}

// SmolLM2's cache: 30 layers of 3 KV heads of 64, shared by 3 query heads each; 32 sequences of 304 tokens.
enum { LAYERS = 30, HEADS = 3, SEQS = 32, SEQ_BLOCKS = 19 };

struct bench_attn {
    qr_attn_fn *fn;
    struct qr_attn a;
    const uint32_t *tables; // (SEQS, SEQ_BLOCKS)
    size_t head_bytes;
    int at;
};

// A step's order: layer by layer, every sequence, its heads.
static void bench_decode(void *p)
{
    struct bench_attn *b = p;
    int head = b->at % HEADS, seq = b->at / HEADS % SEQS, layer = b->at / HEADS / SEQS % LAYERS;
    b->at++;
    b->a.kv.table = b->tables + seq * SEQ_BLOCKS;
    b->a.kv.head_off = (size_t)(layer * HEADS + head) * b->head_bytes;
    b->fn(&b->a);
}

static void bench_prefill(void *p)
{
    struct bench_attn *b = p;
    b->fn(&b->a);
}

static void time_attn(const struct ca_case *c)
{
    bool prefill = strstr(c->name, "prefill");
    int n = prefill ? 496 : SEQ_BLOCKS * 16, rows = prefill ? 16 : 1, n_blocks = SEQS * SEQ_BLOCKS;
    struct bench_attn b = {.fn = (qr_attn_fn *)c->new, .head_bytes = qr_kv_unit_bytes(type_of(c), 64)};
    size_t block_bytes = b.head_bytes * LAYERS * HEADS, pool_bytes = block_bytes * (size_t)n_blocks;
    uint32_t *tables = ca_buf(sizeof *tables * (size_t)n_blocks);
    for (int i = 0; i < n_blocks; i++) {
        int j = ca_below(i + 1);
        tables[i] = tables[j];
        tables[j] = (uint32_t)i;
    }
    b.tables = tables;
    b.a = (struct qr_attn){
        .n_group = 3, .scale = 0.125f, .pos0 = n - rows, .n_rows = rows, .ldq = 192, .ldo = 192};
    b.a.kv = (struct qr_kv_view){.block_bytes = block_bytes, .table = tables, .block_size = 16, .d = 64};
    b.a.kv.pool = qr_pages_alloc(QR_MEM_KV, pool_bytes);
    if (!b.a.kv.pool) return;
    memset(b.a.kv.pool, 0x3c, pool_bytes);
    float *q = ca_buf(sizeof *q * 16 * 192);
    ca_fill_plain(q, 16 * 192, 1);
    b.a.q = q;
    b.a.out = ca_buf(sizeof *q * 16 * 192);
    b.a.scratch = ca_buf64(QR_ATTN_SCRATCH(3, 64));
    if (prefill)
        ca_bench(bench_prefill, &b, 4.0 * 64 * 3 * rows * n, CA_GFLOP);
    else
        ca_bench(bench_decode, &b, (double)b.head_bytes * SEQ_BLOCKS, CA_GB);
    qr_pages_free(QR_MEM_KV, b.a.kv.pool, pool_bytes);
}

void check_attn(const struct ca_case *c)
{
    int d = head_sizes[ca_below(9)], n_group = 1 + ca_below(ca_below(3) ? 4 : 16),
        block_size = 16 << ca_below(4);
    int rows = 1 + ca_below(QR_ATTN_ROWS_MAX), pos0 = ca_below(ca_below(4) ? 80 : 600), n = pos0 + rows;
    struct qr_attn a = {.kv = draw_view(type_of(c), d, block_size, (n + block_size - 1) / block_size),
                        .n_group = n_group,
                        .scale = 1.0f / sqrtf((float)d),
                        .pos0 = pos0,
                        .n_rows = rows,
                        .window = ca_below(3) ? 0 : 1 + ca_below(ca_below(2) ? 40 : 300),
                        .softcap = ca_below(3) ? 0 : 2 + 30 * fabsf(ca_unit())};
    size_t width = (size_t)n_group * d;
    a.ldq = width + (size_t)ca_below(9);
    a.ldo = width + (size_t)ca_below(9);
    fill_tokens(c, &a.kv, n);
    if (a.window && pos0 + 1 - a.window >= block_size) forget_tokens(&a, type_of(c), pos0 + 1 - a.window);
    float *q = ca_buf(sizeof *q * a.ldq * rows), *y0 = ca_buf(sizeof *y0 * a.ldo * rows);
    float *y1 = ca_buf(sizeof *y1 * a.ldo * rows);
    ca_fill_plain(q, a.ldq * rows, 3);
    a.q = q;
    if (ca_below(2)) { // of which no bit may depend
        a.ahead = &a.kv;
        a.ahead_end = 1 + ca_below(n);
    }
    a.scratch = ca_buf64(QR_ATTN_SCRATCH(n_group, d));
    memset(a.scratch, 0xff, QR_ATTN_SCRATCH(n_group, d));
    a.out = y0;
    ((qr_attn_fn *)c->ref)(&a);
    a.out = y1;
    ((qr_attn_fn *)c->new)(&a);
    ca_equal_f32("out", y0, y1, a.ldo * (size_t)rows, c->tol, 1); // gaps between rows hold the same bytes
    if (ca_failed()) return;
    if (ca_benching()) time_attn(c);
}
