#include "kv/prefix.h"

#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/mem.h"
#include "kv/spill.h"

// A partly filled block is looked for among so many children, the youngest first: behind a prompt that
// thousands share, it would else cost more to find than the less than one block that it saves.
#define SCAN_MAX 64

struct node { // of a cached block; not initialised for others
    uint64_t hash;   // of the tenant and of all tokens up to this block's end
    uint64_t stamp;  // of its registration, so that a place in it can be known to be gone
    uint64_t tenant;
    uint32_t parent; // QR_BLOCK_NONE: the root
    uint32_t child, prev, next; // the youngest child; siblings
    uint32_t bucket; // the next full block of the same bucket
    int32_t n_tokens;
};

struct qr_kv_prefix {
    struct qr_kv_pool *pool;
    struct qr_kv_spill *spill; // NULL: what is evicted is lost
    int32_t block_size;
    uint64_t seed, last_stamp;
    uint32_t epoch, n_nodes;
    uint32_t root_child;
    uint32_t bucket_mask;
    uint32_t *buckets;  // (bucket_mask + 1) block + 1; 0: empty, so that zero pages stay untouched
    struct node *nodes; // (n_blocks)
    uint32_t *tokens;   // (n_blocks, block_size)
};

enum qr_status qr_kv_prefix_new(struct qr_kv_pool *pool, int32_t block_size, uint64_t seed,
                                struct qr_kv_prefix **out)
{
    QR_ASSERT(block_size >= 1);
    struct qr_kv_prefix *x = qr_calloc(QR_MEM_SCHED, 1, sizeof *x);
    if (!x) return QR_ENOMEM;
    size_t n_blocks = qr_kv_pool_n_blocks(pool), n_buckets = 64;
    while (n_buckets < n_blocks) n_buckets *= 2;
    x->pool = pool;
    x->block_size = block_size;
    x->seed = seed;
    x->root_child = QR_BLOCK_NONE;
    x->bucket_mask = (uint32_t)(n_buckets - 1);
    x->buckets = qr_calloc(QR_MEM_SCHED, n_buckets, sizeof *x->buckets);
    x->nodes = qr_malloc(QR_MEM_SCHED, n_blocks * sizeof *x->nodes);
    x->tokens = qr_malloc(QR_MEM_SCHED, n_blocks * (size_t)block_size * sizeof *x->tokens);
    if (!x->buckets || !x->nodes || !x->tokens) {
        qr_kv_prefix_free(&x);
        return QR_ENOMEM;
    }
    *out = x;
    return QR_OK;
}

void qr_kv_prefix_free(struct qr_kv_prefix **prefix)
{
    struct qr_kv_prefix *x = *prefix;
    if (!x) return;
    qr_free(x->buckets);
    qr_free(x->nodes);
    qr_free(x->tokens);
    qr_free(x);
    *prefix = NULL;
}

/* ==== Places. ==== */

struct qr_kv_place qr_kv_prefix_root(const struct qr_kv_prefix *x, uint64_t tenant)
{
    return (struct qr_kv_place){.tenant = tenant,
                                .hash = qr_mix64(x->seed ^ qr_mix64(tenant)),
                                .block = QR_BLOCK_NONE,
                                .epoch = x->epoch};
}

struct qr_kv_place qr_kv_prefix_behind(const struct qr_kv_prefix *x, qr_block_id full)
{
    QR_ASSERT(qr_kv_pool_is_cached(x->pool, full) && x->nodes[full].n_tokens == x->block_size);
    const struct node *n = &x->nodes[full];
    return (struct qr_kv_place){n->tenant, n->hash, n->stamp, full, x->epoch};
}

bool qr_kv_prefix_is_old(const struct qr_kv_prefix *x, const struct qr_kv_place *at)
{
    return at->epoch != x->epoch;
}

bool qr_kv_prefix_holds(const struct qr_kv_prefix *x, const struct qr_kv_place *at)
{
    if (at->epoch != x->epoch) return false;
    if (at->block == QR_BLOCK_NONE) return true;
    return qr_kv_pool_is_cached(x->pool, at->block) && x->nodes[at->block].stamp == at->stamp;
}

