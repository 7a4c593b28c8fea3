/* Swap: a preempted request's blocks wait in another tier, shared ones once, and come back as they were. */
#include "base/assert.h"
#include "sched/sched_internal.h"

static int32_t blocks_of(const struct qr_sched *s, const struct qr_seq *q)
{
    return qr_kv_blocks_for(q->n_computed, s->conf.block_size);
}

bool sched_tier_has_room(const struct qr_sched *s, enum qr_tier tier, uint32_t n_blocks)
{
    // Blocks for the file pass through staging memory, so that those of the pool are free at once.
    if (tier == QR_TIER_FILE && n_blocks > qr_kv_tier_n_free(s->staging)) return false;
    return n_blocks <= qr_kv_tier_n_free(s->tiers[tier]);
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

static void save_block(struct qr_sched *s, struct qr_sched_req *r, qr_block_id id, qr_slot_id slot)
{
    struct qr_batch_copy *out = &s->outs[s->n_outs++];
    *out = (struct qr_batch_copy){id, slot, QR_TIER_POOL, QR_TIER_RAM};
    if (r->tier == QR_TIER_RAM) return;
    qr_slot_id staged = qr_kv_tier_take(s->staging);
    QR_ASSERT(staged != QR_SLOT_NONE);
    out->dst = s->conf.n_slots[QR_TIER_RAM] + staged;
    sched_io_start(s, r, &(struct qr_io){QR_IO_WRITE, slot, out->dst, NULL});
}

void sched_save(struct qr_sched *s, struct qr_sched_req *r, enum qr_tier tier)
{
    struct qr_kv_tier *t = s->tiers[tier];
    qr_kv_tier_begin(t);
    r->tier = tier;
    r->saved_in = s->i_plan;
    r->io_failed = false;
    for (int32_t i = 0; i < r->req->n_choices; i++) {
        struct qr_seq *q = &r->seqs[i];
        if (q->slot < 0) continue;
        const qr_block_id *ids = qr_kv_table_ids(s->tables, q->slot);
        q->n_saved = blocks_of(s, q);
        for (int32_t j = 0; j < q->n_saved; j++) {
            bool first;
            q->saved[j] = qr_kv_tier_save(t, ids[j], &first);
            if (first) save_block(s, r, ids[j], q->saved[j]);
        }
    }
}

// A slot that is copied from has one more reference until that was done, so that nothing else is copied to it in the
// same step; one that is read from has it until the read is done.
static void load_block(struct qr_sched *s, struct qr_sched_req *r, struct qr_seq *q, qr_slot_id slot)
{
    struct qr_kv_tier *t = s->tiers[r->tier];
    qr_block_id id = qr_kv_tier_block_of(t, slot);
    if (id != QR_BLOCK_NONE) {
        qr_kv_table_share(s->tables, q->slot, id);
        return;
    }
    id = qr_kv_table_grow(s->tables, q->slot);
    qr_kv_tier_note(t, slot, id);
    if (r->tier == QR_TIER_FILE) {
        sched_io_start(s, r, &(struct qr_io){QR_IO_READ, slot, id, NULL});
        return;
    }
    qr_kv_tier_ref(t, slot);
    s->ins[s->n_ins++] = (struct qr_batch_copy){slot, id, QR_TIER_RAM, QR_TIER_POOL};
}

void sched_load(struct qr_sched *s, struct qr_sched_req *r)
{
    qr_kv_tier_begin(s->tiers[r->tier]);
    for (int32_t i = 0; i < r->req->n_choices; i++) {
        struct qr_seq *q = &r->seqs[i];
        for (int32_t j = 0; j < q->n_saved; j++) load_block(s, r, q, q->saved[j]);
    }
    r->loading = r->tier == QR_TIER_FILE;
    if (!r->loading) sched_forget_saved(s, r);
}

static void unref_saved(struct qr_sched *s, const struct qr_sched_req *r, struct qr_seq *q)
{
    while (q->n_saved > 0) qr_kv_tier_unref(s->tiers[r->tier], q->saved[--q->n_saved]);
}

void sched_forget_saved(struct qr_sched *s, struct qr_sched_req *r)
{
    for (int32_t i = 0; i < r->req->n_choices; i++) unref_saved(s, r, &r->seqs[i]);
    r->tier = QR_TIER_POOL;
}

void sched_drop_saved(struct qr_sched *s, struct qr_sched_req *r)
{
    sched_forget_saved(s, r);
    for (int32_t i = 0; i < r->req->n_choices; i++) r->seqs[i].n_computed = 0;
    r->forked = false;
    r->io_failed = false;
}

void sched_end_saved(struct qr_sched *s, struct qr_sched_req *r, struct qr_seq *q)
{
    if (!r->forked && r->n_live > 0 && q->n_saved > 0) {
        struct qr_seq *to = qr_sched_req_leader(r);
        QR_ASSERT(to->n_saved == 0);
        for (int32_t j = 0; j < q->n_saved; j++) to->saved[j] = q->saved[j];
        to->n_saved = q->n_saved;
        q->n_saved = 0;
        if (r->state == QR_SCHED_RUNNING) return; // its table was handed over
        to->n_computed = q->n_computed;
        if (to->n_seen < to->n_computed) to->n_seen = to->n_computed;
        q->n_computed = 0;
        return;
    }
    unref_saved(s, r, q);
    q->n_computed = 0;
    if (r->n_live == 0) r->tier = QR_TIER_POOL;
}

void sched_settle(struct qr_sched *s)
{
    sched_spill_settle(s);
    for (uint32_t i = 0; i < s->n_ins; i++) {
        if (sched_spill_owns_mem(s, s->ins[i].src)) continue;
        qr_kv_tier_unref(s->tiers[s->ins[i].src_tier], s->ins[i].src);
        s->counts.n_blocks_in[s->ins[i].src_tier]++;
    }
    for (uint32_t i = 0; i < s->n_outs; i++)
        s->counts.n_blocks_out[QR_TIER_RAM] += s->outs[i].dst < s->conf.n_slots[QR_TIER_RAM]; // not staged ones
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
    for (int32_t i = 0; i < s->n_running; i++)
        for (int32_t j = 0; j < s->running[i]->req->n_choices; j++) {
            const struct qr_seq *q = &s->running[i]->seqs[j];
            QR_ASSERT(q->n_saved == 0 || s->running[i]->loading);
            n_entries[s->running[i]->tier] += (uint64_t)q->n_saved;
        }
    for (uint32_t i = 0; i < s->n_flight; i++) n_entries[QR_TIER_FILE] += !sched_spill_owns_file(s, s->flight[i]);
    for (uint32_t i = 0; i < s->n_ins; i++) n_entries[QR_TIER_RAM] += !sched_spill_owns_mem(s, s->ins[i].src);
    for (int t = QR_TIER_POOL + 1; t < QR_TIERS; t++) {
        qr_kv_tier_check(s->tiers[t]);
        QR_ASSERT(qr_kv_tier_ref_sum(s->tiers[t]) == n_entries[t]);
    }
}
