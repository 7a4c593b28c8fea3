#include "kv/tier.h"

#include "base/assert.h"
#include "base/mem.h"

struct slot {
    uint32_t refs;
    uint32_t next;  // on the free list, when refs == 0
    uint32_t stamp; // of the load that noted a block
    qr_block_id block;
};

struct went { // where a block of the pool went in the save of this stamp
    uint32_t stamp;
    qr_slot_id slot; // QR_SLOT_NONE: counted only
};

struct qr_kv_tier {
    uint32_t n_slots, n_blocks;
    uint32_t n_touched; // slots below were used at least once
    uint32_t n_free;
    uint32_t first_free; // a stack: what was used last is warm
    uint32_t stamp;
    struct slot *slots; // (n_slots)
    struct went *went;  // (n_blocks)
};

enum qr_status qr_kv_tier_new(uint32_t n_slots, uint32_t n_blocks, struct qr_kv_tier **out)
{
    QR_ASSERT(n_slots < QR_SLOT_NONE);
    struct qr_kv_tier *t = qr_calloc(QR_MEM_SCHED, 1, sizeof *t);
    if (!t) return QR_ENOMEM;
    *t = (struct qr_kv_tier){.n_slots = n_slots,
                             .n_blocks = n_slots ? n_blocks : 0,
                             .n_free = n_slots,
                             .first_free = QR_SLOT_NONE};
    // Zeroed lazily by the system: a large tier costs nothing while it is empty.
    t->slots = qr_calloc(QR_MEM_SCHED, (size_t)t->n_slots + 1, sizeof *t->slots);
    t->went = qr_calloc(QR_MEM_SCHED, (size_t)t->n_blocks + 1, sizeof *t->went);
    if (!t->slots || !t->went) {
        qr_kv_tier_free(&t);
        return QR_ENOMEM;
    }
    *out = t;
    return QR_OK;
}

void qr_kv_tier_free(struct qr_kv_tier **tier)
{
    if (!*tier) return;
    qr_free((*tier)->slots);
    qr_free((*tier)->went);
    qr_free(*tier);
    *tier = NULL;
}

uint32_t qr_kv_tier_n_slots(const struct qr_kv_tier *t)
{
    return t->n_slots;
}

uint32_t qr_kv_tier_n_free(const struct qr_kv_tier *t)
{
    return t->n_free;
}

qr_slot_id qr_kv_tier_take(struct qr_kv_tier *t)
{
    qr_slot_id id = t->first_free;
    if (id != QR_SLOT_NONE)
        t->first_free = t->slots[id].next;
    else if (t->n_touched < t->n_slots)
        id = t->n_touched++;
    else
        return QR_SLOT_NONE;
    QR_ASSERT(t->slots[id].refs == 0);
    t->slots[id].refs = 1;
    t->n_free--;
    return id;
}

void qr_kv_tier_ref(struct qr_kv_tier *t, qr_slot_id id)
{
    QR_ASSERT(id < t->n_touched && t->slots[id].refs > 0 && t->slots[id].refs < UINT32_MAX);
    t->slots[id].refs++;
}

void qr_kv_tier_unref(struct qr_kv_tier *t, qr_slot_id id)
{
    QR_ASSERT(id < t->n_touched && t->slots[id].refs > 0);
    if (--t->slots[id].refs > 0) return;
    t->slots[id].next = t->first_free;
    t->first_free = id;
    t->n_free++;
}

void qr_kv_tier_begin(struct qr_kv_tier *t)
{
    if (++t->stamp > 0) return;
    // The stamp came round after 2^32 saves: what it marks is forgotten by hand, once.
    for (uint32_t i = 0; i < t->n_touched; i++) t->slots[i].stamp = 0;
    for (uint32_t i = 0; i < t->n_blocks; i++) t->went[i].stamp = 0;
    t->stamp = 1;
}

uint32_t qr_kv_tier_count(struct qr_kv_tier *t, const qr_block_id *ids, int32_t n)
{
    uint32_t n_new = 0;
    for (int32_t i = 0; i < n; i++) {
        QR_ASSERT(ids[i] < t->n_blocks);
        struct went *w = &t->went[ids[i]];
        if (w->stamp == t->stamp) continue;
        *w = (struct went){t->stamp, QR_SLOT_NONE};
        n_new++;
    }
    return n_new;
}

qr_slot_id qr_kv_tier_save(struct qr_kv_tier *t, qr_block_id id, bool *first)
{
    QR_ASSERT(id < t->n_blocks);
    struct went *w = &t->went[id];
    *first = w->stamp != t->stamp || w->slot == QR_SLOT_NONE;
    if (*first)
        *w = (struct went){t->stamp, qr_kv_tier_take(t)};
    else
        qr_kv_tier_ref(t, w->slot);
    QR_ASSERT(w->slot != QR_SLOT_NONE);
    return w->slot;
}

qr_block_id qr_kv_tier_block_of(const struct qr_kv_tier *t, qr_slot_id id)
{
    QR_ASSERT(id < t->n_touched && t->slots[id].refs > 0);
    return t->slots[id].stamp == t->stamp ? t->slots[id].block : QR_BLOCK_NONE;
}

void qr_kv_tier_note(struct qr_kv_tier *t, qr_slot_id id, qr_block_id block)
{
    QR_ASSERT(id < t->n_touched && t->slots[id].refs > 0);
    t->slots[id].stamp = t->stamp;
    t->slots[id].block = block;
}

void qr_kv_tier_check(const struct qr_kv_tier *t)
{
    uint32_t n_idle = t->n_slots - t->n_touched, n_linked = 0;
    for (uint32_t i = 0; i < t->n_touched; i++) n_idle += t->slots[i].refs == 0;
    for (uint32_t id = t->first_free; id != QR_SLOT_NONE; id = t->slots[id].next) {
        QR_ASSERT(id < t->n_touched && t->slots[id].refs == 0 && n_linked < t->n_touched);
        n_linked++;
    }
    QR_ASSERT(n_idle == t->n_free && n_linked + t->n_slots - t->n_touched == t->n_free);
}

uint64_t qr_kv_tier_ref_sum(const struct qr_kv_tier *t)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < t->n_touched; i++) sum += t->slots[i].refs;
    return sum;
}
