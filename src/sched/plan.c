/* Deciding a step: shares of the token budget, then blocks for them, then admission. */
#include <string.h>

#include "base/assert.h"
#include "sched/sched_internal.h"

// Prompt rows are computed in tiles of 16, so a chunk of another size wastes the rest of its last tile.
#define CHUNK 16
// Generating sequences may use a whole budget; a prompt then still gets a chunk every so many steps.
#define PROMPT_WAIT_STEPS 32

static bool generates(const struct qr_sched_req *r, const struct qr_seq *q)
{
    return r->forked && !q->done && q->n_computed >= r->req->n_prompt && q->n_ids - q->n_computed == 1;
}

static bool has_turn_before(const struct sched_turn *t, const struct sched_pick *p)
{
    if (t->priority != p->r->req->priority) return t->priority < p->r->req->priority;
    if (t->order != p->r->order) return t->order < p->r->order;
    return t->choice < p->seq->choice;
}

// One token for every generating sequence; when they are more than cap, the next cap of the round.
static int32_t share_generating(struct qr_sched *s, int32_t cap)
{
    int32_t n = 0, start = 0;
    for (int32_t i = 0; i < s->n_running; i++)
        for (int32_t j = 0; j < s->running[i]->req->n_choices; j++)
            if (generates(s->running[i], &s->running[i]->seqs[j]))
                s->picks[n++] = (struct sched_pick){s->running[i], &s->running[i]->seqs[j]};
    if (n <= cap)
        cap = n;
    else
        while (start < n && !has_turn_before(&s->turn, &s->picks[start])) start++;
    for (int32_t i = 0; i < cap; i++) s->picks[(start + i) % n].seq->n_granted = 1;
    if (cap > 0) {
        const struct sched_pick *last = &s->picks[(start + cap - 1) % n];
        s->turn = (struct sched_turn){last->r->req->priority, last->seq->choice, last->r->order};
    }
    return cap;
}

// The chunk for a sequence that has `remaining` tokens to compute, of `left` in the budget. Ends on a tile's
// border unless it is the last; a piece of a tile is computed only where nothing else is.
static int32_t chunk_of(const struct qr_seq *q, int32_t remaining, int32_t left, bool alone)
{
    if (remaining <= left) return remaining;
    int32_t aligned = (q->n_computed + left) / CHUNK * CHUNK - q->n_computed;
    if (aligned > 0) return aligned;
    return alone ? left : 0;
}

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
            if (!q->done) n += qr_kv_table_need(s->tables, q->slot, q->n_computed, q->n_ids);
        }
    }
    return n;
}

// Whether a waiting request would be admitted: a slot for each sequence, blocks for all tokens it knows
// beside what running ones still need, and, unless it will be alone, one spare block a sequence, so that what
// was just admitted is not preempted at once.
static bool has_room(const struct qr_sched *s, const struct qr_sched_req *r)
{
    if (s->n_running_seqs + r->n_live > s->conf.max_num_seqs) return false;
    uint32_t spare = s->n_running > 0 ? (uint32_t)(s->n_running_seqs + r->n_live) : 0;
    uint32_t need = outstanding(s) + qr_sched_req_blocks(r, s->conf.block_size) + spare;
    return need <= qr_kv_pool_n_free(s->pool);
}

// Tokens that a waiting request can compute before its sequences part.
static int32_t first_part(struct qr_sched_req *r)
{
    return r->n_live == 1 ? qr_sched_req_leader(r)->n_ids : r->req->n_prompt - 1;
}

// What a prompt that will not end in this step leaves of `left`: enough for prompts behind running[i] that
// will, and a tile for the next waiting one, so that a long one does not hold back short ones; half of it at
// most.
static int32_t left_behind(const struct qr_sched *s, int32_t i, int32_t left)
{
    int32_t n = 0, half = left / 2;
    for (int32_t k = i + 1; k < s->n_running; k++) {
        const struct qr_sched_req *r = s->running[k];
        for (int32_t j = 0; j < r->req->n_choices; j++) {
            int32_t remaining = qr_seq_wanted(r, &r->seqs[j]) - r->seqs[j].n_computed;
            if (remaining > 0 && r->seqs[j].n_granted == 0 && !generates(r, &r->seqs[j]) &&
                n + remaining <= half)
                n += remaining;
        }
    }
    struct qr_sched_req *next = s->waiting.head;
    if (!next || !has_room(s, next)) return n;
    int32_t part = first_part(next) < CHUNK || n + first_part(next) <= half ? first_part(next) : CHUNK;
    return n + part <= half ? n + part : n;
}

static void share_chunks(struct qr_sched *s, int32_t left, bool alone)
{
    int32_t kept = -1; // for those behind the first long prompt; -1: none came yet
    for (int32_t i = 0; i < s->n_running; i++) {
        struct qr_sched_req *r = s->running[i];
        for (int32_t j = 0; j < r->req->n_choices && left > 0; j++) {
            struct qr_seq *q = &r->seqs[j];
            int32_t remaining = qr_seq_wanted(r, q) - q->n_computed;
            if (q->n_granted > 0 || remaining <= 0 || generates(r, q)) continue;
            if (remaining > left) {
                if (kept < 0) kept = left_behind(s, i, left);
                q->n_granted = chunk_of(q, remaining, left - kept, alone);
            } else {
                q->n_granted = remaining;
                if (kept > 0) kept = kept > remaining ? kept - remaining : 0;
            }
            left -= q->n_granted;
            alone &= q->n_granted == 0;
        }
    }
}

