/* Preemption: a running request gives its blocks up and waits again, with its tokens. */
#include "base/assert.h"
#include "sched/sched_internal.h"

// Tokens that would be computed again; a prompt that several sequences share is computed once.
static int32_t tokens_of(const struct qr_sched *s, const struct qr_sched_req *r)
{
    int32_t shared = r->forked && r->n_live > 1 && qr_kv_tables_share(s->tables) ? r->req->n_prompt - 1 : 0, n = shared;
    for (int32_t i = 0; i < r->req->n_choices; i++) {
        const struct qr_seq *q = &r->seqs[i];
        if (q->slot >= 0 && q->n_computed > shared) n += q->n_computed - shared;
    }
    return n;
}

// The cheapest way to preempt v. A tier that would be cheaper but has no room stands in the record all the same,
// for whoever reads the log.
static struct qr_preemption choose(struct qr_sched *s, struct qr_sched_req *v, struct qr_sched_req *for_whom)
{
    const struct qr_preempt_costs *c = &s->preempt_costs;
    struct qr_preemption p = {.victim = v, .for_whom = for_whom, .n_tokens = tokens_of(s, v)};
    if (v->loading) { // what it came back for still waits in its tier
        p.tier = p.best = v->tier;
        p.had_room = true;
        return p;
    }
    p.compute_ns = (uint64_t)p.n_tokens * c->token_ns;
    if (p.n_tokens == 0 || !v->saved) return p;
    for (int t = QR_TIER_POOL + 1; t < QR_TIERS; t++) {
        if (qr_kv_tier_n_slots(s->tiers[t]) == 0) continue;
        p.n_blocks = sched_count_blocks(s, v, (enum qr_tier)t);
        uint64_t ns = p.n_blocks * c->block_ns[t];
        bool room = sched_tier_has_room(s, (enum qr_tier)t, p.n_blocks);
        if (p.best == QR_TIER_POOL || (room && !p.had_room) || (room == p.had_room && ns < p.swap_ns)) {
            p.best = (enum qr_tier)t;
            p.had_room = room;
            p.swap_ns = ns;
        }
    }
    if (p.had_room && (p.swap_ns < p.compute_ns || s->conf.preempt_mode == QR_PREEMPT_SWAP)) p.tier = p.best;
    return p;
}

static void carry_out(struct qr_sched *s, const struct qr_preemption *p)
{
    struct qr_sched_req *v = p->victim;
    for (int32_t i = 0; i < v->req->n_choices; i++)
        if (v->seqs[i].slot >= 0) sched_cache_tail(s, v, &v->seqs[i]);
    if (p->tier != QR_TIER_POOL && !v->loading) sched_save(s, v, p->tier);
    v->loading = false;
    v->found = (struct qr_sched_found){0}; // it is looked for anew
    for (int32_t i = 0; i < v->req->n_choices; i++) {
        struct qr_seq *q = &v->seqs[i];
        if (q->slot < 0) continue;
        int32_t n_computed = q->n_computed;
        sched_order(s, QR_ORDER_CLOSE, v, q);
        sched_release(s, q);
        if (p->tier != QR_TIER_POOL) q->n_computed = n_computed;
    }
    sched_unrun(s, v);
    if (p->tier == QR_TIER_POOL) v->forked = false;
    v->n_preemptions++;
    v->state = QR_SCHED_WAITING;
    qr_queue_insert(&s->waiting, v);
    s->counts.n_preemptions++;
    if (p->tier != QR_TIER_POOL)
        s->counts.n_swaps++;
    else
        s->counts.n_preempted_tokens += (uint64_t)p->n_tokens;
    s->preemptions[s->plan.n_preemptions++] = *p;
}

void sched_preempt(struct qr_sched *s, struct qr_sched_req *v, struct qr_sched_req *for_whom)
{
    struct qr_preemption p = choose(s, v, for_whom);
    p.made_way = for_whom->state == QR_SCHED_WAITING;
    v->n_squeezed++;
    carry_out(s, &p);
}

void sched_force(struct qr_sched *s)
{
    uint64_t every = s->conf.preempt_every;
    bool all = s->i_plan == s->conf.preempt_at, some = every > 0 && s->i_plan % every == 0;
    s->n_forced = 0;
    if (!all && !some) return;
    for (int32_t i = s->n_running - 1; i >= 0; i--) {
        struct qr_sched_req *r = s->running[i];
        struct qr_preemption p = choose(s, r, NULL);
        // Who recomputes must have drawn a token, or a long prompt would never end. Those served before whoever
        // stays do so too (S4).
        if (!all && r->loading) return;
        if (!all && !(p.tier != QR_TIER_POOL ? r->moved : r->drew)) return;
        carry_out(s, &p);
        s->n_forced++;
    }
}

/* One spare block a sequence keeps who was just admitted from being preempted at once. Each preemption of r doubles
 * what it asks for, up to what all of them can ever need: so a request is preempted at most a logarithm of the pool's
 * blocks times, and those that swap each other out come to rest. */
uint32_t sched_spare(const struct qr_sched *s, const struct qr_sched_req *r)
{
    if (s->n_running == 0) return 0; // alone it always fits
    uint64_t n = (uint64_t)(s->n_running_seqs + r->n_live);
    if (r->n_squeezed <= 1) return (uint32_t)n;
    int32_t bs = s->conf.block_size;
    uint64_t most = qr_sched_req_blocks_max(r, bs) - qr_sched_req_blocks(r, bs);
    for (int32_t i = 0; i < s->n_running; i++)
        most += qr_sched_req_blocks_max(s->running[i], bs) - qr_sched_req_blocks(s->running[i], bs);
    n <<= r->n_squeezed - 1 < 24 ? r->n_squeezed - 1 : 24;
    return (uint32_t)(n < most ? n : most);
}
