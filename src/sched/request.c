#include "sched/request.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "kv/table.h"

// Blocks of n choices that share a prompt and then grow to n_tokens each: whole blocks of the prompt but its
// last token are shared, the rest is each choice's own.
static int64_t blocks_of_choices(int32_t n_choices, int32_t n_prompt, int32_t n_tokens, int32_t block_size)
{
    int64_t all = qr_kv_blocks_for(n_tokens, block_size);
    int64_t shared = n_choices > 1 ? (n_prompt - 1) / block_size : 0;
    return shared + n_choices * (all - shared);
}

// Layouts that share nothing: each choice needs its own run, or its own pages.
static enum qr_status fits_layout(const struct qr_sched_conf *conf, const struct qr_req *req,
                                  struct qr_error *err)
{
    int32_t n_total = req->n_prompt + req->sampling.max_tokens;
    struct qr_kv_layout_conf c = {.kind = conf->layout,
                                  .block_size = conf->block_size,
                                  .max_len = conf->max_model_len,
                                  .n_blocks = conf->n_blocks,
                                  .page_blocks = conf->page_blocks ? conf->page_blocks : 1};
    struct qr_kv_want w = {req->n_prompt, n_total, n_total};
    if ((uint32_t)req->n_choices <= qr_kv_layout_capacity(&c, &w)) return QR_OK;
    char times[32] = "";
    if (req->n_choices > 1) snprintf(times, sizeof times, " for each of %d choices", req->n_choices);
    return qr_fail_param(err, QR_ETOOBIG, "max_tokens",
                         "prompt %d + max_tokens %d = %d tokens%s need %u blocks of %d in one %s; the pool has %u", req->n_prompt,
                         req->sampling.max_tokens, n_total, times, qr_kv_layout_claim(&c, &w), conf->block_size,
                         conf->layout == QR_KV_VIRTUAL ? "address range" : "run", conf->n_blocks);
}

enum qr_status qr_sched_req_fits(const struct qr_sched_conf *conf, const struct qr_req *req,
                                 struct qr_error *err)
{
    int32_t n_prompt = req->n_prompt, max_tokens = req->sampling.max_tokens, n = req->n_choices;
    if (n_prompt < 1)
        return qr_fail_param(err, QR_EINVAL, "prompt", "the prompt is empty: at least 1 token is needed");
    if (max_tokens < 0)
        return qr_fail_param(err, QR_EINVAL, "max_tokens", "max_tokens must be >= 0, got %d", max_tokens);
    if (n < 1 || n > QR_CHOICES_MAX)
        return qr_fail_param(err, QR_EINVAL, "n", "n must be 1 to %d, got %d", QR_CHOICES_MAX, n);
    int64_t n_tokens = (int64_t)n_prompt + max_tokens;
    if (n_tokens > conf->max_model_len)
        return qr_fail_param(
            err, QR_ETOOBIG, n_prompt >= conf->max_model_len ? "prompt" : "max_tokens",
            "This model's maximum context length is %d tokens. However, prompt %d + max_tokens %d = "
            "%lld tokens were asked for",
            conf->max_model_len, n_prompt, max_tokens, (long long)n_tokens);
    if (n > conf->max_num_seqs)
        return qr_fail_param(err, QR_ETOOBIG, "n", "%d choices run at once; max_num_seqs is %d", n,
                             conf->max_num_seqs);
    if (conf->layout != QR_KV_PAGED && req->beam.width > 1)
        return qr_fail_param(err, QR_ENOTSUP, "use_beam_search",
                             "beam search shares blocks, which only the paged KV layout can");
    if (conf->layout != QR_KV_PAGED) return fits_layout(conf, req, err);
    int64_t n_blocks = blocks_of_choices(n, n_prompt, (int32_t)n_tokens, conf->block_size);
    if (n_blocks <= conf->n_blocks) return QR_OK;
    const char *param =
        qr_kv_blocks_for(n_prompt, conf->block_size) > (int64_t)conf->n_blocks ? "prompt" : "max_tokens";
    if (n == 1)
        return qr_fail_param(
            err, QR_ETOOBIG, param,
            "prompt %d + max_tokens %d = %lld tokens need %lld blocks of %d; the pool has %u", n_prompt,
            max_tokens, (long long)n_tokens, (long long)n_blocks, conf->block_size, conf->n_blocks);
    return qr_fail_param(
        err, QR_ETOOBIG, param,
        "prompt %d + max_tokens %d = %lld tokens, in %d choices that share the prompt, need %lld blocks "
        "of %d; the pool has %u",
        n_prompt, max_tokens, (long long)n_tokens, n, (long long)n_blocks, conf->block_size, conf->n_blocks);
}

