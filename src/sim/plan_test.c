/* Plans: monotonic in the target and the rate, true to the simulator, and what cannot be is said with numbers. */
#include "sim/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    assert_true(p.rate_most >= p.rate / n * 0.999 && p.rate_over > p.rate_most);
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

// Requests in time, of the last quarter of a run that is many times as long as a plan's, with the settings that it chose.
static double in_time_later(const struct qr_plan_conf *c, const struct qr_plan_run *run, double rate)
{
    struct qr_sim_workload_conf load = c->load;
    struct qr_sim_workload w;
    struct qr_sim_result r;
    struct qr_error err = {0};
    load.rate = rate, load.n_requests = 10000, load.seed = 11;
    if (qr_sim_workload_make(&load, &w, &err) != QR_OK) fail_msg("%s", err.msg);
    struct qr_sim_run_conf rc = c->run;
    rc.workload = &w, rc.n_blocks = run->n_blocks, rc.n_ram = run->n_ram;
    rc.max_num_seqs = run->max_num_seqs, rc.max_num_batched_tokens = run->max_num_batched_tokens;
    qr_log_set_level(QR_LOG_WARN);
    if (qr_sim_run(&rc, &r, &err) != QR_OK) fail_msg("%s", err.msg);
    qr_log_set_level(QR_LOG_INFO);
    uint64_t n = 0, from = r.n_records * 3 / 4;
    for (uint64_t i = from; i < r.n_records; i++) n += (double)(r.records[i].first_ns - r.records[i].arrival_ns) * 1e-9 <= c->limits.ttft_s;
    double share = 100 * (double)n / (double)(r.n_records - from);
    qr_sim_result_free(&r);
    qr_sim_workload_free(&w);
    return share;
}

QR_TEST(plan_promises_no_load_under_which_a_queue_grows)
{
    for (double rate = 20; rate <= 60; rate += 40) {
        struct qr_plan_conf c = conf_of(rate, 20000, 1000, 95); // limits so loose that an overload breaks them late
        c.load.n_requests = 0;
        struct qr_plan p = plan_of(&c);
        double asked = in_time_later(&c, &p.planned, rate / p.n_replicas), most = in_time_later(&c, &p.chosen, p.rate_most);
        if (asked < 95 || most < 95)
            fail_msg("%g requests/s, %d replicas: %.1f %% in time; at most %g: %.1f %%", rate, p.n_replicas, asked, p.rate_most, most);
        assert_int_not_equal(p.bind, QR_PLAN_LATENCY);
        qr_plan_free(&p);
    }
}