/* ==== Finding. ==== */

static uint32_t *tokens_of(const struct qr_kv_prefix *x, uint32_t id)
{
    return x->tokens + (size_t)id * (size_t)x->block_size;
}

// Two ids at a time; classes do not count, so that blocks that differ only in them meet in one bucket.
static uint64_t chain(uint64_t hash, const uint32_t *tokens, int32_t n)
{
    for (int32_t i = 0; i < n; i += 2) {
        uint64_t a = tokens[i] & ~QR_KV_CLASS_D, b = i + 1 < n ? tokens[i + 1] & ~QR_KV_CLASS_D : QR_KV_CLASS_D;
        hash = qr_mix64(hash ^ (a << 32 | b));
    }
    return hash;
}

static bool is_child(const struct qr_kv_prefix *x, uint32_t id, const struct qr_kv_place *at)
{
    const struct node *n = &x->nodes[id];
    return n->parent == at->block && n->tenant == at->tenant;
}

// How many leading tokens will do; *exact: they do in their classes too.
static int32_t common(const uint32_t *have, const uint32_t *want, int32_t n, bool strict, bool *exact)
{
    *exact = true;
    int32_t i = 0;
    for (; i < n; i++) {
        if (have[i] == want[i]) continue;
        if (strict || (have[i] & ~QR_KV_CLASS_D) != want[i]) break;
        *exact = false;
    }
    return i;
}

qr_block_id qr_kv_prefix_next(const struct qr_kv_prefix *x, struct qr_kv_place *at, const uint32_t *want,
                              bool strict)
{
    QR_DASSERT(qr_kv_prefix_holds(x, at));
    uint64_t hash = chain(at->hash, want, x->block_size);
    qr_block_id found = QR_BLOCK_NONE;
    bool exact = false;
    for (uint32_t i = x->buckets[hash & x->bucket_mask]; i != 0 && !exact; i = x->nodes[i - 1].bucket) {
        if (x->nodes[i - 1].hash != hash || !is_child(x, i - 1, at)) continue;
        if (common(tokens_of(x, i - 1), want, x->block_size, strict, &exact) < x->block_size) {
            exact = false;
            continue;
        }
        if (exact || found == QR_BLOCK_NONE) found = i - 1;
    }
    if (found != QR_BLOCK_NONE) *at = qr_kv_prefix_behind(x, found);
    return found;
}

static uint32_t first_child(const struct qr_kv_prefix *x, const struct qr_kv_place *at)
{
    return at->block == QR_BLOCK_NONE ? x->root_child : x->nodes[at->block].child;
}

qr_block_id qr_kv_prefix_part(const struct qr_kv_prefix *x, const struct qr_kv_place *at, const uint32_t *want,
                              int32_t n, bool strict, int32_t *n_match)
{
    QR_DASSERT(qr_kv_prefix_holds(x, at));
    QR_ASSERT(n >= 0 && n <= x->block_size);
    qr_block_id found = QR_BLOCK_NONE;
    bool found_exact = false;
    *n_match = 0;
    uint32_t id = first_child(x, at);
    for (int32_t i = 0; i < SCAN_MAX && id != QR_BLOCK_NONE; i++, id = x->nodes[id].next) {
        bool exact;
        int32_t most = x->nodes[id].n_tokens < n ? x->nodes[id].n_tokens : n;
        if (!is_child(x, id, at)) continue; // another tenant's
        int32_t m = common(tokens_of(x, id), want, most, strict, &exact);
        if (m < *n_match || m == 0 || (m == *n_match && (found_exact || !exact))) continue;
        found = id;
        found_exact = exact;
        *n_match = m;
    }
    return found;
}

/* ==== Registering and forgetting. ==== */

