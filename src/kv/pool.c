#include "kv/pool.h"

#include "base/assert.h"
#include "base/mem.h"

struct block {
    uint32_t refs;
    uint32_t prev, next; // on the free list, when refs == 0
    bool cached;
};

struct qr_kv_pool {
    uint32_t n_blocks;
    uint32_t n_touched; // blocks below were used at least once; their records are initialised
    uint32_t n_free, n_cached;
    struct block *blocks; // (n_blocks + 1); the last is the free list's head and tail
};

enum qr_status qr_kv_pool_new(uint32_t n_blocks, struct qr_kv_pool **out)
{
    QR_ASSERT(n_blocks >= 1 && n_blocks < QR_BLOCK_NONE);
    struct qr_kv_pool *p = qr_calloc(QR_MEM_SCHED, 1, sizeof *p);
    if (!p) return QR_ENOMEM;
    p->n_blocks = p->n_free = n_blocks;
    // Not zeroed: records of fresh blocks stay untouched, so a large pool costs nothing while idle.
    p->blocks = qr_malloc(QR_MEM_SCHED, ((size_t)n_blocks + 1) * sizeof *p->blocks);
    if (!p->blocks) {
        qr_kv_pool_free(&p);
        return QR_ENOMEM;
    }
    p->blocks[n_blocks] = (struct block){.prev = n_blocks, .next = n_blocks};
    *out = p;
    return QR_OK;
}

void qr_kv_pool_free(struct qr_kv_pool **pool)
{
    if (!*pool) return;
    qr_free((*pool)->blocks);
    qr_free(*pool);
    *pool = NULL;
}

static void list_remove(struct qr_kv_pool *p, uint32_t id)
{
    struct block *b = &p->blocks[id];
    p->blocks[b->prev].next = b->next;
    p->blocks[b->next].prev = b->prev;
    p->n_free--;
    if (b->cached) p->n_cached--;
}

static void list_insert_after(struct qr_kv_pool *p, uint32_t prev, uint32_t id)
{
    struct block *b = &p->blocks[id];
    b->prev = prev;
    b->next = p->blocks[prev].next;
    p->blocks[b->next].prev = id;
    p->blocks[prev].next = id;
    p->n_free++;
    if (b->cached) p->n_cached++;
}

qr_block_id qr_kv_pool_take(struct qr_kv_pool *p, bool *evicted)
{
    *evicted = false;
    uint32_t id = p->blocks[p->n_blocks].next;
    bool linked = id != p->n_blocks;
    if ((!linked || p->blocks[id].cached) && p->n_touched < p->n_blocks) {
        id = p->n_touched++;
        p->blocks[id] = (struct block){.refs = 1};
        p->n_free--;
        return id;
    }
    if (!linked) return QR_BLOCK_NONE;
    list_remove(p, id);
    *evicted = p->blocks[id].cached;
    p->blocks[id].cached = false;
    QR_ASSERT(p->blocks[id].refs == 0);
    p->blocks[id].refs = 1;
    return id;
}

void qr_kv_pool_take_id(struct qr_kv_pool *p, qr_block_id id)
{
    QR_ASSERT(id < p->n_blocks);
    for (; p->n_touched <= id; p->n_touched++) {
        p->blocks[p->n_touched] = (struct block){0};
        p->n_free--; // it moves from the fresh ones to the list
        list_insert_after(p, p->n_blocks, p->n_touched);
    }
    QR_ASSERT(p->blocks[id].refs == 0 && !p->blocks[id].cached);
    list_remove(p, id);
    p->blocks[id].refs = 1;
}

void qr_kv_pool_ref(struct qr_kv_pool *p, qr_block_id id)
{
    QR_ASSERT(id < p->n_touched);
    struct block *b = &p->blocks[id];
    QR_ASSERT((b->refs > 0 || b->cached) && b->refs < UINT32_MAX);
    if (b->refs == 0) list_remove(p, id);
    b->refs++;
}

void qr_kv_pool_unref(struct qr_kv_pool *p, qr_block_id id)
{
    QR_ASSERT(id < p->n_touched && p->blocks[id].refs > 0);
    struct block *b = &p->blocks[id];
    if (--b->refs > 0) return;
    uint32_t head = p->n_blocks;
    list_insert_after(p, b->cached ? p->blocks[head].prev : head, id);
}

