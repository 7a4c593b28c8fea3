/* Attention measured by turns, on cold memory, in one process: `--versus kvtypes` sets each KV type beside bf16,
 * `--versus paged` sets a block table beside the same kernel on memory where each head's tokens lie in one run.
 * Times are of this thread's processor, so that a busy machine blurs them less; what is printed are ratios of
 * neighbours, their median, and the bound below which it lies with 95 % (order statistics: no distribution is
 * assumed). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "checkasm.h"
#include "kern/kern.h"

// SmolLM2's heads. Contexts of 8 x 2048 tokens are 126 MB of bf16, of 32 x 295 tokens 74 MB: no cache of ours holds them.
enum { LAYERS = 10, HEADS = 3, GROUP = 3, HEAD_DIM = 64, PAIRS = 400 };
static int n_seqs = 8, n_tokens = 2048;

struct cache {
    enum qr_kvtype type;
    qr_attn_fn *decode;
    uint8_t *pool;
    size_t pool_bytes, block_bytes;
    uint32_t *tables; // (n_seqs, blocks_of(block_size))
    int block_size;
    bool runs; // [layer][head][sequence][token]: a head's tokens in one run
};

static float q[GROUP * HEAD_DIM], out[GROUP * HEAD_DIM];
static void *scratch;

static double cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int blocks_of(int block_size)
{
    return (n_tokens + block_size - 1) / block_size;
}

static void cache_open(struct cache *c, enum qr_kvtype type, const struct qr_kern *k, int block_size, int order)
{
    int n = blocks_of(block_size), n_all = n_seqs * n;
    size_t head_bytes = qr_kv_unit_bytes(type, HEAD_DIM) * (size_t)(block_size / QR_KV_UNIT);
    *c = (struct cache){.type = type, .decode = qr_kern_kv(k, type).decode, .block_size = block_size, .runs = order < 0};
    c->block_bytes = head_bytes * LAYERS * HEADS;
    c->pool_bytes = c->block_bytes * (size_t)n_all;
    c->pool = qr_pages_alloc(QR_MEM_KV, c->pool_bytes);
    c->tables = malloc(sizeof *c->tables * (size_t)n_all);
    if (!c->pool || !c->tables) abort();
    memset(c->pool, 0x3c, c->pool_bytes);
    for (int i = 0; i < n_all; i++) {
        int j = order > 0 ? ca_below(i + 1) : i;
        c->tables[i] = c->tables[j];
        c->tables[j] = (uint32_t)i;
    }
    if (c->runs)
        for (int i = 0; i < n_all; i++) c->tables[i] = (uint32_t)(i % n);
}

static void cache_close(struct cache *c)
{
    qr_pages_free(QR_MEM_KV, c->pool, c->pool_bytes);
    free(c->tables);
}

static struct qr_kv_view view_of(const struct cache *c, int layer, int seq, int head)
{
    int n = blocks_of(c->block_size);
    size_t head_bytes = c->block_bytes / (LAYERS * HEADS), run_bytes = head_bytes * (size_t)n;
    struct qr_kv_view kv = {.pool = c->pool,
                            .block_bytes = c->block_bytes,
                            .head_off = (size_t)(layer * HEADS + head) * head_bytes,
                            .table = c->tables + seq * n,
                            .block_size = c->block_size,
                            .d = HEAD_DIM};
    if (c->runs) {
        kv.block_bytes = head_bytes;
        kv.head_off = (size_t)((layer * HEADS + head) * n_seqs + seq) * run_bytes;
    }
    return kv;
}

// One layer of a step: every sequence, its heads. Returns its time.
static double layer_ns(const struct cache *c, int layer)
{
    double start = cpu_ns();
    for (int i = 0; i < n_seqs * HEADS; i++) {
        struct qr_kv_view ahead;
        struct qr_attn a = {.kv = view_of(c, layer, i / HEADS, i % HEADS),
                            .n_group = GROUP,
                            .scale = 0.125f,
                            .pos0 = n_tokens - 1,
                            .n_rows = 1,
                            .q = q,
                            .ldq = GROUP * HEAD_DIM,
                            .out = out,
                            .ldo = GROUP * HEAD_DIM,
                            .scratch = scratch};
        if (i + 1 < n_seqs * HEADS) {
            ahead = view_of(c, layer, (i + 1) / HEADS, (i + 1) % HEADS);
            a.ahead = &ahead;
            a.ahead_end = n_tokens;
        }
        c->decode(&a);
    }
    return cpu_ns() - start;
}

// The same bytes of memory, only added up.
static double read_ns(const struct cache *c, int layer)
{
    static volatile uint64_t sink;
    size_t bytes = c->pool_bytes / LAYERS;
    const uint64_t *p = (const uint64_t *)(const void *)(c->pool + (size_t)layer * bytes);
    double start = cpu_ns();
    uint64_t a = 0, b = 0, d = 0, e = 0;
    for (size_t i = 0; i + 32 <= bytes / 8; i += 32)
        for (size_t j = 0; j < 32; j += 8) a += p[i + j], b ^= p[i + j + 2], d += p[i + j + 4], e ^= p[i + j + 6];
    sink = a + b + d + e;
    (void)sink;
    return cpu_ns() - start;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct figures {
    double median, bound, best_a_ns, best_b_ns;
};

static struct figures compare(const struct cache *a, const struct cache *b)
{
    static double ratio[PAIRS];
    struct figures f = {.best_a_ns = INFINITY, .best_b_ns = INFINITY};
    for (int i = 0; i < PAIRS; i++) {
        int layer = i % LAYERS;
        bool b_first = i / LAYERS % 2;
        double tb = b_first ? layer_ns(b, layer) : 0, ta = layer_ns(a, layer);
        if (!b_first) tb = layer_ns(b, layer);
        ratio[i] = ta / tb;
        f.best_a_ns = fmin(f.best_a_ns, ta);
        f.best_b_ns = fmin(f.best_b_ns, tb);
    }
    qsort(ratio, PAIRS, sizeof *ratio, by_size);
    f.median = ratio[PAIRS / 2];
    f.bound = ratio[PAIRS / 2 + (int)ceil(0.98 * sqrt(PAIRS))]; // 1.96 standard deviations of the median's rank
    return f;
}

static double kv_gbs(const struct cache *c, double ns)
{
    return (double)c->pool_bytes / LAYERS / ns;
}

static void versus_kvtypes(const struct qr_kern *k)
{
    struct cache bf16;
    cache_open(&bf16, QR_KV_BF16, k, 16, 1);
    double best_read = INFINITY;
    for (int i = 0; i < 3 * LAYERS; i++) best_read = fmin(best_read, read_ns(&bf16, i % LAYERS));
    printf("memory, added up: %.1f GB/s\n", kv_gbs(&bf16, best_read));
    printf("%-6s %-12s %12s %8s %14s %8s %10s\n", "type", "isa", "ns a token", "GB/s", "time / bf16's", "bound", "of minima");
    for (enum qr_kvtype t = QR_KV_AUTO + 1; t < QR_KV_COUNT; t++) {
        struct cache c;
        char slot[32];
        cache_open(&c, t, k, 16, 1);
        struct figures f = compare(&c, &bf16);
        snprintf(slot, sizeof slot, "attn_decode_%s", qr_kvtype_name(t));
        printf("%-6s %-12s %12.2f %8.1f %14.3f %8.3f %10.3f\n", qr_kvtype_name(t), qr_kern_origin(slot, qr_isa_active()),
               f.best_a_ns / (n_seqs * HEADS * n_tokens), kv_gbs(&c, f.best_a_ns), f.median, f.bound, f.best_a_ns / f.best_b_ns);
        cache_close(&c);
    }
    cache_close(&bf16);
}

static void versus_paged_of(const struct qr_kern *k, enum qr_kvtype t)
{
    static const char *const orders[] = {"ascending", "shuffled"};
    struct cache run;
    cache_open(&run, t, k, QR_KV_UNIT, -1);
    for (int block_size = 16; block_size <= 64; block_size *= 2)
        for (int order = 0; order < 2; order++) {
            struct cache c;
            cache_open(&c, t, k, block_size, order);
            struct figures f = compare(&c, &run);
            printf("%-6s %2d x %-5d %-6d %-10s %16.4f %8.4f %10.4f %8.1f\n", qr_kvtype_name(t), n_seqs, n_tokens, block_size,
                   orders[order], f.median, f.bound, f.best_a_ns / f.best_b_ns, kv_gbs(&c, f.best_a_ns));
            cache_close(&c);
        }
    cache_close(&run);
}

static void versus_paged(const struct qr_kern *k)
{
    static const int shapes[][2] = {{32, 295}, {8, 2048}}; // sequences, tokens
    printf("%-6s %-10s %-6s %-10s %16s %8s %10s %8s\n", "type", "context", "block", "order", "time / one run's", "bound",
           "of minima", "GB/s");
    for (int i = 0; i < 2; i++)
        for (enum qr_kvtype t = QR_KV_AUTO + 1; t < QR_KV_COUNT; t++) {
            n_seqs = shapes[i][0];
            n_tokens = shapes[i][1];
            versus_paged_of(k, t);
        }
}

bool ca_versus(const char *what)
{
    struct qr_kern k;
    qr_kern_fill(&k, qr_isa_active());
    ca_fill_plain(q, GROUP * HEAD_DIM, 1);
    if (posix_memalign(&scratch, 64, QR_ATTN_SCRATCH(GROUP, HEAD_DIM)) != 0) abort();
    bool known = true;
    if (strcmp(what, "kvtypes") == 0)
        versus_kvtypes(&k);
    else if (strcmp(what, "paged") == 0)
        versus_paged(&k);
    else
        known = false;
    free(scratch);
    return known;
}
