#include "sched/sched.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "sched/sched_internal.h"

// What can move between the pool and other tiers in one plan, each way.
static uint32_t moves_max(const struct qr_sched_conf *c)
{
    uint32_t n = 0;
    for (int t = 0; t < QR_TIERS; t++) n += c->n_slots[t];
    n += c->n_staging;
    // Cached prefixes come back from a slot for each who wants it, into a block each.
    return c->n_prefix[QR_TIER_RAM] + c->n_prefix[QR_TIER_FILE] > 0 ? n + c->n_prefix[QR_TIER_RAM] + c->n_blocks : n;
}

static struct qr_batch_caps caps_of(const struct qr_sched_conf *c)
{
    return (struct qr_batch_caps){.n_seqs = c->max_num_seqs,
                                  .n_tokens = c->max_num_batched_tokens,
                                  .n_table =
                                      c->max_num_seqs * qr_kv_blocks_for(c->max_model_len, c->block_size),
                                  .n_copies = c->max_num_seqs + 2 * (int32_t)moves_max(c)};
}

static enum qr_status new_tiers(struct qr_sched *s)
{
    size_t n = moves_max(&s->conf);
    s->outs = qr_malloc(QR_MEM_SCHED, (n + 1) * sizeof *s->outs);
    s->ins = qr_malloc(QR_MEM_SCHED, (n + 1) * sizeof *s->ins);
    if (!s->outs || !s->ins) return QR_ENOMEM;
    for (int t = QR_TIER_POOL + 1; t < QR_TIERS; t++)
        if (qr_kv_tier_new(s->conf.n_slots[t], s->conf.n_blocks, &s->tiers[t]) != QR_OK) return QR_ENOMEM;
    return sched_flight_new(s);
}

static enum qr_status new_prefix(struct qr_sched *s, struct qr_kv_tables_conf *tc)
{
    const struct qr_sched_conf *c = &s->conf;
    if (!c->prefix_caching || c->layout != QR_KV_PAGED) return QR_OK;
    s->hit_ids = qr_malloc(QR_MEM_SCHED, (size_t)tc->n_blocks_max * sizeof *s->hit_ids);
    s->tokens = qr_malloc(QR_MEM_SCHED, (size_t)c->block_size * sizeof *s->tokens);
    if (!s->hit_ids || !s->tokens) return QR_ENOMEM;
    enum qr_status st = qr_kv_prefix_new(s->pool, c->block_size, c->prefix_seed, &s->prefix);
    tc->prefix = s->prefix;
    return st == QR_OK ? sched_spill_new(s, tc->n_blocks_max) : st;
}

enum qr_status qr_sched_new(const struct qr_sched_conf *conf, struct qr_sched **out)
{
    QR_ASSERT(conf->max_num_seqs >= 1 && conf->max_num_batched_tokens >= 1 && conf->max_model_len >= 1);
    struct qr_sched *s = qr_calloc(QR_MEM_SCHED, 1, sizeof *s);
    if (!s) return QR_ENOMEM;
    size_t n = (size_t)conf->max_num_seqs;
    struct qr_batch_caps caps = caps_of(conf);
    s->conf = *conf;
    s->preempt_costs = conf->preempt_costs;
    qr_queue_init(&s->waiting, conf->policy ? conf->policy : qr_policy_at(0), conf->starve_steps);
    s->running = qr_calloc(QR_MEM_SCHED, n, sizeof *s->running);
    s->free_slots = qr_calloc(QR_MEM_SCHED, n, sizeof *s->free_slots);
    s->orders = qr_calloc(QR_MEM_SCHED, 2 * n, sizeof *s->orders);
    s->preemptions = qr_calloc(QR_MEM_SCHED, n, sizeof *s->preemptions);
    s->grants = qr_calloc(QR_MEM_SCHED, n, sizeof *s->grants);
    s->picks = qr_calloc(QR_MEM_SCHED, n, sizeof *s->picks);
    s->batch_mem = qr_malloc(QR_MEM_SCHED, qr_batch_bytes(&caps));
    s->hit = qr_calloc(QR_MEM_SCHED, 1, sizeof *s->hit);
    struct qr_kv_tables_conf tc = {.n_tables = conf->max_num_seqs,
                                   .block_size = conf->block_size,
                                   .layout = conf->layout,
                                   .max_len = conf->max_model_len,
                                   .page_blocks = conf->page_blocks,
                                   .n_blocks_max = qr_kv_blocks_for(conf->max_model_len, conf->block_size)};
    if (!s->running || !s->free_slots || !s->orders || !s->preemptions || !s->grants || !s->picks || !s->hit ||
        !s->batch_mem || qr_kv_pool_new(conf->n_blocks, &s->pool) != QR_OK || new_prefix(s, &tc) != QR_OK ||
        qr_kv_tables_new(s->pool, &tc, &s->tables) != QR_OK || new_tiers(s) != QR_OK) {
        qr_sched_free(&s);
        return QR_ENOMEM;
    }
    for (int32_t i = 0; i < conf->max_num_seqs; i++) s->free_slots[i] = conf->max_num_seqs - 1 - i;
    s->plan = (struct qr_plan){.orders = s->orders, .preemptions = s->preemptions, .grants = s->grants};
    *out = s;
    return QR_OK;
}

