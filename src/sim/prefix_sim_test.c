/* The prefix cache through the engine's doors, over the watched simulator. */
#include <string.h>

#include "base/test.h"
#include "sim/rig_internal.h"

#define VOCAB 1000

static void open_rig(struct rig *r, uint32_t n_blocks)
{
    sim_rig_open(r, &(struct rig_conf){.block_size = 16,
                                       .n_blocks = n_blocks,
                                       .max_num_seqs = 4,
                                       .budget = 64,
                                       .max_model_len = 512,
                                       .n_vocab = VOCAB,
                                       .prefix_caching = true});
}

// Runs a request to its end, which is right, and says how many tokens of its prompt were cached.
static int32_t run(struct rig *r, const struct rig_req *q)
{
    qr_req_id id = 0;
    int32_t n_cached = 0, n = 0;
    struct rig_text right = sim_rig_solo(q, 0, VOCAB);
    assert_int_equal(qr_engine_submit(r->engine, &q->req, &id, NULL), QR_OK);
    while (qr_engine_step(r->engine) == QR_OK)
        for (struct qr_event ev; qr_engine_poll(r->engine, &ev);) {
            if (ev.kind == QR_EVENT_TOKEN) assert_int_equal(ev.token, right.tokens[n++]);
            n_cached = ev.n_cached;
        }
    assert_int_equal(n, right.n);
    sim_rig_text_fini(&right);
    return n_cached;
}

QR_TEST(engine_says_how_much_of_a_prompt_was_cached)
{
    struct rig r;
    struct rig_req q;
    open_rig(&r, 64);
    sim_rig_req_init(&q, 1, 100, 20, VOCAB);
    assert_int_equal(run(&r, &q), 0);
    assert_int_equal(run(&r, &q), 99);
    q.req.tenant = 9;
    assert_int_equal(run(&r, &q), 0);
    q.req.no_cache_read = true;
    assert_int_equal(run(&r, &q), 0);
    assert_int_equal(sim_rig_snap(&r).n_cache_queries, 300);
    assert_int_equal(sim_rig_snap(&r).n_cache_hits, 99);
    assert_int_equal(sim_rig_snap(&r).n_prompt_tokens, 301);
    sim_rig_req_fini(&q);
    sim_rig_close(&r);
}

QR_TEST(engine_reset_holds_for_all_that_comes_later)
{
    struct rig r;
    struct rig_req q;
    open_rig(&r, 64);
    sim_rig_req_init(&q, 1, 100, 20, VOCAB);
    assert_int_equal(run(&r, &q), 0);
    qr_engine_reset_prefix_cache(r.engine);
    assert_int_equal(run(&r, &q), 0); // the reset and the request are seen in one step
    assert_int_equal(run(&r, &q), 99);
    // While a request runs: what it computed before and after is not found, though the answer is right.
    qr_req_id id = 0;
    struct rig_req other;
    sim_rig_req_init(&other, 2, 40, 60, VOCAB);
    assert_int_equal(qr_engine_submit(r.engine, &other.req, &id, NULL), QR_OK);
    for (int i = 0; i < 5; i++) assert_int_equal(qr_engine_step(r.engine), QR_OK);
    qr_engine_reset_prefix_cache(r.engine);
    while (qr_engine_step(r.engine) == QR_OK)
        for (struct qr_event ev; qr_engine_poll(r.engine, &ev);) {
        }
    assert_int_equal(sim_rig_snap(&r).n_blocks_cached, 0);
    assert_int_equal(run(&r, &other), 0);
    assert_int_equal(run(&r, &other), 39);
    sim_rig_req_fini(&q);
    sim_rig_req_fini(&other);
    sim_rig_close(&r);
}

// A prompt of five blocks in a file; the pool has been given back, so that only the file has them.
static void open_spilled(struct rig *r, struct rig_req *q)
{
    sim_rig_open(r, &(struct rig_conf){.block_size = 16,
                                       .n_blocks = 12,
                                       .max_num_seqs = 4,
                                       .budget = 64,
                                       .max_model_len = 160,
                                       .n_vocab = VOCAB,
                                       .prefix_caching = true,
                                       .n_staging = 16,
                                       .n_prefix_file = 64});
    sim_rig_req_init(q, 1, 90, 4, VOCAB);
    assert_int_equal(run(r, q), 0);
    for (uint64_t seed = 2; seed < 4; seed++) { // others push it out
        struct rig_req other;
        sim_rig_req_init(&other, seed, 150, 4, VOCAB);
        assert_int_equal(run(r, &other), 0);
        sim_rig_req_fini(&other);
    }
}

QR_TEST(engine_counts_cached_tokens_that_came_back_from_the_file)
{
    struct rig r;
    struct rig_req q;
    open_spilled(&r, &q);
    struct qr_snapshot before = sim_rig_snap(&r);
    assert_int_equal(run(&r, &q), 80);
    assert_int_equal(sim_rig_snap(&r).n_cache_hits - before.n_cache_hits, 80);
    assert_int_equal(sim_rig_snap(&r).n_cache_hits_of[QR_TIER_FILE], 80);
    sim_rig_req_fini(&q);
    sim_rig_close(&r);
}

QR_TEST(engine_counts_no_cached_token_that_did_not_come_back)
{
    struct rig r;
    struct rig_req q;
    open_spilled(&r, &q);
    struct qr_snapshot before = sim_rig_snap(&r);
    r.spy.fail_reads = 1;
    assert_int_equal(run(&r, &q), 0); // one is enough: the prompt is computed from its begin
    struct qr_snapshot s = sim_rig_snap(&r);
    assert_int_equal(r.spy.fail_reads, 0);
    assert_int_equal(s.n_cache_hits, before.n_cache_hits);
    assert_int_equal(s.n_cache_hits_of[QR_TIER_FILE], 0);
    assert_int_equal(s.n_prompt_tokens - before.n_prompt_tokens, 90);
    assert_int_equal(s.n_recomputed_tokens, before.n_recomputed_tokens);
    sim_rig_req_fini(&q);
    sim_rig_close(&r);
}

QR_TEST(engine_caches_no_token_behind_a_stop)
{
    struct rig r;
    struct rig_req q, next;
    qr_req_id id = 0;
    open_rig(&r, 64);
    sim_rig_req_init(&q, 1, 20, 100, VOCAB);
    struct rig_text said = sim_rig_solo(&q, 0, VOCAB);
    assert_int_equal(qr_engine_submit(r.engine, &q.req, &id, NULL), QR_OK);
    for (int i = 0; i < 40; i++) assert_int_equal(qr_engine_step(r.engine), QR_OK);
    qr_engine_cancel(r.engine, id, 0, 26, true); // the text stops within the token at 26
    while (qr_engine_step(r.engine) == QR_OK)
        for (struct qr_event ev; qr_engine_poll(r.engine, &ev);) {
        }
    sim_rig_req_init(&next, 1, 60, 4, VOCAB);
    memcpy(next.prompt, q.prompt, 20 * sizeof *q.prompt);
    memcpy(next.prompt + 20, said.tokens, 40 * sizeof *said.tokens);
    assert_int_equal(run(&r, &next), 27);
    assert_int_equal(sim_rig_snap(&r).n_cache_generated, 7);
    sim_rig_text_fini(&said);
    sim_rig_req_fini(&q);
    sim_rig_req_fini(&next);
    sim_rig_close(&r);
}
