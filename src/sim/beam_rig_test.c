/* Beam search as vLLM and transformers write it down: a list of histories, all of their candidates sorted. It shares
 * nothing with the engine but the executor, which computes each history from its start. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "sim/exec_sim.h"
#include "sim/rig_internal.h"

#define W_MAX 16
#define N_MAX 220

struct history {
    double sum, score;
    int32_t n, ids[N_MAX];
    bool ended;
};

struct search {
    const struct rig_req *q;
    struct qr_sampling sampling;
    struct qr_exec *x;
    int32_t n_vocab, w, k;
    struct history *beams, *all, *done; // (w), (w * k), (w * k + w)
    int32_t n_beams, n_all, n_done;
};

static int by_sum(const void *a, const void *b)
{
    double x = ((const struct history *)a)->sum, y = ((const struct history *)b)->sum;
    return (x < y) - (x > y);
}

static int by_score(const void *a, const void *b)
{
    double x = ((const struct history *)a)->score, y = ((const struct history *)b)->score;
    return (x < y) - (x > y);
}

static bool ends(const struct qr_sampling *s, int32_t id)
{
    return (s->n_eos > 0 && !s->ignore_eos && id == s->eos[0]) || (s->n_stop_ids > 0 && id == s->stop_ids[0]);
}

// All continuations of a history, with end tokens left out that come too early.
static void expand(struct search *s, const struct history *h)
{
    const struct qr_req *req = &s->q->req;
    int32_t n = req->n_prompt + h->n, n_blocks = (n + 63) / 64;
    int32_t *ids = qr_malloc(QR_MEM_MISC, (size_t)n * sizeof *ids);
    struct qr_batch_caps caps = {.n_seqs = 1, .n_tokens = n, .n_table = n_blocks};
    void *mem = qr_malloc(QR_MEM_MISC, qr_batch_bytes(&caps));
    assert_true(ids && mem);
    memcpy(ids, req->prompt, (size_t)req->n_prompt * sizeof *ids);
    memcpy(ids + req->n_prompt, h->ids, (size_t)h->n * sizeof *ids);
    assert_int_equal(s->x->ops->seq_open(s->x, 0, &s->sampling, 0, ids, req->n_prompt, n), QR_OK);
    struct qr_batch *b = qr_batch_init(mem, &caps);
    b->n_seqs = 1, b->n_tokens = n, b->n_table = n_blocks;
    qr_batch_seqs(b)[0] = (struct qr_batch_seq){0, n, 0, req->n_prompt, 0, 0, n_blocks, QR_BATCH_SAMPLE};
    memcpy(qr_batch_ids(b), ids, (size_t)n * sizeof *ids);
    for (int32_t i = 0; i < n_blocks; i++) qr_batch_table(b)[i] = (uint32_t)i;
    qr_ticket t;
    struct qr_exec_result res;
    assert_int_equal(s->x->ops->submit(s->x, b, &t), QR_OK);
    assert_int_equal(s->x->ops->wait(s->x, t, &res), QR_OK);
    for (int32_t i = 0; i < res.rows[0].n_top; i++) {
        struct qr_top top = res.tops[res.rows[0].first_top + i];
        bool end = ends(&s->sampling, top.id);
        if (end && h->n < s->sampling.min_tokens) continue;
        // vLLM sees a beam's 2 * width likeliest.
        if (end && req->beam.rules == QR_BEAM_VLLM && i >= 2 * s->w) continue;
        struct history *next = &s->all[s->n_all++];
        *next = *h;
        next->ids[next->n++] = top.id;
        next->sum += (double)top.logprob;
        next->ended = end;
    }
    s->x->ops->seq_close(s->x, 0);
    qr_free(ids);
    qr_free(mem);
}

static void keep_done(struct search *s, const struct history *h)
{
    const struct qr_beam *beam = &s->q->req.beam;
    int32_t n = beam->rules == QR_BEAM_VLLM ? s->q->req.n_prompt + h->n - h->ended : h->n;
    s->done[s->n_done] = *h;
    s->done[s->n_done++].score = h->sum / pow(n > 1 ? n : 1, (double)beam->length_penalty);
    qsort(s->done, (size_t)s->n_done, sizeof *s->done, by_score);
    if (s->n_done > s->w) s->n_done = s->w;
}

// One step; false when the search ends by the rules of early stopping.
static bool advance(struct search *s)
{
    const struct qr_beam *beam = &s->q->req.beam;
    bool vllm = beam->rules == QR_BEAM_VLLM, last = s->beams[0].n + 1 == s->sampling.max_tokens;
    s->n_all = 0;
    for (int32_t i = 0; i < s->n_beams; i++) expand(s, &s->beams[i]);
    qsort(s->all, (size_t)s->n_all, sizeof *s->all, by_sum);
    s->n_beams = 0;
    for (int32_t i = 0; i < s->n_all; i++) {
        const struct history *h = &s->all[i];
        if (vllm ? h->ended : i < s->w && (h->ended || last)) keep_done(s, h);
        if (!h->ended && s->n_beams < s->w) s->beams[s->n_beams++] = *h;
    }
    if (last) {
        for (int32_t i = 0; vllm && i < s->n_beams; i++) keep_done(s, &s->beams[i]);
        return false;
    }
    if (s->n_done < s->w) return true;
    if (beam->early_stopping == QR_BEAM_FULL) return false;
    if (vllm && beam->early_stopping == QR_BEAM_NEVER) return true; // vLLM goes on to the end
    int32_t n = s->beams[0].n;
    if (beam->early_stopping == QR_BEAM_NEVER && beam->length_penalty > 0) n = s->sampling.max_tokens;
    if (vllm) n += s->q->req.n_prompt;
    return s->beams[0].sum / pow(n, (double)beam->length_penalty) > s->done[s->w - 1].score;
}

void sim_rig_beams(const struct rig_req *q, int32_t n_vocab, struct rig_text *out)
{
    const struct qr_req *req = &q->req;
    int32_t all = req->n_prompt + req->sampling.max_tokens;
    struct search s = {.q = q, .sampling = req->sampling, .n_vocab = n_vocab, .w = req->beam.width, .n_beams = 1};
    int32_t n_ends = (int32_t)(req->sampling.n_eos * !req->sampling.ignore_eos + req->sampling.n_stop_ids);
    s.k = s.w + n_ends > 2 * s.w ? s.w + n_ends : 2 * s.w;
    s.sampling.n_candidates = s.k;
    assert_true(s.w <= W_MAX && req->sampling.max_tokens <= N_MAX);
    struct qr_exec_sim_conf sc = {.n_slots = 1,
                                  .n_tokens_max = all,
                                  .block_size = 64,
                                  .n_vocab = n_vocab,
                                  .ctx_max = all,
                                  .n_blocks = (uint32_t)(all + 63) / 64};
    assert_int_equal(qr_exec_sim_new(&sc, &s.x, NULL), QR_OK);
    s.beams = qr_calloc(QR_MEM_MISC, (size_t)s.w, sizeof *s.beams);
    s.all = qr_calloc(QR_MEM_MISC, (size_t)(s.w * s.k), sizeof *s.all);
    s.done = qr_calloc(QR_MEM_MISC, (size_t)s.w + 1, sizeof *s.done);
    assert_true(s.beams && s.all && s.done);
    while (advance(&s)) {
    }
    assert_int_equal(s.n_done, s.w);
    for (int32_t i = 0; i < s.w; i++) {
        const struct history *h = &s.done[i];
        out[i] = (struct rig_text){.n = h->n, .finish = h->ended ? QR_FINISH_STOP : QR_FINISH_LENGTH};
        out[i].tokens = qr_malloc(QR_MEM_MISC, (size_t)h->n * sizeof(int32_t));
        assert_non_null(out[i].tokens);
        memcpy(out[i].tokens, h->ids, (size_t)h->n * sizeof(int32_t));
    }
    qr_free(s.beams);
    qr_free(s.all);
    qr_free(s.done);
    s.x->ops->close(s.x);
}
