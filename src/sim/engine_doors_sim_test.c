/* The engine's doors over the simulator: what it refuses, a full inbox, its own thread between clients and a slow
 * reader, an end with live requests. */
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/test.h"
#include "sim/exec_sim.h"
#include "sim/rig_internal.h"

#define VOCAB 1000

QR_TEST(engine_refuses_what_can_never_fit_and_counts_it)
{
    struct rig r;
    struct rig_req q;
    struct qr_error err;
    qr_req_id id = 7;
    qr_log_set_level(QR_LOG_WARN);
    sim_rig_open(&r, &(struct rig_conf){.block_size = 16,
                                        .n_blocks = 64,
                                        .max_num_seqs = 8,
                                        .budget = 256,
                                        .max_model_len = 2048,
                                        .n_vocab = VOCAB});
    sim_rig_req_init(&q, 1, 900, 500, VOCAB);
    assert_int_equal(qr_engine_submit(r.engine, &q.req, &id, &err), QR_ETOOBIG);
    assert_string_equal(err.msg,
                        "prompt 900 + max_tokens 500 = 1400 tokens need 88 blocks of 16; the pool has 64");
    assert_int_equal(id, 7);
    assert_int_equal(sim_rig_snap(&r).n_refused, 1);
    q.req.sampling.max_tokens = 100;
    q.prompt[3] = VOCAB;
    assert_int_equal(qr_engine_submit(r.engine, &q.req, &id, &err), QR_EINVAL);
    assert_string_equal(err.msg, "prompt token 1000 at position 3 is not in the vocabulary of 1000");
    assert_int_equal(qr_engine_step(r.engine), QR_AGAIN);
    sim_rig_req_fini(&q);
    sim_rig_close(&r);
    qr_log_set_level(QR_LOG_INFO);
}

QR_TEST(engine_new_refuses_what_the_executor_cannot_do)
{
    struct qr_clock_virtual clock;
    struct qr_exec *x = NULL;
    struct qr_engine *e = NULL;
    struct qr_error err;
    qr_clock_virtual_init(&clock);
    struct qr_exec_sim_conf sc = {
        .n_slots = 4, .n_tokens_max = 64, .block_size = 16, .n_vocab = 10, .ctx_max = 128, .n_blocks = 8};
    assert_int_equal(qr_exec_sim_new(&sc, &x, &err), QR_OK);
    struct qr_engine_conf c = {.max_num_seqs = 4,
                               .max_num_batched_tokens = 64,
                               .max_model_len = 128,
                               .inbox_capacity = 8,
                               .outbox_capacity = 8,
                               .clock = &clock.face,
                               .check_every_step = true};
    struct qr_engine_conf bad = c;
    bad.max_num_seqs = 5;
    assert_int_equal(qr_engine_new(&bad, x, &e, &err), QR_EINVAL);
    assert_string_equal(err.msg, "max_num_seqs must be 1 to 4 (the executor's slots), got 5");
    bad = c, bad.max_num_batched_tokens = 65;
    assert_int_equal(qr_engine_new(&bad, x, &e, &err), QR_EINVAL);
    bad = c, bad.max_model_len = 129;
    assert_int_equal(qr_engine_new(&bad, x, &e, &err), QR_EINVAL);
    size_t live = qr_mem_live_bytes(QR_MEM_SCHED) + qr_mem_live_bytes(QR_MEM_MISC);
    uint64_t before = qr_mem_calls();
    assert_int_equal(qr_engine_new(&c, x, &e, &err), QR_OK);
    uint64_t n_calls = qr_mem_calls() - before;
    qr_engine_free(&e);
    for (uint64_t at = 1; at <= n_calls; at++) { // every allocation fails once
        qr_mem_fail_at(at, 0);
        assert_int_equal(qr_engine_new(&c, x, &e, &err), QR_ENOMEM);
        qr_mem_fail_at(0, 0);
        assert_null(e);
        assert_int_equal(qr_mem_live_bytes(QR_MEM_SCHED) + qr_mem_live_bytes(QR_MEM_MISC), live);
    }
    x->ops->close(x);
}

QR_TEST(engine_full_inbox_says_not_now)
{
    struct rig r;
    struct rig_req q;
    struct qr_error err;
    sim_rig_open_usual(&r, 2, 256);
    sim_rig_req_init(&q, 1, 4, 2, VOCAB);
    for (int i = 0; i < 64; i++) sim_rig_submit(&r, &q);
    assert_int_equal(sim_rig_snap(&r).n_waiting, 64);
    size_t live = qr_mem_live_bytes(QR_MEM_REQ);
    qr_req_id id = 0;
    assert_int_equal(qr_engine_submit(r.engine, &q.req, &id, &err), QR_AGAIN);
    assert_int_equal(qr_mem_live_bytes(QR_MEM_REQ), live);
    assert_string_equal(err.msg, "the engine's inbox of 64 requests is full");
    while (qr_engine_step(r.engine) == QR_OK)
        for (struct qr_event ev; qr_engine_poll(r.engine, &ev);) id++;
    assert_int_equal(id, 64 * 3);
    sim_rig_req_fini(&q);
    sim_rig_close(&r);
}