static struct qr_plan_conf conf_of_trace(const char *text, char path[32])
{
    snprintf(path, 32, "/tmp/quire-plan-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    struct qr_plan_conf c = conf_of(1, 3000, 100, 95);
    c.load.rate = 0, c.load.n_requests = 0, c.load.source = path;
    return c;
}

QR_TEST(plan_refuses_a_trace_that_says_no_rate)
{
    struct qr_plan p;
    struct qr_error err = {0};
    char path[32], text[1024] = "arrival_s,input_tokens,output_tokens\n";
    struct qr_plan_conf c = conf_of_trace("arrival_s,input_tokens,output_tokens\n0,50,5\n1,50,5\n2,5,99999\n", path);
    assert_int_equal(qr_plan_make(&c, &p, &err), QR_EINVAL);
    assert_non_null(strstr(err.msg, "expected at least 20 requests that fit to plan from, got 2"));
    unlink(path);
    for (int i = 0; i < 30; i++) strcat(text, "0,50,5\n");
    c = conf_of_trace(text, path);
    assert_int_equal(qr_plan_make(&c, &p, &err), QR_EINVAL);
    assert_non_null(strstr(err.msg, "got all 30 requests at once"));
    unlink(path);
    c = conf_of(3, 500, 50, 95);
    c.load.n_requests = 1;
    assert_int_equal(qr_plan_make(&c, &p, &err), QR_EINVAL);
    assert_non_null(strstr(err.msg, "--num-prompts: expected at least 20 requests"));
    c = conf_of(3, 500, 50, 95);
    c.load.source = "2000/10";
    assert_int_equal(qr_plan_make(&c, &p, &err), QR_ETOOBIG);
    assert_non_null(strstr(err.msg, "no request can be served: "));
}

// They are no part of rates, of arithmetic and of shares of requests in time.
QR_TEST(plan_counts_requests_that_never_fit_apart)
{
    char path[32], with[4096], without[4096];
    int n_with = snprintf(with, sizeof with, "arrival_s,input_tokens,output_tokens\n"), n_without = n_with;
    strcpy(without, with);
    for (int i = 0; i < 60; i++) {
        n_with += snprintf(with + n_with, sizeof with - (size_t)n_with, "%d,50,20\n", i);
        if (i % 3 == 1) n_with += snprintf(with + n_with, sizeof with - (size_t)n_with, "%d,5,99999\n", i);
        n_without += snprintf(without + n_without, sizeof without - (size_t)n_without, "%d,50,20\n", i);
    }
    struct qr_plan_conf c = conf_of_trace(with, path);
    struct qr_plan a = plan_of(&c), b;
    unlink(path);
    c = conf_of_trace(without, path);
    b = plan_of(&c);
    unlink(path);
    assert_int_equal(a.n_unfit, 20);
    assert_int_equal(a.n_load, 80);
    assert_non_null(strstr(a.unfit_why, "maximum context length is 1024"));
    assert_int_equal(b.n_unfit, 0);
    assert_int_equal(a.n_replicas, 1);
    assert_int_equal(a.n_replicas_least, b.n_replicas_least);
    assert_true(a.rate == b.rate && a.planned.ttft_s == b.planned.ttft_s && a.planned.n_answered == 60);
    qr_plan_free(&a);
    qr_plan_free(&b);
}

// A plan for n requests of these lengths, one a second.
static struct qr_plan plan_of_steady_trace(int n, const char *lengths, struct qr_plan_conf *c)
{
    static char path[32]; // c goes on naming it
    char text[4096] = "arrival_s,input_tokens,output_tokens\n";
    for (int i = 0; i < n; i++) snprintf(text + strlen(text), 32, "%d,%s\n", i, lengths);
    *c = conf_of_trace(text, path);
    struct qr_plan p = plan_of(c);
    unlink(path);
    return p;
}

QR_TEST(plan_of_a_short_trace_names_no_limit)
{
    char why[1024];
    struct qr_plan_conf c;
    struct qr_plan p = plan_of_steady_trace(25, "50,5", &c);
    assert_int_equal(p.n_replicas, 1);
    assert_int_equal(p.bind, QR_PLAN_NOTHING);
    assert_true(isinf(p.rate_most));
    assert_non_null(strstr(qr_plan_why(&c, &p, why, sizeof why), "too few to say"));
    qr_plan_free(&p);
}

// What a short burst is answered at is no rate that goes on.
QR_TEST(plan_of_a_trace_says_what_was_answered)
{
    char why[1024];
    struct qr_plan_conf c;
    struct qr_plan p = plan_of_steady_trace(150, "60,40", &c);
    assert_true(p.ends && p.rate_most > 1 && p.rate_most < 60); // more than 60 a second are too many for its steps
    assert_true(p.faster_over > p.faster_most && p.faster_most > 1);
    assert_non_null(strstr(qr_plan_why(&c, &p, why, sizeof why), "times as fast, and answers"));
    qr_plan_free(&p);
}

// What is recommended is what was simulated.
QR_TEST(plan_expects_what_its_own_memory_does)
{
    struct qr_plan_conf c = conf_of(5, 2000, 100, 95);
    struct qr_plan p = plan_of(&c);
    assert_true(p.planned.n_blocks < p.chosen.n_blocks && p.planned.kept);
    assert_true(p.planned.ttft_s == p.chosen.ttft_s && p.planned.n_late == p.chosen.n_late);
    qr_plan_free(&p);
}

QR_TEST(plan_simulates_no_settings_twice_that_hold_nothing_back)
{
    struct qr_plan_conf c = conf_of(5, 2000, 100, 95);
    c.n_seqs = 1, c.n_steps = 5;
    for (int i = 0; i < 5; i++) c.steps[i].n_tokens = 1024 << i, c.steps[i].n_blocks = 1000;
    struct qr_plan p = plan_of(&c);
    int n = 0;
    for (int i = 0; i < p.n_runs; i++) n += p.runs[i].rate == p.chosen.rate;
    assert_int_equal(n, 1);
    qr_plan_free(&p);
}
