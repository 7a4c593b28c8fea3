/* Beam searches of the engine over the simulator, against the search as it is written down (beam_rig_test.c). */
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/test.h"
#include "sim/rig_internal.h"

#define VOCAB 300
#define TOKENS_MAX 220

struct answer {
    int32_t n_tokens, n_finishes;
    int32_t tokens[TOKENS_MAX];
    enum qr_finish finish;
};
static struct answer answers[8][16];

static void collect(struct rig *r, const qr_req_id *ids, int n)
{
    for (struct qr_event ev; qr_engine_poll(r->engine, &ev);) {
        int i = 0;
        while (i < n && ids[i] != ev.id) i++;
        assert_true(i < n);
        struct answer *a = &answers[i][ev.choice];
        assert_int_equal(a->n_finishes, 0);
        if (ev.kind == QR_EVENT_TOKEN) {
            assert_true(a->n_tokens < TOKENS_MAX);
            a->tokens[a->n_tokens++] = ev.token;
        } else {
            a->n_finishes++;
            a->finish = ev.finish;
        }
    }
}

static void run(struct rig *r, const struct rig_req *q, int n)
{
    qr_req_id ids[8] = {0};
    memset(answers, 0, sizeof answers);
    for (int i = 0; i < n; i++) assert_int_equal(qr_engine_submit(r->engine, &q[i].req, &ids[i], NULL), QR_OK);
    for (int i = 0; qr_engine_step(r->engine) == QR_OK; i++) {
        assert_true(i < 100000);
        collect(r, ids, n);
    }
}

static void judge(const struct rig_req *q, int i)
{
    struct rig_text right[16];
    sim_rig_beams(q, VOCAB, right);
    for (int32_t c = 0; c < q->req.beam.width; c++) {
        const struct answer *a = &answers[i][c];
        assert_int_equal(a->n_finishes, 1);
        assert_int_equal(a->finish, right[c].finish);
        assert_int_equal(a->n_tokens, right[c].n);
        assert_memory_equal(a->tokens, right[c].tokens, (size_t)right[c].n * sizeof(int32_t));
        sim_rig_text_fini(&right[c]);
    }
}

static void make(struct rig_req *q, uint64_t seed, int32_t n_prompt, int32_t max_tokens, struct qr_beam beam)
{
    sim_rig_req_init(q, seed, n_prompt, max_tokens, VOCAB);
    q->req.n_choices = beam.width;
    q->req.beam = beam;
    q->eos[0] = (int32_t)(seed % VOCAB);
    q->req.sampling.eos = q->eos, q->req.sampling.n_eos = 1;
}

static const struct rig_conf roomy = {
    .block_size = 16, .n_blocks = 256, .max_num_seqs = 32, .budget = 256, .max_model_len = 400, .n_vocab = VOCAB, .outbox = 16384};

QR_TEST(beam_equals_the_search_as_written_for_all_rules)
{
    static const int32_t widths[] = {1, 2, 4, 6, 16};
    static const float penalties[] = {-1, 0, 0.6f, 1, 2};
    struct rig r;
    sim_rig_open(&r, &roomy);
    int32_t n_stopped = 0, n_full = 0;
    for (int i = 0; i < 5 * 5 * 3 * 2; i++) {
        struct rig_req q;
        struct qr_beam b = {widths[i % 5], penalties[i / 5 % 5], (enum qr_beam_early)(i / 25 % 3),
                            (enum qr_beam_rules)(i / 75)};
        make(&q, 100 + (uint64_t)i, 1 + i * 7 % 50, 1 + i * 13 % 60, b);
        q.req.sampling.min_tokens = i % 4 == 3 ? q.req.sampling.max_tokens / 3 : 0;
        run(&r, &q, 1);
        judge(&q, 0);
        for (int32_t c = 0; c < b.width; c++) {
            n_stopped += answers[0][c].finish == QR_FINISH_STOP;
            n_full += answers[0][c].finish == QR_FINISH_LENGTH;
        }
        sim_rig_req_fini(&q);
    }
    assert_true(n_stopped > 50 && n_full > 50);
    sim_rig_close(&r);
}

static void in_company(struct rig_conf conf, uint64_t n_preemptions_min)
{
    struct rig r;
    struct rig_req q[8];
    qr_log_set_level(QR_LOG_WARN);
    sim_rig_open(&r, &conf);
    for (int i = 0; i < 8; i++)
        make(&q[i], 900 + (uint64_t)i, 60 + 20 * i, 200, (struct qr_beam){1 + i % 4, 1, (enum qr_beam_early)(i % 3), i & 1});
    for (int i = 0; i < 8; i += 2) q[i].req.sampling.ignore_eos = true;
    run(&r, q, 8);
    struct qr_snapshot s;
    qr_engine_snapshot(r.engine, &s);
    for (int i = 0; i < 8; i++) {
        judge(&q[i], i);
        sim_rig_req_fini(&q[i]);
    }
    assert_true(s.n_preemptions >= n_preemptions_min && (s.n_swaps > 0) == (conf.n_ram > 0));
    sim_rig_close(&r);
    qr_log_set_level(QR_LOG_INFO);
}

// Eight searches in a pool for one and a half; preempted by recomputing or by swap, each is as if it were alone.
QR_TEST(beams_in_a_pool_that_is_too_small_for_all)
{
    struct rig_conf c = roomy;
    c.n_blocks = 66;
    in_company(c, 3);
    c.n_ram = 400;
    c.preempt_mode = QR_PREEMPT_SWAP;
    in_company(c, 3);
    c.preempt_every = 5;
    in_company(c, 50);
    c.n_ram = 0;
    c.budget = 7; // beams of one search are computed in different steps
    c.preempt_every = 0;
    c.preempt_mode = QR_PREEMPT_RECOMPUTE;
    in_company(c, 0);
}

