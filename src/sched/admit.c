/* Admission: which waiting request may run, and when. */
#include "sched/sched_internal.h"

// Blocks that running requests will still take to compute the tokens they know.
static uint32_t outstanding(const struct qr_sched *s)
{
    uint32_t n = 0;
    for (int32_t i = 0; i < s->n_running; i++) {
        struct qr_sched_req *r = s->running[i];
        if (!r->forked) {
            uint32_t all = qr_sched_req_blocks(r, s->conf.block_size);
            uint32_t has = (uint32_t)qr_kv_table_len(s->tables, qr_sched_req_leader(r)->slot);
            n += all > has ? all - has : 0;
            continue;
        }
        for (int32_t j = 0; j < r->req->n_choices; j++) {
            const struct qr_seq *q = &r->seqs[j];
            if (!q->done && q->n_computed < q->n_ids) // a beam may wait for the others
                n += qr_kv_table_need(s->tables, q->slot, q->n_computed, q->n_ids);
        }
    }
    return n;
}

// Blocks that a request holds when all its live sequences are as long as they may become.
static uint32_t worst_case(const struct qr_sched *s, const struct qr_sched_req *r)
{
    struct qr_kv_want w = qr_sched_req_want(r);
    int32_t shared = r->req->n_choices > 1 ? (w.n_prompt - 1) / s->conf.block_size : 0;
    int32_t each = qr_kv_blocks_for(w.n_total, s->conf.block_size) - shared;
    return (uint32_t)(shared + r->n_live * each);
}

static bool fits_worst_case(const struct qr_sched *s, const struct qr_sched_req *r)
{
    uint32_t need = worst_case(s, r);
    for (int32_t i = 0; i < s->n_running; i++) need += worst_case(s, s->running[i]);
    return need <= s->conf.n_blocks;
}

// Whether a waiting request would be admitted: a slot for each sequence, blocks for all tokens it knows
// beside what running ones still need, and some to spare (sched_spare). Cached blocks that somebody holds cost
// nothing; those that are free leave the free list like any other.
bool sched_has_room(const struct qr_sched *s, struct qr_sched_req *r)
{
    s->hit->must_wait = false;
    if (s->n_running_seqs + r->n_live > s->conf.max_num_seqs || r->n_io > 0) return false;
    uint32_t spare = sched_spare(s, r);
    if (s->conf.layout != QR_KV_PAGED) {
        struct qr_kv_want w = qr_sched_req_want(r);
        return qr_kv_tables_room(s->tables, &w, (uint32_t)r->n_live, outstanding(s), spare);
    }
    const struct sched_hit *hit = sched_find(s, r);
    if (hit->must_wait) return false;
    uint32_t need = outstanding(s) + qr_sched_req_blocks(r, s->conf.block_size) + spare - hit->n_busy;
    uint32_t n_free = qr_kv_tables_n_free(s->tables);
    // A block to copy from is held until the last choice has copied it: one more than the request needs, then
    // and, should it come to be alone, at its longest.
    bool worst = s->conf.batching == QR_BATCHING_WORST_CASE;
    if (worst || need + 1 > n_free || qr_sched_req_blocks_max(r, s->conf.block_size) + 1 > s->conf.n_blocks)
        sched_find_full(s);
    return worst ? fits_worst_case(s, r) : need <= n_free;
}

// Tokens that a waiting request can compute before its sequences part.
int32_t sched_first_part(const struct qr_sched *s, struct qr_sched_req *r)
{
    const struct qr_seq *lead = qr_sched_req_leader(r);
    bool apart = r->n_live == 1 || r->forked || s->conf.layout != QR_KV_PAGED;
    int32_t to = apart ? lead->n_ids : qr_sched_req_shared(r);
    return to - lead->n_computed; // what was swapped out need not be computed
}

// Of static batches, the present one takes members until one finds no room or none is left.
static bool is_closed(struct qr_sched *s)
{
    if (s->conf.batching != QR_BATCHING_STATIC) return false;
    if (s->n_running == 0) s->batch_closed = false;
    return s->batch_closed;
}

// Admits waiting requests in their order while there is room.
void sched_admit(struct qr_sched *s, int32_t left)
{
    if (is_closed(s)) return;
    for (struct qr_sched_req *r = s->waiting.head; r && left > 0; r = s->waiting.head) {
        if (!sched_has_room(s, r)) {
            s->is_blocked = s->n_running_seqs + r->n_live <= s->conf.max_num_seqs;
            s->batch_closed = true;
            return;
        }
        struct qr_seq begun = *qr_sched_req_leader(r);
        int32_t n_hit = s->conf.layout == QR_KV_PAGED ? s->hit->n_tokens : 0;
        int32_t first = sched_first_part(s, r) - n_hit;
        begun.n_computed += n_hit;
        if (first > 0 && sched_chunk_of(s, r, &begun, first, left, s->plan.n_grants == 0) == 0) return;
        sched_run(s, r);
        for (int32_t j = 0; j < r->req->n_choices && left > 0; j++) {
            struct qr_seq *q = &r->seqs[j];
            int32_t remaining = qr_seq_wanted(r, q) - q->n_computed;
            if (remaining <= 0) continue;
            q->n_granted = sched_chunk_of(s, r, q, remaining, left, s->plan.n_grants == 0);
            if (q->n_granted == 0) break;
            left -= q->n_granted;
            sched_time_spend(s, r, q, q->n_granted);
            sched_grant(s, r, q);
        }
    }
    if (!s->waiting.head) s->batch_closed = true;
}