static void link_node(struct qr_kv_prefix *x, uint32_t id)
{
    struct node *n = &x->nodes[id];
    uint32_t *head = n->parent == QR_BLOCK_NONE ? &x->root_child : &x->nodes[n->parent].child;
    n->prev = QR_BLOCK_NONE;
    n->next = *head;
    if (n->next != QR_BLOCK_NONE) x->nodes[n->next].prev = id;
    *head = id;
    n->bucket = 0;
    if (n->n_tokens == x->block_size) {
        uint32_t *bucket = &x->buckets[n->hash & x->bucket_mask];
        n->bucket = *bucket;
        *bucket = id + 1;
    }
    x->n_nodes++;
    qr_kv_pool_set_cached(x->pool, id, true);
}

// The block has no children.
static void unlink_node(struct qr_kv_prefix *x, uint32_t id)
{
    struct node *n = &x->nodes[id];
    QR_ASSERT(n->child == QR_BLOCK_NONE && x->n_nodes > 0);
    uint32_t *head = n->parent == QR_BLOCK_NONE ? &x->root_child : &x->nodes[n->parent].child;
    *(n->prev == QR_BLOCK_NONE ? head : &x->nodes[n->prev].next) = n->next;
    if (n->next != QR_BLOCK_NONE) x->nodes[n->next].prev = n->prev;
    if (n->n_tokens == x->block_size) {
        uint32_t *p = &x->buckets[n->hash & x->bucket_mask];
        while (*p != id + 1) p = &x->nodes[*p - 1].bucket;
        *p = n->bucket;
    }
    n->stamp = 0;
    x->n_nodes--;
    qr_kv_pool_set_cached(x->pool, id, false);
}

void qr_kv_prefix_forget(struct qr_kv_prefix *x, qr_block_id block)
{
    for (uint32_t id = block;;) {
        while (x->nodes[id].child != QR_BLOCK_NONE) id = x->nodes[id].child;
        uint32_t parent = x->nodes[id].parent;
        unlink_node(x, id);
        if (id == block) return;
        id = parent;
    }
}

void qr_kv_prefix_attach(struct qr_kv_prefix *x, struct qr_kv_spill *spill)
{
    x->spill = spill;
}

qr_block_id qr_kv_prefix_take(struct qr_kv_prefix *x)
{
    bool evicted;
    qr_block_id id = qr_kv_pool_take(x->pool, &evicted);
    if (!evicted) return id;
    // The one place where contents are lost.
    if (x->spill && x->nodes[id].n_tokens == x->block_size) qr_kv_spill_evict(x->spill, id, tokens_of(x, id));
    qr_kv_prefix_forget(x, id);
    return id;
}

// Among the youngest children: whether one begins with these tokens in these classes. Shorter ones that the
// new block makes superfluous are forgotten.
static bool is_covered(struct qr_kv_prefix *x, const struct qr_kv_place *at, const uint32_t *tokens, int32_t n)
{
    uint32_t id = first_child(x, at);
    for (int32_t i = 0; i < SCAN_MAX && id != QR_BLOCK_NONE; i++) {
        uint32_t next = x->nodes[id].next;
        int32_t has = x->nodes[id].n_tokens;
        size_t bytes = (size_t)(has < n ? has : n) * sizeof *tokens;
        if (is_child(x, id, at) && memcmp(tokens_of(x, id), tokens, bytes) == 0) {
            if (has >= n) return true;
            qr_kv_prefix_forget(x, id);
        }
        id = next;
    }
    return false;
}

bool qr_kv_prefix_add(struct qr_kv_prefix *x, struct qr_kv_place *at, const uint32_t *tokens, int32_t n,
                      qr_block_id block)
{
    QR_ASSERT(qr_kv_prefix_holds(x, at) && n >= 1 && n <= x->block_size && qr_kv_pool_refs(x->pool, block) > 0);
    bool full = n == x->block_size;
    if (full) {
        qr_block_id same = qr_kv_prefix_next(x, at, tokens, true);
        if (same != QR_BLOCK_NONE) return same == block;
    }
    if (is_covered(x, at, tokens, n)) return false;
    QR_ASSERT(!qr_kv_pool_is_cached(x->pool, block));
    x->nodes[block] = (struct node){.hash = full ? chain(at->hash, tokens, n) : 0,
                                    .stamp = ++x->last_stamp,
                                    .tenant = at->tenant,
                                    .parent = at->block,
                                    .child = QR_BLOCK_NONE,
                                    .n_tokens = n};
    memcpy(tokens_of(x, block), tokens, (size_t)n * sizeof *tokens);
    link_node(x, block);
    if (full) *at = qr_kv_prefix_behind(x, block);
    return true;
}

