#include "sim/workload.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/words.h"

enum { STREAM_ROW = 11, STREAM_GAP, STREAM_KIND }; // of random numbers
#define WORDS_REQUESTS 1000
#define KINDS_MAX 16

void qr_sim_workload_free(struct qr_sim_workload *w)
{
    qr_free(w->items);
    qr_free(w->hashes);
    *w = (struct qr_sim_workload){0};
}

// Marsaglia and Tsang, 2000: gamma of shape >= 1 from a normal and a uniform number; below 1 by a power of another.
static double gamma_draw(uint64_t seed, uint64_t stream, double shape)
{
    double boost = 1;
    uint64_t k = 0;
    if (shape < 1) {
        boost = pow(1 - qr_rand_unit(seed, stream, k++), 1 / shape);
        shape += 1;
    }
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double u1 = 1 - qr_rand_unit(seed, stream, k++), u2 = qr_rand_unit(seed, stream, k++);
        double x = sqrt(-2 * log(u1)) * cos(2 * M_PI * u2), v = 1 + c * x;
        double u = 1 - qr_rand_unit(seed, stream, k++);
        v = v * v * v;
        if (v > 0 && log(u) < x * x / 2 + d - d * v + d * log(v)) return d * v * boost;
    }
}

double qr_sim_gap(uint64_t seed, uint64_t i, double rate, double shape)
{
    if (isinf(rate)) return 0;
    if (shape == 1) return -log(1 - qr_rand_unit(seed, STREAM_GAP, i)) / rate;
    return gamma_draw(qr_rand_u64(seed, STREAM_GAP, 0), i, shape) / (rate * shape);
}

struct kind {
    int32_t n_prompt, n_output;
    double weight;
};

// "200/100*19,30000/100"; 0: that is not what stands there.
static int parse_words(const char *text, struct kind *kinds)
{
    int n = 0;
    for (const char *p = text;; p++) {
        int used = 0;
        struct kind k = {.weight = 1};
        if (n == KINDS_MAX || sscanf(p, "%9d/%9d%n", &k.n_prompt, &k.n_output, &used) != 2) return 0;
        p += used;
        if (*p == '*') {
            char *end;
            k.weight = strtod(p + 1, &end);
            if (end == p + 1) return 0;
            p = end;
        }
        if (k.n_prompt < 1 || k.n_output < 1 || k.n_prompt > QR_SIM_TOKENS_MAX || k.n_output > QR_SIM_TOKENS_MAX ||
            !(k.weight > 0 && k.weight < 1e9))
            return 0;
        kinds[n++] = k;
        if (*p == 0) return n;
        if (*p != ',') return 0;
    }
}

static const struct qr_sim_item blank = {.session = -1, .next = -1, .is_first = true};

static struct qr_sim_item draw_kind(const struct kind *kinds, int n, uint64_t seed, uint64_t i)
{
    double sum = 0, at;
    for (int k = 0; k < n; k++) sum += kinds[k].weight;
    at = qr_rand_unit(seed, STREAM_KIND, i) * sum;
    int k = 0;
    while (k < n - 1 && at >= kinds[k].weight) at -= kinds[k++].weight;
    struct qr_sim_item it = blank;
    it.n_prompt = kinds[k].n_prompt, it.n_output = kinds[k].n_output;
    return it;
}

static enum qr_status alloc_items(struct qr_sim_workload *w, size_t n, struct qr_error *err)
{
    w->items = qr_malloc(QR_MEM_MISC, n * sizeof *w->items);
    w->n_items = n;
    return w->items ? QR_OK : qr_fail(err, QR_ENOMEM, "no memory for %s", qr_count((char[QR_COUNT_BYTES]){0}, n, "request"));
}

