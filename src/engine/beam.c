/* Beam search: which candidates live on, which are finished, when it ends. The executor reports each beam's likeliest
 * next tokens; when all beams of a request have theirs, this chooses, moves the sequences (sched/beam.c) and gives each
 * its token. A step of a search may take several steps of the engine: beams need not be computed together. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "engine/engine_internal.h"

struct mark { // of a token: what is reported with it
    float logprob;
    int32_t rank;
};

struct beam_pick { // a candidate that was chosen
    int32_t parent, token;
    struct mark mark;
    double sum;
};

struct beam_done { // a finished answer
    double score;
    int32_t n_ids, end; // end: the end token, or -1
    int32_t row;        // of done_ids and done_marks
};

// Arrays stand behind the record, in one allocation.
struct engine_beam {
    int32_t width, k, max_tokens;
    int32_t n_generated; // of every beam
    int32_t n_settled;   // of them, the same in everything that lives or is finished, and published
    int32_t n_live;      // beams: one until the first step, then width
    int32_t n_done;
    double *sums;               // (width) by choice: log-probability of its tokens
    int32_t *order;             // (width) choices, best first
    int32_t *n_cands;           // (width) by choice; 0: not known yet
    int32_t *heads;             // (width) by place in order: the next candidate to look at
    struct qr_top *cands;       // (width, k)
    struct mark *marks;         // (width, max_tokens) by choice
    struct beam_pick *picks;    // (width)
    struct qr_beam_move *moves; // (width)
    int32_t *to;                // (width) the choice that each pick becomes
    struct beam_done *done;     // (width) best first
    int32_t *done_ids;          // (width, max_tokens)
    struct mark *done_marks;    // (width, max_tokens)
};

static size_t n_ends(const struct qr_sampling *s)
{
    return (s->ignore_eos ? 0 : s->n_eos) + s->n_stop_ids;
}

// From each beam the width best that are no end token suffice, and vLLM looks at 2 * width.
int32_t engine_beam_candidates(const struct qr_req *req)
{
    int32_t w = req->beam.width, with_ends = w + (int32_t)n_ends(&req->sampling);
    return w == 0 ? 0 : with_ends > 2 * w ? with_ends : 2 * w;
}

enum qr_status engine_beam_check(const struct qr_engine *e, const struct qr_req *req, struct qr_error *err)
{
    if (req->beam.width > QR_CHOICES_MAX || req->beam.width != req->n_choices)
        return qr_fail_param(err, QR_EINVAL, "n", "a beam search returns its %d beams, not %d answers", req->beam.width,
                             req->n_choices);
    if (!isfinite(req->beam.length_penalty))
        return qr_fail_param(err, QR_EINVAL, "length_penalty", "length_penalty must be a finite number");
    if (req->sampling.max_tokens < 1)
        return qr_fail_param(err, QR_EINVAL, "max_tokens", "a beam search generates at least 1 token");
    if (n_ends(&req->sampling) > QR_BEAM_ENDS_MAX)
        return qr_fail_param(err, QR_EINVAL, "stop_token_ids", "a beam search takes at most %d end tokens, got %zu",
                             QR_BEAM_ENDS_MAX, n_ends(&req->sampling));
    if (engine_beam_candidates(req) <= e->info.n_vocab) return QR_OK;
    return qr_fail_param(err, QR_EINVAL, "n", "%d beams need %d candidates each; the vocabulary has %d tokens",
                         req->beam.width, engine_beam_candidates(req), e->info.n_vocab);
}

static void *carve(char *base, size_t *at, size_t count, size_t bytes)
{
    void *p = base ? base + *at : NULL;
    *at += (count * bytes + 7) & ~(size_t)7;
    return p;
}

// Sizes with base NULL, else places.
static size_t lay_out(struct engine_beam *b, char *base)
{
    size_t w = (size_t)b->width, k = (size_t)b->k, n = (size_t)b->max_tokens, at = 0;
    carve(base, &at, 1, sizeof *b);
    b->sums = carve(base, &at, w, sizeof *b->sums);
    b->order = carve(base, &at, w, sizeof *b->order);
    b->n_cands = carve(base, &at, w, sizeof *b->n_cands);
    b->heads = carve(base, &at, w, sizeof *b->heads);
    b->cands = carve(base, &at, w * k, sizeof *b->cands);
    b->picks = carve(base, &at, w, sizeof *b->picks);
    b->moves = carve(base, &at, w, sizeof *b->moves);
    b->to = carve(base, &at, w, sizeof *b->to);
    b->done = carve(base, &at, w, sizeof *b->done);
    b->marks = carve(base, &at, w * n, sizeof *b->marks);
    b->done_ids = carve(base, &at, w * n, sizeof *b->done_ids);
    b->done_marks = carve(base, &at, w * n, sizeof *b->done_marks);
    return at;
}

enum qr_status engine_beam_new(const struct qr_req *req, struct engine_beam **out)
{
    struct engine_beam b = {.width = req->beam.width,
                            .k = engine_beam_candidates(req),
                            .max_tokens = req->sampling.max_tokens,
                            .n_live = 1};
    char *mem = qr_malloc(QR_MEM_REQ, lay_out(&b, NULL));
    if (!mem) return QR_ENOMEM;
    lay_out(&b, mem);
    for (int32_t i = 0; i < b.width; i++) {
        b.order[i] = i;
        b.sums[i] = 0;
        b.n_cands[i] = 0;
    }
    *(struct engine_beam *)mem = b;
    *out = (struct engine_beam *)mem;
    return QR_OK;
}

void engine_beam_free(struct engine_beam **b)
{
    qr_free(*b);
    *b = NULL;
}

// ==== Finished answers ====

// What a sum of log-probabilities is divided by, at n generated tokens.
static double norm_of(const struct qr_req *req, int32_t n, bool ended)
{
    if (req->beam.rules == QR_BEAM_VLLM) n += req->n_prompt - ended;
    return pow(n > 1 ? n : 1, (double)req->beam.length_penalty);
}

// Enters an answer, a beam and perhaps one more token, unless as many better ones are there.
static void finish_beam(struct engine_beam *b, const struct qr_sched_req *r, const struct beam_pick *p, bool is_end)
{
    int32_t n = b->n_generated, at = b->n_done, row = b->n_done;
    double score = p->sum / norm_of(r->req, n + 1, is_end);
    while (at > 0 && b->done[at - 1].score < score) at--;
    if (at == b->width) return;
    if (b->n_done == b->width) row = b->done[--b->n_done].row;
    for (int32_t i = b->n_done; i > at; i--) b->done[i] = b->done[i - 1];
    b->n_done++;
    b->done[at] = (struct beam_done){score, n + 1, is_end ? p->token : -1, row};
    size_t first = (size_t)row * (size_t)b->max_tokens, from = (size_t)p->parent * (size_t)b->max_tokens;
    memcpy(b->done_ids + first, r->seqs[p->parent].generated, (size_t)n * sizeof *b->done_ids);
    memcpy(b->done_marks + first, b->marks + from, (size_t)n * sizeof *b->done_marks);
    b->done_ids[first + (size_t)n] = p->token;
    b->done_marks[first + (size_t)n] = p->mark;
}

// Whether a beam may still become better than the worst of the finished answers. Sums only fall.
static bool may_improve(const struct engine_beam *b, const struct qr_req *req, double best_sum)
{
    if (b->n_done < b->width) return true;
    bool never = req->beam.early_stopping == QR_BEAM_NEVER;
    int32_t n = never && req->beam.length_penalty > 0 ? b->max_tokens : b->n_generated;
    return best_sum / norm_of(req, n, false) > b->done[b->width - 1].score;
}

// ==== A step of the search ====

static bool is_end(const struct qr_sampling *s, int32_t id)
{
    for (size_t i = 0; !s->ignore_eos && i < s->n_eos; i++)
        if (s->eos[i] == id) return true;
    for (size_t i = 0; i < s->n_stop_ids; i++)
        if (s->stop_ids[i] == id) return true;
    return false;
}

// The best candidate of all that were not looked at; equal ones in the order of beams. False: there is none.
static bool next_candidate(struct engine_beam *b, struct beam_pick *out)
{
    int32_t best = -1;
    for (int32_t i = 0; i < b->n_live; i++) {
        int32_t c = b->order[i], at = b->heads[i];
        if (at >= b->n_cands[c]) continue;
        const struct qr_top *t = &b->cands[(size_t)c * (size_t)b->k + (size_t)at];
        double sum = b->sums[c] + (double)t->logprob;
        if (best >= 0 && !(sum > out->sum)) continue;
        best = i;
        *out = (struct beam_pick){c, t->id, {t->logprob, at + 1}, sum};
    }
    if (best < 0) return false;
    b->heads[best]++;
    return true;
}

// Goes through the candidates, best first: end tokens finish answers, the others go on, and last tokens finish them all.
// False: there are too few candidates, because a row held no numbers.
static bool choose(struct engine_beam *b, const struct qr_sched_req *r)
{
    const struct qr_req *req = r->req;
    bool vllm = req->beam.rules == QR_BEAM_VLLM, last = b->n_generated + 1 == b->max_tokens;
    struct beam_pick p = {0};
    bool early = b->n_generated < req->sampling.min_tokens;
    int32_t n = 0, rank = 0;
    memset(b->heads, 0, (size_t)b->width * sizeof *b->heads);
    for (; (vllm || rank < b->width || (n < b->width && !last)) && next_candidate(b, &p); rank++) {
        bool end = is_end(&req->sampling, p.token);
        if (end && early) {
            rank--; // as if it were not there
            continue;
        }
        if (end && (vllm ? p.mark.rank <= 2 * b->width : rank < b->width)) finish_beam(b, r, &p, true);
        if (end || n == b->width) continue;
        if (last) finish_beam(b, r, &p, false);
        b->picks[n++] = p;
    }
    return (last && !vllm ? rank : n) >= b->width;
}

// Each pick becomes a sequence: the first child of a beam stays where its parent is, the others take the places of
// beams that have none.
static int32_t place(struct engine_beam *b)
{
    int32_t n_moves = 0, free_at = 0;
    uint64_t taken = 0;
    for (int32_t i = 0; i < b->width; i++) {
        uint64_t bit = (uint64_t)1 << b->picks[i].parent;
        b->to[i] = taken & bit ? -1 : b->picks[i].parent;
        taken |= bit;
    }
    for (int32_t i = 0; i < b->width; i++) {
        if (b->to[i] >= 0) continue;
        while (taken >> free_at & 1) free_at++;
        b->to[i] = free_at;
        b->moves[n_moves++] = (struct qr_beam_move){b->picks[i].parent, free_at};
        taken |= (uint64_t)1 << free_at;
    }
    return n_moves;
}

static void go_on(struct qr_engine *e, struct qr_sched_req *r, struct engine_beam *b)
{
    int32_t n_moves = place(b);
    size_t n = (size_t)b->n_generated, stride = (size_t)b->max_tokens;
    trace_beams(e, r, b->moves, n_moves);
    qr_sched_move_beams(e->sched, r, b->moves, n_moves);
    for (int32_t i = 0; i < n_moves; i++) {
        const struct qr_beam_move *m = &b->moves[i];
        e->exec->ops->seq_fork(e->exec, r->seqs[m->from].slot, r->seqs[m->to].slot);
        memcpy(b->marks + (size_t)m->to * stride, b->marks + (size_t)m->from * stride, n * sizeof *b->marks);
    }
    for (int32_t i = 0; i < b->width; i++) {
        struct qr_seq *q = &r->seqs[b->to[i]];
        trace_token(e, r, q->choice, b->picks[i].token);
        qr_sched_append(r, q, b->picks[i].token);
        e->exec->ops->seq_append(e->exec, q->slot, b->picks[i].token);
        b->sums[b->to[i]] = b->picks[i].sum;
        b->marks[(size_t)b->to[i] * stride + n] = b->picks[i].mark;
        b->order[i] = b->to[i];
    }
    b->n_live = b->width;
    b->n_generated++;
    memset(b->n_cands, 0, (size_t)b->width * sizeof *b->n_cands);
    e->counts.n_generated_tokens += (uint64_t)b->width;
}

// ==== What goes out ====

static void publish_token(struct qr_engine *e, struct engine_req *er, int32_t choice, int32_t i, int32_t token,
                          struct mark mark)
{
    bool report = er->r->req->sampling.n_logprobs >= 0;
    struct qr_out_row row = {.pos = er->r->req->n_prompt + i - 1,
                             .token = token,
                             .logprob = report ? mark.logprob : 0,
                             .rank = report ? mark.rank : 0};
    engine_publish_row(e, er, &er->r->seqs[choice], &row, NULL);
}

// Tokens that every answer will begin with.
static void publish_settled(struct qr_engine *e, struct engine_req *er)
{
    struct engine_beam *b = er->beam;
    const struct qr_sched_req *r = er->r;
    for (; b->n_settled < b->n_generated; b->n_settled++) {
        int32_t at = b->n_settled, token = r->seqs[0].generated[at];
        for (int32_t i = 1; i < b->width; i++)
            if (r->seqs[i].generated[at] != token) return;
        for (int32_t i = 0; i < b->n_done; i++)
            if (at >= b->done[i].n_ids || b->done_ids[(size_t)b->done[i].row * (size_t)b->max_tokens + (size_t)at] != token)
                return;
        for (int32_t i = 0; i < b->width; i++) publish_token(e, er, i, at, token, b->marks[at]);
    }
}

// The answers, best first. The request is gone afterwards.
static void end_search(struct qr_engine *e, struct engine_req *er)
{
    struct engine_beam *b = er->beam;
    QR_ASSERT(b->n_done == b->width);
    for (int32_t i = 0, n = b->width; i < n; i++) {
        const struct beam_done *d = &b->done[i];
        size_t first = (size_t)d->row * (size_t)b->max_tokens;
        for (int32_t at = b->n_settled; at < d->n_ids; at++)
            publish_token(e, er, i, at, b->done_ids[first + (size_t)at], b->done_marks[first + (size_t)at]);
        enum qr_finish finish = d->end >= 0 ? QR_FINISH_STOP : QR_FINISH_LENGTH;
        if (!engine_finish(e, er, i, finish, d->end, NULL)) return;
    }
}

static void step(struct qr_engine *e, struct engine_req *er)
{
    struct engine_beam *b = er->beam;
    const struct qr_req *req = er->r->req;
    bool last = b->n_generated + 1 == b->max_tokens;
    if (!choose(b, er->r)) {
        engine_finish_all(e, er, UINT64_MAX, QR_FINISH_ERROR, "the model's output is not a number");
        return;
    }
    if (last) {
        e->counts.n_generated_tokens += (uint64_t)b->width;
        end_search(e, er);
        return;
    }
    double best_sum = b->picks[0].sum;
    go_on(e, er->r, b);
    bool full = b->n_done == b->width && req->beam.early_stopping == QR_BEAM_FULL;
    if (full || !may_improve(b, req, best_sum))
        end_search(e, er);
    else
        publish_settled(e, er);
}

void engine_beam_expect(struct engine_beam *b, int32_t choice)
{
    b->n_cands[choice] = 0;
}

void engine_beam_take(struct qr_engine *e, struct engine_req *er, const struct qr_seq *q, const struct qr_out_row *row,
                      const struct qr_top *tops)
{
    struct engine_beam *b = er->beam;
    QR_ASSERT(row->pos + 1 == q->n_ids && row->n_top <= b->k);
    memcpy(b->cands + (size_t)q->choice * (size_t)b->k, tops, (size_t)row->n_top * sizeof *tops);
    // Nothing is likely: it counts as here, and choose() finds too few.
    b->n_cands[q->choice] = row->n_top > 0 ? row->n_top : -1;
    for (int32_t i = 0; i < b->n_live; i++) {
        const struct qr_seq *other = &er->r->seqs[i];
        if (b->n_cands[i] == 0 || other->n_computed != other->n_ids) return;
    }
    step(e, er);
}
