/* Contiguous layouts: a run of consecutive blocks for each sequence, from its admission to its end. */
#include "base/assert.h"
#include "base/mem.h"
#include "kv/buddy.h"
#include "kv/layout.h"

struct run {
    uint32_t start;
    int32_t order; // -1: none
};

struct contiguous {
    struct qr_kv_layout face;
    struct qr_kv_layout_conf conf;
    struct qr_kv_pool *pool;
    struct qr_buddy *buddy;
    struct run *runs;     // (n_tables)
    uint32_t *n_asked;    // (n_tables) blocks before rounding
};

static const struct contiguous *of(const struct qr_kv_layout *l)
{
    return (const struct contiguous *)l;
}

static bool room(const struct qr_kv_layout *l, const struct qr_kv_want *w, uint32_t n, uint32_t n_outstanding,
                 uint32_t n_spare)
{
    // What runs has all it will ever need, so neither of the last two matters.
    const struct contiguous *c = of(l);
    return qr_buddy_room(c->buddy, qr_buddy_order(qr_kv_layout_claim(&c->conf, w))) >= n;
}

static void admit(struct qr_kv_layout *l, int32_t i_table, const struct qr_kv_want *w)
{
    struct contiguous *c = (struct contiguous *)l;
    QR_ASSERT(c->runs[i_table].order < 0);
    int order = qr_buddy_order(qr_kv_layout_claim(&c->conf, w));
    uint32_t start = qr_buddy_take(c->buddy, order);
    QR_ASSERT(start != QR_BUDDY_NONE);
    c->runs[i_table] = (struct run){start, order};
    c->n_asked[i_table] = qr_kv_layout_asked(&c->conf, w);
}

static void leave(struct qr_kv_layout *l, int32_t i_table)
{
    struct contiguous *c = (struct contiguous *)l;
    struct run *r = &c->runs[i_table];
    if (r->order >= 0) qr_buddy_give(c->buddy, r->start, r->order);
    r->order = -1;
}

// The unused rest of a run is free in the pool, and nobody else's.
static uint32_t need(const struct qr_kv_layout *l, int32_t i_table, int32_t from, int32_t to)
{
    return to > from ? (uint32_t)(to - from) : 0;
}

static uint32_t n_free(const struct qr_kv_layout *l)
{
    return qr_kv_pool_n_free(of(l)->pool);
}

static qr_block_id take(struct qr_kv_layout *l, int32_t i_table, int32_t at)
{
    struct contiguous *c = (struct contiguous *)l;
    const struct run *r = &c->runs[i_table];
    QR_ASSERT(r->order >= 0 && at < (int32_t)1 << r->order);
    qr_kv_pool_take_id(c->pool, r->start + (uint32_t)at);
    return r->start + (uint32_t)at;
}

static struct qr_kv_held held(const struct qr_kv_layout *l, int32_t i_table)
{
    const struct run *r = &of(l)->runs[i_table];
    if (r->order < 0) return (struct qr_kv_held){0};
    uint32_t n = 1u << r->order;
    return (struct qr_kv_held){n, n - of(l)->n_asked[i_table]};
}

static void check(const struct qr_kv_layout *l)
{
    const struct contiguous *c = of(l);
    uint32_t n = qr_buddy_n_free(c->buddy);
    qr_buddy_check(c->buddy);
    for (int32_t i = 0; i < c->conf.n_tables; i++) {
        const struct run *r = &c->runs[i];
        if (r->order < 0) continue;
        n += 1u << r->order;
        for (uint32_t j = 0; j < 1u << r->order; j++)
            QR_ASSERT(qr_kv_pool_refs(c->pool, r->start + j) <= 1); // nothing is shared
    }
    QR_ASSERT(n == c->conf.n_blocks);
}

static void contiguous_free(struct qr_kv_layout *l)
{
    struct contiguous *c = (struct contiguous *)l;
    if (!c) return;
    qr_buddy_free(&c->buddy);
    qr_free(c->runs);
    qr_free(c->n_asked);
    qr_free(c);
}

static const struct qr_kv_layout_ops ops = {room, admit, leave, need, n_free, take, held, check, contiguous_free};

enum qr_status kv_contiguous_new(struct qr_kv_pool *pool, const struct qr_kv_layout_conf *conf,
                                 struct qr_kv_layout **out)
{
    struct contiguous *c = qr_calloc(QR_MEM_SCHED, 1, sizeof *c);
    if (!c) return QR_ENOMEM;
    size_t n = (size_t)conf->n_tables;
    c->face.ops = &ops;
    c->conf = *conf;
    c->pool = pool;
    c->runs = qr_malloc(QR_MEM_SCHED, n * sizeof *c->runs);
    c->n_asked = qr_calloc(QR_MEM_SCHED, n, sizeof *c->n_asked);
    if (!c->runs || !c->n_asked || qr_buddy_new(conf->n_blocks, &c->buddy) != QR_OK) {
        contiguous_free(&c->face);
        return QR_ENOMEM;
    }
    for (size_t i = 0; i < n; i++) c->runs[i].order = -1;
    *out = &c->face;
    return QR_OK;
}