enum qr_status qr_sched_req_new(const struct qr_req *req, qr_req_id id, struct qr_sched_req **out)
{
    size_t n = (size_t)req->n_choices, each = (size_t)req->sampling.max_tokens;
    size_t head = sizeof(struct qr_sched_req) + n * sizeof(struct qr_seq), n_bits = ((size_t)req->n_prompt + 7) / 8;
    struct qr_sched_req *r = qr_malloc(QR_MEM_REQ, head + n * each * sizeof(int32_t) + n_bits);
    if (!r) return QR_ENOMEM;
    *r = (struct qr_sched_req){.id = id, .n_live = req->n_choices, .arrival_ns = req->arrival_ns};
    int32_t *generated = (int32_t *)((char *)r + head);
    r->prompt_d = memset(generated + n * each, 0, n_bits);
    for (size_t i = 0; i < n; i++)
        r->seqs[i] = (struct qr_seq){
            .choice = (int32_t)i, .slot = -1, .n_ids = req->n_prompt, .generated = generated + i * each};
    if (qr_req_copy(req, &r->req) != QR_OK) {
        qr_sched_req_free(&r);
        return QR_ENOMEM;
    }
    *out = r;
    return QR_OK;
}

void qr_sched_req_free(struct qr_sched_req **r)
{
    if (!*r) return;
    qr_free((*r)->saved);
    qr_free((*r)->req);
    qr_free(*r);
    *r = NULL;
}

enum qr_status qr_sched_req_reserve(struct qr_sched_req *r, const struct qr_sched_conf *conf)
{
    uint32_t n_slots = 0;
    for (int t = 0; t < QR_TIERS; t++) n_slots += conf->n_slots[t];
    if (n_slots == 0 || conf->preempt_mode == QR_PREEMPT_RECOMPUTE) return QR_OK;
    int32_t each = qr_kv_blocks_for(r->req->n_prompt + r->req->sampling.max_tokens, conf->block_size);
    r->saved = qr_malloc(QR_MEM_REQ, (size_t)r->req->n_choices * (size_t)each * sizeof *r->saved);
    if (!r->saved) return QR_ENOMEM;
    for (int32_t i = 0; i < r->req->n_choices; i++) r->seqs[i].saved = r->saved + (size_t)i * (size_t)each;
    return QR_OK;
}

struct qr_seq *qr_sched_req_leader(struct qr_sched_req *r)
{
    for (int32_t i = 0; i < r->req->n_choices; i++)
        if (!r->seqs[i].done) return &r->seqs[i];
    QR_ASSERT(!"a request without live sequences has no leader");
    return NULL;
}

int32_t qr_seq_wanted(const struct qr_sched_req *r, const struct qr_seq *q)
{
    if (q->done || r->loading) return 0;
    if (r->forked) return q->n_ids;
    for (int32_t i = 0; i < q->choice; i++)
        if (!r->seqs[i].done) return 0;
    return qr_sched_req_shared(r);
}

int32_t qr_sched_req_shared(const struct qr_sched_req *r)
{
    bool is_new = r->req->beam.width > 0;
    for (int32_t i = 0; is_new && i < r->req->n_choices; i++) is_new = r->seqs[i].n_ids == r->req->n_prompt;
    return is_new ? r->req->n_prompt : r->req->n_prompt - 1;
}

int32_t qr_seq_id(const struct qr_sched_req *r, const struct qr_seq *q, int32_t pos)
{
    QR_DASSERT(pos >= 0 && pos < q->n_ids);
    int32_t n_prompt = r->req->n_prompt;
    return pos < n_prompt ? r->req->prompt[pos] : q->generated[pos - n_prompt];
}

struct qr_kv_want qr_sched_req_want(const struct qr_sched_req *r)
{
    struct qr_kv_want w = {.n_prompt = r->req->n_prompt,
                           .n_total = r->req->n_prompt + r->req->sampling.max_tokens};
    for (int32_t i = 0; i < r->req->n_choices; i++)
        if (!r->seqs[i].done && r->seqs[i].n_ids > w.n_known) w.n_known = r->seqs[i].n_ids;
    return w;
}

static uint32_t blocks_of_live(const struct qr_sched_req *r, int32_t block_size, bool most)
{
    int32_t shared = r->n_live > 1 ? (r->req->n_prompt - 1) / block_size : 0;
    int32_t n = shared, n_max = r->req->n_prompt + r->req->sampling.max_tokens;
    for (int32_t i = 0; i < r->req->n_choices; i++)
        if (!r->seqs[i].done) n += qr_kv_blocks_for(most ? n_max : r->seqs[i].n_ids, block_size) - shared;
    return (uint32_t)n;
}

uint32_t qr_sched_req_blocks(const struct qr_sched_req *r, int32_t block_size)
{
    return blocks_of_live(r, block_size, false);
}

uint32_t qr_sched_req_blocks_max(const struct qr_sched_req *r, int32_t block_size)
{
    return blocks_of_live(r, block_size, true);
}
