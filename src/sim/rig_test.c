#include "sim/rig_internal.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/test.h"
#include "sim/exec_sim.h"

static struct rig_spy *spy_of(struct qr_exec *x)
{
    return (struct rig_spy *)x;
}

static void spy_info(struct qr_exec *x, struct qr_exec_info *out)
{
    spy_of(x)->inner->ops->info(spy_of(x)->inner, out);
}

static enum qr_status spy_seq_open(struct qr_exec *x, int32_t slot, const struct qr_sampling *s,
                                   int32_t choice, const int32_t *ids, int32_t n_prompt, int32_t n_ids)
{
    enum qr_status st =
        spy_of(x)->inner->ops->seq_open(spy_of(x)->inner, slot, s, choice, ids, n_prompt, n_ids);
    spy_of(x)->n_open += st == QR_OK;
    spy_of(x)->n_opens += st == QR_OK;
    return st;
}

static void spy_seq_close(struct qr_exec *x, int32_t slot)
{
    spy_of(x)->n_open--;
    spy_of(x)->inner->ops->seq_close(spy_of(x)->inner, slot);
}

static void spy_seq_fork(struct qr_exec *x, int32_t from, int32_t to)
{
    spy_of(x)->inner->ops->seq_fork(spy_of(x)->inner, from, to);
}

static void spy_seq_append(struct qr_exec *x, int32_t slot, int32_t token)
{
    spy_of(x)->inner->ops->seq_append(spy_of(x)->inner, slot, token);
}

static enum qr_status spy_submit(struct qr_exec *x, const struct qr_batch *b, qr_ticket *out)
{
    struct rig_spy *s = spy_of(x);
    s->batch_hash = qr_hash_bytes(s->batch_hash, b, b->bytes);
    s->n_batches++;
    s->n_tokens += b->n_tokens;
    s->n_seqs_last = b->n_seqs;
    return s->inner->ops->submit(s->inner, b, out);
}

static enum qr_status spy_wait(struct qr_exec *x, qr_ticket t, struct qr_exec_result *out)
{
    struct rig_spy *s = spy_of(x);
    enum qr_status st = s->inner->ops->wait(s->inner, t, out);
    if (s->fail_waits == 0) return st;
    s->fail_waits--;
    return QR_EIO;
}

static void spy_io_submit(struct qr_exec *x, const struct qr_io *io, int32_t n)
{
    spy_of(x)->inner->ops->io_submit(spy_of(x)->inner, io, n);
}

static int32_t spy_io_poll(struct qr_exec *x, struct qr_io_done *out, int32_t cap, int timeout_ms)
{
    struct rig_spy *s = spy_of(x);
    int32_t n = s->inner->ops->io_poll(s->inner, out, cap, timeout_ms);
    for (int32_t i = 0; i < n && s->fail_reads > 0; i++) {
        if (out[i].io.kind != QR_IO_READ) continue;
        out[i].status = QR_EFORMAT;
        s->fail_reads--;
    }
    return n;
}

static const void *spy_tier_tag(struct qr_exec *x, uint32_t i)
{
    return spy_of(x)->inner->ops->tier_tag(spy_of(x)->inner, i);
}

static void spy_close(struct qr_exec *x)
{
    spy_of(x)->inner->ops->close(spy_of(x)->inner);
}

static void spy_trim(struct qr_exec *x)
{
    spy_of(x)->inner->ops->trim(spy_of(x)->inner);
}

static const struct qr_exec_ops spy_ops = {.info = spy_info,
                                           .seq_open = spy_seq_open,
                                           .seq_close = spy_seq_close,
                                           .seq_fork = spy_seq_fork,
                                           .seq_append = spy_seq_append,
                                           .submit = spy_submit,
                                           .wait = spy_wait,
                                           .io_submit = spy_io_submit,
                                           .io_poll = spy_io_poll,
                                           .tier_tag = spy_tier_tag,
                                           .trim = spy_trim,
                                           .close = spy_close};

