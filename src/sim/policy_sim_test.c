/* Policies and limits over whole runs of the engine on a virtual clock: shares, ageing, refusals, deadlines. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/test.h"
#include "sched/policy.h"
#include "sim/rig_internal.h"

enum { REQS_MAX = 6000, KEYS = 3 };

static struct rig rig;
static struct rig_req req;
static int32_t key_of[REQS_MAX + 1], n_prompt_of[REQS_MAX + 1];
static int64_t served[KEYS]; // tokens computed for each key, as its client sees them
static int32_t n_open[KEYS];
static uint64_t n_submitted;

static void open_rig(const char *policy, int32_t n_seqs)
{
    struct rig_conf c = {.block_size = 16,
                         .max_num_seqs = n_seqs,
                         .budget = 256,
                         .max_model_len = 512,
                         .n_vocab = 50,
                         .outbox = 4096,
                         .n_blocks = 400,
                         .policy = qr_policy_find(policy)};
    sim_rig_open(&rig, &c);
    memset(served, 0, sizeof served);
    memset(n_open, 0, sizeof n_open);
    n_submitted = 0;
}

static enum qr_status submit(int32_t key, int32_t priority, int32_t n_prompt, int32_t max_tokens, struct qr_error *err)
{
    qr_req_id id = 0;
    sim_rig_req_init(&req, n_submitted, n_prompt, max_tokens, 50);
    req.req.fair_key = (uint64_t)key;
    req.req.priority = priority;
    enum qr_status st = qr_engine_submit(rig.engine, &req.req, &id, err);
    sim_rig_req_fini(&req);
    if (st != QR_OK) return st;
    assert_true(id <= REQS_MAX);
    key_of[id] = key, n_prompt_of[id] = n_prompt;
    n_open[key]++;
    n_submitted++;
    return QR_OK;
}

static void step(void)
{
    assert_int_equal(qr_engine_step(rig.engine), QR_OK);
    for (struct qr_event ev; qr_engine_poll(rig.engine, &ev);) {
        int32_t key = key_of[ev.id];
        if (ev.kind == QR_EVENT_FINISH) n_open[key]--;
        if (ev.kind != QR_EVENT_TOKEN) continue;
        served[key] += ev.pos == n_prompt_of[ev.id] ? ev.pos + 1 : 1;
    }
}

static void drain(void)
{
    while (n_open[0] + n_open[1] + n_open[2] > 0) step();
    sim_rig_close(&rig);
}

static int32_t draw(uint64_t seed, int32_t from, int32_t to)
{
    static uint64_t n;
    return from + (int32_t)(qr_rand_u64(seed, 5, n++) % (uint64_t)(to - from + 1));
}

// Two clients who always have something waiting: one sends three times as many requests, of three times the
// length. The difference stays within what a full batch still owes, over any window, however long the run.
QR_TEST(sim_fair_keys_with_a_backlog_get_equal_shares)
{
    enum { SEQS = 8, PROMPT_MAX = 120, TOKENS_MAX = 60, STEPS = 6000, WINDOW = 500 };
    static int64_t at[STEPS + 1][2];
    open_rig("fair", SEQS);
    for (int i = 0; i < STEPS; i++) {
        while (n_open[1] < 40) assert_int_equal(submit(1, 0, draw(1, 60, PROMPT_MAX), draw(2, 30, TOKENS_MAX), NULL), QR_OK);
        while (n_open[2] < SEQS + 4) assert_int_equal(submit(2, 0, draw(3, 10, 40), draw(4, 5, 20), NULL), QR_OK);
        step();
        at[i + 1][0] = served[1], at[i + 1][1] = served[2];
    }
    int64_t bound = 2 * (PROMPT_MAX + SEQS * (PROMPT_MAX + TOKENS_MAX)), worst = 0;
    for (int i = 0; i + WINDOW <= STEPS; i++) {
        int64_t a = at[i + WINDOW][0] - at[i][0], b = at[i + WINDOW][1] - at[i][1];
        if (llabs(a - b) > worst) worst = llabs(a - b);
    }
    printf("sim: fair: %lld and %lld tokens; over any %d steps at most %lld apart (bound %lld)\n",
           (long long)served[1], (long long)served[2], WINDOW, (long long)worst, (long long)bound);
    assert_true(worst <= bound);
    assert_true(llabs(served[1] - served[2]) * 100 <= 2 * served[1]); // 2 % over the run
    drain();
}

// The same load, first come, first served: the one who sends more gets more. (That the test above measures
// something.)
QR_TEST(sim_fcfs_gives_more_to_who_sends_more)
{
    open_rig("fcfs", 8);
    for (int i = 0; i < 2000; i++) {
        while (n_open[1] < 40) assert_int_equal(submit(1, 0, draw(1, 60, 120), draw(2, 30, 60), NULL), QR_OK);
        while (n_open[2] < 12) assert_int_equal(submit(2, 0, draw(3, 10, 40), draw(4, 5, 20), NULL), QR_OK);
        step();
    }
    assert_true(served[1] > 5 * served[2]);
    drain();
}

// A flood of better requests: the worse ones still come, one in so many.
QR_TEST(sim_priority_ages_what_a_flood_passes_over)
{
    open_rig("priority", 2);
    for (int i = 0; i < 3; i++) assert_int_equal(submit(1, 7, 20, 3, NULL), QR_OK);
    int n_steps = 0;
    while (n_open[1] > 0) {
        while (n_open[0] < 6) assert_int_equal(submit(0, 0, 20, 2, NULL), QR_OK);
        step();
        assert_true(++n_steps < 5000);
    }
    struct qr_snapshot s;
    qr_engine_snapshot(rig.engine, &s);
    assert_int_equal(s.n_aged, 3);
    drain();
}

QR_TEST(sim_queue_limits_refuse_at_once_and_say_which)
{
    struct qr_error err = {0};
    struct rig_conf c = {.block_size = 16,
                         .max_num_seqs = 2,
                         .budget = 64,
                         .max_model_len = 512,
                         .n_vocab = 50,
                         .n_blocks = 100,
                         .max_queued_reqs = 2,
                         .max_queued_tokens = 100};
    sim_rig_open(&rig, &c);
    n_submitted = 0, n_open[0] = 0;
    // Two slots are free and two may wait: four in a burst, and not a fifth.
    for (int i = 0; i < 4; i++) assert_int_equal(submit(0, 0, 20, 40 + 10 * i, &err), QR_OK);
    assert_int_equal(submit(0, 0, 20, 40, &err), QR_AGAIN);
    assert_string_equal(err.param, "max_num_queued_reqs");
    assert_string_equal(err.msg, "2 requests wait already; this server queues at most 2. Try again later.");
    step();
    assert_int_equal(submit(0, 0, 20, 40, &err), QR_AGAIN); // two run, two wait
    while (n_open[0] == 4) step();
    step(); // one of the waiting ones was begun
    assert_int_equal(submit(0, 0, 81, 40, &err), QR_AGAIN);
    assert_string_equal(err.param, "max_num_queued_tokens");
    assert_int_equal(submit(0, 0, 80, 40, &err), QR_OK);
    drain();
    // An empty queue takes any one call, else it could never be served; also of several prompts.
    sim_rig_open(&rig, &c);
    n_submitted = 0;
    for (int i = 0; i < 2; i++) assert_int_equal(submit(0, 0, 20, 40, &err), QR_OK);
    step();
    assert_int_equal(submit(0, 0, 400, 4, &err), QR_OK);
    sim_rig_req_init(&req, 1, 10, 2, 50);
    req.req.n_followers = 1, req.req.n_follower_tokens = 10;
    qr_req_id id = 0;
    assert_int_equal(qr_engine_submit(rig.engine, &req.req, &id, &err), QR_AGAIN); // the call as a whole
    sim_rig_req_fini(&req);
    struct qr_snapshot s;
    qr_engine_snapshot(rig.engine, &s);
    assert_int_equal(s.n_waiting, 1);
    assert_true(s.retry_after_s >= 1);
    drain();
}

// Whoever was not begun in time ends; whoever runs goes on, also when preempted.
QR_TEST(sim_queue_timeout_ends_only_what_was_not_begun)
{
    struct rig_conf c = {.block_size = 16,
                         .max_num_seqs = 1,
                         .budget = 64,
                         .max_model_len = 512,
                         .n_vocab = 50,
                         .n_blocks = 40,
                         .queue_timeout_ns = 20000000};
    sim_rig_open(&rig, &c);
    struct qr_event ev;
    qr_req_id a = 0, b = 0;
    sim_rig_req_init(&req, 1, 20, 300, 50);
    assert_int_equal(qr_engine_submit(rig.engine, &req.req, &a, NULL), QR_OK);
    assert_int_equal(qr_engine_step(rig.engine), QR_OK);
    assert_int_equal(qr_engine_submit(rig.engine, &req.req, &b, NULL), QR_OK);
    bool late = false;
    int n_steps = 0, n_tokens = 0;
    while (!late || n_tokens < 300) {
        assert_int_equal(qr_engine_step(rig.engine), QR_OK);
        n_steps++;
        while (qr_engine_poll(rig.engine, &ev)) {
            n_tokens += ev.id == a && ev.kind == QR_EVENT_TOKEN;
            if (ev.id != b) continue;
            late = true;
            assert_int_equal(ev.kind, QR_EVENT_FINISH);
            assert_int_equal(ev.finish, QR_FINISH_ERROR);
            assert_int_equal(ev.status, QR_AGAIN);
            assert_non_null(strstr(ev.error, "waited 2"));
            assert_non_null(strstr(ev.error, " ms and was not begun in time"));
            assert_true(ev.now_ns - ev.arrival_ns >= 20000000 && ev.now_ns - ev.arrival_ns < 23000000);
        }
    }
    assert_true(n_steps > 100);
    while (qr_engine_poll(rig.engine, &ev)) assert_int_equal(ev.finish, QR_FINISH_LENGTH);
    struct qr_snapshot s;
    qr_engine_snapshot(rig.engine, &s);
    assert_int_equal(s.n_expired, 1);
    sim_rig_req_fini(&req);
    sim_rig_close(&rig);
}

// As fast as requests were begun since the queue formed, so long will those take that wait.
QR_TEST(sim_retry_after_follows_the_rate_of_admission)
{
    struct qr_snapshot s;
    open_rig("fcfs", 1);
    for (int i = 0; i < 60; i++) assert_int_equal(submit(0, 0, 20, 200, NULL), QR_OK);
    while (n_open[0] > 40) step();
    qr_engine_snapshot(rig.engine, &s);
    double per_request = (double)s.now_ns * 1e-9 / 20;
    assert_true(s.retry_after_s >= per_request * 39 * 0.9 && s.retry_after_s <= per_request * 39 * 1.1 + 1);
    drain();
    open_rig("fcfs", 1);
    qr_engine_snapshot(rig.engine, &s);
    assert_int_equal(s.retry_after_s, 1);
    sim_rig_close(&rig);
}