void qr_kv_pool_reset(struct qr_kv_pool *p)
{
    QR_ASSERT(p->n_free == p->n_blocks);
    p->n_touched = p->n_cached = 0;
    p->blocks[p->n_blocks] = (struct block){.prev = p->n_blocks, .next = p->n_blocks};
}

uint32_t qr_kv_pool_refs(const struct qr_kv_pool *p, qr_block_id id)
{
    QR_ASSERT(id < p->n_blocks);
    return id < p->n_touched ? p->blocks[id].refs : 0;
}

void qr_kv_pool_set_cached(struct qr_kv_pool *p, qr_block_id id, bool cached)
{
    QR_ASSERT(id < p->n_touched);
    struct block *b = &p->blocks[id];
    QR_ASSERT(b->refs > 0 || (b->cached && !cached));
    if (b->refs == 0) list_remove(p, id);
    b->cached = cached;
    if (b->refs == 0) list_insert_after(p, p->n_blocks, id);
}

bool qr_kv_pool_is_cached(const struct qr_kv_pool *p, qr_block_id id)
{
    QR_ASSERT(id < p->n_blocks);
    return id < p->n_touched && p->blocks[id].cached;
}

uint32_t qr_kv_pool_n_blocks(const struct qr_kv_pool *p)
{
    return p->n_blocks;
}

uint32_t qr_kv_pool_n_free(const struct qr_kv_pool *p)
{
    return p->n_free;
}

uint32_t qr_kv_pool_n_cached(const struct qr_kv_pool *p)
{
    return p->n_cached;
}

uint32_t qr_kv_pool_n_touched(const struct qr_kv_pool *p)
{
    return p->n_touched;
}

char qr_kv_pool_state(const struct qr_kv_pool *p, qr_block_id id)
{
    QR_ASSERT(id < p->n_touched);
    const struct block *b = &p->blocks[id];
    if (b->refs == 0) return b->cached ? 'c' : '-';
    return b->refs <= 9 ? (char)('0' + b->refs) : '+';
}

uint64_t qr_kv_pool_ref_sum(const struct qr_kv_pool *p)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->n_touched; i++) sum += p->blocks[i].refs;
    return sum;
}

void qr_kv_pool_check(const struct qr_kv_pool *p)
{
    uint32_t n_linked = 0, n_cached = 0, n_idle = 0, prev = p->n_blocks;
    for (uint32_t id = p->blocks[prev].next; id != p->n_blocks; id = p->blocks[id].next) {
        QR_ASSERT(id < p->n_touched && n_linked < p->n_touched);
        const struct block *b = &p->blocks[id];
        QR_ASSERT(b->prev == prev && b->refs == 0);
        QR_ASSERT(b->cached || n_cached == 0); // plain ones come first
        n_linked++;
        n_cached += b->cached;
        prev = id;
    }
    QR_ASSERT(p->blocks[p->n_blocks].prev == prev);
    for (uint32_t i = 0; i < p->n_touched; i++) n_idle += p->blocks[i].refs == 0;
    QR_ASSERT(n_idle == n_linked); // K2: no references, if and only if on the list
    QR_ASSERT(n_cached == p->n_cached);
    QR_ASSERT(p->n_free == n_linked + (p->n_blocks - p->n_touched)); // K1
}

void qr_kv_pool_dump(const struct qr_kv_pool *p, FILE *f)
{
    fprintf(f, "pool: %u blocks, %u free (%u never used, %u cached)\n", p->n_blocks, p->n_free,
            p->n_blocks - p->n_touched, p->n_cached);
    for (uint32_t i = 0; i < p->n_touched; i++) {
        const struct block *b = &p->blocks[i];
        if (b->refs > 0) fprintf(f, "  block %u: refs %u%s\n", i, b->refs, b->cached ? ", cached" : "");
    }
    fputs("  free:", f);
    for (uint32_t id = p->blocks[p->n_blocks].next; id != p->n_blocks; id = p->blocks[id].next)
        fprintf(f, " %u%s", id, p->blocks[id].cached ? "c" : "");
    fputc('\n', f);
}
