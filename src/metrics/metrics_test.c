#include "metrics/metrics.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/test.h"

static struct qr_metrics *make(void)
{
    struct qr_metrics *m = NULL;
    assert_int_equal(qr_metrics_new(&m), QR_OK);
    struct qr_metrics_about about = {"m\"x", "block_size=\"16\",num_gpu_blocks=\"64\"", "1.0", 2048};
    assert_int_equal(qr_metrics_describe(m, &about), QR_OK);
    return m;
}

// The value of the one line that begins with `series` and a blank; fails when there is none.
static double value_of(const char *text, const char *series)
{
    size_t n = strlen(series);
    for (const char *p = text; p; p = strchr(p, '\n')) {
        if (*p == '\n') p++;
        if (strncmp(p, series, n) == 0 && p[n] == ' ') return strtod(p + n + 1, NULL);
    }
    fail_msg("no series %s", series);
    return 0;
}

#define L "{model_name=\"m\\\"x\",engine=\"0\""

QR_TEST(metrics_all_series_stand_at_zero_from_the_start)
{
    struct qr_metrics *m = make();
    struct qr_buf b = {0};
    qr_metrics_render(m, &b);
    assert_false(b.failed);
    assert_true(value_of(b.data, "vllm:request_success_total" L ",finished_reason=\"abort\"}") == 0);
    assert_true(value_of(b.data, "vllm:num_requests_running" L "}") == 0);
    assert_true(value_of(b.data, "vllm:e2e_request_latency_seconds_count" L "}") == 0);
    assert_true(value_of(b.data, "vllm:inter_token_latency_seconds_bucket" L ",le=\"0.001\"}") == 0);
    assert_true(value_of(b.data, "vllm:request_prompt_tokens_bucket" L ",le=\"2000.0\"}") == 0);
    assert_null(strstr(b.data, "vllm:request_prompt_tokens_bucket" L ",le=\"5000.0\"}"));
    assert_true(value_of(b.data, "vllm:generation_tokens_created" L "}") > 1.6e9);
    assert_true(
        value_of(b.data, "vllm:cache_config_info{engine=\"0\",block_size=\"16\",num_gpu_blocks=\"64\"}") ==
        1);
    qr_buf_fini(&b);
    qr_metrics_free(&m);
}

QR_TEST(metrics_type_lines_are_unique)
{
    struct qr_metrics *m = make();
    struct qr_buf b = {0};
    qr_metrics_render(m, &b);
    for (const char *p = b.data; (p = strstr(p, "# TYPE ")); p++) {
        char line[256];
        snprintf(line, sizeof line, "%.*s ", (int)strcspn(p + 7, " "), p + 7);
        char want[300];
        snprintf(want, sizeof want, "# TYPE %s", line);
        assert_ptr_equal(strstr(b.data, want), p);
    }
    qr_buf_fini(&b);
    qr_metrics_free(&m);
}

QR_TEST(metrics_histogram_is_cumulative)
{
    struct qr_metrics *m = make();
    struct qr_buf b = {0};
    qr_metric_observe(m, QR_HIST_ITL, 1000000, 3);       // 1 ms: on the bound
    qr_metric_observe(m, QR_HIST_ITL, 12000000, 1);      // 12 ms
    qr_metric_observe(m, QR_HIST_ITL, 1000000000000, 1); // 1000 s: beyond the last
    qr_metrics_render(m, &b);
    assert_true(value_of(b.data, "vllm:inter_token_latency_seconds_bucket" L ",le=\"0.00075\"}") == 0);
    assert_true(value_of(b.data, "vllm:inter_token_latency_seconds_bucket" L ",le=\"0.001\"}") == 3);
    assert_true(value_of(b.data, "vllm:inter_token_latency_seconds_bucket" L ",le=\"0.01\"}") == 3);
    assert_true(value_of(b.data, "vllm:inter_token_latency_seconds_bucket" L ",le=\"0.025\"}") == 4);
    assert_true(value_of(b.data, "vllm:inter_token_latency_seconds_bucket" L ",le=\"80.0\"}") == 4);
    assert_true(value_of(b.data, "vllm:inter_token_latency_seconds_bucket" L ",le=\"+Inf\"}") == 5);
    assert_true(value_of(b.data, "vllm:inter_token_latency_seconds_count" L "}") == 5);
    double sum = value_of(b.data, "vllm:inter_token_latency_seconds_sum" L "}");
    assert_true(sum > 1000.01499 && sum < 1000.01501);
    qr_buf_fini(&b);
    qr_metrics_free(&m);
}

QR_TEST(metrics_take_the_engines_snapshot)
{
    struct qr_metrics *m = make();
    struct qr_buf b = {0};
    struct qr_snapshot s = {.n_running = 3,
                            .n_waiting = 2,
                            .n_blocks = 64,
                            .n_blocks_used = 16,
                            .n_blocks_free = 48,
                            .slots_allocated = 100,
                            .slots_filled = 90,
                            .n_prompt_tokens = 7,
                            .n_cache_queries = 9,
                            .n_cache_hits = 4,
                            .n_cache_generated = 1,
                            .n_steps_of = {[0] = 2, [3] = 1, [4] = 1, [QR_STEP_SIZES - 1] = 1},
                            .n_step_tokens = 40000,
                            .waste_slots = 1,
                            .waste_of_slots = 50,
                            .step_ns = 1500000000};
    qr_metrics_take(m, &s);
    qr_metrics_take(m, &s);
    qr_metrics_render(m, &b);
    assert_true(value_of(b.data, "vllm:num_requests_running" L "}") == 3);
    assert_true(value_of(b.data, "vllm:kv_cache_usage_perc" L "}") == 0.25);
    assert_true(value_of(b.data, "vllm:prompt_tokens_total" L "}") == 11);
    assert_true(value_of(b.data, "vllm:prefix_cache_queries_total" L "}") == 9);
    assert_true(value_of(b.data, "vllm:prefix_cache_hits_total" L "}") == 4);
    assert_true(value_of(b.data, "vllm:prompt_tokens_cached_total" L "}") == 4);
    assert_true(value_of(b.data, "quire:prefix_cache_generated_hits_total" L "}") == 1);
    static const struct {
        const char *le;
        double n;
    } steps[] = {{"1.0", 2}, {"8.0", 3}, {"16.0", 4}, {"16384.0", 4}, {"+Inf", 5}};
    for (int i = 0; i < 5; i++) {
        char series[128];
        snprintf(series, sizeof series, "vllm:iteration_tokens_total_bucket" L ",le=\"%s\"}", steps[i].le);
        assert_true(value_of(b.data, series) == steps[i].n);
    }
    assert_true(value_of(b.data, "vllm:iteration_tokens_total_sum" L "}") == 40000);
    assert_true(value_of(b.data, "quire:kv_fragmentation_ratio" L "}") == 0.1);
    assert_true(value_of(b.data, "quire:kv_waste_ratio" L "}") == 0.02);
    assert_true(value_of(b.data, "quire:engine_step_seconds_total" L "}") == 1.5);
    qr_buf_fini(&b);
    qr_metrics_free(&m);
}