QR_TEST(beams_that_die_free_their_blocks_at_once)
{
    struct rig r;
    struct rig_req q;
    struct qr_snapshot s;
    qr_req_id id = 0;
    sim_rig_open(&r, &roomy);
    memset(answers, 0, sizeof answers);
    make(&q, 5, 100, 80, (struct qr_beam){8, 1, QR_BEAM_NEVER, QR_BEAM_VLLM});
    assert_int_equal(qr_engine_submit(r.engine, &q.req, &id, NULL), QR_OK);
    uint32_t most = 0;
    while (qr_engine_step(r.engine) == QR_OK) {
        qr_engine_check(r.engine);
        collect(&r, &id, 1);
        qr_engine_snapshot(r.engine, &s);
        if (s.n_blocks_used > most) most = s.n_blocks_used;
    }
    judge(&q, 0);
    // Apart, eight beams of 180 tokens would take 8 * 12 blocks, and 6 + 8 * 6 with a shared prompt.
    assert_in_range(most, 12, 53);
    sim_rig_req_fini(&q);
    sim_rig_close(&r);
}

QR_TEST(beam_steps_allocate_nothing_and_every_failed_allocation_is_survived)
{
    struct rig r;
    struct rig_req q;
    qr_req_id id = 0;
    sim_rig_open(&r, &roomy);
    make(&q, 7, 30, 40, (struct qr_beam){4, 1, QR_BEAM_NEVER, QR_BEAM_TRANSFORMERS});
    for (uint64_t at = 1; at < 8; at++) {
        qr_mem_fail_at(at, 0);
        enum qr_status st = qr_engine_submit(r.engine, &q.req, &id, NULL);
        enum qr_status step = st == QR_OK ? qr_engine_step(r.engine) : QR_OK;
        qr_mem_fail_at(0, 0);
        assert_true(st == QR_OK || st == QR_ENOMEM);
        assert_int_equal(step, QR_OK);
        while (qr_engine_step(r.engine) == QR_OK) {
        }
        for (struct qr_event ev; qr_engine_poll(r.engine, &ev);) {
        }
    }
    assert_int_equal(qr_engine_submit(r.engine, &q.req, &id, NULL), QR_OK);
    assert_int_equal(qr_engine_step(r.engine), QR_OK); // slots are opened here
    qr_mem_fail_at(1, 0);                              // from now on every allocation would fail
    memset(answers, 0, sizeof answers);
    while (qr_engine_step(r.engine) == QR_OK) collect(&r, &id, 1);
    qr_mem_fail_at(0, 0);
    judge(&q, 0);
    sim_rig_req_fini(&q);
    sim_rig_close(&r);
}

QR_TEST(beam_is_cancelled_as_a_whole)
{
    struct rig r;
    struct rig_req q;
    qr_req_id id = 0;
    sim_rig_open(&r, &roomy);
    make(&q, 9, 60, 100, (struct qr_beam){5, 1, QR_BEAM_NEVER, QR_BEAM_VLLM});
    for (int after = 0; after < 12; after++) {
        memset(answers, 0, sizeof answers);
        assert_int_equal(qr_engine_submit(r.engine, &q.req, &id, NULL), QR_OK);
        for (int i = 0; i < after; i++) assert_int_equal(qr_engine_step(r.engine), QR_OK);
        qr_engine_cancel(r.engine, id, 2, -1, false);
        while (qr_engine_step(r.engine) == QR_OK) {
        }
        collect(&r, &id, 1);
        for (int32_t c = 0; c < 5; c++) {
            assert_int_equal(answers[0][c].n_finishes, 1);
            assert_int_equal(answers[0][c].finish, QR_FINISH_ABORT);
        }
    }
    sim_rig_req_fini(&q);
    sim_rig_close(&r);
}

QR_TEST(beam_searches_that_make_no_sense_are_refused_by_name)
{
    struct rig r;
    struct rig_req q;
    struct qr_error err;
    qr_req_id id = 0;
    sim_rig_open(&r, &roomy);
    make(&q, 9, 10, 10, (struct qr_beam){4, 1, QR_BEAM_NEVER, QR_BEAM_VLLM});
    q.req.n_choices = 3;
    assert_int_equal(qr_engine_submit(r.engine, &q.req, &id, &err), QR_EINVAL);
    assert_string_equal(err.param, "n");
    q.req.n_choices = 4;
    q.req.sampling.max_tokens = 0;
    assert_int_equal(qr_engine_submit(r.engine, &q.req, &id, &err), QR_EINVAL);
    assert_string_equal(err.param, "max_tokens");
    q.req.sampling.max_tokens = 10;
    q.req.sampling.n_stop_ids = QR_BEAM_ENDS_MAX;
    assert_int_equal(qr_engine_submit(r.engine, &q.req, &id, &err), QR_EINVAL);
    assert_string_equal(err.param, "stop_token_ids");
    sim_rig_req_fini(&q);
    sim_rig_close(&r);
    struct rig_conf c = roomy;
    c.layout = QR_KV_VIRTUAL;
    sim_rig_open(&r, &c);
    make(&q, 9, 10, 10, (struct qr_beam){4, 1, QR_BEAM_NEVER, QR_BEAM_VLLM});
    assert_int_equal(qr_engine_submit(r.engine, &q.req, &id, &err), QR_ENOTSUP);
    assert_string_equal(err.param, "use_beam_search");
    sim_rig_req_fini(&q);
    sim_rig_close(&r);
}