void qr_sched_free(struct qr_sched **sched)
{
    struct qr_sched *s = *sched;
    if (!s) return;
    qr_kv_tables_free(&s->tables);
    qr_kv_prefix_free(&s->prefix);
    qr_kv_spill_free(&s->spill);
    qr_free(s->tier_hits);
    qr_kv_pool_free(&s->pool);
    qr_free(s->hit);
    qr_free(s->hit_ids);
    qr_free(s->tokens);
    for (int t = 0; t < QR_TIERS; t++) qr_kv_tier_free(&s->tiers[t]);
    sched_flight_free(s);
    qr_free(s->outs);
    qr_free(s->ins);
    qr_free(s->running);
    qr_free(s->free_slots);
    qr_free(s->orders);
    qr_free(s->preemptions);
    qr_free(s->grants);
    qr_free(s->picks);
    qr_free(s->batch_mem);
    qr_free(s);
    *sched = NULL;
}

void qr_sched_add(struct qr_sched *s, struct qr_sched_req *r)
{
    QR_ASSERT(r->state == QR_SCHED_NEW && r->n_live > 0);
    r->order = ++s->last_order;
    r->state = QR_SCHED_WAITING;
    qr_queue_insert(&s->waiting, r);
}

bool qr_sched_idle(const struct qr_sched *s)
{
    return s->n_running == 0 && s->waiting.n == 0;
}

bool qr_sched_trim(struct qr_sched *s)
{
    if (!qr_sched_idle(s) || qr_kv_pool_n_free(s->pool) < qr_kv_pool_n_blocks(s->pool)) return false;
    if (s->prefix) qr_kv_prefix_reset(s->prefix);
    sched_spill_reset(s, false); // what is in the file stays there
    qr_kv_pool_reset(s->pool);
    return true;
}

void sched_order(struct qr_sched *s, enum qr_order_kind kind, struct qr_sched_req *r, struct qr_seq *q)
{
    QR_ASSERT(s->plan.n_orders < 2 * s->conf.max_num_seqs);
    s->orders[s->plan.n_orders++] = (struct qr_order){kind, q->slot, r, q->choice};
}

void sched_run(struct qr_sched *s, struct qr_sched_req *r)
{
    qr_queue_remove(&s->waiting, r);
    if (r->order > s->latest_admitted) s->latest_admitted = r->order;
    bool is_first = r->turn == 0;
    if (is_first) r->turn = ++s->last_turn;
    // Who made way so often keeps its place now: its tokens were computed again each time.
    if (r->n_yields >= SCHED_YIELDS_MAX) r->aged = true;
    r->state = QR_SCHED_RUNNING;
    r->moved = r->drew = false;
    bool is_saved = r->tier != QR_TIER_POOL;
    // Where nothing is shared every sequence computes its prompt itself, and they part at once.
    if (r->n_live == 1 || !qr_kv_tables_share(s->tables)) r->forked = true;
    struct qr_kv_want want = qr_sched_req_want(r);
    for (int32_t i = 0; i < r->req->n_choices; i++) {
        struct qr_seq *q = &r->seqs[i];
        if (q->done) continue;
        QR_ASSERT(s->n_running_seqs < s->conf.max_num_seqs && (q->n_computed == 0 || is_saved));
        q->slot = s->free_slots[s->conf.max_num_seqs - 1 - s->n_running_seqs++];
        qr_kv_table_admit(s->tables, q->slot, &want);
        sched_order(s, QR_ORDER_OPEN, r, q);
    }
    if (is_saved)
        sched_load(s, r);
    else
        sched_adopt(s, r);
    if (is_first) { // what the cache had costs nothing
        qr_queue_charge(&s->waiting, r, r->req->n_prompt - qr_sched_req_leader(r)->n_computed);
        qr_queue_settle(&s->waiting);
    }
    int32_t at = s->n_running++;
    for (; at > 0 && qr_sched_before(r, s->running[at - 1]); at--) s->running[at] = s->running[at - 1];
    s->running[at] = r;
    sched_fork(s, r); // a prompt of one token leaves the leader nothing to do
}