// Replaces the rows of a file by n draws of them.
static enum qr_status resample(struct qr_sim_workload *w, size_t n, uint64_t seed, struct qr_error *err)
{
    struct qr_sim_workload out = *w;
    enum qr_status st = alloc_items(&out, n, err);
    if (st != QR_OK) return st;
    for (size_t i = 0; i < n; i++) out.items[i] = w->items[qr_rand_u64(seed, STREAM_ROW, i) % w->n_items];
    qr_free(w->items);
    *w = out;
    return QR_OK;
}

// Links the turns of sessions, whose rows stand together and in order, and keeps n sessions of them at most.
static size_t link_sessions(struct qr_sim_workload *w, int64_t n)
{
    size_t n_sessions = 0, i = 0;
    for (; i < w->n_items; i++) {
        struct qr_sim_item *it = &w->items[i], *before = i > 0 ? it - 1 : NULL;
        it->is_first = it->session < 0 || !before || before->session != it->session;
        if (it->is_first && n > 0 && n_sessions == (size_t)n) break;
        n_sessions += it->is_first;
        if (!it->is_first) before->next = (int64_t)i;
    }
    w->n_items = i;
    return n_sessions;
}

// `placed_s`: the last time that the rate gave.
static enum qr_status in_range(const struct qr_sim_workload *w, const struct qr_sim_workload_conf *c, double placed_s, struct qr_error *err)
{
    double most = 0;
    if (placed_s > QR_SIM_ARRIVAL_S_MAX)
        return qr_fail(err, QR_EINVAL, "--request-rate: at %g a second the last of %s comes after %.3g s: expected %g s at most",
                       c->rate, qr_count((char[QR_COUNT_BYTES]){0}, w->n_items, "request"), placed_s, QR_SIM_ARRIVAL_S_MAX);
    for (size_t i = 0; i < w->n_items; i++) most = fmax(most, fmax(w->items[i].arrival_s, w->items[i].think_s));
    if (most <= QR_SIM_ARRIVAL_S_MAX) return QR_OK;
    return qr_fail(err, QR_EINVAL, "--workload: %.120s:%ld: expected seconds from the start of the trace, at most %g, got %.10g", c->source,
                   w->late_line, QR_SIM_ARRIVAL_S_MAX, most);
}

static enum qr_status no_times(const struct qr_sim_workload *w, const struct qr_sim_workload_conf *c, struct qr_error *err)
{
    const char *at_once = c->needs_rate ? "" : ", or inf for all at once";
    if (w->items[0].session >= 0)
        return qr_fail(err, QR_EINVAL,
                       "--request-rate: %.100s: times in it count from the start of each session: expected sessions a second, above 0%s",
                       c->source, at_once);
    return qr_fail(err, QR_EINVAL, "--request-rate: %.120s has no times of arrival: expected requests a second, above 0%s", c->source,
                   at_once);
}

// Times of arrival. A later turn keeps the time from its session's start, or has none.
static enum qr_status place(struct qr_sim_workload *w, const struct qr_sim_workload_conf *c, struct qr_error *err)
{
    double at = 0, rate = c->rate > 0 ? c->rate : c->rate_without_times;
    uint64_t n = 0;
    w->timed = c->rate == 0 && w->items[0].session < 0 && !isnan(w->items[0].arrival_s);
    if (!w->timed && rate == 0) return no_times(w, c, err);
    for (size_t i = 0; i < w->n_items; i++) {
        struct qr_sim_item *it = &w->items[i];
        if (!it->is_first) {
            if (isnan(it->arrival_s) || it->think_s > 0) it->arrival_s = -1;
            continue;
        }
        if (w->timed) continue;
        at += qr_sim_gap(c->seed, n++, rate, c->burstiness);
        it->arrival_s = at;
    }
    return in_range(w, c, at, err);
}

