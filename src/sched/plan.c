/* Deciding a step: shares of the token budget (share.c), then blocks for them, from others if need be
 * (preempt.c), then admission (admit.c). */
#include <string.h>

#include "base/assert.h"
#include "sched/sched_internal.h"

// Generating sequences may use a whole budget; a prompt then still gets a chunk every so many steps.
#define PROMPT_WAIT_STEPS 32

// How many of the wanted tokens the free blocks can take; a whole number of tiles where that leaves any.
static int32_t fitting(const struct qr_sched *s, const struct qr_seq *q, int32_t n)
{
    uint32_t n_free = qr_kv_tables_n_free(s->tables);
    while (n > 0 && qr_kv_table_need(s->tables, q->slot, q->n_computed, q->n_computed + n) > n_free) {
        int32_t border = (q->n_computed + n - 1) / s->conf.block_size * s->conf.block_size;
        n = border - q->n_computed;
    }
    return n > 0 ? n : 0;
}

void sched_grant(struct qr_sched *s, struct qr_sched_req *r, struct qr_seq *q)
{
    struct qr_grant *g = &s->grants[s->plan.n_grants++];
    bool all_d;
    q->n_granted = sched_one_class(s, r, q->n_computed, q->n_granted, &all_d);
    int32_t to = q->n_computed + q->n_granted, n_prompt = r->req->n_prompt;
    *g = (struct qr_grant){.r = r, .seq = q, .n_tokens = q->n_granted};
    g->n_copies = qr_kv_table_extend(s->tables, q->slot, q->n_computed, to, &g->copy);
    QR_ASSERT(g->n_copies >= 0);
    const struct qr_sampling *p = &r->req->sampling;
    bool score = p->n_prompt_logprobs >= 0;
    if (all_d) g->flags |= QR_BATCH_EXACT;
    if (to == q->n_ids && p->max_tokens > 0) g->flags |= QR_BATCH_SAMPLE;
    // The last prompt position is followed by no prompt token, so it has no score.
    int32_t score_to = to < n_prompt - 1 ? to : n_prompt - 1;
    if (score && q->n_computed < score_to && score_to > r->n_scored) g->flags |= QR_BATCH_SCORE;
}

// Finds blocks for what q was given, taking them from requests that are served later, last first. False:
// there is no such request; q keeps what it has and waits for blocks.
static bool secure(struct qr_sched *s, struct qr_sched_req *r, struct qr_seq *q)
{
    for (;;) {
        int32_t n = fitting(s, q, q->n_granted);
        if (n > 0) {
            q->n_granted = n;
            sched_grant(s, r, q);
            return true;
        }
        struct qr_sched_req *victim = s->running[s->n_running - 1];
        if (victim == r || sched_frees_soon(s)) break;
        sched_preempt(s, victim, r); // if it is loading, its blocks come free when their I/O is done
    }
    q->n_granted = 0;
    return false;
}

// Serves the running requests in their order. True when one of them is short of blocks.
static bool secure_running(struct qr_sched *s)
{
    bool is_short = false;
    for (int32_t i = 0; i < s->n_running; i++) {
        struct qr_sched_req *r = s->running[i];
        for (int32_t j = 0; j < r->req->n_choices; j++)
            if (r->seqs[j].n_granted > 0 && !secure(s, r, &r->seqs[j])) is_short = true;
    }
    return is_short;
}

// When nobody else moves (all that had their turn are short of blocks): the first request does, whoever has
// to yield.
static void secure_first(struct qr_sched *s)
{
    int32_t at = 0;
    while (at < s->n_running && s->running[at]->loading) at++;
    if (at == s->n_running) return; // all wait for I/O
    struct qr_sched_req *r = s->running[at];
    for (int32_t j = 0; j < r->req->n_choices; j++) {
        struct qr_seq *q = &r->seqs[j];
        int32_t remaining = qr_seq_wanted(r, q) - q->n_computed;
        if (remaining <= 0) continue;
        s->time.left_ns = UINT64_MAX; // somebody has to move
        q->n_granted = sched_chunk_of(s, r, q, remaining, s->budget, true);
        // A request alone always finds its blocks (qr_sched_req_fits refused it otherwise), but for those that
        // I/O still holds.
        bool ok = secure(s, r, q);
        QR_ASSERT(ok || s->n_flight > 0);
        return;
    }
    QR_ASSERT(!"a running request has nothing to compute");
}

static bool grants_prompt(const struct qr_sched *s)
{
    for (int32_t i = 0; i < s->plan.n_grants; i++)
        if (s->grants[i].seq->n_computed < s->grants[i].r->req->n_prompt) return true;
    return false;
}

static int32_t granted(const struct qr_sched *s)
{
    int32_t n = 0;
    for (int32_t i = 0; i < s->plan.n_grants; i++) n += s->grants[i].n_tokens;
    return n;
}