void sched_unrun(struct qr_sched *s, struct qr_sched_req *r)
{
    int32_t at = 0;
    while (at < s->n_running && s->running[at] != r) at++;
    QR_ASSERT(at < s->n_running);
    s->n_running--;
    memmove(s->running + at, s->running + at + 1, (size_t)(s->n_running - at) * sizeof *s->running);
}

void sched_release(struct qr_sched *s, struct qr_seq *q)
{
    qr_kv_table_drop(s->tables, q->slot);
    s->free_slots[s->conf.max_num_seqs - 1 - --s->n_running_seqs] = q->slot;
    q->slot = -1;
    q->n_computed = 0;
    q->n_granted = 0;
}

void sched_fork(struct qr_sched *s, struct qr_sched_req *r)
{
    struct qr_seq *lead = qr_sched_req_leader(r);
    if (r->forked) return;
    int32_t n = qr_sched_req_shared(r);
    if (lead->n_computed < n || n == r->req->n_prompt) return; // new beams part by moves
    for (int32_t i = lead->choice + 1; i < r->req->n_choices; i++) {
        struct qr_seq *q = &r->seqs[i];
        if (q->done) continue;
        qr_kv_table_fork(s->tables, lead->slot, q->slot, lead->n_computed);
        sched_follow(lead, q);
        q->n_computed = lead->n_computed;
        if (q->n_seen < q->n_computed) q->n_seen = q->n_computed;
    }
    r->forked = true;
}

static void count_computed(struct qr_sched *s, struct qr_sched_req *r, struct qr_seq *q, int32_t n)
{
    int32_t from = q->n_computed, to = from + n, n_prompt = r->req->n_prompt;
    int32_t prompt_to = to < n_prompt ? to : n_prompt;
    if (prompt_to > r->n_prompt_seen) {
        s->counts.n_prompt_tokens += (uint64_t)(prompt_to - r->n_prompt_seen);
        r->n_prompt_seen = prompt_to;
    }
    if (from < q->n_seen)
        s->counts.n_recomputed_tokens += (uint64_t)((to < q->n_seen ? to : q->n_seen) - from);
    int32_t known = q->n_seen > n_prompt ? q->n_seen : n_prompt; // charged before: the prompt at admission
    qr_queue_charge(&s->waiting, r, to - known);
    if (q->n_seen < to) q->n_seen = to;
}

// Adds what one sequence holds; its last block belongs to `refs` sequences.
static void count_held(const struct qr_sched *s, const struct qr_sched_req *r, const struct qr_seq *q,
                       struct qr_kv_held held, uint32_t refs, struct qr_kv_slots *o)
{
    int64_t bs = s->conf.block_size, cap = (int64_t)(held.n_blocks - held.n_rounding) * bs;
    int64_t total = r->req->n_prompt + r->req->sampling.max_tokens;
    int64_t usable = cap < total ? cap : total;
    o->reserved += (uint64_t)(usable - q->n_computed) / refs;
    o->internal += (uint64_t)(cap - usable) / refs;
    o->external += held.n_rounding * (uint64_t)bs;
    o->free += held.n_blocks * (uint64_t)bs; // held ones, for now
}

