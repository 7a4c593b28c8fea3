#include "kv/store.h"

#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/mem.h"

enum state { FREE, COMING, READY, DEAD }; // dead: pinned still, and not found any more

struct slot {
    uint8_t state;
    uint32_t pins;
    uint32_t bucket;     // the next slot of the same bucket, + 1
    uint32_t prev, next; // free: next free; ready and not pinned: neighbours by idle time
};

struct qr_kv_store {
    uint32_t n_slots, n_touched, n_ready;
    int32_t block_size;
    size_t tag_bytes;
    uint32_t first_free, bucket_mask;
    uint32_t *buckets;   // (bucket_mask + 1) slot + 1; 0: empty
    struct slot *slots;  // (n_slots + 1); the last is head and tail of the idle ones, longest idle first
    unsigned char *tags; // (n_slots, tag_bytes)
};

enum qr_status qr_kv_store_new(uint32_t n_slots, int32_t block_size, struct qr_kv_store **out)
{
    QR_ASSERT(n_slots < QR_SLOT_NONE - 1 && block_size >= 1);
    struct qr_kv_store *st = qr_calloc(QR_MEM_SCHED, 1, sizeof *st);
    if (!st) return QR_ENOMEM;
    size_t n_buckets = 64;
    while (n_buckets < n_slots) n_buckets *= 2;
    st->n_slots = n_slots;
    st->block_size = block_size;
    st->tag_bytes = (qr_kv_tag_bytes(block_size) + 7) & ~(size_t)7;
    st->first_free = QR_SLOT_NONE;
    st->bucket_mask = (uint32_t)(n_buckets - 1);
    st->buckets = qr_calloc(QR_MEM_SCHED, n_buckets, sizeof *st->buckets);
    st->slots = qr_calloc(QR_MEM_SCHED, (size_t)n_slots + 1, sizeof *st->slots);
    st->tags = qr_malloc(QR_MEM_SCHED, n_slots * st->tag_bytes + 1);
    if (!st->buckets || !st->slots || !st->tags) {
        qr_kv_store_free(&st);
        return QR_ENOMEM;
    }
    st->slots[n_slots].prev = st->slots[n_slots].next = n_slots;
    *out = st;
    return QR_OK;
}

void qr_kv_store_free(struct qr_kv_store **store)
{
    if (!*store) return;
    qr_free((*store)->buckets);
    qr_free((*store)->slots);
    qr_free((*store)->tags);
    qr_free(*store);
    *store = NULL;
}

uint32_t qr_kv_store_n_slots(const struct qr_kv_store *st)
{
    return st->n_slots;
}

uint32_t qr_kv_store_n_ready(const struct qr_kv_store *st)
{
    return st->n_ready;
}

static struct qr_kv_tag *tag_of(const struct qr_kv_store *st, qr_slot_id id)
{
    return (struct qr_kv_tag *)(st->tags + (size_t)id * st->tag_bytes);
}

/* ==== Lists. ==== */

static void idle_remove(struct qr_kv_store *st, qr_slot_id id)
{
    struct slot *s = &st->slots[id];
    st->slots[s->prev].next = s->next;
    st->slots[s->next].prev = s->prev;
}

static void idle_append(struct qr_kv_store *st, qr_slot_id id)
{
    struct slot *s = &st->slots[id];
    s->next = st->n_slots;
    s->prev = st->slots[st->n_slots].prev;
    st->slots[s->prev].next = id;
    st->slots[st->n_slots].prev = id;
}

// Classes do not count: blocks that differ only in them meet in one bucket.
static uint32_t *bucket_of(const struct qr_kv_store *st, const struct qr_kv_key *before, const uint32_t *tokens)
{
    uint64_t h = before->a ^ qr_mix64(before->b);
    for (int32_t i = 0; i < st->block_size; i++) h = qr_mix64(h ^ (tokens[i] & ~QR_KV_CLASS_D));
    return &st->buckets[h & st->bucket_mask];
}

