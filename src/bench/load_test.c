#include "bench/load.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/test.h"
#include "bench/mt.h"

static struct qr_conf parse(int n, const char *const *flags)
{
    char *argv[16] = {(char *)"bench"};
    struct qr_conf c;
    for (int i = 0; i < n; i++) argv[i + 1] = (char *)flags[i];
    assert_int_equal(qr_conf_parse(QR_VERB_B, n + 1, argv, &c, NULL), QR_OK);
    return c;
}
#define PARSE(...) parse(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *), (const char *[]){__VA_ARGS__})

// Expected values are what CPython 3.11 prints.
QR_TEST(mt_draws_what_python_draws)
{
    struct bench_mt m;
    bench_mt_seed(&m, 1);
    assert_true(bench_mt_unit(&m) == 0.13436424411240122);
    assert_true(bench_mt_unit(&m) == 0.8474337369372327);
    bench_mt_seed(&m, 1);
    static const int64_t want[] = {9805, 38303, 5135, 17716, 8727, 33468};
    for (int i = 0; i < 6; i++) assert_int_equal(bench_mt_range(&m, 1000, 40000), want[i]);
    bench_mt_seed(&m, 7);
    static const double normal[] = {-0.35590824951057143, 0.27915309343878736, 0.0970447726200016};
    for (int i = 0; i < 3; i++) assert_true(fabs(bench_mt_normal(&m, 0, 1) - normal[i]) < 1e-12);
    for (int i = 0; i < 1000; i++) bench_mt_unit(&m); // over the end of the state
    assert_true(bench_mt_unit(&m) == 0.19370730319334173);
}

QR_TEST(mt_gamma_has_its_mean_and_variance)
{
    static const double shapes[] = {0.3, 1, 4};
    for (int s = 0; s < 3; s++) {
        struct bench_mt m;
        double sum = 0, sum2 = 0;
        int n = 200000;
        bench_mt_seed(&m, 3);
        for (int i = 0; i < n; i++) {
            double x = bench_mt_gamma(&m, shapes[s]);
            sum += x;
            sum2 += x * x;
        }
        double mean = sum / n, var = sum2 / n - mean * mean;
        assert_true(fabs(mean - shapes[s]) < 0.02 * shapes[s]);
        assert_true(fabs(var - shapes[s]) < 0.05 * shapes[s]);
    }
}

static struct bench_load make(const struct qr_conf *c, uint32_t seed, int32_t lo, int32_t end)
{
    struct bench_load l;
    assert_int_equal(bench_load_make(c, seed, (struct bench_ids){lo, end}, &l, NULL), QR_OK);
    return l;
}

// The lengths and ids that a Python client draws with random.Random(1).
QR_TEST(load_sharegpt_is_the_python_clients)
{
    struct qr_conf c = PARSE("--num-prompts", "200");
    struct bench_load l = make(&c, 1, 1000, 40000);
    static const int32_t third[] = {4004, 30987, 30985, 24300, 16213};
    assert_int_equal(l.n, 200);
    assert_int_equal(l.n_in, 32994);
    assert_int_equal(l.n_out, 38338);
    assert_memory_equal(l.ids + l.items[3].first_id, third, sizeof third);
    for (size_t i = 0; i < l.n; i++) assert_true(l.items[i].arrival_s == 0);
    bench_load_free(&l);
    qr_conf_free(&c);
}

QR_TEST(load_has_the_lengths_of_chats)
{
    struct qr_conf c = PARSE("--num-prompts", "4000");
    struct bench_load l = make(&c, 7, 5, 500);
    // Lognormal of mean 161 and 200, cut at 800 and 600: a few per cent below.
    assert_in_range(l.n_in / l.n, 135, 165);
    assert_in_range(l.n_out / l.n, 175, 205);
    for (size_t i = 0; i < l.n; i++) {
        assert_in_range(l.items[i].n_prompt, 8, 800);
        assert_in_range(l.items[i].n_out, 16, 600);
    }
    bench_load_free(&l);
    qr_conf_free(&c);
}

