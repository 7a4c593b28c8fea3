#include "bench/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-9 * (1 + fabs(b));
}

// Expected values are numpy's percentile, mean and std.
QR_TEST(bench_dist_is_numpys)
{
    double rank[] = {50, 40, 35, 20, 15};
    bench_dist_of(rank, 5); // sorts
    static const double want[][2] = {{0, 15}, {40, 29}, {50, 35}, {95, 48}, {100, 50}};
    for (int i = 0; i < 5; i++) assert_true(near(bench_percentile(rank, 5, want[i][0]), want[i][1]));
    double v[] = {7, 1, 4, 10, 2.5};
    struct bench_dist d = bench_dist_of(v, 5);
    assert_true(near(d.mean, 4.9) && near(d.std, 3.2310988842807023));
    assert_true(near(d.p50, 4) && near(d.p95, 9.4) && near(d.p99, 9.88));
    double one[] = {3};
    d = bench_dist_of(one, 1);
    assert_true(near(d.mean, 3) && near(d.p99, 3) && d.std == 0);
    assert_true(bench_dist_of(one, 0).p99 == 0);
}

QR_TEST(bench_limits_are_parsed)
{
    static const char *const bad[] = {"ttft", "ttft:", "ttft:0", "itl:5", "x:5", ":5", "tpot:5ms"};
    struct bench_limits l;
    struct qr_error err = {0};
    assert_int_equal(bench_limits_parse("ttft:200 tpot:50.5", &l, &err), QR_OK);
    assert_true(l.any && l.ms[BENCH_TTFT] == 200 && l.ms[BENCH_TPOT] == 50.5 && isinf(l.ms[BENCH_E2EL]));
    assert_int_equal(bench_limits_parse("e2el:1,ttft:2", &l, &err), QR_OK);
    assert_true(l.ms[BENCH_E2EL] == 1 && l.ms[BENCH_TTFT] == 2);
    assert_int_equal(bench_limits_parse("", &l, &err), QR_OK);
    assert_false(l.any);
    for (int i = 0; i < 7; i++) {
        assert_int_equal(bench_limits_parse(bad[i], &l, &err), QR_EINVAL);
        assert_non_null(strstr(err.msg, bad[i]));
    }
}

// Two streams whose times are known: one of 5 tokens in 5 chunks, one of 4 tokens in 2 chunks; and one that failed.
QR_TEST(bench_result_of_known_times)
{
    const uint64_t ms = 1000000;
    struct bench_reply replies[] = {
        {.sent_ns = 10 * ms, .first_ns = 110 * ms, .last_ns = 510 * ms, .n_in = 7, .n_out = 5, .n_chunks = 5, .ok = true},
        {.sent_ns = 10 * ms, .first_ns = 60 * ms, .last_ns = 360 * ms, .n_in = 3, .n_out = 4, .n_chunks = 2, .ok = true},
        {.sent_ns = 10 * ms, .n_in = 100, .n_out = 100, .failed = true},
    };
    double itl[] = {100, 100, 100, 100, 300};
    uint64_t chunks[] = {110 * ms, 60 * ms, 210 * ms, 310 * ms, 360 * ms, 410 * ms, 1060 * ms};
    struct bench_run run = {.n = 3, .replies = replies, .itl_ms = itl, .n_itl = 5, .n_ok = 2, .n_failed = 1,
                            .duration_s = 2, .cpu_s = 0.5, .chunk_ns = chunks, .n_chunks = 7};
    struct bench_limits l;
    struct bench_result r;
    assert_int_equal(bench_limits_parse("ttft:80", &l, NULL), QR_OK);
    assert_int_equal(bench_result_of(&run, &l, &r, NULL), QR_OK);
    assert_int_equal(r.n_in, 10);
    assert_int_equal(r.n_out, 9);
    assert_int_equal(r.n_good, 1);
    assert_true(near(r.request_s, 1) && near(r.good_s, 0.5) && near(r.out_s, 4.5) && near(r.total_s, 9.5));
    assert_true(near(r.times[BENCH_TTFT].mean, 75) && near(r.times[BENCH_E2EL].mean, 425));
    assert_true(near(r.times[BENCH_TPOT].mean, 100) && near(r.times[BENCH_ITL].mean, 140));
    assert_true(near(r.cpu_share, 0.25));
    assert_true(near(r.out_peak_s, 6 * 9 / 7.0)); // the seventh chunk is a second behind the first
}