static void forget(struct qr_kv_store *st, qr_slot_id id)
{
    const struct qr_kv_tag *t = tag_of(st, id);
    uint32_t *p = bucket_of(st, &t->before, t->tokens);
    while (*p != id + 1) p = &st->slots[*p - 1].bucket;
    *p = st->slots[id].bucket;
    st->n_ready -= st->slots[id].state == READY;
    st->slots[id].state = DEAD;
}

static void set_free(struct qr_kv_store *st, qr_slot_id id)
{
    QR_ASSERT(st->slots[id].pins == 0 && st->slots[id].state == DEAD);
    st->slots[id].state = FREE;
    st->slots[id].next = st->first_free;
    st->first_free = id;
}

/* ==== Finding. ==== */

static bool is_behind(const struct qr_kv_tag *t, const struct qr_kv_key *before)
{
    return t->before.a == before->a && t->before.b == before->b;
}

// Whether the tokens will do; *exact: their classes are the wanted ones too.
static bool will_do(const struct qr_kv_store *st, const uint32_t *have, const uint32_t *want, bool strict, bool *exact)
{
    *exact = true;
    for (int32_t i = 0; i < st->block_size; i++) {
        if (have[i] == want[i]) continue;
        if (strict || (have[i] & ~QR_KV_CLASS_D) != want[i]) return false;
        *exact = false;
    }
    return true;
}

static qr_slot_id search(const struct qr_kv_store *st, const struct qr_kv_key *before, const uint32_t *want,
                         bool strict, bool coming)
{
    qr_slot_id found = QR_SLOT_NONE;
    if (st->n_slots == 0) return found;
    for (uint32_t i = *bucket_of(st, before, want); i != 0; i = st->slots[i - 1].bucket) {
        bool exact;
        const struct qr_kv_tag *t = tag_of(st, i - 1);
        if (st->slots[i - 1].state != READY && !coming) continue;
        if (!is_behind(t, before) || !will_do(st, t->tokens, want, strict, &exact)) continue;
        if (exact) return i - 1;
        found = i - 1;
    }
    return found;
}

qr_slot_id qr_kv_store_find(const struct qr_kv_store *st, const struct qr_kv_key *before, const uint32_t *want,
                            bool strict)
{
    return search(st, before, want, strict, false);
}

bool qr_kv_store_has(const struct qr_kv_store *st, const struct qr_kv_key *before, const uint32_t *tokens)
{
    return search(st, before, tokens, true, true) != QR_SLOT_NONE;
}

/* ==== Coming and going. ==== */

static void hold(struct qr_kv_store *st, qr_slot_id id, const struct qr_kv_key *before,
                 const struct qr_kv_key *behind, const uint32_t *tokens)
{
    struct qr_kv_tag *t = tag_of(st, id);
    t->before = *before;
    t->behind = *behind;
    memcpy(t->tokens, tokens, (size_t)st->block_size * sizeof *tokens);
    uint32_t *bucket = bucket_of(st, before, tokens);
    st->slots[id].bucket = *bucket;
    *bucket = id + 1;
}

qr_slot_id qr_kv_store_put(struct qr_kv_store *st, const struct qr_kv_key *before, const struct qr_kv_key *behind,
                           const uint32_t *tokens)
{
    QR_ASSERT(!qr_kv_store_has(st, before, tokens));
    qr_slot_id id = st->first_free;
    if (id != QR_SLOT_NONE) {
        st->first_free = st->slots[id].next;
    } else if (st->n_touched < st->n_slots) {
        id = st->n_touched++;
    } else {
        id = st->slots[st->n_slots].next;
        if (id == st->n_slots) return QR_SLOT_NONE;
        idle_remove(st, id);
        forget(st, id);
    }
    QR_ASSERT(st->slots[id].pins == 0);
    st->slots[id] = (struct slot){.state = COMING, .pins = 1};
    hold(st, id, before, behind, tokens);
    return id;
}

void qr_kv_store_ready(struct qr_kv_store *st, qr_slot_id id)
{
    QR_ASSERT(id < st->n_touched && st->slots[id].pins > 0);
    if (st->slots[id].state != COMING) return; // dropped meanwhile
    st->slots[id].state = READY;
    st->n_ready++;
}