const struct qr_plan *qr_sched_plan(struct qr_sched *s, uint64_t now_ns, int32_t budget)
{
    QR_ASSERT(budget >= 1 && budget <= s->conf.max_num_batched_tokens);
    // What is left of a plan that was not carried out; dropped grants may belong to nobody any more.
    for (int32_t i = 0; i < s->plan.n_grants; i++)
        if (s->grants[i].n_tokens > 0) s->grants[i].seq->n_granted = 0;
    s->plan.n_orders = s->plan.n_preemptions = s->plan.n_grants = 0;
    qr_kv_tables_unpin(s->tables);
    s->budget = budget;
    s->is_blocked = false;
    QR_ASSERT(s->n_outs == 0 && s->n_ins == 0); // moves of the last plan were made
    s->i_plan++;
    s->i_flush = 0;
    sched_land(s);
    sched_force(s);
    s->latest_admitted = 0;
    sched_make_way(s);
    int32_t n_before = s->plan.n_preemptions; // of which none was for want of a block
    bool prompts = sched_prompt_work(s);
    int32_t kept =
        prompts && s->n_steps_without_prompt >= PROMPT_WAIT_STEPS ? (budget < SCHED_CHUNK ? budget : SCHED_CHUNK) : 0;
    int32_t n_rows = sched_share_generating(s, budget - kept);
    sched_time_begin(s);
    sched_share_chunks(s, budget - n_rows, n_rows == 0 || kept > 0);
    bool is_short = secure_running(s);
    if (!is_short && s->plan.n_preemptions == n_before) sched_admit(s, budget - granted(s));
    if (s->plan.n_grants == 0 && s->n_running > 0) secure_first(s);
    if (s->latest_admitted > 0) qr_queue_passed(&s->waiting, s->latest_admitted);
    QR_ASSERT(s->plan.n_grants > 0 || s->n_flight > 0 || qr_sched_idle(s));
    sched_time_end(s, prompts);
    s->n_steps_without_prompt = !prompts || kept > 0 || grants_prompt(s) ? 0 : s->n_steps_without_prompt + 1;
    for (int32_t i = 0; i < s->plan.n_grants; i++)
        if (s->grants[i].r->scheduled_ns == 0) s->grants[i].r->scheduled_ns = now_ns > 0 ? now_ns : 1;
    return &s->plan;
}

static void squeeze(struct qr_sched *s)
{
    int32_t n = 0;
    for (int32_t i = 0; i < s->plan.n_grants; i++)
        if (s->grants[i].n_tokens > 0) s->grants[n++] = s->grants[i];
    s->plan.n_grants = n;
}

// In the order of their phases; copies on write follow.
static void put_moves(const struct qr_sched *s, struct qr_batch *b)
{
    struct qr_batch_copy *c = qr_batch_copies(b);
    if (s->n_outs > 0) memcpy(c, s->outs, s->n_outs * sizeof *c);
    if (s->n_ins > 0) memcpy(c + s->n_outs, s->ins, s->n_ins * sizeof *c);
    b->n_copies = (int32_t)(s->n_outs + s->n_ins);
}

const struct qr_batch *qr_sched_batch(struct qr_sched *s)
{
    squeeze(s);
    struct qr_batch_caps caps = {.n_seqs = s->plan.n_grants};
    for (int32_t i = 0; i < s->plan.n_grants; i++) {
        caps.n_tokens += s->grants[i].n_tokens;
        caps.n_table += qr_kv_table_len(s->tables, s->grants[i].seq->slot);
        caps.n_copies += s->grants[i].n_copies;
    }
    sched_spill_orders(s);
    caps.n_copies += (int32_t)(s->n_outs + s->n_ins);
    if (caps.n_seqs == 0 && caps.n_copies == 0) return NULL;
    struct qr_batch *b = qr_batch_init(s->batch_mem, &caps);
    b->step = ++s->i_step;
    memset((char *)b + b->seqs_at, 0,
           b->bytes - b->seqs_at); // gaps between parts too: equal plans are equal bytes
    put_moves(s, b);
    for (int32_t i = 0; i < s->plan.n_grants; i++) {
        const struct qr_grant *g = &s->grants[i];
        const struct qr_seq *q = g->seq;
        int32_t n_blocks = qr_kv_table_len(s->tables, q->slot);
        qr_batch_seqs(b)[b->n_seqs++] = (struct qr_batch_seq){.slot = q->slot,
                                                              .n_tokens = g->n_tokens,
                                                              .pos0 = q->n_computed,
                                                              .n_prompt = g->r->req->n_prompt,
                                                              .first_id = b->n_tokens,
                                                              .first_block = b->n_table,
                                                              .n_blocks = n_blocks,
                                                              .flags = g->flags};
        for (int32_t k = 0; k < g->n_tokens; k++)
            qr_batch_ids(b)[b->n_tokens++] = qr_seq_id(g->r, q, q->n_computed + k);
        memcpy(qr_batch_table(b) + b->n_table, qr_kv_table_ids(s->tables, q->slot),
               (size_t)n_blocks * sizeof(uint32_t));
        b->n_table += n_blocks;
        if (g->n_copies > 0) qr_batch_copies(b)[b->n_copies++] = g->copy;
    }
    QR_ASSERT(b->n_tokens <= s->budget);
    return b;
}
