/* quire bench serve: many users against a server, or against two in turn. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "bench/bench_internal.h"
#include "bench/run.h"

#define PAIRS_MAX 100

const char bench_serve_help[] =
    "Loads an OpenAI-compatible server (this one, vLLM, llama-server) with streaming completions of exact lengths, and\n"
    "prints what vllm bench serve prints. One short request goes first, so that a wrong address is said at once.\n\n"
    "  quire bench serve --max-concurrency 32                        32 users; the server on port 8000\n"
    "  quire bench serve --request-rate 4 --goodput \"ttft:500 tpot:60\"\n"
    "  quire bench serve --dataset prefix --prefix-len 1000 --input-len 50 --output-len 64 --max-concurrency 16\n"
    "  quire bench serve --vs http://127.0.0.1:8080 --pairs 5        against another server, in turn\n";

static const double shares[] = {0.5, 0.95, 0.99};
static const char *const share_names[] = {"Median", "P95", "P99"};
enum { N_SHARES = sizeof shares / sizeof *shares };

struct row {
    const char *title, *name; // "Time to First Token", "ttft"
    struct bench_list *list;
};

static void rows_of(struct bench_result *r, struct row rows[4])
{
    rows[0] = (struct row){"Time to First Token", "ttft", &r->ttft};
    rows[1] = (struct row){"Time per Output Token (excl. 1st token)", "tpot", &r->tpot};
    rows[2] = (struct row){"Inter-token Latency", "itl", &r->itl};
    rows[3] = (struct row){"End-to-end Latency", "e2el", &r->e2e};
}

static void upper(const char *s, char out[8])
{
    size_t i = 0;
    for (; s[i] && i < 7; i++) out[i] = (char)(s[i] >= 'a' && s[i] <= 'z' ? s[i] - 32 : s[i]);
    out[i] = 0;
}

static void title(const char *text, char fill)
{
    int n = (int)strlen(text), left = (50 - n) / 2;
    for (int i = 0; i < left; i++) putchar(fill);
    printf("%s", text);
    for (int i = left + n; i < 50; i++) putchar(fill);
    putchar('\n');
}

// The table of `vllm bench serve`, with P95 and the client's own use of the processor.
static void print(const struct qr_conf *c, const struct bench_goal *goal, struct bench_result *r)
{
    struct row rows[4];
    rows_of(r, rows);
    title(" Serving Benchmark Result ", '=');
    printf("%-40s %-10zu\n", "Successful requests:", r->n_ok);
    printf("%-40s %-10zu\n", "Failed requests:", r->n_failed);
    if (c->max_concurrency > 0) printf("%-40s %-10lld\n", "Maximum request concurrency:", (long long)c->max_concurrency);
    if (strcmp(c->request_rate, "inf") != 0) printf("%-40s %-10s\n", "Request rate configured (RPS):", c->request_rate);
    printf("%-40s %-10.2f\n", "Benchmark duration (s):", r->seconds);
    printf("%-40s %-10llu\n", "Total input tokens:", (unsigned long long)r->n_in);
    printf("%-40s %-10llu\n", "Total generated tokens:", (unsigned long long)r->n_out);
    printf("%-40s %-10.2f\n", "Request throughput (req/s):", (double)r->n_ok / r->seconds);
    if (goal->ttft > 0 || goal->tpot > 0 || goal->e2e > 0)
        printf("%-40s %-10.2f\n", "Request goodput (req/s):", (double)r->n_good / r->seconds);
    printf("%-40s %-10.2f\n", "Output token throughput (tok/s):", (double)r->n_out / r->seconds);
    printf("%-40s %-10.2f\n", "Peak output token throughput (tok/s):", r->peak_out_per_s);
    printf("%-40s %-10d\n", "Peak concurrent requests:", r->peak_concurrency);
    printf("%-40s %-10.2f\n", "Total token throughput (tok/s):", (double)(r->n_in + r->n_out) / r->seconds);
    printf("%-40s %-10llu\n", "Cached input tokens:", (unsigned long long)r->n_cached);
    printf("%-40s %-10.2f\n", "Client CPU (% of one core):", 100 * r->client_cpu_s / r->seconds);
    for (int i = 0; i < 4; i++) {
        char name[8], label[48];
        upper(rows[i].name, name);
        title(rows[i].title, '-');
        snprintf(label, sizeof label, "Mean %s (ms):", name);
        printf("%-40s %-10.2f\n", label, bench_mean(rows[i].list));
        for (int k = 0; k < N_SHARES; k++) {
            snprintf(label, sizeof label, "%s %s (ms):", share_names[k], name);
            printf("%-40s %-10.2f\n", label, bench_percentile(rows[i].list, shares[k]));
        }
    }
    title("", '=');
    if (r->n_failed) printf("The first failure: %s\n", r->failure);
}

static void put_real(struct qr_json_writer *w, const char *key, double v)
{
    qr_jw_key(w, key);
    qr_jw_double(w, v);
}

// Names of members are those of vLLM's --save-result.
static void put_result(struct qr_json_writer *w, struct bench_result *r)
{
    struct row rows[4];
    rows_of(r, rows);
    qr_jw_obj(w);
    put_real(w, "duration", r->seconds);
    put_real(w, "completed", (double)r->n_ok);
    put_real(w, "failed", (double)r->n_failed);
    put_real(w, "total_input_tokens", (double)r->n_in);
    put_real(w, "total_output_tokens", (double)r->n_out);
    put_real(w, "cached_input_tokens", (double)r->n_cached);
    put_real(w, "request_throughput", (double)r->n_ok / r->seconds);
    put_real(w, "request_goodput", (double)r->n_good / r->seconds);
    put_real(w, "output_throughput", (double)r->n_out / r->seconds);
    put_real(w, "total_token_throughput", (double)(r->n_in + r->n_out) / r->seconds);
    put_real(w, "max_output_tokens_per_s", r->peak_out_per_s);
    put_real(w, "max_concurrent_requests", r->peak_concurrency);
    put_real(w, "client_cpu_s", r->client_cpu_s);
    for (int i = 0; i < 4; i++) {
        char key[32];
        snprintf(key, sizeof key, "mean_%s_ms", rows[i].name);
        put_real(w, key, bench_mean(rows[i].list));
        for (int k = 0; k < N_SHARES; k++) {
            if (k == 0)
                snprintf(key, sizeof key, "median_%s_ms", rows[i].name);
            else
                snprintf(key, sizeof key, "p%.0f_%s_ms", shares[k] * 100, rows[i].name);
            put_real(w, key, bench_percentile(rows[i].list, shares[k]));
        }
    }
    qr_jw_obj_end(w);
}

// "ttft:500 tpot:50 e2el:20000", milliseconds, in any order, by spaces or commas.
static enum qr_status parse_goal(const char *text, struct bench_goal *g, struct qr_error *err)
{
    *g = (struct bench_goal){0};
    for (const char *s = text; *s;) {
        double *to = strncmp(s, "ttft:", 5) == 0   ? &g->ttft
                     : strncmp(s, "tpot:", 5) == 0 ? &g->tpot
                     : strncmp(s, "e2el:", 5) == 0 ? &g->e2e
                                                   : NULL;
        char *end = NULL;
        if (to) *to = strtod(s + 5, &end);
        if (!to || end == s + 5 || (*end && *end != ' ' && *end != ',') || !(*to > 0))
            return qr_fail_param(err, QR_EINVAL, "goodput",
                                 "--goodput: expected milliseconds such as \"ttft:500 tpot:50\", got \"%.60s\"", text);
        s = end + strspn(end, " ,");
    }
    return QR_OK;
}

/* ==== Two servers in turn. ==== */

