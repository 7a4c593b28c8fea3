/* What may come when in a trace. The scheduler trusts its engine; whoever replays a file checks what the engine would have
 * seen to. */
#include <string.h>

#include "sim/replay_internal.h"

#define BLOCKS_MAX (1u << 26) // of a pool, and of all tiers
#define ENTRIES_MAX (1 << 28) // of all block tables

static const struct {
    const char *letters; // that may come
    const char *want;
} phases[] = {
    [REPLAY_START] = {"SXUAERMWPI", "one of S X U A R M W P"},
    [REPLAY_BETWEEN] = {"SXAERMWPI", "what comes between two steps, one of S X A E R M W P I"},
    [REPLAY_PLANNED] = {"O", "O behind P"},
    [REPLAY_ORDERED] = {"EB", "B behind O"},
    [REPLAY_BATCHED] = {"SXDF", "D or F behind B"},
    [REPLAY_COMPUTED] = {"TVQEJSXARMWPI", "what comes behind a step"},
    [REPLAY_FAILED] = {"EJSXARMWPI", "E, for what failed"},
    [REPLAY_OVER] = {"JSXAERMWPI", "what comes between two steps, one of S X A E R M W P I"},
    [REPLAY_FLUSHING] = {"ZF", "Z or F behind W"},
};

static bool is_of_step(char letter)
{
    return strchr("TVQEJ", letter) != NULL;
}

// All that a step brought must have been told before anything else.
static enum qr_status leave_step(struct replay *p)
{
    const struct qr_io *io;
    if (p->n_owing > 0)
        return replay_bad(p, p->phase == REPLAY_FAILED ? "E for each request of the step that failed"
                                                       : "T, V or E for each sequence that has computed all it knows");
    if (qr_sched_io(p->s, &io) > 0) return replay_bad(p, "J, for the I/O that begins");
    p->phase = REPLAY_BETWEEN;
    return QR_OK;
}

enum qr_status replay_enter(struct replay *p, char letter)
{
    if (letter == 0 || !strchr("ABDEFIJMOPQRSTUVWXZ", letter))
        return replay_bad(p, "a line that begins with one of A B C D E F I J M O P Q R S T U V W X Z");
    if (!strchr(phases[p->phase].letters, letter)) return replay_bad(p, phases[p->phase].want);
    bool after = p->phase == REPLAY_COMPUTED || p->phase == REPLAY_FAILED || p->phase == REPLAY_OVER;
    if (after && !is_of_step(letter)) return leave_step(p);
    if (after && letter == 'J' && p->n_owing > 0) return leave_step(p);
    if (p->phase == REPLAY_START && !strchr("SXU", letter)) p->phase = REPLAY_BETWEEN;
    return QR_OK;
}

static bool owes(const struct qr_sched_req *r)
{
    if (r->state != QR_SCHED_RUNNING || r->loading) return false;
    bool any = false, all = true;
    for (int32_t i = 0; i < r->req->n_choices; i++) {
        const struct qr_seq *q = &r->seqs[i];
        if (q->done) continue;
        any |= q->n_computed == q->n_ids;
        all &= qr_seq_wanted(r, q) <= q->n_computed;
    }
    // Beams need not be computed in the same step, and choose together.
    return r->req->beam.width > 0 ? all : any;
}

void replay_settle(struct replay *p, struct replay_live *l)
{
    bool now = l->must_end || owes(l->r);
    p->n_owing += now - l->owes;
    l->owes = now;
}

bool replay_costs_are_sane(const uint64_t *v, int n)
{
    for (int i = 0; i < n; i++)
        if (v[i] > QR_COST_MAX) return false;
    return true;
}

bool replay_conf_is_sane(const uint64_t v[QR_TRACE_CONF_NUMBERS], const struct qr_sched_conf *c)
{
    uint64_t again[QR_TRACE_CONF_NUMBERS], n_slots = c->n_staging;
    qr_trace_conf_pack(c, again);
    if (memcmp(again, v, sizeof again) != 0) return false; // a number did not fit its field
    for (int t = 0; t < QR_TIERS; t++) n_slots += (uint64_t)c->n_slots[t] + c->n_prefix[t];
    bool has_file = c->n_slots[QR_TIER_FILE] + c->n_prefix[QR_TIER_FILE] > 0;
    return c->max_num_seqs >= 1 && c->max_num_seqs <= 65536 && c->max_num_batched_tokens >= 1 &&
           c->max_num_batched_tokens <= 1 << 20 && c->max_model_len >= 1 && c->max_model_len <= 1 << 26 &&
           c->block_size >= 1 && c->block_size <= 65536 && c->n_blocks >= 1 && c->n_blocks <= BLOCKS_MAX &&
           c->layout < QR_KV_LAYOUTS && c->batching <= QR_BATCHING_STATIC && c->preempt_mode <= QR_PREEMPT_RECOMPUTE &&
           c->page_blocks <= BLOCKS_MAX && c->starve_steps >= 0 && n_slots <= BLOCKS_MAX &&
           c->n_slots[QR_TIER_POOL] + c->n_prefix[QR_TIER_POOL] == 0 && (!has_file || c->layout == QR_KV_PAGED) &&
           (int64_t)c->max_num_seqs * (c->max_model_len / c->block_size + 1) <= ENTRIES_MAX &&
           replay_costs_are_sane(&c->preempt_costs.token_ns, 1) && replay_costs_are_sane(c->preempt_costs.block_ns, QR_TIERS);
}

bool replay_moves_are_sane(const struct qr_sched_req *r, const struct qr_beam_move *moves, int32_t n)
{
    bool is_whole[QR_CHOICES_MAX], all = true;
    if (r->state != QR_SCHED_RUNNING || r->req->beam.width == 0 || r->loading) return false;
    for (int32_t i = 0; i < r->req->n_choices; i++) is_whole[i] = !r->seqs[i].done && r->seqs[i].n_computed == r->seqs[i].n_ids;
    for (int32_t i = 0; i < n; i++) {
        const struct qr_beam_move *m = &moves[i];
        if (m->from == m->to || !is_whole[m->from] || r->seqs[m->to].done) return false;
        is_whole[m->to] = true;
    }
    for (int32_t i = 0; i < r->req->n_choices; i++) all &= is_whole[i] || r->seqs[i].done;
    return all;
}
