/* Plans: monotonic in the target and the rate, true to the simulator, and what cannot be is said with numbers. */
#include "sim/plan.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/test.h"

static struct qr_sim_cost cost;

// Steps of 20 ms, and 0.1 ms a prompt row.
static struct qr_plan_conf conf_of(double rate, double ttft_ms, double tpot_ms, double percentile)
{
    cost = (struct qr_sim_cost){.kind = QR_SIM_TABLE, .table = {1, 20000000, 200000, 500000, 100000, 500, 0}, .copy_ns = 1000};
    struct qr_plan_conf c = {.load = {.source = "60/40*3,300/80", .rate = rate, .n_requests = 300, .burstiness = 1, .seed = 3},
                             .limits = {ttft_ms * 1e-3, tpot_ms * 1e-3, INFINITY, percentile},
                             .seqs = {8, 32, 128},
                             .n_seqs = 3,
                             .steps = {{256, 1000}, {1024, 1000}},
                             .n_steps = 2};
    c.run = (struct qr_sim_run_conf){.cost = &cost,
                                     .block_size = 16,
                                     .max_model_len = 1024,
                                     .n_vocab = 1000,
                                     .block_bytes = 1 << 20,
                                     .page_blocks = 1,
                                     .n_choices = 1,
                                     .step_budget_ns = UINT64_MAX,
                                     .seed = 3};
    return c;
}

static struct qr_plan plan_of(const struct qr_plan_conf *c)
{
    struct qr_plan p;
    struct qr_error err = {0};
    qr_log_set_level(QR_LOG_WARN);
    enum qr_status st = qr_plan_make(c, &p, &err);
    qr_log_set_level(QR_LOG_INFO);
    if (st != QR_OK) fail_msg("%s", err.msg);
    return p;
}

static int32_t replicas(double rate, double ttft_ms, double tpot_ms, double percentile)
{
    struct qr_plan_conf c = conf_of(rate, ttft_ms, tpot_ms, percentile);
    struct qr_plan p = plan_of(&c);
    int32_t n = p.n_replicas;
    assert_true(p.chosen.kept && p.chosen.n_replicas == n && n >= p.n_replicas_least);
    // Enough were in time, and one replica fewer was tried and was too few, or arithmetic forbids it.
    assert_true((double)p.chosen.n_late <= (1 - percentile / 100) * (double)p.chosen.n_answered + 1e-9);
    bool tried = n == p.n_replicas_least;
    for (int i = 0; i < p.n_runs; i++) {
        tried |= p.runs[i].n_replicas == n - 1;
        if (p.runs[i].n_replicas == n - 1) assert_false(p.runs[i].kept);
    }
    assert_true(tried);
    assert_true(p.rate_most >= p.chosen.rate * 0.999 && p.rate_over > p.rate_most);
    qr_plan_free(&p);
    return n;
}

QR_TEST(plan_needs_no_fewer_replicas_for_a_stricter_target)
{
    static const double ttfts[] = {4000, 800, 300, 150}, tpots[] = {200, 60, 35}, percentiles[] = {50, 90, 95, 99};
    int32_t before = 0;
    for (int i = 0; i < 4; i++) {
        int32_t n = replicas(40, ttfts[i], 100, 95);
        assert_true(n >= before);
        before = n;
    }
    assert_true(before > 1);
    before = 0;
    for (int i = 0; i < 3; i++) {
        int32_t n = replicas(40, 1000, tpots[i], 95);
        assert_true(n >= before);
        before = n;
    }
    before = 0;
    for (int i = 0; i < 4; i++) {
        int32_t n = replicas(40, 400, 50, percentiles[i]);
        assert_true(n >= before);
        before = n;
    }
}

QR_TEST(plan_needs_more_replicas_for_more_requests)
{
    int32_t few = replicas(10, 500, 60, 95), many = replicas(200, 500, 60, 95);
    assert_true(few <= 4 && many >= 8 * few / 2 && many > few);
}

QR_TEST(plan_is_the_same_for_the_same_seed)
{
    struct qr_plan_conf c = conf_of(30, 500, 50, 95);
    struct qr_plan a = plan_of(&c), b = plan_of(&c);
    assert_int_equal(a.n_runs, b.n_runs);
    for (int i = 0; i < a.n_runs; i++) {
        assert_int_equal(a.runs[i].n_replicas, b.runs[i].n_replicas);
        assert_int_equal(a.runs[i].n_late, b.runs[i].n_late);
        assert_true(a.runs[i].ttft_s == b.runs[i].ttft_s && a.runs[i].e2el_s == b.runs[i].e2el_s);
    }
    assert_true(a.rate_most == b.rate_most);
    qr_plan_free(&a);
    qr_plan_free(&b);
}

QR_TEST(plan_says_what_binds)
{
    char why[1024];
    struct qr_plan_conf c = conf_of(30, 3000, 150, 95);
    for (int i = 0; i < 2; i++) c.steps[i].n_blocks = 70; // 1,120 tokens: about ten requests
    struct qr_plan p = plan_of(&c);
    assert_int_equal(p.bind, QR_PLAN_MEMORY);
    assert_non_null(strstr(qr_plan_why(&c, &p, why, sizeof why), "KV blocks ran out"));
    qr_plan_free(&p);
    c = conf_of(30, 20000, 1000, 50);
    cost.table.row_ns = 5000000; // a row is dearer than a step
    p = plan_of(&c);
    assert_int_equal(p.bind, QR_PLAN_COMPUTE);
    qr_plan_free(&p);
    c = conf_of(1, 100, 100, 99);
    p = plan_of(&c);
    assert_int_equal(p.bind, QR_PLAN_LATENCY);
    qr_plan_free(&p);
}

QR_TEST(plan_refuses_what_no_number_of_replicas_does)
{
    struct qr_plan p;
    struct qr_error err = {0};
    struct qr_plan_conf c = conf_of(5, 500, 15, 95); // a step takes 20 ms
    qr_log_set_level(QR_LOG_WARN);
    assert_int_equal(qr_plan_make(&c, &p, &err), QR_ETOOBIG);
    assert_non_null(strstr(err.msg, "no number of replicas keeps the target"));
    assert_non_null(strstr(err.msg, "(limit 15)"));
    c = conf_of(INFINITY, 500, 50, 95);
    assert_int_equal(qr_plan_make(&c, &p, &err), QR_EINVAL);
    c = conf_of(1e9, 500, 50, 95);
    assert_int_equal(qr_plan_make(&c, &p, &err), QR_ETOOBIG);
    assert_non_null(strstr(err.msg, "need at least"));
    qr_log_set_level(QR_LOG_INFO);
}
