/* The virtual layout: each sequence has an address range of its own, and pages of several blocks are put
 * under it as it grows (vAttention, Prabhu et al., 2024). The block table is the page map: within a page ids
 * are consecutive, and a page belongs to one sequence. */
#include "base/assert.h"
#include "base/mem.h"
#include "kv/layout.h"

struct paging {
    struct qr_kv_layout face;
    struct qr_kv_layout_conf conf;
    struct qr_kv_pool *pool;
    uint32_t n_pages, n_free;
    uint32_t *free_pages; // (n_pages) a stack
    int32_t pages_max;    // of a table
    int32_t *lens;        // (n_tables) pages
    uint32_t *pages;      // (n_tables, pages_max)
};

static const struct paging *of(const struct qr_kv_layout *l)
{
    return (const struct paging *)l;
}

static int32_t pages_for(const struct paging *p, int32_t n_blocks)
{
    int32_t page = (int32_t)p->conf.page_blocks;
    return (n_blocks + page - 1) / page;
}

static uint32_t n_free(const struct qr_kv_layout *l)
{
    return of(l)->n_free * of(l)->conf.page_blocks;
}

static bool room(const struct qr_kv_layout *l, const struct qr_kv_want *w, uint32_t n, uint32_t n_outstanding,
                 uint32_t n_spare)
{
    const struct qr_kv_layout_conf *c = &of(l)->conf;
    uint64_t need = (uint64_t)n * qr_kv_layout_claim(c, w) + (uint64_t)n_spare * c->page_blocks + n_outstanding;
    return need <= n_free(l);
}

static void admit(struct qr_kv_layout *l, int32_t i_table, const struct qr_kv_want *w)
{
    QR_ASSERT(of(l)->lens[i_table] == 0);
}

static void leave(struct qr_kv_layout *l, int32_t i_table)
{
    struct paging *p = (struct paging *)l;
    const uint32_t *pages = p->pages + (size_t)i_table * (size_t)p->pages_max;
    while (p->lens[i_table] > 0) p->free_pages[p->n_free++] = pages[--p->lens[i_table]];
}

static uint32_t need(const struct qr_kv_layout *l, int32_t i_table, int32_t from, int32_t to)
{
    int32_t more = pages_for(of(l), to) - of(l)->lens[i_table];
    return more > 0 ? (uint32_t)more * of(l)->conf.page_blocks : 0;
}

static qr_block_id take(struct qr_kv_layout *l, int32_t i_table, int32_t at)
{
    struct paging *p = (struct paging *)l;
    int32_t page = (int32_t)p->conf.page_blocks, i = at / page;
    uint32_t *pages = p->pages + (size_t)i_table * (size_t)p->pages_max;
    QR_ASSERT(i <= p->lens[i_table] && i < p->pages_max);
    if (i == p->lens[i_table]) {
        QR_ASSERT(p->n_free > 0);
        pages[p->lens[i_table]++] = p->free_pages[--p->n_free];
    }
    qr_block_id id = pages[i] * p->conf.page_blocks + (uint32_t)(at % page);
    qr_kv_pool_take_id(p->pool, id);
    return id;
}

static struct qr_kv_held held(const struct qr_kv_layout *l, int32_t i_table)
{
    return (struct qr_kv_held){.n_blocks = (uint32_t)of(l)->lens[i_table] * of(l)->conf.page_blocks};
}

static void check(const struct qr_kv_layout *l)
{
    const struct paging *p = of(l);
    uint32_t n = p->n_free;
    for (int32_t i = 0; i < p->conf.n_tables; i++) {
        QR_ASSERT(p->lens[i] >= 0 && p->lens[i] <= p->pages_max);
        n += (uint32_t)p->lens[i];
    }
    QR_ASSERT(n == p->n_pages);
    for (uint32_t i = 0; i < p->n_free; i++)
        for (uint32_t j = 0; j < p->conf.page_blocks; j++)
            QR_ASSERT(qr_kv_pool_refs(p->pool, p->free_pages[i] * p->conf.page_blocks + j) == 0);
}

static void virtual_free(struct qr_kv_layout *l)
{
    struct paging *p = (struct paging *)l;
    if (!p) return;
    qr_free(p->free_pages);
    qr_free(p->lens);
    qr_free(p->pages);
    qr_free(p);
}

static const struct qr_kv_layout_ops ops = {room, admit, leave, need, n_free, take, held, check, virtual_free};

enum qr_status kv_virtual_new(struct qr_kv_pool *pool, const struct qr_kv_layout_conf *conf,
                              struct qr_kv_layout **out)
{
    struct paging *p = qr_calloc(QR_MEM_SCHED, 1, sizeof *p);
    if (!p) return QR_ENOMEM;
    size_t n = (size_t)conf->n_tables;
    QR_ASSERT(conf->page_blocks >= 1);
    p->face.ops = &ops;
    p->conf = *conf;
    p->pool = pool;
    p->n_pages = p->n_free = conf->n_blocks / conf->page_blocks;
    p->pages_max = pages_for(p, (conf->max_len + conf->block_size - 1) / conf->block_size);
    p->free_pages = qr_malloc(QR_MEM_SCHED, (p->n_pages + 1) * sizeof *p->free_pages);
    p->lens = qr_calloc(QR_MEM_SCHED, n, sizeof *p->lens);
    p->pages = qr_malloc(QR_MEM_SCHED, n * (size_t)p->pages_max * sizeof *p->pages);
    if (!p->free_pages || !p->lens || !p->pages) {
        virtual_free(&p->face);
        return QR_ENOMEM;
    }
    for (uint32_t i = 0; i < p->n_pages; i++) p->free_pages[i] = p->n_pages - 1 - i; // lowest on top
    *out = &p->face;
    return QR_OK;
}
