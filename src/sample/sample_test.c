#include "sample/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/test.h"
#include "kern/kern.h"
#include "sample/counts.h"
#include "sample/sample_internal.h"

static struct qr_sampling plain(void)
{
    return (struct qr_sampling){.temperature = 1,
                                .top_p = 1,
                                .repetition = 1,
                                .seed = 7,
                                .max_tokens = 4096,
                                .n_logprobs = -1,
                                .n_prompt_logprobs = -1};
}

static float random_unit(uint64_t seed, uint64_t i)
{
    return (float)qr_rand_unit(seed, 99, i);
}

// Rows as models give them: a wide bell, some peaks, ties, and now and then a value of no use.
static void random_row(float *x, int n, uint64_t seed)
{
    int kind = (int)(seed % 4);
    for (int i = 0; i < n; i++) {
        float u = random_unit(seed, (uint64_t)i), v = random_unit(seed + 1, (uint64_t)i);
        x[i] = kind == 3 ? u * 0.01f
                         : sqrtf(-2 * logf(u + 1e-9f)) * cosf(6.2831853f * v) * (kind == 0 ? 1.0f : 4.0f);
        if (kind == 2) x[i] = roundf(x[i] * 2) / 2; // many ties
    }
    if (n > 10 && kind < 2) x[seed * 7 % (uint64_t)n] = 25 - 15 * random_unit(seed, 1);
}

// ==== The oracle: sorts everything, in double, one rule after another ====

struct pair {
    double x;
    int id;
};

static int by_value(const void *a, const void *b)
{
    const struct pair *p = a, *q = b;
    if (p->x != q->x) return p->x < q->x ? 1 : -1;
    return p->id < q->id ? -1 : 1;
}

struct oracle {
    int n;
    const struct qr_sampling *p;
    const int32_t *ids;
    int n_prompt, n_ids;
};

static bool in_list(const int32_t *list, size_t n, int id)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == id) return true;
    return false;
}

static bool is_bad(const struct oracle *o, int id)
{
    const int32_t *ids = o->p->bad_ids;
    for (size_t b = 0; b < o->p->n_bad; ids += o->p->bad_lens[b++]) {
        int len = o->p->bad_lens[b], first = o->n_ids - (len - 1);
        if (ids[len - 1] != id || first < o->n_prompt) continue;
        bool same = true;
        for (int i = 0; i < len - 1; i++) same &= o->ids[first + i] == ids[i];
        if (same) return true;
    }
    return false;
}

static double changed(const struct oracle *o, float logit, int id)
{
    const struct qr_sampling *p = o->p;
    double x = (double)logit;
    int n_prompt = 0, n_gen = 0;
    for (int i = 0; i < o->n_ids; i++)
        if (o->ids[i] == id) *(i < o->n_prompt ? &n_prompt : &n_gen) += 1;
    if (p->n_allowed > 0 && !in_list(p->allowed, p->n_allowed, id)) return -INFINITY;
    if (is_bad(o, id)) return -INFINITY;
    if (o->n_ids - o->n_prompt < p->min_tokens &&
        (in_list(p->eos, p->n_eos, id) || in_list(p->stop_ids, p->n_stop_ids, id)))
        return -INFINITY;
    for (size_t i = 0; i < p->n_bias; i++)
        if (p->bias[i].id == id) x += (double)p->bias[i].value;
    if (n_prompt + n_gen > 0) x = x > 0 ? x / (double)p->repetition : x * (double)p->repetition;
    return x - (double)p->frequency * n_gen - (n_gen > 0 ? (double)p->presence : 0);
}

// Fills prob (n) with the exact distribution in force.
static void oracle_distribution(const struct oracle *o, const float *logits, double *prob)
{
    const struct qr_sampling *p = o->p;
    int n = o->n;
    struct pair *s = malloc((size_t)n * sizeof *s);
    for (int i = 0; i < n; i++) s[i] = (struct pair){changed(o, logits[i], i), i};
    qsort(s, (size_t)n, sizeof *s, by_value);
    double max = s[0].x, t = (double)p->temperature;
    for (int i = 0; i < n; i++) prob[i] = 0;
    if (t == 0) {
        prob[s[0].id] = 1;
        free(s);
        return;
    }
    int kept = 0;
    while (kept < n && exp((s[kept].x - max) / t) >= (double)p->min_p && s[kept].x > -INFINITY) kept++;
    if (p->top_k > 0 && p->top_k < kept) {
        int k = p->top_k;
        while (k < kept && s[k].x == s[p->top_k - 1].x) k++;
        kept = k;
    }
    double all = 0, before = 0, sum = 0;
    for (int i = 0; i < kept; i++) all += exp((s[i].x - max) / t);
    for (int i = 0; i < kept && (i == 0 || p->top_p >= 1 || before < (double)p->top_p * all); i++) {
        prob[s[i].id] = exp((s[i].x - max) / t);
        before += prob[s[i].id];
    }
    for (int i = 0; i < n; i++) sum += prob[i];
    for (int i = 0; i < n; i++) prob[i] /= sum;
    free(s);
}

