#include "bench/load.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "bench/load_internal.h"

static void *grow(void *p, uint64_t n, uint64_t *cap, size_t bytes)
{
    if (n <= *cap) return p;
    void *q = qr_realloc(QR_MEM_MISC, p, 2 * n * bytes);
    if (q) *cap = 2 * n;
    return q;
}

int32_t *load_add(struct load_maker *m, int32_t n_prompt, int32_t n_out)
{
    struct bench_load *l = m->load;
    uint64_t n_ids = l->n_in + (uint64_t)n_prompt;
    void *items = grow(l->items, l->n + 1, &m->items_cap, sizeof *l->items);
    if (items) l->items = items;
    void *ids = grow(l->ids, n_ids, &m->ids_cap, sizeof *l->ids);
    if (ids) l->ids = ids;
    if (!items || !ids) return NULL;
    l->items[l->n++] = (struct bench_item){
        .n_prompt = n_prompt, .n_out = n_out, .first_id = (int64_t)l->n_in, .next = -1, .is_first = true};
    l->n_in = n_ids;
    l->n_out += (uint64_t)n_out;
    return l->ids + n_ids - n_prompt;
}

void load_draw_ids(struct load_maker *m, int32_t *ids, int64_t n)
{
    for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)bench_mt_range(&m->mt, m->range.lo, m->range.end);
}

enum qr_status load_no_memory(const struct load_maker *m, struct qr_error *err)
{
    return qr_fail(err, QR_ENOMEM, "no memory for prompts of more than %llu tokens", (unsigned long long)m->load->n_in);
}

/* ==== Kinds. ==== */

static int32_t or_else(int64_t given, int32_t otherwise)
{
    return given > 0 ? (int32_t)given : otherwise;
}

static int32_t lognormal(struct bench_mt *mt, double mean, double sigma, int32_t lo, int32_t hi)
{
    double x = rint(exp(bench_mt_normal(mt, log(mean) - sigma * sigma / 2, sigma)));
    return x < lo ? lo : x > hi ? hi : (int32_t)x;
}

// Cut at about five and three times the mean.
static enum qr_status make_sharegpt(struct load_maker *m, struct qr_error *err)
{
    struct bench_load *l = m->load;
    int32_t mean_in = or_else(m->conf->input_len, 161), mean_out = or_else(m->conf->output_len, 200);
    for (int64_t i = 0; i < m->conf->num_prompts; i++) { // all lengths are drawn before any id
        int32_t n_prompt = lognormal(&m->mt, mean_in, 1.0, 8, mean_in < 3 ? 8 : 5 * mean_in - 5);
        if (!load_add(m, n_prompt, lognormal(&m->mt, mean_out, 0.7, 16, mean_out < 6 ? 16 : 3 * mean_out)))
            return load_no_memory(m, err);
    }
    load_draw_ids(m, l->ids, (int64_t)l->n_in);
    return QR_OK;
}

static int32_t around(struct load_maker *m, int32_t n)
{
    double r = m->conf->random_range_ratio;
    int32_t lo = (int32_t)(n * (1 - r)), hi = (int32_t)(n * (1 + r));
    if (lo < 1) lo = 1;
    return (int32_t)bench_mt_range(&m->mt, lo, (int64_t)(hi < lo ? lo : hi) + 1);
}

static enum qr_status make_random(struct load_maker *m, struct qr_error *err)
{
    for (int64_t i = 0; i < m->conf->num_prompts; i++) {
        int32_t n_prompt = around(m, or_else(m->conf->input_len, 512));
        int32_t *ids = load_add(m, n_prompt, around(m, or_else(m->conf->output_len, 128)));
        if (!ids) return load_no_memory(m, err);
        load_draw_ids(m, ids, n_prompt);
    }
    return QR_OK;
}

static enum qr_status make_prefix(struct load_maker *m, struct qr_error *err)
{
    int64_t n_shared = m->conf->prefix_len, n_prefixes = m->conf->num_prefixes;
    int32_t n_own = or_else(m->conf->input_len, 512);
    int32_t *shared = qr_malloc(QR_MEM_MISC, sizeof *shared * (size_t)(n_shared * n_prefixes + 1));
    if (!shared) return load_no_memory(m, err);
    load_draw_ids(m, shared, n_shared * n_prefixes);
    enum qr_status st = QR_OK;
    for (int64_t i = 0; st == QR_OK && i < m->conf->num_prompts; i++) {
        int32_t *ids = load_add(m, (int32_t)n_shared + n_own, or_else(m->conf->output_len, 128));
        if (ids) {
            memcpy(ids, shared + i % n_prefixes * n_shared, sizeof *ids * (size_t)n_shared);
            load_draw_ids(m, ids + n_shared, n_own);
        } else
            st = load_no_memory(m, err);
    }
    qr_free(shared);
    return st;
}

