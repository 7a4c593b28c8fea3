#include "bench/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "bench/bench_internal.h"

static const struct {
    const char *key, *name, *title;
} times[BENCH_TIMES] = {
    [BENCH_TTFT] = {"ttft", "TTFT", "Time to First Token"},
    [BENCH_TPOT] = {"tpot", "TPOT", "Time per Output Token (excl. 1st token)"},
    [BENCH_ITL] = {"itl", "ITL", "Inter-token Latency"},
    [BENCH_E2EL] = {"e2el", "E2EL", "End-to-end Latency"},
};

/* ==== Distributions. ==== */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_percentile(const double *sorted, int64_t n, double p)
{
    if (n == 0) return 0;
    double at = (double)(n - 1) * p / 100;
    int64_t i = (int64_t)at, k = i + 1 < n ? i + 1 : i;
    return sorted[i] + (sorted[k] - sorted[i]) * (at - (double)i);
}

struct bench_dist bench_dist_of(double *v, int64_t n)
{
    struct bench_dist d = {0};
    double sum = 0, var = 0;
    if (n == 0) return d;
    qsort(v, (size_t)n, sizeof *v, by_value);
    for (int64_t i = 0; i < n; i++) sum += v[i];
    d.mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) var += (v[i] - d.mean) * (v[i] - d.mean);
    d.std = sqrt(var / (double)n);
    d.p50 = bench_percentile(v, n, 50);
    d.p95 = bench_percentile(v, n, 95);
    d.p99 = bench_percentile(v, n, 99);
    return d;
}

/* ==== Limits. ==== */

enum qr_status bench_limits_parse(const char *text, struct bench_limits *out, struct qr_error *err)
{
    *out = (struct bench_limits){.any = *text != 0};
    for (int k = 0; k < BENCH_TIMES; k++) out->ms[k] = INFINITY;
    for (const char *s = text; *s;) {
        size_t n = strcspn(s, ":");
        char *end = NULL;
        int k = 0;
        while (k < BENCH_TIMES && (k == BENCH_ITL || strlen(times[k].key) != n || strncmp(times[k].key, s, n) != 0)) k++;
        double ms = s[n] ? strtod(s + n + 1, &end) : 0;
        if (k == BENCH_TIMES || !end || (*end && *end != ' ' && *end != ',') || !(ms > 0))
            return qr_fail_param(err, QR_EINVAL, "goodput",
                                 "--goodput: expected milliseconds such as \"ttft:500 tpot:50 e2el:20000\", got \"%.60s\"", text);
        if (isfinite(out->ms[k]))
            return qr_fail_param(err, QR_EINVAL, "goodput", "--goodput: expected %s once, got \"%.60s\"", times[k].key, text);
        out->ms[k] = ms;
        s = end + strspn(end, " ,");
    }
    return QR_OK;
}

/* ==== A run in numbers. ==== */

static void times_of(const struct bench_reply *r, double ms[BENCH_TIMES])
{
    ms[BENCH_TTFT] = (double)(r->first_ns - r->sent_ns) * 1e-6;
    ms[BENCH_E2EL] = (double)(r->last_ns - r->sent_ns) * 1e-6;
    ms[BENCH_TPOT] = r->n_out > 1 ? (ms[BENCH_E2EL] - ms[BENCH_TTFT]) / (r->n_out - 1) : 0;
    ms[BENCH_ITL] = 0;
}