// True when `token` is what u draws from prob, up to rounding at a border.
static bool draws(const double *prob, int n, double u, int token)
{
    double sum = 0;
    for (int i = 0; i < token; i++) sum += prob[i];
    (void)n;
    return u > sum - 1e-5 && u < sum + prob[token] + 1e-5 && prob[token] > 0;
}

static void check_draw(int n, const struct qr_sampling *p, const int32_t *ids, int n_prompt, int n_ids,
                       uint64_t seed)
{
    float *logits = malloc((size_t)n * sizeof *logits);
    double *prob = malloc((size_t)n * sizeof *prob);
    void *work = malloc(qr_sample_work_bytes(n));
    random_row(logits, n, seed);
    struct oracle o = {n, p, ids, n_prompt, n_ids};
    oracle_distribution(&o, logits, prob);
    struct qr_sampler *s = NULL;
    assert_int_equal(qr_sampler_new(p, 3, n, ids, n_prompt, n_ids, &s), QR_OK);
    struct qr_out_row row = {0};
    struct qr_top top[QR_LOGPROBS_MAX];
    qr_sampler_next(s, n_ids, logits, work, &row, top);
    double u = qr_rand_unit(p->seed, 3, (uint64_t)n_ids);
    if (!(row.token >= 0 && row.token < n && draws(prob, n, p->temperature == 0 ? 0.5 : u, row.token)))
        fail_msg("seed %d: n %d drew %d (prob %g) of u %g; T %g p %g k %d min_p %g", (int)seed, n,
                 (int)row.token, row.token >= 0 && row.token < n ? prob[row.token] : -1.0, u,
                 (double)p->temperature, (double)p->top_p, (int)p->top_k, (double)p->min_p);
    qr_sampler_free(&s);
    free(logits);
    free(prob);
    free(work);
}

QR_TEST(sample_draws_as_the_sorted_definition_does)
{
    static const int sizes[] = {1, 2, 63, 64, 65, 511, 513, 4099};
    static const float temps[] = {0, 0.3f, 1, 2}, ps[] = {1, 0.9f, 0.5f, 0.999f, 0.001f},
                       mins[] = {0, 0, 0.05f, 1};
    int32_t id = 0;
    for (uint64_t r = 0; r < 1500; r++) {
        uint64_t h = qr_rand_u64(5, 0, r);
        int n = sizes[h % 8];
        static const int ks[] = {0, 0, 1, 5, 40, 2000};
        struct qr_sampling p = plain();
        p.temperature = temps[(h >> 8) % 4];
        p.top_p = ps[(h >> 16) % 5];
        p.min_p = mins[(h >> 24) % 4];
        p.top_k = ks[(h >> 32) % 6];
        p.seed = h;
        check_draw(n, &p, &id, 1, 1, r);
    }
}

QR_TEST(sample_penalties_masks_and_bias_as_defined)
{
    int32_t ids[60], allowed[20], bad[] = {3, 7, 9, 11, 12, 13}, lens[] = {1, 2, 3}, eos[] = {5, 6},
                                  stop[] = {8};
    for (uint64_t r = 0; r < 1500; r++) {
        uint64_t h = qr_rand_u64(6, 0, r);
        int n = h % 2 ? 40 : 700, n_prompt = 1 + (int)(h >> 4 & 31), n_ids = n_prompt + (int)(h >> 12 & 27);
        for (int i = 0; i < n_ids; i++) ids[i] = (int32_t)(qr_rand_u64(h, 1, (uint64_t)i) % 16);
        for (int i = 0; i < 20; i++) allowed[i] = (int32_t)(qr_rand_u64(h, 2, (uint64_t)i) % 30);
        struct qr_bias bias[3] = {{1, 3.5f}, {2, -100}, {4, 100}};
        struct qr_sampling p = plain();
        p.seed = h;
        p.temperature = h >> 20 & 1 ? 0 : 0.8f;
        if (h >> 21 & 1) p.repetition = h >> 22 & 1 ? 1.3f : 0.7f;
        if (h >> 23 & 1) p.presence = 1.5f;
        if (h >> 24 & 1) p.frequency = -0.6f;
        if (h >> 25 & 1) p.n_allowed = 20, p.allowed = allowed;
        if (h >> 26 & 1) p.n_bad = 3, p.bad_ids = bad, p.bad_lens = lens;
        if (h >> 27 & 1) p.min_tokens = 15, p.n_eos = 2, p.eos = eos, p.n_stop_ids = 1, p.stop_ids = stop;
        if (h >> 28 & 1) p.n_bias = 1 + (h >> 29 & 1) * 2, p.bias = bias;
        check_draw(n, &p, ids, n_prompt, n_ids, r);
    }
}