struct client {
    struct rig *r;
    int n;
    uint64_t seed;
    pthread_t thread;
};

static void *client_run(void *arg)
{
    struct client *c = arg;
    for (int i = 0; i < c->n; i++) {
        struct rig_req q;
        qr_req_id id = 0;
        sim_rig_req_init(&q, c->seed + (uint64_t)i, 1 + (int32_t)(qr_rand_u64(c->seed, 0, (uint64_t)i) % 60),
                         12, VOCAB);
        while (qr_engine_submit(c->r->engine, &q.req, &id, NULL) == QR_AGAIN) sched_yield();
        if (i % 3 == 0) qr_engine_cancel(c->r->engine, id, -1, -1, false);
        sim_rig_req_fini(&q);
    }
    return NULL;
}

// The engine's own thread, three that submit and cancel, a slow reader behind an outbox of 8 events.
QR_TEST(engine_thread_loses_no_event_when_its_reader_is_slow)
{
    enum { CLIENTS = 3, EACH = 60 };
    struct rig r;
    struct client c[CLIENTS];
    qr_log_set_level(QR_LOG_WARN);
    sim_rig_open(&r, &(struct rig_conf){.block_size = 16,
                                        .n_blocks = 24,
                                        .max_num_seqs = 6,
                                        .budget = 64,
                                        .max_model_len = 128,
                                        .n_vocab = VOCAB,
                                        .outbox = 8,
                                        .wall = true});
    assert_int_equal(qr_engine_start(r.engine), QR_OK);
    for (int i = 0; i < CLIENTS; i++) {
        c[i] = (struct client){.r = &r, .n = EACH, .seed = 1000u * (unsigned)i};
        assert_int_equal(pthread_create(&c[i].thread, NULL, client_run, &c[i]), 0);
    }
    int n_finishes = 0, n_tokens = 0, n_full = 0;
    while (n_finishes < CLIENTS * EACH) {
        struct qr_event ev;
        qr_engine_wait(r.engine, 1000);
        while (qr_engine_poll(r.engine, &ev)) {
            n_tokens += ev.kind == QR_EVENT_TOKEN;
            if (ev.kind != QR_EVENT_FINISH) continue;
            n_finishes++;
            n_full += ev.finish == QR_FINISH_LENGTH;
            assert_true(ev.finish == QR_FINISH_LENGTH || ev.finish == QR_FINISH_ABORT);
        }
    }
    for (int i = 0; i < CLIENTS; i++) pthread_join(c[i].thread, NULL);
    assert_true(n_full >= CLIENTS * EACH * 2 / 3 && n_tokens >= n_full * 12);
    struct qr_snapshot s;
    do qr_engine_snapshot(r.engine, &s);
    while (s.n_running + s.n_waiting > 0);
    assert_int_equal(s.n_requests, CLIENTS * EACH);
    assert_int_equal(s.n_generated_tokens, n_tokens);
    sim_rig_close(&r);
    qr_log_set_level(QR_LOG_INFO);
}

QR_TEST(engine_free_with_live_requests_closes_their_slots)
{
    struct rig r;
    struct rig_req q;
    size_t live =
        qr_mem_live_bytes(QR_MEM_REQ) + qr_mem_live_bytes(QR_MEM_EXEC) + qr_mem_live_bytes(QR_MEM_SCHED);
    sim_rig_open_usual(&r, 2, 64);
    sim_rig_req_init(&q, 1, 100, 300, VOCAB);
    for (int i = 0; i < 5; i++) sim_rig_submit(&r, &q);
    for (int i = 0; i < 4; i++) assert_int_equal(qr_engine_step(r.engine), QR_OK);
    sim_rig_submit(&r, &q); // still in the inbox
    sim_rig_req_fini(&q);
    qr_engine_free(&r.engine);
    assert_int_equal(r.spy.n_open, 0);
    r.spy.face.ops->close(&r.spy.face);
    assert_int_equal(qr_mem_live_bytes(QR_MEM_REQ) + qr_mem_live_bytes(QR_MEM_EXEC) +
                         qr_mem_live_bytes(QR_MEM_SCHED),
                     live);
}