static const struct {
    const char *name;
    enum qr_status (*make)(struct load_maker *m, struct qr_error *err);
} kinds[] = {{"sharegpt", make_sharegpt}, {"random", make_random}, {"prefix", make_prefix}};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static enum qr_status make_kind(struct load_maker *m, struct qr_error *err)
{
    for (int i = 0; i < N_KINDS; i++)
        if (strcmp(kinds[i].name, m->conf->dataset) == 0) return kinds[i].make(m, err);
    return qr_fail_param(err, QR_EINVAL, "dataset", "--dataset: expected sharegpt, random or prefix, got \"%.40s\"",
                         m->conf->dataset);
}

// Gaps of a gamma distribution, stretched so that the load has the rate exactly.
static void set_arrivals(struct load_maker *m)
{
    struct bench_load *l = m->load;
    double at = 0;
    for (size_t i = 0; i < l->n && isfinite(l->rate); i++) l->items[i].arrival_s = at += bench_mt_gamma(&m->mt, m->conf->burstiness);
    for (size_t i = 0; i < l->n && at > 0; i++) l->items[i].arrival_s *= (double)l->n / l->rate / at;
}

/* ==== Options. ==== */

enum qr_status bench_ids_parse(const char *text, struct bench_ids *out, struct qr_error *err)
{
    int n = 0, lo, hi;
    if (sscanf(text, "%9d-%9d%n", &lo, &hi, &n) != 2 || text[n] || lo < 0 || hi < lo)
        return qr_fail_param(err, QR_EINVAL, "token-ids", "--token-ids: expected a range such as 1000-39999, got \"%.40s\"",
                             text);
    *out = (struct bench_ids){lo, hi + 1};
    return QR_OK;
}

static enum qr_status check(const struct qr_conf *c, double *rate, struct qr_error *err)
{
    const struct {
        const char *flag;
        int64_t v, lo, hi;
    } rows[] = {
        {"input-len", c->input_len, 0, 1 << 24},   {"output-len", c->output_len, 0, 1 << 24},
        {"prefix-len", c->prefix_len, 0, 1 << 24}, {"num-prefixes", c->num_prefixes, 1, 4096},
    };
    char *end;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].v < rows[i].lo || rows[i].v > rows[i].hi)
            return qr_fail_param(err, QR_EINVAL, rows[i].flag, "--%s: expected %lld to %lld, got %lld", rows[i].flag,
                                 (long long)rows[i].lo, (long long)rows[i].hi, (long long)rows[i].v);
    *rate = strtod(c->request_rate, &end);
    if (end == c->request_rate || *end || !(*rate > 0))
        return qr_fail_param(err, QR_EINVAL, "request-rate",
                             "--request-rate: expected requests a second above 0, or inf, got \"%.40s\"",
                             c->request_rate);
    if (!(c->burstiness > 0 && c->burstiness <= 1e6))
        return qr_fail_param(err, QR_EINVAL, "burstiness", "--burstiness: expected above 0, got %g", c->burstiness);
    if (!(c->random_range_ratio >= 0 && c->random_range_ratio < 1))
        return qr_fail_param(err, QR_EINVAL, "random-range-ratio", "--random-range-ratio: expected 0 to below 1, got %g",
                             c->random_range_ratio);
    return QR_OK;
}

enum qr_status bench_load_make(const struct qr_conf *c, uint32_t seed, struct bench_ids ids, struct bench_load *out,
                               struct qr_error *err)
{
    struct bench_load l = {0};
    struct load_maker m = {.conf = c, .seed = seed, .range = ids, .load = &l};
    enum qr_status st = check(c, &l.rate, err);
    if (st != QR_OK) return st;
    bench_mt_seed(&m.mt, seed);
    if (c->workload[0])
        st = load_workload(&m, err);
    else if ((st = make_kind(&m, err)) == QR_OK)
        set_arrivals(&m);
    if (st == QR_OK)
        *out = l;
    else
        bench_load_free(&l);
    return st;
}

void bench_load_free(struct bench_load *l)
{
    qr_free(l->items);
    qr_free(l->ids);
    *l = (struct bench_load){0};
}