struct versus {
    const char *name;
    struct bench_list a, b, ratio;
    bool less_is_better;
};

static void add_pair(struct versus *v, struct bench_result *a, struct bench_result *b)
{
    double x[4] = {(double)a->n_out / a->seconds, bench_percentile(&a->ttft, 0.95), bench_percentile(&a->tpot, 0.5),
                   bench_percentile(&a->itl, 0.95)};
    double y[4] = {(double)b->n_out / b->seconds, bench_percentile(&b->ttft, 0.95), bench_percentile(&b->tpot, 0.5),
                   bench_percentile(&b->itl, 0.95)};
    for (int i = 0; i < 4; i++) {
        bench_list_add(&v[i].a, x[i]);
        bench_list_add(&v[i].b, y[i]);
        bench_list_add(&v[i].ratio, x[i] / y[i]);
    }
}

static void print_versus(const struct qr_conf *c, struct versus *v, int64_t pairs, struct qr_json_writer *w)
{
    printf("A: %s\nB: %s\n%lld pairs of runs in turn, %lld requests a run; medians, and the ratio A/B of each pair\n\n",
           c->base_url, c->vs, (long long)pairs, (long long)c->num_prompts);
    printf("%-26s %10s %10s   %8s %8s %8s\n", "", "A", "B", "median", "least", "most");
    qr_jw_key(w, "versus");
    qr_jw_obj(w);
    for (int i = 0; i < 4; i++) {
        double a = bench_percentile(&v[i].a, 0.5), b = bench_percentile(&v[i].b, 0.5), m = bench_percentile(&v[i].ratio, 0.5),
               lo = bench_percentile(&v[i].ratio, 0), hi = bench_percentile(&v[i].ratio, 1);
        printf("%-26s %10.1f %10.1f   %8.2f %8.2f %8.2f%s\n", v[i].name, a, b, m, lo, hi,
               v[i].less_is_better ? "   (less is better)" : "");
        qr_jw_key(w, v[i].name);
        qr_jw_obj(w);
        put_real(w, "a", a);
        put_real(w, "b", b);
        put_real(w, "ratio", m);
        put_real(w, "ratio_min", lo);
        put_real(w, "ratio_max", hi);
        qr_jw_obj_end(w);
    }
    qr_jw_obj_end(w);
}