QR_TEST(load_prefix_shares_its_beginning_and_nothing_else)
{
    struct qr_conf c = PARSE("--dataset", "prefix", "--num-prompts", "6", "--prefix-len", "40", "--input-len", "9",
                             "--num-prefixes", "2", "--output-len", "5");
    struct bench_load l = make(&c, 1, 5, 500);
    for (int i = 0; i < 6; i++) {
        const int32_t *a = l.ids + l.items[i].first_id, *b = l.ids + l.items[(i + 2) % 6].first_id;
        assert_int_equal(l.items[i].n_prompt, 49);
        assert_int_equal(l.items[i].n_out, 5);
        assert_memory_equal(a, b, 40 * sizeof *a);
        assert_memory_not_equal(a, l.ids + l.items[(i + 1) % 6].first_id, 40 * sizeof *a);
        assert_memory_not_equal(a + 40, b + 40, 9 * sizeof *a);
        for (int k = 0; k < 49; k++) assert_in_range(a[k], 5, 499);
    }
    bench_load_free(&l);
    qr_conf_free(&c);
}

QR_TEST(load_random_lengths_are_even_around_the_given)
{
    struct qr_conf c = PARSE("--dataset", "random", "--num-prompts", "500", "--input-len", "100", "--output-len", "10",
                             "--random-range-ratio", "0.5");
    struct bench_load l = make(&c, 1, 5, 500);
    int least = 1000, most = 0;
    for (size_t i = 0; i < l.n; i++) {
        least = l.items[i].n_prompt < least ? l.items[i].n_prompt : least;
        most = l.items[i].n_prompt > most ? l.items[i].n_prompt : most;
        assert_in_range(l.items[i].n_out, 5, 15);
    }
    assert_in_range(least, 50, 53);
    assert_in_range(most, 147, 150);
    bench_load_free(&l);
    qr_conf_free(&c);
}

// Gaps of a gamma distribution: the mean is 1 / rate, the coefficient of variation 1 / sqrt(shape).
QR_TEST(load_arrives_at_the_rate_and_as_bursty_as_asked)
{
    static const char *const shapes[] = {"1", "0.25", "4"};
    for (int k = 0; k < 3; k++) {
        struct qr_conf c = PARSE("--request-rate", "5", "--num-prompts", "20000", "--burstiness", shapes[k], "--dataset",
                                 "random", "--input-len", "1");
        struct bench_load l = make(&c, 1, 5, 500);
        double n = (double)l.n - 1, mean = l.items[l.n - 1].arrival_s / n, square = 0;
        for (size_t i = 1; i < l.n; i++) {
            double d = l.items[i].arrival_s - l.items[i - 1].arrival_s - mean;
            assert_true(d + mean >= 0);
            square += d * d;
        }
        assert_true(fabs(l.items[l.n - 1].arrival_s - 4000) < 1e-6);
        assert_true(fabs(sqrt(square / n) / mean - 1 / sqrt(strtod(shapes[k], NULL))) <= 0.08);
        bench_load_free(&l);
        qr_conf_free(&c);
    }
}

static enum qr_status of_trace(const char *text, const char *flag, const char *value, struct bench_load *l, struct qr_error *err)
{
    char path[] = "/tmp/quire-load-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    struct qr_conf c = PARSE("--workload", path, flag, value, "--request-rate", strstr(text, "session") ? "inf" : "2");
    if (!strstr(text, "session") && strstr(text, "arrival")) c.origin[QR_OPT_request_rate] = QR_FROM_DEFAULT;
    enum qr_status st = bench_load_make(&c, 1, (struct bench_ids){5, 500}, l, err);
    qr_conf_free(&c);
    unlink(path);
    return st;
}