static int by_time(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

// Most chunks that came within one second, anywhere; in tokens, of which a chunk is n_out / n_chunks.
static double peak(struct bench_run *run, int64_t n_out)
{
    int64_t most = 0;
    qsort(run->chunk_ns, (size_t)run->n_chunks, sizeof *run->chunk_ns, by_time);
    for (int64_t i = 0, first = 0; i < run->n_chunks; i++) {
        while (run->chunk_ns[i] - run->chunk_ns[first] >= 1000000000u) first++;
        if (i - first + 1 > most) most = i - first + 1;
    }
    return run->n_chunks ? (double)most * (double)n_out / (double)run->n_chunks : 0;
}

static void rates(struct bench_result *r)
{
    double s = r->duration_s > 0 ? r->duration_s : 1;
    r->request_s = r->n_ok / s;
    r->good_s = r->n_good / s;
    r->out_s = (double)r->n_out / s;
    r->total_s = (double)(r->n_in + r->n_out) / s;
}

enum qr_status bench_result_of(struct bench_run *run, const struct bench_limits *limits, struct bench_result *out,
                               struct qr_error *err)
{
    struct bench_result *r = out;
    double *v[BENCH_TIMES] = {0}, *mem = qr_malloc(QR_MEM_MISC, sizeof *mem * 3 * (size_t)(run->n + 1));
    int n[BENCH_TIMES] = {0};
    if (!mem) return qr_fail(err, QR_ENOMEM, "no memory for the result");
    v[BENCH_TTFT] = mem;
    v[BENCH_TPOT] = mem + run->n;
    v[BENCH_E2EL] = mem + 2 * (size_t)run->n;
    *r = (struct bench_result){.n_ok = run->n_ok,
                               .n_failed = run->n_failed,
                               .duration_s = run->duration_s,
                               .n_chunks = run->n_chunks,
                               .n_active_peak = run->n_active_max,
                               .cpu_share = run->duration_s > 0 ? run->cpu_s / run->duration_s : 0};
    for (int i = 0; i < run->n; i++) {
        const struct bench_reply *q = &run->replies[i];
        double ms[BENCH_TIMES];
        if (!q->ok) continue;
        r->n_in += q->n_in;
        r->n_out += q->n_out;
        r->n_cached += q->n_cached;
        times_of(q, ms);
        bool good = true;
        for (int k = 0; k < BENCH_TIMES; k++) {
            good &= ms[k] <= limits->ms[k];
            if (v[k] && (k != BENCH_TPOT || q->n_out > 1)) v[k][n[k]++] = ms[k];
        }
        r->n_good += good;
    }
    for (int k = 0; k < BENCH_TIMES; k++)
        r->times[k] = k == BENCH_ITL ? bench_dist_of(run->itl_ms, run->n_itl) : bench_dist_of(v[k], n[k]);
    qr_free(mem);
    r->out_peak_s = peak(run, r->n_out);
    rates(r);
    return QR_OK;
}

/* ==== On paper. ==== */

#define WIDTH 50

static void rule(FILE *out, char c, const char *title)
{
    int n = (int)strlen(title), left = (WIDTH - n) / 2;
    for (int i = 0; i < left; i++) fputc(c, out);
    fputs(title, out);
    for (int i = left + n; i < WIDTH; i++) fputc(c, out);
    fputc('\n', out);
}

static void row_n(FILE *out, const char *name, int64_t v)
{
    fprintf(out, "%-40s %-10lld\n", name, (long long)v);
}

static void row(FILE *out, const char *name, double v)
{
    fprintf(out, "%-40s %-10.2f\n", name, v);
}

void bench_result_print(const struct bench_result *r, const struct qr_conf *c, const struct bench_load *l,
                        const struct bench_limits *limits, FILE *out)
{
    rule(out, '=', " Serving Benchmark Result ");
    row_n(out, "Successful requests:", r->n_ok);
    row_n(out, "Failed requests:", r->n_failed);
    if (c->max_concurrency > 0) row_n(out, "Maximum request concurrency:", c->max_concurrency);
    if (isfinite(l->rate) && l->rate > 0) row(out, "Request rate configured (RPS):", l->rate);
    row(out, "Benchmark duration (s):", r->duration_s);
    row_n(out, "Total input tokens:", r->n_in);
    row_n(out, "Total generated tokens:", r->n_out);
    if (r->n_cached > 0) row_n(out, "Input tokens from the prefix cache:", r->n_cached);
    row(out, "Request throughput (req/s):", r->request_s);
    if (limits->any) row(out, "Request goodput (req/s):", r->good_s);
    row(out, "Output token throughput (tok/s):", r->out_s);
    row(out, "Peak output token throughput (tok/s):", r->out_peak_s);
    row(out, "Peak concurrent requests:", r->n_active_peak);
    row(out, "Total Token throughput (tok/s):", r->total_s);
    row(out, "Client CPU (% of one core):", 100 * r->cpu_share);
    for (int k = 0; k < BENCH_TIMES; k++) {
        const struct bench_dist *d = &r->times[k];
        const double v[] = {d->mean, d->p50, d->p95, d->p99};
        static const char *const names[] = {"Mean", "Median", "P95", "P99"};
        rule(out, '-', times[k].title);
        for (int i = 0; i < 4; i++) {
            char name[32];
            snprintf(name, sizeof name, "%s %s (ms):", names[i], times[k].name);
            row(out, name, v[i]);
        }
    }
    rule(out, '=', "");
}

/* ==== As JSON. ==== */

static void write_times(struct qr_json_writer *w, const struct bench_result *r)
{
    for (int k = 0; k < BENCH_TIMES; k++) {
        const struct bench_dist *d = &r->times[k];
        const double v[] = {d->mean, d->p50, d->std, d->p95, d->p99};
        static const char *const names[] = {"mean", "median", "std", "p95", "p99"};
        for (int i = 0; i < 5; i++) {
            char key[32];
            snprintf(key, sizeof key, "%s_%s_ms", names[i], times[k].key);
            bench_put_real(w, key, v[i]);
        }
    }
}

// One array for each column, a value a request.
static void write_details(struct qr_json_writer *w, const struct bench_run *run)
{
    static const char *const names[] = {"input_lens", "output_lens", "ttfts", "latencies", "start_times", "ok"};
    for (int c = 0; c < 6; c++) {
        qr_jw_key(w, names[c]);
        qr_jw_arr(w);
        for (int i = 0; i < run->n; i++) {
            const struct bench_reply *q = &run->replies[i];
            bool came = q->first_ns > 0;
            if (c < 2)
                qr_jw_int(w, c == 0 ? q->n_in : q->n_out);
            else if (c == 2 || c == 3)
                qr_jw_double(w, came ? (double)((c == 2 ? q->first_ns : q->last_ns) - q->sent_ns) * 1e-9 : 0);
            else if (c == 4)
                qr_jw_double(w, (double)(q->sent_ns - run->replies[0].sent_ns) * 1e-9);
            else
                qr_jw_bool(w, q->ok);
        }
        qr_jw_arr_end(w);
    }
}

void bench_result_json(const struct bench_result *r, const struct qr_conf *c, const struct bench_load *l,
                       const struct bench_target *t, const struct bench_run *run, struct qr_json_writer *w)
{
    qr_jw_obj(w);
    bench_put_str(w, "backend", "openai");
    bench_put_str(w, "base_url", t->url);
    bench_put_str(w, "model_id", t->model);
    bench_put_str(w, "dataset", c->workload[0] ? c->workload : c->dataset);
    bench_put_int(w, "num_prompts", (int64_t)l->n);
    bench_put_int(w, "num_warmups", c->num_warmups);
    qr_jw_key(w, "request_rate");
    if (isinf(l->rate) || l->rate == 0)
        qr_jw_str(w, l->rate == 0 ? "trace" : "inf");
    else
        qr_jw_double(w, l->rate);
    bench_put_real(w, "burstiness", c->burstiness);
    qr_jw_key(w, "max_concurrency");
    if (c->max_concurrency > 0)
        qr_jw_int(w, c->max_concurrency);
    else
        qr_jw_null(w);
    bench_put_real(w, "duration", r->duration_s);
    bench_put_int(w, "completed", r->n_ok);
    bench_put_int(w, "failed", r->n_failed);
    bench_put_int(w, "total_input_tokens", r->n_in);
    bench_put_int(w, "total_output_tokens", r->n_out);
    bench_put_int(w, "total_cached_tokens", r->n_cached);
    bench_put_int(w, "total_chunks", r->n_chunks);
    bench_put_real(w, "request_throughput", r->request_s);
    bench_put_real(w, "request_goodput", r->good_s);
    bench_put_real(w, "output_throughput", r->out_s);
    bench_put_real(w, "total_token_throughput", r->total_s);
    bench_put_real(w, "max_output_tokens_per_s", r->out_peak_s);
    bench_put_int(w, "max_concurrent_requests", r->n_active_peak);
    bench_put_real(w, "client_cpu_share", r->cpu_share);
    write_times(w, r);
    if (run) write_details(w, run);
    qr_jw_obj_end(w);
}