QR_TEST(sample_counts_what_it_chose)
{
    // The state after choosing must be the state of a sampler opened with the chosen tokens (preemption).
    enum { N = 300 };
    float logits[N];
    static char work[64 * 1024];
    assert_true(qr_sample_work_bytes(N) <= sizeof work);
    struct qr_sampling p = plain();
    int32_t ids[80] = {1, 2, 3, 4}, bad[] = {10, 20, 30}, lens[] = {2, 1};
    p.repetition = 1.2f, p.frequency = 0.3f, p.presence = 0.1f, p.n_bad = 2, p.bad_ids = bad,
    p.bad_lens = lens;
    struct qr_sampler *a = NULL, *b = NULL;
    struct qr_out_row row = {0};
    struct qr_top top[QR_LOGPROBS_MAX];
    assert_int_equal(qr_sampler_new(&p, 0, N, ids, 4, 4, &a), QR_OK);
    uint64_t calls = qr_mem_calls();
    for (int pos = 4; pos < 80; pos++) {
        random_row(logits, N, 1000 + (uint64_t)pos % 3);
        qr_sampler_next(a, pos, logits, work, &row, top);
        ids[pos] = row.token;
    }
    assert_int_equal(qr_mem_calls(), calls);
    for (int cut = 4; cut < 80; cut += 5) {
        assert_int_equal(qr_sampler_new(&p, 0, N, ids, 4, cut, &b), QR_OK);
        for (int pos = cut; pos < 80; pos++) {
            random_row(logits, N, 1000 + (uint64_t)pos % 3);
            qr_sampler_next(b, pos, logits, work, &row, top);
            assert_int_equal(row.token, ids[pos]);
        }
        qr_sampler_free(&b);
    }
    qr_sampler_free(&a);
}

// Pearson's chi-square of 30,000 draws against the exact distribution, all cells with an expectation above 5.
static void check_frequencies(const struct qr_sampling *p, uint64_t row_seed)
{
    enum { N = 130, DRAWS = 30000 };
    float logits[N], x[N];
    double prob[N], chi = 0;
    int seen[N] = {0}, cells = 0;
    static char work[32 * 1024];
    assert_true(qr_sample_work_bytes(N) <= sizeof work);
    int32_t id = 0;
    random_row(logits, N, row_seed);
    struct oracle o = {N, p, &id, 1, 1};
    oracle_distribution(&o, logits, prob);
    struct qr_sampler *s = NULL;
    assert_int_equal(qr_sampler_new(p, 0, N, &id, 1, 1, &s), QR_OK);
    struct qr_out_row row = {0};
    struct qr_top top[QR_LOGPROBS_MAX];
    for (int i = 0; i < DRAWS; i++) {
        memcpy(x, logits, sizeof x);
        qr_sampler_next(s, 1 + i, x, work, &row, top);
        seen[row.token]++;
    }
    for (int i = 0; i < N; i++) {
        double want = prob[i] * DRAWS;
        if (prob[i] == 0) assert_int_equal(seen[i], 0);
        if (want < 5) continue;
        chi += (seen[i] - want) * (seen[i] - want) / want;
        cells++;
    }
    assert_true(cells > 2);
    assert_true(chi < cells + 5 * sqrt(2.0 * cells) + 5);
    qr_sampler_free(&s);
}

QR_TEST(sample_frequencies_follow_the_distribution)
{
    struct qr_sampling p = plain();
    check_frequencies(&p, 6);
    p.top_p = 0.8f;
    check_frequencies(&p, 7);
    p.top_k = 12, p.temperature = 1.7f;
    check_frequencies(&p, 10);
    p.min_p = 0.02f, p.top_p = 1, p.top_k = 0, p.seed = 12345;
    check_frequencies(&p, 14);
}

