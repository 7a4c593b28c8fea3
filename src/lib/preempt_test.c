/* Preemption at every possible step, over the real executor and a tiny model: nothing of an answer may change,
 * whichever way a request's blocks went. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/test.h"
#include "kv/store.h"
#include "lib/lib_internal.h"

#define NO_MODEL "no tiny models: python tests/tiny-model/make.py BUILD/tiny"

enum { REQS = 5, CHOICES = 3, TOKENS = 16, BLOCKS = 60, BUDGET = 48 };

struct rig {
    struct qr_model *model;
    struct qr_workers *workers;
};

struct answer {
    int32_t n[CHOICES], n_scores, n_ended;
    int32_t ids[CHOICES][TOKENS];
    float logprobs[CHOICES][TOKENS], scores[64];
};

struct run { // one workload, undisturbed or not
    struct qr_engine_conf conf;
    struct tiers_conf tiers;
    uint32_t n_blocks;
    struct answer answers[REQS];
    struct qr_snapshot end;
    int32_t n_steps;
};

static bool open_rig(struct rig *r)
{
    const char *path = qr_test_build_path("tiny/tiny.gguf");
    struct qr_gguf *g = NULL;
    struct qr_error err = {0};
    *r = (struct rig){0};
    if (access(path, R_OK) != 0) return false;
    struct qr_workers_conf wc = {.n_threads = 2, .spin_us = 50};
    assert_int_equal(qr_gguf_open(path, &g, &err), QR_OK);
    assert_int_equal(qr_workers_new(&wc, &r->workers, &err), QR_OK);
    struct qr_model_conf mc = {.workers = r->workers};
    assert_int_equal(qr_model_load(g, &mc, &r->model, &err), QR_OK);
    qr_gguf_free(&g);
    return true;
}

static void close_rig(struct rig *r)
{
    qr_model_free(&r->model);
    qr_workers_free(&r->workers);
}

static bool has_choices(int i)
{
    return i == 1 || i == 4;
}

// A long prompt in chunks; three choices that share one; penalties, whose counts must come back; a scored prompt; beams.
static qr_req_id submit(struct qr_engine *e, int i)
{
    static const int32_t lengths[REQS] = {61, 37, 20, 33, 23};
    int32_t prompt[64];
    qr_req_id id = 0;
    for (int k = 0; k < lengths[i]; k++)
        prompt[k] = 3 + (int32_t)(qr_rand_u64((uint64_t)i, 5, (uint64_t)k) % 500);
    struct qr_req q = {.prompt = prompt, .n_prompt = lengths[i], .n_choices = has_choices(i) ? CHOICES : 1};
    if (i == 4) q.beam = (struct qr_beam){.width = CHOICES, .length_penalty = 1, .rules = QR_BEAM_VLLM};
    q.sampling = (struct qr_sampling){.temperature = i == 0 || i == 4 ? 0 : 0.9f,
                                      .top_p = 1,
                                      .repetition = i == 2 ? 1.3f : 1,
                                      .frequency = i == 2 ? 0.4f : 0,
                                      .seed = 11 + (uint64_t)i,
                                      .max_tokens = TOKENS - i,
                                      .ignore_eos = true,
                                      .n_logprobs = 0,
                                      .n_prompt_logprobs = i == 3 ? 0 : -1};
    assert_int_equal(qr_engine_submit(e, &q, &id, NULL), QR_OK);
    return id;
}

static void take(struct answer *a, const struct qr_event *ev)
{
    if (ev->kind == QR_EVENT_FINISH) {
        assert_int_equal(ev->finish, QR_FINISH_LENGTH);
        a->n_ended++;
    } else if (ev->kind == QR_EVENT_PROMPT) {
        a->scores[a->n_scores++] = ev->logprob;
    } else {
        a->logprobs[ev->choice][a->n[ev->choice]] = ev->logprob;
        a->ids[ev->choice][a->n[ev->choice]++] = ev->token;
    }
}

static void run(const struct rig *r, struct run *w)
{
    struct qr_exec_local_conf xc = {.model = r->model,
                                    .workers = r->workers,
                                    .n_slots = 12,
                                    .n_tokens_max = BUDGET,
                                    .block_size = 16,
                                    .n_blocks = w->n_blocks ? w->n_blocks : BLOCKS,
                                    .tiers = w->tiers};
    struct qr_exec *x = NULL;
    struct qr_engine *e = NULL;
    struct qr_event ev;
    qr_req_id ids[REQS];
    memset(w->answers, 0, sizeof w->answers);
    qr_log_set_level(QR_LOG_WARN);
    w->conf.max_num_seqs = 12;
    w->conf.max_num_batched_tokens = BUDGET;
    w->conf.max_model_len = 128;
    w->conf.inbox_capacity = 8;
    w->conf.outbox_capacity = 1024;
    w->conf.clock = qr_clock_wall();
    w->conf.check_every_step = true;
    assert_int_equal(qr_exec_local_new(&xc, &x, NULL), QR_OK);
    assert_int_equal(qr_engine_new(&w->conf, x, &e, NULL), QR_OK);
    for (int i = 0; i < REQS; i++) ids[i] = submit(e, i);
    for (w->n_steps = 0; qr_engine_step(e) == QR_OK; w->n_steps++) {
        assert_true(w->n_steps < 5000);
        while (qr_engine_poll(e, &ev)) take(&w->answers[ev.id - ids[0]], &ev);
    }
    qr_engine_snapshot(e, &w->end);
    qr_engine_free(&e);
    x->ops->close(x);
    qr_log_set_level(QR_LOG_INFO);
    assert_int_equal(w->end.n_blocks_used, 0);
    for (int t = 0; t < QR_TIERS; t++) assert_int_equal(w->end.n_slots_used[t], 0);
}

static void same_answers(const struct run *w, const struct run *right)
{
    for (int i = 0; i < REQS; i++) {
        const struct answer *a = &w->answers[i], *b = &right->answers[i];
        assert_int_equal(a->n_ended, has_choices(i) ? CHOICES : 1);
        assert_memory_equal(a->n, b->n, sizeof a->n);
        assert_memory_equal(a->ids, b->ids, sizeof a->ids);
        assert_memory_equal(a->logprobs, b->logprobs, sizeof a->logprobs); // to the last bit
        assert_int_equal(a->n_scores, b->n_scores);
        assert_memory_equal(a->scores, b->scores, sizeof a->scores);
    }
}

static const struct { // every way that blocks can go
    enum qr_preempt_mode mode;
    struct tiers_conf tiers;
    bool prefix;       // cached prefixes, whose blocks go to the tiers too
    uint32_t n_blocks; // 0: enough
} ways[] = {
    {.mode = QR_PREEMPT_RECOMPUTE},
    {.mode = QR_PREEMPT_SWAP, .tiers = {.n_ram = BLOCKS}},
    {.mode = QR_PREEMPT_SWAP, .tiers = {.n_ram = 5}}, // some fit, others are recomputed
    {.mode = QR_PREEMPT_SWAP, .tiers = {.n_file = BLOCKS, .n_staging = BLOCKS}},
    {.mode = QR_PREEMPT_SWAP, .tiers = {.n_ram = 6, .n_file = BLOCKS, .n_staging = 7}}, // all three
    {.mode = QR_PREEMPT_RECOMPUTE, .prefix = true}, // from what is still there
    {.mode = QR_PREEMPT_RECOMPUTE, .prefix = true, .n_blocks = 14, .tiers = {.n_prefix_ram = BLOCKS}},
    {.mode = QR_PREEMPT_SWAP,
     .prefix = true,
     .n_blocks = 14,
     .tiers = {.n_ram = 5, .n_prefix_ram = 3, .n_prefix_file = BLOCKS, .n_staging = 9}},
};

static void disturb(struct run *w, size_t way)
{
    static char path[200];
    snprintf(path, sizeof path, "%s", qr_test_build_path("preempt-test-swap"));
    static char kept[200];
    snprintf(kept, sizeof kept, "%s", qr_test_build_path("preempt-test-prefix"));
    unlink(kept);
    *w = (struct run){.tiers = ways[way].tiers, .n_blocks = ways[way].n_blocks};
    w->tiers.path = path;
    w->tiers.prefix_path = kept;
    w->tiers.prefix_tag_bytes = qr_kv_tag_bytes(16);
    w->conf.prefix_caching = ways[way].prefix;
    w->conf.preempt_mode = ways[way].mode;
}

static bool holds_all(const struct tiers_conf *t)
{
    return t->n_ram == BLOCKS || t->n_staging == BLOCKS;
}

QR_TEST(preempt_at_each_step_changes_no_bit_of_an_answer)
{
    struct rig r;
    struct run *right = calloc(1, sizeof *right), *w = calloc(1, sizeof *w);
    if (!open_rig(&r)) QR_SKIP(NO_MODEL);
    run(&r, right);
    assert_int_equal(right->end.n_preemptions, 0);
    assert_int_equal(right->answers[3].n_scores, 32);
    assert_true(right->n_steps > TOKENS);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        for (int at = 2; at <= right->n_steps; at++) {
            disturb(w, i);
            w->conf.preempt_at = (uint64_t)at;
            run(&r, w);
            same_answers(w, right);
            assert_true(w->end.n_preemptions > 0);
            if (holds_all(&w->tiers)) assert_int_equal(w->end.n_swaps, w->end.n_preemptions);
            if (i == 0) assert_int_equal(w->end.n_swaps, 0);
        }
    close_rig(&r);
    free(right);
    free(w);
}

QR_TEST(preempt_in_every_step_changes_no_bit_of_an_answer)
{
    struct rig r;
    struct run *right = calloc(1, sizeof *right), *w = calloc(1, sizeof *w);
    if (!open_rig(&r)) QR_SKIP(NO_MODEL);
    run(&r, right);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        for (uint64_t every = 1; every <= 3; every++) {
            disturb(w, i);
            w->conf.preempt_every = every;
            run(&r, w);
            same_answers(w, right);
            assert_true(w->end.n_preemptions > 3); // who waits for the file is left alone
            if (holds_all(&w->tiers)) {
                assert_int_equal(w->end.n_recomputed_tokens, 0);
                for (int t = 0; t < QR_TIERS; t++)
                    assert_int_equal(w->end.n_blocks_out[t], w->end.n_blocks_in[t]);
            }
        }
    close_rig(&r);
    free(right);
    free(w);
}