// Where every slot of the pool is; and how many blocks tables would hold if they shared none.
static struct qr_kv_slots count_slots(const struct qr_sched *s, uint64_t *n_entries)
{
    struct qr_kv_slots o = {0};
    uint64_t bs = (uint64_t)s->conf.block_size, pool = qr_kv_pool_n_blocks(s->pool) * bs, held;
    bool shares = qr_kv_tables_share(s->tables);
    for (int32_t i = 0; i < s->n_running; i++) {
        const struct qr_sched_req *r = s->running[i];
        for (int32_t j = 0; j < r->req->n_choices; j++) {
            const struct qr_seq *q = &r->seqs[j];
            if (q->slot < 0) continue;
            int32_t len = qr_kv_table_len(s->tables, q->slot);
            if (shares && len == 0) continue;
            struct qr_kv_held h = {.n_blocks = (uint32_t)len};
            uint32_t refs = shares ? qr_kv_pool_refs(s->pool, qr_kv_table_ids(s->tables, q->slot)[len - 1]) : 1;
            if (!shares) h = qr_kv_table_held(s->tables, q->slot);
            count_held(s, r, q, h, refs, &o);
        }
    }
    *n_entries = o.free / bs;
    held = shares ? (uint64_t)(qr_kv_pool_n_blocks(s->pool) - qr_kv_pool_n_free(s->pool)) * bs : o.free;
    o.free = pool - held;
    o.used = held - o.reserved - o.internal - o.external;
    if (s->is_blocked && qr_kv_layout_is_contiguous(s->conf.layout)) {
        o.external += o.free;
        o.free = 0;
    }
    return o;
}

static void count_step_slots(struct sched_counts *c, const struct qr_kv_slots *o)
{
    c->kv.used += o->used, c->kv.free += o->free;
    c->kv.reserved += o->reserved, c->kv.internal += o->internal, c->kv.external += o->external;
    c->waste_slots += o->reserved + o->internal;
    c->waste_of_slots += o->reserved + o->internal + o->used;
}

static void count_step(struct sched_counts *c, uint64_t n_tokens)
{
    int i = 0;
    while (i < QR_STEP_SIZES - 1 && n_tokens > (uint64_t)1 << i) i++;
    c->n_steps++;
    c->n_step_tokens += n_tokens;
    c->n_steps_of[i]++;
}

void qr_sched_computed(struct qr_sched *s)
{
    uint64_t n_tokens = 0;
    qr_kv_tables_unpin(s->tables);
    for (int32_t i = 0; i < s->plan.n_grants; i++) {
        const struct qr_grant *g = &s->grants[i];
        count_computed(s, g->r, g->seq, g->n_tokens);
        g->seq->n_computed += g->n_tokens;
        g->seq->n_granted = 0;
        g->r->moved = true;
        sched_index(s, g->r, g->seq);
        n_tokens += (uint64_t)g->n_tokens;
    }
    for (int32_t i = 0; i < s->plan.n_grants; i++) sched_fork(s, s->grants[i].r);
    s->counts.n_step_seqs += (uint64_t)s->plan.n_grants;
    s->plan.n_grants = 0;
    sched_settle(s);
    qr_queue_settle(&s->waiting);
    count_step(&s->counts, n_tokens);
    uint64_t n_entries;
    struct qr_kv_slots slots = count_slots(s, &n_entries);
    s->counts.n_entries += n_entries;
    s->counts.n_unshared += qr_kv_pool_n_blocks(s->pool) - qr_kv_pool_n_free(s->pool);
    count_step_slots(&s->counts, &slots);
}

void qr_sched_failed(struct qr_sched *s)
{
    if (s->n_outs > 0)
        for (struct qr_sched_req *r = qr_queue_each(&s->waiting, NULL); r; r = qr_queue_each(&s->waiting, r))
            if (r->tier != QR_TIER_POOL && r->saved_in == s->i_plan) sched_drop_saved(s, r);
    sched_io_revoke_writes(s);
    sched_spill_failed(s);
    s->n_outs = 0;
    sched_settle(s);
}

void qr_sched_set_costs(struct qr_sched *s, const struct qr_preempt_costs *costs)
{
    s->preempt_costs = *costs;
}

void qr_sched_append(struct qr_sched_req *r, struct qr_seq *q, int32_t token)
{
    int32_t n_generated = q->n_ids - r->req->n_prompt;
    QR_ASSERT(!q->done && q->n_computed == q->n_ids && n_generated < r->req->sampling.max_tokens);
    q->generated[n_generated] = token;
    q->n_ids++;
    r->drew = true;
}