QR_TEST(sample_logprobs_are_of_the_raw_row)
{
    enum { N = 5000 };
    static float logits[N], raw[N];
    void *work = malloc(qr_sample_work_bytes(N));
    int32_t ids[] = {4, 5, 6}, only[] = {77, 78, 79};
    for (uint64_t seed = 0; seed < 24; seed++) {
        random_row(raw, N, seed);
        memcpy(logits, raw, sizeof raw);
        struct qr_sampling p = plain();
        p.n_logprobs = (int32_t)(seed % 21), p.temperature = seed % 3 ? 0.7f : 0,
        p.repetition = seed % 2 ? 1.5f : 1;
        if (seed % 5 == 0) p.n_allowed = 3, p.allowed = only;
        struct qr_sampler *s = NULL;
        struct qr_out_row row = {0};
        struct qr_top top[QR_LOGPROBS_MAX];
        assert_int_equal(qr_sampler_new(&p, 0, N, ids, 3, 3, &s), QR_OK);
        qr_sampler_next(s, 3, logits, work, &row, top);
        double sum = 0, max = -INFINITY;
        for (int i = 0; i < N; i++) max = fmax(max, (double)raw[i]);
        for (int i = 0; i < N; i++) sum += exp((double)raw[i] - max);
        double norm = max + log(sum);
        static struct pair sorted[N];
        for (int i = 0; i < N; i++) sorted[i] = (struct pair){(double)raw[i], i};
        qsort(sorted, N, sizeof sorted[0], by_value);
        assert_int_equal(row.n_top, p.n_logprobs);
        for (int i = 0; i < row.n_top; i++) {
            assert_int_equal(top[i].id, sorted[i].id);
            assert_true(fabs((double)top[i].logprob - (sorted[i].x - norm)) < 2e-6);
        }
        assert_int_equal(sorted[row.rank - 1].id, row.token);
        assert_true(fabs((double)row.logprob - ((double)raw[row.token] - norm)) < 2e-6);
        if (p.n_allowed) assert_in_range(row.token, 77, 79);
        struct qr_out_row again = {0};
        qr_sample_score(raw, N, row.token, p.n_logprobs, work, &again, top);
        assert_true(again.logprob == row.logprob && again.rank == row.rank && again.n_top == row.n_top);
        qr_sampler_free(&s);
    }
    free(work);
}

// A head that keeps a row's peak alone must not change an answer, nor its log-probability by a bit.
QR_TEST(sample_takes_from_a_peak_what_it_would_from_the_row)
{
    enum { N = 5000 };
    static float logits[N];
    void *work = malloc(qr_sample_work_bytes(N));
    struct sample_work w = sample_work_at(work, N);
    int32_t id = 4;
    for (uint64_t seed = 0; seed < 64; seed++) {
        struct qr_sampling p = plain();
        p.temperature = 0, p.n_logprobs = seed % 2 ? 0 : -1;
        random_row(logits, N, seed / 2);
        if (seed % 8 >= 4) logits[seed] = seed % 3 ? NAN : -INFINITY;
        if (seed >= 60)
            for (int i = 0; i < N; i++) logits[i] = seed % 4 < 2 ? NAN : -INFINITY;
        struct qr_sampler *s = NULL;
        struct qr_out_row taken = {0}, chosen = {0};
        struct qr_top top[QR_LOGPROBS_MAX];
        assert_int_equal(qr_sampler_new(&p, 0, N, &id, 1, 1, &s), QR_OK);
        assert_int_equal(qr_sampler_wants(s, 1), seed % 2 ? QR_LOGIT_PEAK_NORM : QR_LOGIT_PEAK);
        struct qr_logit_peak peak = sample_peak(logits, N, &w);
        qr_sampler_take(s, &peak, &taken);
        qr_sampler_next(s, 1, logits, work, &chosen, top);
        assert_int_equal(taken.token, chosen.token);
        assert_int_equal(taken.rank, chosen.rank);
        assert_int_equal(taken.n_top, chosen.n_top);
        assert_true(isnan(taken.logprob) ? isnan(chosen.logprob) : taken.logprob == chosen.logprob);
        qr_sampler_free(&s);
    }
    free(work);
}

QR_TEST(sample_wants_the_row_where_anything_else_could_be_chosen_or_reported)
{
    int32_t id = 4, lens[] = {1};
    struct qr_bias bias = {4, 1};
    struct qr_sampling greedy = plain(), p[11];
    greedy.temperature = 0;
    for (int i = 0; i < 11; i++) p[i] = greedy;
    p[0].temperature = 0.1f, p[1].n_logprobs = 1, p[2].n_candidates = 2, p[3].n_allowed = 1, p[3].allowed = &id;
    p[4].n_bad = 1, p[4].bad_ids = &id, p[4].bad_lens = lens, p[5].n_bias = 1, p[5].bias = &bias;
    p[6].repetition = 1.1f, p[7].frequency = 0.1f, p[8].presence = -0.1f, p[9].min_tokens = 3;
    for (int i = 0; i < 11; i++) {
        struct qr_sampler *s = NULL;
        assert_int_equal(qr_sampler_new(&p[i], 0, 100, &id, 1, 1, &s), QR_OK);
        assert_int_equal(qr_sampler_wants(s, 3), i < 10 ? QR_LOGIT_ALL : QR_LOGIT_PEAK);
        if (i == 9) assert_int_equal(qr_sampler_wants(s, 4), QR_LOGIT_PEAK); // it has its three tokens
        qr_sampler_free(&s);
    }
}