QR_TEST(load_of_a_trace_shares_blocks_by_their_hashes)
{
    struct bench_load l;
    assert_int_equal(of_trace("arrival_s,input_tokens,output_tokens,hash_ids\n0,70,10,0-4\n0.5,66,20,0-1 9 10 11\n1,99,1,\n",
                              "--max-model-len", "90", &l, NULL),
                     QR_OK);
    assert_int_equal(l.n, 2);
    const int32_t *a = l.ids, *b = l.ids + l.items[1].first_id;
    assert_memory_equal(a, b, 32 * sizeof *a);
    assert_memory_not_equal(a + 32, b + 32, 16 * sizeof *a);
    for (uint64_t k = 0; k < l.n_in; k++) assert_in_range(l.ids[k], 5, 499);
    assert_true(l.items[0].arrival_s == 0 && l.items[1].arrival_s == 0.5 && l.rate == 0);
    bench_load_free(&l);
}

// As the help says: all at once where nothing else is said.
QR_TEST(load_of_lengths_in_words_needs_no_rate)
{
    struct bench_load l;
    struct qr_conf c = PARSE("--workload", "100/40", "--num-prompts", "3");
    assert_int_equal(bench_load_make(&c, 1, (struct bench_ids){5, 500}, &l, NULL), QR_OK);
    assert_true(l.n == 3 && isinf(l.rate) && l.items[2].arrival_s == 0);
    bench_load_free(&l);
    qr_conf_free(&c);
}

// A turn's prompt begins with the prompt before; what follows a turn that is too long is left out.
QR_TEST(load_of_sessions_links_their_turns)
{
    struct bench_load l;
    assert_int_equal(of_trace("session,turn,arrival_s,input_tokens,output_tokens,think_s\n0,0,0,20,10,\n0,1,,50,10,2\n0,2,,300,10,1\n"
                              "0,3,,40,10,1\n1,0,3,8,4,\n",
                              "--max-model-len", "200", &l, NULL),
                     QR_OK);
    assert_int_equal(l.n, 3);
    assert_int_equal(l.items[0].next, 1);
    assert_int_equal(l.items[1].next, -1);
    assert_true(l.items[0].is_first && !l.items[1].is_first && l.items[2].is_first);
    assert_true(l.items[1].think_s == 2 && l.items[1].arrival_s < 0);
    assert_memory_equal(l.ids, l.ids + l.items[1].first_id, 20 * sizeof *l.ids);
    bench_load_free(&l);
}

QR_TEST(load_names_what_is_wrong)
{
    static const char *const bad[][2] = {
        {"--dataset", "nosuch"},  {"--request-rate", "0"}, {"--request-rate", "fast"}, {"--burstiness", "0"},
        {"--num-prefixes", "0"},  {"--random-range-ratio", "1"},
    };
    struct bench_load l;
    struct bench_ids ids;
    struct qr_error err = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct qr_conf c = PARSE(bad[i][0], bad[i][1]);
        assert_int_equal(bench_load_make(&c, 1, (struct bench_ids){5, 500}, &l, &err), QR_EINVAL);
        assert_string_equal(err.param, bad[i][0] + 2);
        qr_conf_free(&c);
    }
    static const char *const ranges[] = {"9-3", "5", "-1-4", "1-2x", ""};
    for (int i = 0; i < 5; i++) assert_int_equal(bench_ids_parse(ranges[i], &ids, &err), QR_EINVAL);
    assert_int_equal(bench_ids_parse("5-499", &ids, &err), QR_OK);
    assert_true(ids.lo == 5 && ids.end == 500);
    assert_int_equal(of_trace("input_tokens,output_tokens\n300,2\n", "--num-prompts", "3", &l, &err), QR_OK);
    bench_load_free(&l);
    assert_int_equal(of_trace("arrival_s,input_tokens,output_tokens\n0,300,2\n", "--max-model-len", "90", &l, &err), QR_EINVAL);
    assert_string_equal(err.param, "max-model-len");
}