void sim_rig_open(struct rig *r, const struct rig_conf *conf)
{
    memset(r, 0, sizeof *r);
    r->conf = *conf;
    qr_clock_virtual_init(&r->clock);
    struct qr_clock *clock = conf->wall ? qr_clock_wall() : &r->clock.face;
    struct qr_exec_sim_conf sc = {.n_slots = conf->max_num_seqs,
                                  .n_tokens_max = conf->budget,
                                  .shadow = true,
                                  .block_size = conf->block_size,
                                  .n_vocab = conf->n_vocab,
                                  .ctx_max = conf->max_model_len,
                                  .n_blocks = conf->n_blocks,
                                  .clock = clock,
                                  .n_ram = conf->n_ram,
                                  .n_file = conf->n_file,
                                  .n_staging = conf->n_staging,
                                  .n_prefix_ram = conf->n_prefix_ram,
                                  .n_prefix_file = conf->n_prefix_file,
                                  .io_delay = conf->io_delay,
                                  .io_fail_every = conf->io_fail_every,
                                  .costs = {1, 1000000, 100000, 200000, 20000, 100, 0}};
    assert_int_equal(qr_exec_sim_new(&sc, &r->spy.inner, NULL), QR_OK);
    r->spy.face.ops = &spy_ops;
    struct qr_engine_conf ec = {.max_num_seqs = conf->max_num_seqs,
                                .layout = conf->layout,
                                .page_blocks = conf->page_blocks,
                                .batching = conf->batching,
                                .prefix_caching = conf->prefix_caching,
                                .prefix_seed = conf->prefix_seed,
                                .exact = conf->exact,
                                .max_num_batched_tokens = conf->budget,
                                .max_model_len = conf->max_model_len,
                                .inbox_capacity = 64,
                                .outbox_capacity = conf->outbox ? conf->outbox : 4096,
                                .clock = clock,
                                .preempt_mode = conf->preempt_mode,
                                .preempt_every = conf->preempt_every,
                                .preempt_at = conf->preempt_at,
                                .policy = conf->policy,
                                .max_queued_reqs = conf->max_queued_reqs,
                                .max_queued_tokens = conf->max_queued_tokens,
                                .queue_timeout_ns = conf->queue_timeout_ns,
                                .costs = conf->costs,
                                .step_budget_ns = conf->step_budget_ns,
                                .check_every_step = true};
    assert_int_equal(qr_engine_new(&ec, &r->spy.face, &r->engine, NULL), QR_OK);
}

void sim_rig_close(struct rig *r)
{
    struct qr_snapshot s;
    qr_engine_snapshot(r->engine, &s);
    qr_engine_free(&r->engine);
    assert_int_equal(s.n_running, 0);
    assert_int_equal(s.n_waiting, 0);
    assert_int_equal(s.n_blocks_free, s.n_blocks);
    for (int t = 0; t < QR_TIERS; t++) assert_int_equal(s.n_slots_used[t], 0);
    assert_int_equal(r->spy.n_open, 0);
    r->spy.face.ops->close(&r->spy.face);
}

void sim_rig_req_init(struct rig_req *q, uint64_t seed, int32_t n_prompt, int32_t max_tokens, int32_t n_vocab)
{
    memset(q, 0, sizeof *q);
    q->prompt = qr_malloc(QR_MEM_MISC, (size_t)n_prompt * sizeof *q->prompt);
    assert_non_null(q->prompt);
    for (int32_t i = 0; i < n_prompt; i++)
        q->prompt[i] = (int32_t)(qr_rand_u64(seed, 17, (uint64_t)i) % (uint64_t)n_vocab);
    q->req = (struct qr_req){.prompt = q->prompt, .n_prompt = n_prompt, .n_choices = 1};
    q->req.sampling = (struct qr_sampling){
        .seed = seed, .max_tokens = max_tokens, .n_logprobs = -1, .n_prompt_logprobs = -1};
}

void sim_rig_req_fini(struct rig_req *q)
{
    qr_free(q->prompt);
    q->prompt = NULL;
}