QR_TEST(sample_survives_rows_of_no_use)
{
    enum { N = 200 };
    float logits[N];
    static char work[32 * 1024];
    struct qr_sampling p = plain();
    p.top_p = 0.9f, p.top_k = 5, p.n_logprobs = 20;
    int32_t id = 0;
    const float kinds[] = {-INFINITY, NAN, INFINITY, 0, 3e38f, -3e38f};
    struct qr_sampler *s = NULL;
    assert_int_equal(qr_sampler_new(&p, 0, N, &id, 1, 1, &s), QR_OK);
    for (int k = 0; k < 5 * 36; k++) {
        p.top_k = k / 36 % 2 ? 5 : 0, p.min_p = k / 72 ? 0.1f : 0, p.top_p = k / 36 == 4 ? 1 : 0.9f;
        for (int i = 0; i < N; i++) logits[i] = i % 2 ? kinds[k % 6] : kinds[k / 6 % 6];
        struct qr_out_row row = {0};
        struct qr_top top[QR_LOGPROBS_MAX];
        qr_sampler_next(s, 1 + k, logits, work, &row, top);
        assert_in_range(row.token, 0, N - 1);
        assert_in_range(row.n_top, 0, 20);
    }
    qr_sampler_free(&s);
}

QR_TEST(sample_keeps_prompt_ids_for_scoring)
{
    struct qr_sampling p = plain();
    int32_t ids[] = {9, 8, 7, 6};
    struct qr_sampler *s = NULL;
    p.n_prompt_logprobs = 2;
    assert_int_equal(qr_sampler_new(&p, 0, 100, ids, 3, 4, &s), QR_OK);
    assert_int_equal(qr_sampler_n_prompt_logprobs(s), 2);
    assert_int_equal(qr_sampler_prompt_id(s, 0), 9);
    assert_int_equal(qr_sampler_prompt_id(s, 2), 7);
    assert_int_equal(qr_sampler_prompt_id(s, 3), -1);
    qr_sampler_free(&s);
    p.repetition = 2;
    for (uint64_t n = 1; n <= 2; n++) { // each of its two allocations may fail
        qr_mem_fail_at(n, 0);
        assert_int_equal(qr_sampler_new(&p, 0, 100, ids, 3, 4, &s), QR_ENOMEM);
        qr_mem_fail_at(0, 0);
        assert_null(s);
    }
}

static int down(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

QR_TEST(select_finds_the_kth_largest)
{
    enum { N = 3000 };
    static float x[N], sorted[N];
    void *work = malloc(qr_sample_work_bytes(N));
    struct sample_work w = sample_work_at(work, N);
    for (uint64_t seed = 0; seed < 8; seed++) {
        for (int n = 1; n <= N; n = n * 3 + 1) {
            random_row(x, n, seed);
            memcpy(sorted, x, (size_t)n * sizeof *x);
            qsort(sorted, (size_t)n, sizeof *x, down);
            qr_kern()->chunk_max(x, n, w.maxima);
            for (int k = 1; k <= n; k = k * 2 + 1) {
                assert_true(sample_kth_largest(x, n, k) == sorted[k - 1]);
                assert_true(sample_kth_of_row(x, n, k, &w) == sorted[k - 1]);
            }
        }
    }
    free(work);
}

QR_TEST(counts_hold_many_ids)
{
    struct qr_counts *c = NULL;
    assert_int_equal(qr_counts_new(1000, &c), QR_OK);
    for (int i = 0; i < 5000; i++) qr_counts_add(c, i * 7919 % 1000 * 131, i % 2);
    int32_t n;
    const struct qr_count *list = qr_counts_list(c, &n);
    assert_int_equal(n, 1000);
    int32_t sum = 0;
    for (int i = 0; i < n; i++) sum += list[i].n_generated;
    assert_int_equal(sum, 2500);
    assert_int_equal(list[1].id, 7919 % 1000 * 131);
    qr_counts_free(&c);
}
