#include "kv/table.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

struct qr_kv_tables {
    struct qr_kv_pool *pool;
    struct qr_kv_layout *layout; // NULL: paged
    struct qr_kv_tables_conf conf;
    int32_t *lens;    // (n_tables)
    qr_block_id *ids; // (n_tables, n_blocks_max), untouched beyond lens
    qr_block_id *pins; // (n_tables) the cached block that a table's copy order reads; QR_BLOCK_NONE: none
    int32_t n_pins;
};

enum qr_status qr_kv_tables_new(struct qr_kv_pool *pool, const struct qr_kv_tables_conf *conf,
                                struct qr_kv_tables **out)
{
    QR_ASSERT(conf->n_tables >= 1 && conf->n_blocks_max >= 1 && conf->block_size >= 1);
    struct qr_kv_tables *t = qr_calloc(QR_MEM_SCHED, 1, sizeof *t);
    if (!t) return QR_ENOMEM;
    t->pool = pool;
    t->conf = *conf;
    t->lens = qr_calloc(QR_MEM_SCHED, (size_t)conf->n_tables, sizeof *t->lens);
    t->ids = qr_malloc(QR_MEM_SCHED, (size_t)conf->n_tables * (size_t)conf->n_blocks_max * sizeof *t->ids);
    t->pins = qr_malloc(QR_MEM_SCHED, (size_t)conf->n_tables * sizeof *t->pins);
    for (int32_t i = 0; t->pins && i < conf->n_tables; i++) t->pins[i] = QR_BLOCK_NONE;
    struct qr_kv_layout_conf lc = {.kind = conf->layout,
                                   .n_tables = conf->n_tables,
                                   .block_size = conf->block_size,
                                   .max_len = conf->max_len,
                                   .n_blocks = qr_kv_pool_n_blocks(pool),
                                   .page_blocks = conf->page_blocks ? conf->page_blocks : 1};
    if (!t->lens || !t->ids || !t->pins ||
        (conf->layout != QR_KV_PAGED && qr_kv_layout_new(pool, &lc, &t->layout) != QR_OK)) {
        qr_kv_tables_free(&t);
        return QR_ENOMEM;
    }
    *out = t;
    return QR_OK;
}

void qr_kv_tables_free(struct qr_kv_tables **tables)
{
    struct qr_kv_tables *t = *tables;
    if (!t) return;
    for (int32_t i = 0; t->lens && t->ids && t->pins && i < t->conf.n_tables; i++) qr_kv_table_drop(t, i);
    if (t->layout) t->layout->ops->free(t->layout);
    qr_free(t->lens);
    qr_free(t->ids);
    qr_free(t->pins);
    qr_free(t);
    *tables = NULL;
}

static qr_block_id *row(const struct qr_kv_tables *t, int32_t i)
{
    QR_ASSERT(i >= 0 && i < t->conf.n_tables);
    return t->ids + (size_t)i * (size_t)t->conf.n_blocks_max;
}

int32_t qr_kv_table_len(const struct qr_kv_tables *t, int32_t i_table)
{
    QR_ASSERT(i_table >= 0 && i_table < t->conf.n_tables);
    return t->lens[i_table];
}

const qr_block_id *qr_kv_table_ids(const struct qr_kv_tables *t, int32_t i_table)
{
    return row(t, i_table);
}

bool qr_kv_tables_room(const struct qr_kv_tables *t, const struct qr_kv_want *want, uint32_t n_seqs,
                       uint32_t n_outstanding, uint32_t n_spare)
{
    QR_ASSERT(t->layout);
    return t->layout->ops->room(t->layout, want, n_seqs, n_outstanding, n_spare);
}

void qr_kv_table_admit(struct qr_kv_tables *t, int32_t i_table, const struct qr_kv_want *want)
{
    QR_ASSERT(qr_kv_table_len(t, i_table) == 0);
    if (t->layout) t->layout->ops->admit(t->layout, i_table, want);
}

uint32_t qr_kv_tables_n_free(const struct qr_kv_tables *t)
{
    return t->layout ? t->layout->ops->n_free(t->layout) : qr_kv_pool_n_free(t->pool);
}

bool qr_kv_tables_share(const struct qr_kv_tables *t)
{
    return !t->layout;
}

struct qr_kv_held qr_kv_table_held(const struct qr_kv_tables *t, int32_t i_table)
{
    if (t->layout) return t->layout->ops->held(t->layout, i_table);
    return (struct qr_kv_held){.n_blocks = (uint32_t)qr_kv_table_len(t, i_table)};
}

// Whether the block that position `from` falls into is there already and belongs to others too: to their
// tables, or to whoever finds it.
static bool shares_written(const struct qr_kv_tables *t, int32_t i_table, int32_t from)
{
    int32_t at = from / t->conf.block_size;
    if (at >= t->lens[i_table]) return false;
    qr_block_id id = row(t, i_table)[at];
    return qr_kv_pool_refs(t->pool, id) > 1 || qr_kv_pool_is_cached(t->pool, id);
}

static void unpin(struct qr_kv_tables *t, int32_t i_table)
{
    if (t->pins[i_table] == QR_BLOCK_NONE) return;
    qr_kv_pool_unref(t->pool, t->pins[i_table]);
    t->pins[i_table] = QR_BLOCK_NONE;
    t->n_pins--;
}

// The block that was copied from leaves the table. A cached one would be free then and could be taken in the
// same step, as the target of another copy even, so it is kept until all copies are made.
static void leave_source(struct qr_kv_tables *t, int32_t i_table, qr_block_id src)
{
    if (!qr_kv_pool_is_cached(t->pool, src)) {
        qr_kv_pool_unref(t->pool, src);
        return;
    }
    QR_ASSERT(t->pins[i_table] == QR_BLOCK_NONE); // a table copies once a step
    t->pins[i_table] = src;
    t->n_pins++;
}

