/* Figures and loads: known values, and the shapes that are promised. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/test.h"
#include "bench/load.h"
#include "bench/stat.h"

QR_TEST(bench_percentiles_are_numpys)
{
    struct bench_list l = {0};
    assert_true(isnan(bench_percentile(&l, 0.5)));
    static const double v[] = {15, 20, 35, 40, 50};
    for (int i = 4; i >= 0; i--) bench_list_add(&l, v[i]);
    // numpy.percentile([15, 20, 35, 40, 50], [0, 40, 50, 95, 100])
    assert_true(fabs(bench_percentile(&l, 0) - (15)) <= 1e-12);
    assert_true(fabs(bench_percentile(&l, 0.4) - (29)) <= 1e-12);
    assert_true(fabs(bench_percentile(&l, 0.5) - (35)) <= 1e-12);
    assert_true(fabs(bench_percentile(&l, 0.95) - (48)) <= 1e-12);
    assert_true(fabs(bench_percentile(&l, 1) - (50)) <= 1e-12);
    assert_true(fabs(bench_mean(&l) - (32)) <= 1e-12);
    bench_list_fini(&l);
}

static struct qr_conf parse(int argc, char **argv)
{
    struct qr_conf c;
    assert_int_equal(qr_conf_parse(QR_VERB_B, argc, argv, &c, NULL), QR_OK);
    return c;
}

QR_TEST(bench_load_has_the_lengths_of_chats)
{
    char *argv[] = {"bench", "--num-prompts", "4000", "--seed", "7"};
    struct qr_conf c = parse(5, argv);
    struct bench_load l, again;
    assert_int_equal(bench_load_make(&c, &l, NULL), QR_OK);
    assert_int_equal(bench_load_make(&c, &again, NULL), QR_OK);
    // Lognormal of mean 161 and 200, cut at 800 and 600: a few per cent below.
    assert_in_range(l.n_in / l.n, 135, 165);
    assert_in_range(l.n_out / l.n, 175, 205);
    assert_memory_equal(l.ids, again.ids, l.n_in * sizeof *l.ids);
    for (size_t i = 0; i < l.n; i++) {
        assert_in_range(l.items[i].n_prompt, 8, 800);
        assert_in_range(l.items[i].n_out, 16, 600);
        assert_true(l.items[i].arrival_s == 0);
    }
    bench_load_free(&l);
    bench_load_free(&again);
    qr_conf_free(&c);
}

QR_TEST(bench_load_shares_a_prefix_and_nothing_else)
{
    char *argv[] = {"bench", "--dataset", "prefix", "--prefix-len", "100", "--input-len", "20", "--num-prompts", "3"};
    struct qr_conf c = parse(9, argv);
    struct bench_load l;
    assert_int_equal(bench_load_make(&c, &l, NULL), QR_OK);
    assert_int_equal(l.items[2].n_prompt, 120);
    assert_memory_equal(l.items[0].prompt, l.items[2].prompt, 100 * sizeof *l.ids);
    assert_memory_not_equal(l.items[0].prompt + 100, l.items[2].prompt + 100, 20 * sizeof *l.ids);
    bench_load_free(&l);
    qr_conf_free(&c);
}

// Gaps of a gamma distribution: the mean is 1 / rate, the coefficient of variation 1 / sqrt(shape).
QR_TEST(bench_load_arrives_at_the_rate_and_as_bursty_as_asked)
{
    static char *const shapes[] = {"1", "0.25", "4"};
    for (int k = 0; k < 3; k++) {
        char *argv[] = {"bench", "--request-rate", "5", "--num-prompts", "20000", "--burstiness", shapes[k]};
        struct qr_conf c = parse(7, argv);
        struct bench_load l;
        assert_int_equal(bench_load_make(&c, &l, NULL), QR_OK);
        double n = (double)l.n - 1, mean = l.items[l.n - 1].arrival_s / n, square = 0;
        for (size_t i = 1; i < l.n; i++) {
            double d = l.items[i].arrival_s - l.items[i - 1].arrival_s - mean;
            assert_true(d + mean >= 0);
            square += d * d;
        }
        assert_true(fabs(mean - (0.2)) <= 0.01);
        assert_true(fabs(sqrt(square / n) / mean - (1 / sqrt(strtod(shapes[k], NULL)))) <= 0.08);
        bench_load_free(&l);
        qr_conf_free(&c);
    }
}

QR_TEST(bench_load_names_the_option_that_is_wrong)
{
    static char *const bad[][2] = {{"--dataset", "nosuch"},  {"--request-rate", "0"}, {"--request-rate", "fast"},
                                   {"--burstiness", "0"},    {"--num-prompts", "0"},  {"--token-ids", "9-3"},
                                   {"--input-len", "0"},     {"--output-len", "0"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *argv[] = {"bench", bad[i][0], bad[i][1]};
        struct qr_conf c = parse(3, argv);
        struct bench_load l;
        struct qr_error err = {0};
        assert_int_equal(bench_load_make(&c, &l, &err), QR_EINVAL);
        assert_string_equal(err.param, bad[i][0] + 2);
        qr_conf_free(&c);
    }
}
