/* Swap: a preempted request's blocks wait in another tier, shared ones once, and come back as they were. */
#include "base/assert.h"
#include "sched/sched_internal.h"

static int32_t blocks_of(const struct qr_sched *s, const struct qr_seq *q)
{
    return qr_kv_blocks_for(q->n_computed, s->conf.block_size);
}

uint32_t sched_count_blocks(struct qr_sched *s, struct qr_sched_req *r, enum qr_tier tier)
{
    struct qr_kv_tier *t = s->tiers[tier];
    uint32_t n = 0;
    qr_kv_tier_begin(t);
    for (int32_t i = 0; i < r->req->n_choices; i++) {
        const struct qr_seq *q = &r->seqs[i];
        if (q->slot >= 0) n += qr_kv_tier_count(t, qr_kv_table_ids(s->tables, q->slot), blocks_of(s, q));
    }
    return n;
}

void sched_save(struct qr_sched *s, struct qr_sched_req *r, enum qr_tier tier)
{
    struct qr_kv_tier *t = s->tiers[tier];
    qr_kv_tier_begin(t);
    r->tier = tier;
    r->saved_in = s->i_plan;
    for (int32_t i = 0; i < r->req->n_choices; i++) {
        struct qr_seq *q = &r->seqs[i];
        if (q->slot < 0) continue;
        const qr_block_id *ids = qr_kv_table_ids(s->tables, q->slot);
        q->n_saved = blocks_of(s, q);
        for (int32_t j = 0; j < q->n_saved; j++) {
            bool first;
            q->saved[j] = qr_kv_tier_save(t, ids[j], &first);
            if (first)
                s->outs[s->n_outs++] =
                    (struct qr_batch_copy){ids[j], q->saved[j], QR_TIER_POOL, (uint16_t)tier};
        }
    }
}

// The entry's slot is loaded: its first reference is kept until the copy was made, so that nothing else is
// copied to the slot in the same step.
static void load_block(struct qr_sched *s, struct qr_seq *q, qr_slot_id slot, enum qr_tier tier)
{
    struct qr_kv_tier *t = s->tiers[tier];
    qr_block_id id = qr_kv_tier_block_of(t, slot);
    if (id != QR_BLOCK_NONE) {
        qr_kv_table_share(s->tables, q->slot, id);
        qr_kv_tier_unref(t, slot);
        return;
    }
    id = qr_kv_table_grow(s->tables, q->slot);
    qr_kv_tier_note(t, slot, id);
    s->ins[s->n_ins++] = (struct qr_batch_copy){slot, id, (uint16_t)tier, QR_TIER_POOL};
}

void sched_load(struct qr_sched *s, struct qr_sched_req *r)
{
    qr_kv_tier_begin(s->tiers[r->tier]);
    for (int32_t i = 0; i < r->req->n_choices; i++) {
        struct qr_seq *q = &r->seqs[i];
        for (int32_t j = 0; j < q->n_saved; j++) load_block(s, q, q->saved[j], r->tier);
        q->n_saved = 0;
    }
    r->tier = QR_TIER_POOL;
}

static void unref_saved(struct qr_sched *s, const struct qr_sched_req *r, struct qr_seq *q)
{
    while (q->n_saved > 0) qr_kv_tier_unref(s->tiers[r->tier], q->saved[--q->n_saved]);
    q->n_computed = 0;
}

void sched_drop_saved(struct qr_sched *s, struct qr_sched_req *r)
{
    for (int32_t i = 0; i < r->req->n_choices; i++) unref_saved(s, r, &r->seqs[i]);
    r->tier = QR_TIER_POOL;
    r->forked = false;
}

void sched_end_saved(struct qr_sched *s, struct qr_sched_req *r, struct qr_seq *q)
{
    if (!r->forked && r->n_live > 0 && q->n_saved > 0) {
        struct qr_seq *to = qr_sched_req_leader(r);
        QR_ASSERT(to->n_saved == 0);
        for (int32_t j = 0; j < q->n_saved; j++) to->saved[j] = q->saved[j];
        to->n_saved = q->n_saved;
        to->n_computed = q->n_computed;
        if (to->n_seen < to->n_computed) to->n_seen = to->n_computed;
        q->n_saved = q->n_computed = 0;
        return;
    }
    unref_saved(s, r, q);
    if (r->n_live == 0) r->tier = QR_TIER_POOL;
}

void sched_settle(struct qr_sched *s)
{
    for (uint32_t i = 0; i < s->n_ins; i++) {
        qr_kv_tier_unref(s->tiers[s->ins[i].src_tier], s->ins[i].src);
        s->counts.n_blocks_in[s->ins[i].src_tier]++;
    }
    for (uint32_t i = 0; i < s->n_outs; i++) s->counts.n_blocks_out[s->outs[i].dst_tier]++;
    s->n_ins = s->n_outs = 0;
}

void sched_check_saved(const struct qr_sched *s)
{
    uint64_t n_entries[QR_TIERS] = {0};
    for (const struct qr_sched_req *r = qr_queue_each(&s->waiting, NULL); r; r = qr_queue_each(&s->waiting, r))
        for (int32_t i = 0; i < r->req->n_choices; i++) {
            const struct qr_seq *q = &r->seqs[i];
            QR_ASSERT(q->slot < 0 && q->n_saved == blocks_of(s, q)); // nothing computed, or all of it saved
            QR_ASSERT(q->n_saved == 0 || (r->tier != QR_TIER_POOL && !q->done));
            n_entries[r->tier] += (uint64_t)q->n_saved;
        }
    for (uint32_t i = 0; i < s->n_ins; i++) n_entries[s->ins[i].src_tier]++;
    for (int t = QR_TIER_POOL + 1; t < QR_TIERS; t++) {
        qr_kv_tier_check(s->tiers[t]);
        QR_ASSERT(qr_kv_tier_ref_sum(s->tiers[t]) == n_entries[t]);
    }
}