static void preempt(struct qr_sched *s, struct qr_sched_req *v, struct qr_sched_req *for_whom)
{
    int32_t n_tokens = 0;
    for (int32_t i = 0; i < v->req->n_choices; i++) {
        struct qr_seq *q = &v->seqs[i];
        if (q->slot < 0) continue;
        n_tokens += q->n_computed;
        sched_order(s, QR_ORDER_CLOSE, v, q);
        sched_release(s, q);
    }
    sched_unrun(s, v);
    v->forked = false;
    v->n_preemptions++;
    v->state = QR_SCHED_WAITING;
    qr_queue_insert(&s->waiting, v);
    s->counts.n_preemptions++;
    s->counts.n_preempted_tokens += (uint64_t)n_tokens;
    s->preemptions[s->plan.n_preemptions++] = (struct qr_preemption){v, for_whom, n_tokens};
}

// How many of the wanted tokens the free blocks can take; a whole number of tiles where that leaves any.
static int32_t fitting(const struct qr_sched *s, const struct qr_seq *q, int32_t n)
{
    uint32_t n_free = qr_kv_pool_n_free(s->pool);
    while (n > 0 && qr_kv_table_need(s->tables, q->slot, q->n_computed, q->n_computed + n) > n_free) {
        int32_t border = (q->n_computed + n - 1) / s->conf.block_size * s->conf.block_size;
        n = border - q->n_computed;
    }
    return n > 0 ? n : 0;
}

static void grant(struct qr_sched *s, struct qr_sched_req *r, struct qr_seq *q)
{
    struct qr_grant *g = &s->grants[s->plan.n_grants++];
    int32_t to = q->n_computed + q->n_granted, n_prompt = r->req->n_prompt;
    *g = (struct qr_grant){.r = r, .seq = q, .n_tokens = q->n_granted};
    g->n_copies = qr_kv_table_extend(s->tables, q->slot, q->n_computed, to, &g->copy);
    QR_ASSERT(g->n_copies >= 0);
    const struct qr_sampling *p = &r->req->sampling;
    bool score = p->n_prompt_logprobs >= 0;
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
            grant(s, r, q);
            return true;
        }
        struct qr_sched_req *victim = s->running[s->n_running - 1];
        if (victim == r) break;
        preempt(s, victim, r);
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
    struct qr_sched_req *r = s->running[0];
    for (int32_t j = 0; j < r->req->n_choices; j++) {
        struct qr_seq *q = &r->seqs[j];
        int32_t remaining = qr_seq_wanted(r, q) - q->n_computed;
        if (remaining <= 0) continue;
        q->n_granted = chunk_of(q, remaining, s->budget, true);
        // A request alone always finds its blocks: qr_sched_req_fits refused it otherwise.
        bool ok = secure(s, r, q);
        QR_ASSERT(ok);
        return;
    }
    QR_ASSERT(!"a running request has nothing to compute");
}

// Admits waiting requests in their order while there is room.
static void admit(struct qr_sched *s, int32_t left)
{
    for (struct qr_sched_req *r = s->waiting.head; r && left > 0; r = s->waiting.head) {
        if (!has_room(s, r)) return;
        int32_t first = first_part(r);
        if (first > 0 && chunk_of(qr_sched_req_leader(r), first, left, s->plan.n_grants == 0) == 0) return;
        sched_run(s, r);
        for (int32_t j = 0; j < r->req->n_choices && left > 0; j++) {
            struct qr_seq *q = &r->seqs[j];
            int32_t remaining = qr_seq_wanted(r, q) - q->n_computed;
            if (remaining <= 0) continue;
            q->n_granted = chunk_of(q, remaining, left, s->plan.n_grants == 0);
            if (q->n_granted == 0) break;
            left -= q->n_granted;
            grant(s, r, q);
        }
    }
}

static bool prompt_work(const struct qr_sched *s)
{
    for (int32_t i = 0; i < s->n_running; i++)
        for (int32_t j = 0; j < s->running[i]->req->n_choices; j++) {
            const struct qr_seq *q = &s->running[i]->seqs[j];
            if (qr_seq_wanted(s->running[i], q) > q->n_computed && !generates(s->running[i], q)) return true;
        }
    return s->waiting.n > 0 && s->n_running_seqs + s->waiting.head->n_live <= s->conf.max_num_seqs;
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
    s->budget = budget;
    bool prompts = prompt_work(s);
    int32_t kept =
        prompts && s->n_steps_without_prompt >= PROMPT_WAIT_STEPS ? (budget < CHUNK ? budget : CHUNK) : 0;
    int32_t n_rows = share_generating(s, budget - kept);
    share_chunks(s, budget - n_rows, n_rows == 0 || kept > 0);
    bool is_short = secure_running(s);
    if (!is_short && s->plan.n_preemptions == 0) admit(s, budget - granted(s));
    if (s->plan.n_grants == 0 && s->n_running > 0) secure_first(s);
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

const struct qr_batch *qr_sched_batch(struct qr_sched *s)
{
    squeeze(s);
    struct qr_batch_caps caps = {.n_seqs = s->plan.n_grants};
    for (int32_t i = 0; i < s->plan.n_grants; i++) {
        caps.n_tokens += s->grants[i].n_tokens;
        caps.n_table += qr_kv_table_len(s->tables, s->grants[i].seq->slot);
        caps.n_copies += s->grants[i].n_copies;
    }
    if (caps.n_seqs == 0) return NULL;
    struct qr_batch *b = qr_batch_init(s->batch_mem, &caps);
    b->step = ++s->i_step;
    memset((char *)b + b->seqs_at, 0,
           b->bytes - b->seqs_at); // gaps between parts too: equal plans are equal bytes
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
