/* Making way: under a policy with classes, a running request gives its place to a waiting one of a better
 * class. One a step: the places that it leaves are seen in the next one, and then the waiting one is admitted. */
#include "sched/sched_internal.h"

static bool yields_to(const struct qr_sched_req *v, const struct qr_sched_req *r)
{
    return v->class > r->class && !v->aged;
}

static int64_t blocks_kept(const struct qr_sched *s, const struct qr_sched_req *r)
{
    int64_t n = 0;
    for (int32_t i = 0; i < r->req->n_choices; i++)
        if (r->seqs[i].slot >= 0) n += qr_kv_table_len(s->tables, r->seqs[i].slot);
    int64_t all = qr_sched_req_blocks(r, s->conf.block_size);
    return n > all ? n : all;
}

// Whether r would be admitted if everybody made way who does. Shared blocks count more than once, so this
// errs on the side of leaving the others alone.
static bool would_help(const struct qr_sched *s, const struct qr_sched_req *r)
{
    int64_t n_blocks = qr_sched_req_blocks(r, s->conf.block_size), n_seqs = r->n_live;
    for (int32_t i = 0; i < s->n_running; i++) {
        if (yields_to(s->running[i], r)) continue;
        n_blocks += blocks_kept(s, s->running[i]);
        n_seqs += s->running[i]->n_live;
    }
    int64_t spare = n_seqs > r->n_live ? n_seqs : 0; // as sched_spare
    if (r->n_squeezed > 1) spare <<= r->n_squeezed - 1 < 24 ? r->n_squeezed - 1 : 24;
    return n_seqs <= s->conf.max_num_seqs && n_blocks + spare <= s->conf.n_blocks;
}

void sched_make_way(struct qr_sched *s)
{
    struct qr_sched_req *r = s->waiting.head;
    if (!r || s->n_running == 0 || !s->waiting.policy->makes_way) return;
    if (r->n_io > 0 || sched_frees_soon(s)) return; // it is I/O that r waits for
    // Baselines of layout and batching promise never to preempt.
    if (s->conf.layout != QR_KV_PAGED || s->conf.batching != QR_BATCHING_CONTINUOUS) return;
    // The last one is of the latest class; who is aged runs before all that are not.
    struct qr_sched_req *v = s->running[s->n_running - 1];
    if (!yields_to(v, r) || sched_has_room(s, r) || s->hit->must_wait || !would_help(s, r)) return;
    v->n_yields++;
    s->counts.n_yields++;
    sched_preempt(s, v, r);
}