void qr_kv_store_drop(struct qr_kv_store *st, qr_slot_id id)
{
    QR_ASSERT(id < st->n_touched && st->slots[id].state != FREE);
    if (st->slots[id].state == DEAD) return;
    if (st->slots[id].state == READY && st->slots[id].pins == 0) idle_remove(st, id);
    forget(st, id);
    if (st->slots[id].pins == 0) set_free(st, id);
}

void qr_kv_store_pin(struct qr_kv_store *st, qr_slot_id id)
{
    QR_ASSERT(id < st->n_touched && st->slots[id].state != FREE);
    if (st->slots[id].pins++ == 0) idle_remove(st, id);
}

void qr_kv_store_unpin(struct qr_kv_store *st, qr_slot_id id)
{
    QR_ASSERT(id < st->n_touched && st->slots[id].pins > 0);
    if (--st->slots[id].pins > 0) return;
    QR_ASSERT(st->slots[id].state != COMING);
    if (st->slots[id].state == READY)
        idle_append(st, id);
    else
        set_free(st, id);
}

const struct qr_kv_tag *qr_kv_store_tag(const struct qr_kv_store *st, qr_slot_id id)
{
    QR_ASSERT(id < st->n_touched);
    return tag_of(st, id);
}

bool qr_kv_store_import(struct qr_kv_store *st, qr_slot_id id, const struct qr_kv_tag *tag)
{
    if (id >= st->n_slots || qr_kv_store_has(st, &tag->before, tag->tokens)) return false;
    for (; st->n_touched <= id; st->n_touched++) {
        st->slots[st->n_touched] = (struct slot){.state = DEAD};
        set_free(st, st->n_touched);
    }
    uint32_t *p = &st->first_free;
    while (*p != QR_SLOT_NONE && *p != id) p = &st->slots[*p].next; // the latest, where slots come in order
    if (*p != id) return false;
    *p = st->slots[id].next;
    st->slots[id] = (struct slot){.state = READY};
    hold(st, id, &tag->before, &tag->behind, tag->tokens);
    st->n_ready++;
    idle_append(st, id);
    return true;
}

void qr_kv_store_reset(struct qr_kv_store *st)
{
    for (uint32_t i = 0; i < st->n_touched; i++)
        if (st->slots[i].state != FREE) qr_kv_store_drop(st, i);
}

/* ==== Checking. ==== */

uint64_t qr_kv_store_pin_sum(const struct qr_kv_store *st)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < st->n_touched; i++) n += st->slots[i].pins;
    return n;
}

void qr_kv_store_check(const struct qr_kv_store *st)
{
    uint32_t n_free = 0, n_idle = 0, n_of[4] = {0}, n_ready_idle = 0, prev = st->n_slots;
    for (uint32_t i = 0; i < st->n_touched; i++) {
        const struct slot *s = &st->slots[i];
        const struct qr_kv_tag *t = tag_of(st, i);
        n_of[s->state]++;
        n_ready_idle += s->state == READY && s->pins == 0;
        QR_ASSERT((s->state != COMING && s->state != DEAD) || s->pins > 0);
        if (s->state == READY) QR_ASSERT(search(st, &t->before, t->tokens, true, true) == i); // K4: found, and once
    }
    for (uint32_t id = st->first_free; id != QR_SLOT_NONE; id = st->slots[id].next) {
        QR_ASSERT(id < st->n_touched && st->slots[id].state == FREE && n_free < st->n_touched);
        n_free++;
    }
    for (uint32_t id = st->slots[prev].next; id != st->n_slots; prev = id, id = st->slots[id].next) {
        QR_ASSERT(id < st->n_touched && st->slots[id].prev == prev && n_idle < st->n_touched);
        n_idle++;
    }
    QR_ASSERT(n_free == n_of[FREE] && n_idle == n_ready_idle && st->n_ready == n_of[READY]);
}
