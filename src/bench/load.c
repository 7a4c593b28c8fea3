#include "bench/load.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

enum stream { LENGTHS, IDS, ARRIVALS, SHARED };

struct source { // of random numbers, one after the other
    uint64_t seed, stream, at;
};

static double unit(struct source *s)
{
    return qr_rand_unit(s->seed, s->stream, s->at++);
}

// Box and Muller's normal deviate.
static double normal(struct source *s)
{
    double u = 1 - unit(s), v = unit(s);
    return sqrt(-2 * log(u)) * cos(2 * M_PI * v);
}

static int32_t lognormal(struct source *s, double mean, double sigma, int32_t lo, int32_t hi)
{
    double x = rint(exp(log(mean) - sigma * sigma / 2 + sigma * normal(s)));
    return x < lo ? lo : x > hi ? hi : (int32_t)x;
}

// Marsaglia and Tsang's gamma deviate of mean `shape`, for any shape above 0.
static double gamma_of(struct source *s, double shape)
{
    if (shape < 1) return gamma_of(s, shape + 1) * pow(1 - unit(s), 1 / shape);
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = normal(s), v = 1 + c * x;
        if (v <= 0) continue;
        v = v * v * v;
        if (log(1 - unit(s)) < 0.5 * x * x + d - d * v + d * log(v)) return d * v;
    }
}

static bool parse_rate(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return end != text && !*end && *out > 0; // inf: all at once
}

static bool parse_ids(const char *text, int32_t *lo, int32_t *hi)
{
    int n = 0;
    return sscanf(text, "%d-%d%n", lo, hi, &n) == 2 && !text[n] && *lo >= 0 && *hi >= *lo;
}

static enum qr_status check(const struct qr_conf *c, double *rate, int32_t ids[2], struct qr_error *err)
{
    const struct {
        const char *flag;
        int64_t v, lo, hi;
    } rows[] = {{"num-prompts", c->num_prompts, 1, 10000000},
                {"input-len", c->input_len, 1, 1 << 24},
                {"output-len", c->output_len, 1, 1 << 24},
                {"prefix-len", c->prefix_len, 0, 1 << 24}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].v < rows[i].lo || rows[i].v > rows[i].hi)
            return qr_fail_param(err, QR_EINVAL, rows[i].flag, "--%s: expected %lld to %lld, got %lld", rows[i].flag,
                                 (long long)rows[i].lo, (long long)rows[i].hi, (long long)rows[i].v);
    if (!parse_rate(c->request_rate, rate))
        return qr_fail_param(err, QR_EINVAL, "request-rate",
                             "--request-rate: expected requests a second above 0, or inf, got \"%.40s\"",
                             c->request_rate);
    if (!(c->burstiness > 0 && c->burstiness <= 1e6))
        return qr_fail_param(err, QR_EINVAL, "burstiness", "--burstiness: expected above 0, got %g", c->burstiness);
    if (!parse_ids(c->token_ids, &ids[0], &ids[1]))
        return qr_fail_param(err, QR_EINVAL, "token-ids", "--token-ids: expected a range such as 1000-39999, got \"%.40s\"",
                             c->token_ids);
    return QR_OK;
}

static enum qr_status set_lengths(const struct qr_conf *c, struct bench_load *l, struct qr_error *err)
{
    struct source s = {(uint64_t)c->seed, LENGTHS, 0};
    bool chats = strcmp(c->dataset, "sharegpt") == 0, prefix = strcmp(c->dataset, "prefix") == 0;
    if (!chats && !prefix && strcmp(c->dataset, "random") != 0)
        return qr_fail_param(err, QR_EINVAL, "dataset", "--dataset: expected sharegpt, random or prefix, got \"%.40s\"",
                             c->dataset);
    for (size_t i = 0; i < l->n; i++) {
        struct bench_item *it = &l->items[i];
        it->n_prompt = chats ? lognormal(&s, 161, 1.0, 8, 800) : (int32_t)(c->input_len + (prefix ? c->prefix_len : 0));
        it->n_out = chats ? lognormal(&s, 200, 0.7, 16, 600) : (int32_t)c->output_len;
        l->n_in += (uint64_t)it->n_prompt;
        l->n_out += (uint64_t)it->n_out;
    }
    return QR_OK;
}

static enum qr_status set_prompts(const struct qr_conf *c, struct bench_load *l, const int32_t range[2],
                                  struct qr_error *err)
{
    struct source own = {(uint64_t)c->seed, IDS, 0};
    uint64_t n = (uint64_t)(range[1] - range[0]) + 1;
    int32_t n_shared = strcmp(c->dataset, "prefix") == 0 ? (int32_t)c->prefix_len : 0;
    l->ids = qr_malloc(QR_MEM_MISC, l->n_in * sizeof *l->ids);
    if (!l->ids) return qr_fail(err, QR_ENOMEM, "no memory for prompts of %llu tokens", (unsigned long long)l->n_in);
    int32_t *at = l->ids;
    for (size_t i = 0; i < l->n; i++, at += l->items[i - 1].n_prompt) {
        l->items[i].prompt = at;
        for (int32_t k = 0; k < l->items[i].n_prompt; k++) {
            uint64_t r = k < n_shared ? qr_rand_u64((uint64_t)c->seed, SHARED, (uint64_t)k)
                                      : qr_rand_u64(own.seed, own.stream, own.at++);
            at[k] = range[0] + (int32_t)(r % n);
        }
    }
    return QR_OK;
}

static void set_arrivals(const struct qr_conf *c, struct bench_load *l, double rate)
{
    struct source s = {(uint64_t)c->seed, ARRIVALS, 0};
    double at = 0;
    for (size_t i = 0; i < l->n; i++) {
        l->items[i].arrival_s = at;
        if (isfinite(rate)) at += gamma_of(&s, c->burstiness) / (c->burstiness * rate);
    }
}

enum qr_status bench_load_make(const struct qr_conf *c, struct bench_load *out, struct qr_error *err)
{
    struct bench_load l = {0};
    double rate = 0;
    int32_t ids[2];
    enum qr_status st = check(c, &rate, ids, err);
    if (st != QR_OK) return st;
    l.n = (size_t)c->num_prompts;
    l.items = qr_calloc(QR_MEM_MISC, l.n, sizeof *l.items);
    if (!l.items) return qr_fail(err, QR_ENOMEM, "no memory for %zu requests", l.n);
    st = set_lengths(c, &l, err);
    if (st == QR_OK) st = set_prompts(c, &l, ids, err);
    if (st != QR_OK) {
        bench_load_free(&l);
        return st;
    }
    set_arrivals(c, &l, rate);
    *out = l;
    return QR_OK;
}

void bench_load_free(struct bench_load *l)
{
    qr_free(l->items);
    qr_free(l->ids);
    *l = (struct bench_load){0};
}