static enum qr_status run_versus(const struct qr_conf *c, struct bench_target *t, const struct bench_load *load,
                                 const struct bench_goal *goal, struct qr_json_writer *w, struct qr_error *err)
{
    struct versus v[4] = {{.name = "output tok/s"},
                          {.name = "P95 TTFT (ms)", .less_is_better = true},
                          {.name = "median TPOT (ms)", .less_is_better = true},
                          {.name = "P95 ITL (ms)", .less_is_better = true}};
    enum qr_status st = QR_OK;
    for (int64_t i = 0; i < c->pairs && st == QR_OK; i++) {
        struct bench_result a, b;
        t->url = c->base_url;
        if ((st = bench_run(t, load, goal, &a, err)) != QR_OK) break;
        t->url = c->vs;
        if ((st = bench_run(t, load, goal, &b, err)) == QR_OK) {
            add_pair(v, &a, &b);
            printf("pair %lld: A %.1f tok/s, B %.1f tok/s%s\n", (long long)i + 1, (double)a.n_out / a.seconds,
                   (double)b.n_out / b.seconds, a.n_failed + b.n_failed ? "; SOME REQUESTS FAILED" : "");
            fflush(stdout);
            bench_result_fini(&b);
        }
        bench_result_fini(&a);
    }
    if (st == QR_OK) print_versus(c, v, c->pairs, w);
    for (int i = 0; i < 4; i++) {
        bench_list_fini(&v[i].a);
        bench_list_fini(&v[i].b);
        bench_list_fini(&v[i].ratio);
    }
    return st;
}

static enum qr_status run_one(const struct qr_conf *c, struct bench_target *t, const struct bench_load *load,
                              const struct bench_goal *goal, struct qr_json_writer *w, struct qr_error *err)
{
    struct bench_result r;
    enum qr_status st = bench_run(t, load, goal, &r, err);
    if (st != QR_OK) return st;
    print(c, goal, &r);
    qr_jw_key(w, "result");
    put_result(w, &r);
    bench_result_fini(&r);
    return QR_OK;
}

enum qr_status bench_serve(const struct bench_args *a, struct qr_error *err)
{
    const struct qr_conf *c = a->conf;
    struct bench_load load = {0};
    struct bench_goal goal;
    enum qr_status st = parse_goal(c->goodput, &goal, err);
    if (st == QR_OK && (c->max_concurrency < 0 || c->max_concurrency > 4096))
        st = qr_fail_param(err, QR_EINVAL, "max-concurrency", "--max-concurrency: expected 0 (no limit) to 4096, got %lld",
                           (long long)c->max_concurrency);
    if (st == QR_OK && (c->pairs < 1 || c->pairs > PAIRS_MAX))
        st = qr_fail_param(err, QR_EINVAL, "pairs", "--pairs: expected 1 to %d, got %lld", PAIRS_MAX, (long long)c->pairs);
    if (st == QR_OK) st = bench_load_make(c, &load, err);
    if (st != QR_OK) return st;
    struct bench_target t = {.url = c->base_url,
                             .model = c->model_name,
                             .api_key = c->api_key.n ? c->api_key.v[0] : NULL,
                             .max_concurrency = (int)c->max_concurrency};
    struct qr_buf json = {0};
    struct qr_json_writer w;
    qr_jw_init(&w, &json);
    qr_jw_obj(&w);
    bench_put_origin(&w);
    st = c->vs[0] ? run_versus(c, &t, &load, &goal, &w, err) : run_one(c, &t, &load, &goal, &w, err);
    qr_jw_obj_end(&w);
    if (st == QR_OK) st = bench_save(a, &json, err);
    qr_buf_fini(&json);
    bench_load_free(&load);
    return st;
}