void qr_kv_prefix_reset(struct qr_kv_prefix *x)
{
    uint32_t n = qr_kv_pool_n_touched(x->pool);
    for (uint32_t i = 0; i < n && x->n_nodes > 0; i++)
        if (qr_kv_pool_is_cached(x->pool, i)) {
            qr_kv_pool_set_cached(x->pool, i, false);
            x->n_nodes--;
        }
    QR_ASSERT(x->n_nodes == 0);
    memset(x->buckets, 0, ((size_t)x->bucket_mask + 1) * sizeof *x->buckets);
    x->root_child = QR_BLOCK_NONE;
    x->epoch++;
}

const uint32_t *qr_kv_prefix_tokens(const struct qr_kv_prefix *x, qr_block_id block, int32_t *n)
{
    QR_ASSERT(qr_kv_pool_is_cached(x->pool, block));
    *n = x->nodes[block].n_tokens;
    return tokens_of(x, block);
}

uint32_t qr_kv_prefix_n_blocks(const struct qr_kv_prefix *x)
{
    return x->n_nodes;
}

/* ==== Checking. ==== */

static void check_node(const struct qr_kv_prefix *x, uint32_t id)
{
    const struct node *n = &x->nodes[id], *parent = NULL;
    bool full = n->n_tokens == x->block_size;
    struct qr_kv_place at = qr_kv_prefix_root(x, n->tenant);
    QR_ASSERT(n->n_tokens >= 1 && n->n_tokens <= x->block_size && n->stamp > 0 && n->stamp <= x->last_stamp);
    if (n->parent != QR_BLOCK_NONE) {
        at = qr_kv_prefix_behind(x, n->parent); // cached, and full
        parent = &x->nodes[n->parent];
        QR_ASSERT(parent->tenant == n->tenant && parent->stamp < n->stamp); // so there is no circle
    }
    uint32_t head = parent ? parent->child : x->root_child;
    QR_ASSERT(n->prev == QR_BLOCK_NONE ? head == id : x->nodes[n->prev].next == id);
    QR_ASSERT(n->next == QR_BLOCK_NONE || x->nodes[n->next].prev == id);
    if (full)
        QR_ASSERT(qr_kv_prefix_next(x, &at, tokens_of(x, id), true) == id); // K4: found by hash, and once
    else
        QR_ASSERT(n->child == QR_BLOCK_NONE);
}

void qr_kv_prefix_check(const struct qr_kv_prefix *x)
{
    uint32_t n_nodes = 0, n_touched = qr_kv_pool_n_touched(x->pool);
    for (uint32_t i = 0; i < n_touched; i++) {
        if (!qr_kv_pool_is_cached(x->pool, i)) continue;
        check_node(x, i);
        n_nodes++;
    }
    QR_ASSERT(n_nodes == x->n_nodes);
}

void qr_kv_prefix_dump(const struct qr_kv_prefix *x, FILE *f)
{
    fprintf(f, "prefix: %u blocks cached\n", x->n_nodes);
    for (uint32_t i = 0; i < qr_kv_pool_n_touched(x->pool); i++) {
        if (!qr_kv_pool_is_cached(x->pool, i)) continue;
        const struct node *n = &x->nodes[i];
        fprintf(f, "  block %u: %d tokens", i, n->n_tokens);
        if (n->parent == QR_BLOCK_NONE)
            fprintf(f, " at the root of %llx:", (unsigned long long)n->tenant);
        else
            fprintf(f, " behind %u:", n->parent);
        for (int32_t k = 0; k < n->n_tokens; k++)
            fprintf(f, " %u%s", tokens_of(x, i)[k] & ~QR_KV_CLASS_D, tokens_of(x, i)[k] & QR_KV_CLASS_D ? "d" : "");
        fputc('\n', f);
    }
}