uint32_t qr_kv_table_need(const struct qr_kv_tables *t, int32_t i_table, int32_t from, int32_t to)
{
    QR_ASSERT(from >= 0 && from < to);
    int32_t len = qr_kv_table_len(t, i_table), n = qr_kv_blocks_for(to, t->conf.block_size), more = n - len;
    if (t->layout) return t->layout->ops->need(t->layout, i_table, len, n);
    return (uint32_t)(more > 0 ? more : 0) + shares_written(t, i_table, from);
}

static qr_block_id take(struct qr_kv_tables *t, int32_t i_table)
{
    bool evicted;
    if (t->layout) return t->layout->ops->take(t->layout, i_table, t->lens[i_table]);
    qr_block_id id = t->conf.prefix ? qr_kv_prefix_take(t->conf.prefix) : qr_kv_pool_take(t->pool, &evicted);
    QR_ASSERT(id != QR_BLOCK_NONE);
    return id;
}

int qr_kv_table_extend(struct qr_kv_tables *t, int32_t i_table, int32_t from, int32_t to,
                       struct qr_batch_copy *copy)
{
    if (qr_kv_table_need(t, i_table, from, to) > qr_kv_tables_n_free(t)) return -1;
    int32_t n = qr_kv_blocks_for(to, t->conf.block_size);
    QR_ASSERT(n <= t->conf.n_blocks_max);
    qr_block_id *ids = row(t, i_table);
    int32_t at = from / t->conf.block_size;
    QR_ASSERT(at <= t->lens[i_table]);
    int n_copies = 0;
    if (shares_written(t, i_table, from)) {
        // Only a block that is partly filled can be both shared and written.
        QR_ASSERT(at == t->lens[i_table] - 1 && from % t->conf.block_size != 0);
        qr_block_id dst = take(t, i_table);
        *copy = (struct qr_batch_copy){.src = ids[at], .dst = dst};
        leave_source(t, i_table, ids[at]);
        ids[at] = dst;
        n_copies = 1;
    }
    while (t->lens[i_table] < n) {
        ids[t->lens[i_table]] = take(t, i_table);
        t->lens[i_table]++;
    }
    return n_copies;
}

void qr_kv_table_fork(struct qr_kv_tables *t, int32_t from, int32_t to, int32_t n_tokens)
{
    int32_t n = qr_kv_blocks_for(n_tokens, t->conf.block_size);
    const qr_block_id *src = row(t, from);
    qr_block_id *dst = row(t, to);
    QR_ASSERT(!t->layout && from != to && t->lens[to] == 0 && n <= t->lens[from]);
    for (int32_t i = 0; i < n; i++) {
        qr_kv_pool_ref(t->pool, src[i]);
        dst[i] = src[i];
    }
    t->lens[to] = n;
}

qr_block_id qr_kv_table_grow(struct qr_kv_tables *t, int32_t i_table)
{
    QR_ASSERT(qr_kv_table_len(t, i_table) < t->conf.n_blocks_max);
    qr_block_id id = take(t, i_table); // it looks at the length
    return row(t, i_table)[t->lens[i_table]++] = id;
}

void qr_kv_table_share(struct qr_kv_tables *t, int32_t i_table, qr_block_id id)
{
    QR_ASSERT(qr_kv_table_len(t, i_table) < t->conf.n_blocks_max);
    qr_kv_pool_ref(t->pool, id);
    row(t, i_table)[t->lens[i_table]++] = id;
}

void qr_kv_tables_unpin(struct qr_kv_tables *t)
{
    for (int32_t i = 0; t->n_pins > 0; i++) unpin(t, i);
}

void qr_kv_table_drop(struct qr_kv_tables *t, int32_t i_table)
{
    const qr_block_id *ids = row(t, i_table);
    unpin(t, i_table);
    while (t->lens[i_table] > 0) qr_kv_pool_unref(t->pool, ids[--t->lens[i_table]]);
    if (t->layout) t->layout->ops->leave(t->layout, i_table);
}

void qr_kv_tables_check(const struct qr_kv_tables *t, uint64_t n_pins)
{
    uint64_t n_entries = 0;
    for (int32_t i = 0; i < t->conf.n_tables; i++) {
        QR_ASSERT(t->lens[i] >= 0 && t->lens[i] <= t->conf.n_blocks_max);
        const qr_block_id *ids = row(t, i);
        for (int32_t j = 0; j < t->lens[i]; j++) QR_ASSERT(qr_kv_pool_refs(t->pool, ids[j]) > 0);
        n_entries += (uint64_t)t->lens[i] + (t->pins[i] != QR_BLOCK_NONE);
    }
    QR_ASSERT(qr_kv_pool_ref_sum(t->pool) == n_entries + n_pins); // K3
    if (t->layout) t->layout->ops->check(t->layout);
}

void qr_kv_tables_dump(const struct qr_kv_tables *t, FILE *f)
{
    for (int32_t i = 0; i < t->conf.n_tables; i++) {
        if (t->lens[i] == 0) continue;
        fprintf(f, "table %d:", i);
        for (int32_t j = 0; j < t->lens[i]; j++) {
            qr_block_id id = row(t, i)[j];
            fprintf(f, qr_kv_pool_refs(t->pool, id) > 1 ? " %u*" : " %u", id); // a star: shared
        }
        fputc('\n', f);
    }
}