// One batch of one sequence that holds blocks 0, 1, 2 ...
static void naive_step(struct qr_exec *x, const int32_t *ids, int32_t pos0, int32_t n, int32_t n_prompt,
                       uint32_t flags, struct qr_exec_result *res)
{
    int32_t n_blocks = (pos0 + n + 63) / 64;
    struct qr_batch_caps caps = {.n_seqs = 1, .n_tokens = n, .n_table = n_blocks};
    void *mem = qr_malloc(QR_MEM_MISC, qr_batch_bytes(&caps));
    assert_non_null(mem);
    struct qr_batch *b = qr_batch_init(mem, &caps);
    b->n_seqs = 1, b->n_tokens = n, b->n_table = n_blocks;
    b->step = (uint64_t)pos0 + 1;
    qr_batch_seqs(b)[0] = (struct qr_batch_seq){0, n, pos0, n_prompt, 0, 0, n_blocks, flags};
    memcpy(qr_batch_ids(b), ids + pos0, (size_t)n * sizeof *ids);
    for (int32_t i = 0; i < n_blocks; i++) qr_batch_table(b)[i] = (uint32_t)i;
    qr_ticket t;
    assert_int_equal(x->ops->submit(x, b, &t), QR_OK);
    assert_int_equal(x->ops->wait(x, t, res), QR_OK);
    qr_free(mem);
}

struct rig_text sim_rig_solo(const struct rig_req *q, int32_t choice, int32_t n_vocab)
{
    const struct qr_sampling *s = &q->req.sampling;
    int32_t n_prompt = q->req.n_prompt, all = n_prompt + s->max_tokens;
    struct qr_exec_sim_conf sc = {.n_slots = 1,
                                  .n_tokens_max = all,
                                  .block_size = 64,
                                  .n_vocab = n_vocab,
                                  .ctx_max = all,
                                  .n_blocks = (uint32_t)(all + 63) / 64};
    struct qr_exec *x = NULL;
    assert_int_equal(qr_exec_sim_new(&sc, &x, NULL), QR_OK);
    assert_int_equal(x->ops->seq_open(x, 0, s, choice, q->prompt, n_prompt, n_prompt), QR_OK);
    struct rig_text t = {.finish = QR_FINISH_LENGTH};
    int32_t *ids = qr_malloc(QR_MEM_MISC, (size_t)all * sizeof *ids);
    t.tokens = qr_malloc(QR_MEM_MISC, (size_t)(s->max_tokens + 1) * sizeof *t.tokens);
    t.scores = qr_calloc(QR_MEM_MISC, (size_t)n_prompt, sizeof *t.scores);
    assert_true(ids && t.tokens && t.scores);
    memcpy(ids, q->prompt, (size_t)n_prompt * sizeof *ids);
    bool score = s->n_prompt_logprobs >= 0;
    struct qr_exec_result res;
    uint32_t flags = (score ? QR_BATCH_SCORE : 0) | (s->max_tokens > 0 ? QR_BATCH_SAMPLE : 0);
    naive_step(x, ids, 0, n_prompt, n_prompt, flags, &res);
    for (int32_t i = 0; i < res.n_rows; i++)
        if (res.rows[i].is_score) t.scores[res.rows[i].pos + 1] = res.rows[i].logprob;
    while (t.n < s->max_tokens) {
        int32_t token = res.rows[res.n_rows - 1].token;
        ids[n_prompt + t.n] = t.tokens[t.n] = token;
        t.n++;
        bool end = (s->n_eos > 0 && !s->ignore_eos && token == s->eos[0]) ||
                   (s->n_stop_ids > 0 && token == s->stop_ids[0]);
        if (end) t.finish = QR_FINISH_STOP;
        if (end || t.n == s->max_tokens) break;
        naive_step(x, ids, n_prompt + t.n - 1, 1, n_prompt, QR_BATCH_SAMPLE, &res);
    }
    qr_free(ids);
    x->ops->seq_close(x, 0);
    x->ops->close(x);
    return t;
}

void sim_rig_text_fini(struct rig_text *t)
{
    qr_free(t->tokens);
    qr_free(t->scores);
}

void sim_rig_open_usual(struct rig *r, int32_t max_num_seqs, int32_t budget)
{
    sim_rig_open(r, &(struct rig_conf){.block_size = 16,
                                       .n_blocks = 64,
                                       .max_num_seqs = max_num_seqs,
                                       .budget = budget,
                                       .max_model_len = 512,
                                       .n_vocab = 1000});
}

struct qr_snapshot sim_rig_snap(struct rig *r)
{
    struct qr_snapshot s;
    qr_engine_snapshot(r->engine, &s);
    return s;
}

qr_req_id sim_rig_submit(struct rig *r, const struct rig_req *q)
{
    qr_req_id id = 0;
    assert_int_equal(qr_engine_submit(r->engine, &q->req, &id, NULL), QR_OK);
    assert_true(id != 0);
    return id;
}