// The leader leaves before the others forked: the next live sequence takes over what it computed.
static void hand_over(struct qr_sched *s, struct qr_sched_req *r, struct qr_seq *from)
{
    struct qr_seq *to = qr_sched_req_leader(r);
    if (from->n_computed > 0) qr_kv_table_fork(s->tables, from->slot, to->slot, from->n_computed);
    sched_follow(from, to);
    to->n_computed = from->n_computed;
    if (to->n_seen < to->n_computed) to->n_seen = to->n_computed;
}

int32_t qr_sched_end(struct qr_sched *s, struct qr_sched_req *r, int32_t choice)
{
    QR_ASSERT(choice >= 0 && choice < r->req->n_choices && r->state != QR_SCHED_NEW);
    struct qr_seq *q = &r->seqs[choice];
    int32_t slot = q->slot;
    if (q->done) return -1;
    bool led = r->state == QR_SCHED_RUNNING && !r->forked && q == qr_sched_req_leader(r);
    for (int32_t i = 0; i < s->plan.n_grants; i++) {
        if (s->grants[i].seq != q) continue;
        s->grants[i].n_tokens = 0;
        // Its last block is not what it seems until the copy is made, which now it never is.
        if (s->grants[i].n_copies > 0) q->n_computed -= q->n_computed % s->conf.block_size;
    }
    sched_cache_tail(s, r, q);
    q->done = true;
    r->n_live--;
    if (led && r->n_live > 0) hand_over(s, r, q);
    if (slot >= 0) sched_release(s, q);
    if (r->tier != QR_TIER_POOL)
        sched_end_saved(s, r, q);
    else if (r->n_live == 1)
        r->forked = r->state == QR_SCHED_RUNNING;
    if (r->n_live > 0) return slot;
    if (r->n_io > 0) sched_io_disown(s, r);
    if (r->state == QR_SCHED_WAITING)
        qr_queue_remove(&s->waiting, r);
    else
        sched_unrun(s, r);
    r->state = QR_SCHED_ENDED;
    return slot;
}

struct qr_sched_req *qr_sched_expired(struct qr_sched *s, uint64_t now_ns)
{
    return qr_queue_expired(&s->waiting, now_ns);
}

void qr_sched_snapshot(const struct qr_sched *s, struct qr_snapshot *o)
{
    o->n_running = s->n_running;
    o->n_running_seqs = s->n_running_seqs;
    o->n_waiting = s->waiting.n;
    o->n_waiting_begun = s->waiting.n_begun;
    o->n_waiting_tokens = s->waiting.n_tokens;
    o->oldest_arrival_ns = qr_queue_oldest_ns(&s->waiting);
    o->n_aged = s->waiting.n_aged;
    o->n_yields = s->counts.n_yields;
    o->n_blocks = qr_kv_pool_n_blocks(s->pool);
    o->n_blocks_free = qr_kv_pool_n_free(s->pool);
    o->n_blocks_used = o->n_blocks - o->n_blocks_free;
    o->n_blocks_cached = qr_kv_pool_n_cached(s->pool);
    o->block_size = s->conf.block_size;
    uint64_t n_entries;
    o->kv_slots = count_slots(s, &n_entries);
    o->slots_filled = o->kv_slots.used;
    o->slots_allocated = o->kv_slots.used + o->kv_slots.reserved + o->kv_slots.internal;
    const struct sched_counts *c = &s->counts;
    o->n_steps = c->n_steps, o->n_step_tokens = c->n_step_tokens, o->n_step_seqs = c->n_step_seqs;
    o->kv_slots_sum = c->kv;
    o->n_entries_sum = c->n_entries, o->n_unshared_sum = c->n_unshared;
    memcpy(o->n_steps_of, c->n_steps_of, sizeof o->n_steps_of);
    o->waste_slots = c->waste_slots, o->waste_of_slots = c->waste_of_slots;
    o->n_preemptions = c->n_preemptions, o->n_preempted_tokens = c->n_preempted_tokens;
    o->n_swaps = c->n_swaps;
    for (int t = QR_TIER_POOL + 1; t < QR_TIERS; t++) {
        o->n_slots[t] = qr_kv_tier_n_slots(s->tiers[t]);
        o->n_slots_used[t] = o->n_slots[t] - qr_kv_tier_n_free(s->tiers[t]);
        o->n_blocks_out[t] = c->n_blocks_out[t];
        o->n_blocks_in[t] = c->n_blocks_in[t];
    }
    o->n_cache_queries = c->n_cache_queries, o->n_cache_hits = c->n_cache_hits;
    o->n_cache_generated = c->n_cache_generated;
    memcpy(o->n_cache_hits_of, c->n_cache_hits_of, sizeof o->n_cache_hits_of);
    o->n_spilled[QR_TIER_RAM] = s->spill ? qr_kv_store_n_ready(qr_kv_spill_ram(s->spill)) : 0;
    o->n_spilled[QR_TIER_FILE] = s->spill ? qr_kv_store_n_ready(qr_kv_spill_file(s->spill)) : 0;
    o->n_prompt_tokens = c->n_prompt_tokens, o->n_recomputed_tokens = c->n_recomputed_tokens;
}