// Neither a file nor lengths.
static enum qr_status no_source(const char *source, struct qr_error *err)
{
    if (strspn(source, "0123456789/*,.-+ ") == strlen(source) && strchr(source, '/'))
        return qr_fail(err, QR_EINVAL,
                       "--workload: expected prompt and answer lengths from 1 to %d, as 512/128 or 200/100*19,30000/100, got \"%.60s\"",
                       QR_SIM_TOKENS_MAX, source);
    return qr_fail(err, QR_ENOTFOUND,
                   "--workload: no such file: %.100s; expected a file of requests or lengths such as 512/128 or 200/100*19,30000/100",
                   source);
}

static enum qr_status from_words(const struct qr_sim_workload_conf *c, struct qr_sim_workload *w, struct qr_error *err)
{
    struct kind kinds[KINDS_MAX];
    int n_kinds = parse_words(c->source, kinds);
    if (n_kinds == 0) return no_source(c->source, err);
    enum qr_status st = alloc_items(w, c->n_requests ? (size_t)c->n_requests : WORDS_REQUESTS, err);
    if (st != QR_OK) return st;
    for (size_t i = 0; i < w->n_items; i++) {
        w->items[i] = draw_kind(kinds, n_kinds, c->seed, i);
        w->items[i].arrival_s = NAN;
    }
    return QR_OK;
}

static enum qr_status from_file(const struct qr_sim_workload_conf *c, struct qr_sim_workload *w, struct qr_error *err)
{
    enum qr_status st = qr_sim_workload_read(c->source, w, err);
    if (st != QR_OK) return st;
    if (w->items[0].session >= 0) {
        size_t n = link_sessions(w, c->n_requests);
        if (c->n_requests > (int64_t)n)
            return qr_fail(err, QR_EINVAL, "--num-prompts: %.120s has %s, got %lld", c->source,
                           qr_count((char[QR_COUNT_BYTES]){0}, n, "session"), (long long)c->n_requests);
        return QR_OK;
    }
    bool timed = !isnan(w->items[0].arrival_s);
    if (!timed) return resample(w, c->n_requests ? (size_t)c->n_requests : w->n_items, c->seed, err);
    if (c->n_requests > (int64_t)w->n_items && c->rate == 0)
        return qr_fail(err, QR_EINVAL, "--num-prompts: %.120s has %s, got %lld (with --request-rate they are drawn anew)",
                       c->source, qr_count((char[QR_COUNT_BYTES]){0}, w->n_items, "request"), (long long)c->n_requests);
    if (c->n_requests > (int64_t)w->n_items) return resample(w, (size_t)c->n_requests, c->seed, err);
    if (c->n_requests) w->n_items = (size_t)c->n_requests;
    return QR_OK;
}

enum qr_status qr_sim_workload_make(const struct qr_sim_workload_conf *conf, struct qr_sim_workload *out,
                                    struct qr_error *err)
{
    struct qr_sim_workload w = {0};
    struct stat sb;
    bool is_file = strcmp(conf->source, "-") == 0 || stat(conf->source, &sb) == 0;
    if (conf->n_requests < 0 || conf->n_requests > QR_SIM_REQUESTS_MAX)
        return qr_fail(err, QR_EINVAL, "--num-prompts: expected 0 to %d, got %lld", QR_SIM_REQUESTS_MAX,
                       (long long)conf->n_requests);
    if (!(conf->rate >= 0)) return qr_fail(err, QR_EINVAL, "--request-rate: expected 0 or more, got %g", conf->rate);
    if (!(conf->burstiness > 0 && conf->burstiness <= 1000))
        return qr_fail(err, QR_EINVAL, "--burstiness: expected above 0, up to 1000, got %g", conf->burstiness);
    enum qr_status st = is_file ? from_file(conf, &w, err) : from_words(conf, &w, err);
    if (st == QR_OK) st = place(&w, conf, err);
    for (size_t i = 0; i < w.n_items && st == QR_OK && conf->shared_tokens > 0; i++)
        w.items[i].n_prompt += conf->shared_tokens;
    if (st == QR_OK)
        *out = w;
    else
        qr_sim_workload_free(&w);
    return st;
}
