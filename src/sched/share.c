/* Shares of a step's token budget: a token for each generating sequence, chunks for prompts. */
#include "sched/sched_internal.h"

bool sched_generates(const struct qr_sched_req *r, const struct qr_seq *q)
{
    return r->forked && !q->done && !r->loading && q->n_computed >= r->req->n_prompt && q->n_ids - q->n_computed == 1;
}

static bool has_turn_before(const struct sched_turn *t, const struct sched_pick *p)
{
    if (t->at.turn == p->r->turn) return t->choice < p->seq->choice;
    return qr_sched_before(&t->at, p->r);
}

// One token for every generating sequence; when they are more than cap, the next cap of the round.
int32_t sched_share_generating(struct qr_sched *s, int32_t cap)
{
    int32_t n = 0, start = 0;
    for (int32_t i = 0; i < s->n_running; i++)
        for (int32_t j = 0; j < s->running[i]->req->n_choices; j++)
            if (sched_generates(s->running[i], &s->running[i]->seqs[j]))
                s->picks[n++] = (struct sched_pick){s->running[i], &s->running[i]->seqs[j]};
    if (n <= cap)
        cap = n;
    else
        while (start < n && !has_turn_before(&s->turn, &s->picks[start])) start++;
    for (int32_t i = 0; i < cap; i++) s->picks[(start + i) % n].seq->n_granted = 1;
    if (cap > 0) {
        const struct sched_pick *last = &s->picks[(start + cap - 1) % n];
        s->turn.choice = last->seq->choice;
        s->turn.at = (struct qr_sched_req){.aged = last->r->aged,
                                           .class = last->r->class,
                                           .turn = last->r->turn,
                                           .rank = last->r->rank,
                                           .order = last->r->order};
    }
    return cap;
}

// The chunk, as far as tokens go, for a sequence that has `remaining` tokens to compute, of `left` in the budget. Ends on a tile's
// border unless it is the last; a piece of a tile is computed only where nothing else is.
static int32_t tokens_of(const struct qr_seq *q, int32_t remaining, int32_t left, bool alone)
{
    if (remaining <= left) return remaining;
    int32_t aligned = (q->n_computed + left) / SCHED_CHUNK * SCHED_CHUNK - q->n_computed;
    if (aligned > 0) return aligned;
    return alone ? left : 0;
}

int32_t sched_chunk_of(const struct qr_sched *s, const struct qr_sched_req *r, const struct qr_seq *q,
                       int32_t remaining, int32_t left, bool alone)
{
    int32_t n = tokens_of(q, remaining, left, alone);
    return sched_time_limit(s, r, q, n, n == remaining);
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
            if (remaining > 0 && r->seqs[j].n_granted == 0 && !sched_generates(r, &r->seqs[j]) &&
                n + remaining <= half)
                n += remaining;
        }
    }
    struct qr_sched_req *next = s->waiting.head;
    if (!next || !sched_has_room(s, next)) return n;
    int32_t first = sched_first_part(s, next);
    int32_t part = first < SCHED_CHUNK || n + first <= half ? first : SCHED_CHUNK;
    return n + part <= half ? n + part : n;
}

void sched_share_chunks(struct qr_sched *s, int32_t left, bool alone)
{
    left = sched_time_rows(s, left);
    int32_t kept = -1; // for those behind the first long prompt; -1: none came yet
    for (int32_t i = 0; i < s->n_running; i++) {
        struct qr_sched_req *r = s->running[i];
        for (int32_t j = 0; j < r->req->n_choices && left > 0; j++) {
            struct qr_seq *q = &r->seqs[j];
            int32_t remaining = qr_seq_wanted(r, q) - q->n_computed;
            if (q->n_granted > 0 || remaining <= 0 || sched_generates(r, q)) continue;
            if (remaining > left) {
                if (kept < 0) kept = left_behind(s, i, left);
                q->n_granted = sched_chunk_of(s, r, q, remaining, left - kept, alone);
            } else {
                q->n_granted = sched_time_limit(s, r, q, remaining, true);
                if (kept > 0) kept = kept > remaining ? kept - remaining : 0;
            }
            sched_time_spend(s, r, q, q->n_granted);
            left -= q->n_granted;
            alone &= q->n_granted == 0;
        }
    }
}

bool sched_prompt_work(const struct qr_sched *s)
{
    for (int32_t i = 0; i < s->n_running; i++)
        for (int32_t j = 0; j < s->running[i]->req->n_choices; j++) {
            const struct qr_seq *q = &s->running[i]->seqs[j];
            if (qr_seq_wanted(s->running[i], q) > q->n_computed && !sched_generates(s->running[i], q)) return true;
        }
    return s->waiting.n > 0 && s->n_running_seqs + s->waiting.head->n_live <= s->conf.max_num_seqs;
}