static void check_running(const struct qr_sched *s, const struct qr_sched_req *r)
{
    QR_ASSERT(r->state == QR_SCHED_RUNNING && r->n_live > 0); // S3: a state is a queue
    for (int32_t i = 0; i < r->req->n_choices; i++) {
        const struct qr_seq *q = &r->seqs[i];
        QR_ASSERT(q->done == (q->slot < 0));
        if (q->done) continue;
        QR_ASSERT(q->n_computed >= 0 && q->n_computed <= q->n_ids); // S2
        QR_ASSERT(q->n_ids <= r->req->n_prompt + r->req->sampling.max_tokens &&
                  q->n_ids <= s->conf.max_model_len);
        int32_t len = qr_kv_table_len(s->tables, q->slot);
        QR_ASSERT((int64_t)len * s->conf.block_size >= q->n_computed + q->n_granted);
    }
}

// S4: who was preempted is resumed before whoever is served later begins; without classes and keys nobody is
// ever passed over. (The queue checks how often.)
static void check_waiting(const struct qr_sched *s)
{
    const struct qr_queue *w = &s->waiting;
    const struct qr_sched_req *last = s->n_running > 0 ? s->running[s->n_running - 1] : NULL;
    for (const struct qr_sched_req *r = qr_queue_each(w, NULL); r && last; r = qr_queue_each(w, r)) {
        QR_ASSERT(!r->turn || r->aged || !qr_sched_before(r, last)); // who aged did so while it waited
        QR_ASSERT(w->policy->takes_priority || w->policy->by_key || last->order < r->order);
    }
}

void qr_sched_check(const struct qr_sched *s)
{
    qr_kv_pool_check(s->pool);
    qr_kv_tables_check(s->tables, s->n_reads);
    qr_queue_check(&s->waiting);
    sched_check_saved(s);
    sched_check_flight(s);
    sched_check_prefix(s);
    sched_check_spill(s);
    int32_t n_live = 0, n_tokens = 0;
    check_waiting(s);
    for (int32_t i = 0; i < s->n_running; i++) {
        check_running(s, s->running[i]);
        QR_ASSERT(i == 0 || qr_sched_before(s->running[i - 1], s->running[i]));
        n_live += s->running[i]->n_live;
    }
    QR_ASSERT(n_live == s->n_running_seqs && n_live <= s->conf.max_num_seqs);
    for (int32_t i = 0; i < s->plan.n_grants; i++) n_tokens += s->grants[i].n_tokens;
    QR_ASSERT(n_tokens <= s->budget || s->plan.n_grants == 0); // S1
}

static void dump_req(const struct qr_sched_req *r, const char *where, FILE *f)
{
    fprintf(f, "%s request %llu: order %llu, prompt %d, preempted %d times\n", where,
            (unsigned long long)r->id, (unsigned long long)r->order, r->req->n_prompt, r->n_preemptions);
    for (int32_t i = 0; i < r->req->n_choices; i++) {
        const struct qr_seq *q = &r->seqs[i];
        fprintf(f, "  choice %d: slot %d, computed %d of %d%s\n", i, q->slot, q->n_computed, q->n_ids,
                q->done ? ", done" : "");
    }
}

void qr_sched_dump(const struct qr_sched *s, FILE *f)
{
    for (int32_t i = 0; i < s->n_running; i++) dump_req(s->running[i], "running", f);
    for (const struct qr_sched_req *r = qr_queue_each(&s->waiting, NULL); r; r = qr_queue_each(&s->waiting, r))
        dump_req(r, "waiting", f);
    qr_kv_tables_dump(s->tables, f);
    qr_kv_pool_dump(s->pool, f);
    if (s->prefix) qr_kv_prefix_dump(s->prefix, f);
}
