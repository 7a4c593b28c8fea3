#include "bench/versus.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "bench/bench_internal.h"

#define PAIRS_MAX 100

static const struct {
    const char *name, *key;
    bool less_is_better;
} rows[] = {
    {"Request throughput (req/s)", "request_throughput", false},
    {"Output throughput (tok/s)", "output_throughput", false},
    {"Total throughput (tok/s)", "total_token_throughput", false},
    {"Median TTFT (ms)", "median_ttft_ms", true},
    {"P95 TTFT (ms)", "p95_ttft_ms", true},
    {"Median TPOT (ms)", "median_tpot_ms", true},
    {"P95 TPOT (ms)", "p95_tpot_ms", true},
    {"P95 ITL (ms)", "p95_itl_ms", true},
    {"P99 ITL (ms)", "p99_itl_ms", true},
    {"Median E2EL (ms)", "median_e2el_ms", true},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static void values_of(const struct bench_result *r, double v[N_ROWS])
{
    const struct bench_dist *d = r->times;
    const double all[N_ROWS] = {r->request_s,        r->out_s,           r->total_s,         d[BENCH_TTFT].p50,
                                d[BENCH_TTFT].p95,   d[BENCH_TPOT].p50,  d[BENCH_TPOT].p95,  d[BENCH_ITL].p95,
                                d[BENCH_ITL].p99,    d[BENCH_E2EL].p50};
    memcpy(v, all, sizeof all);
}

struct pairs {
    const struct bench_args *a;
    const struct bench_limits *limits;
    struct bench_ids ids;
    struct bench_target side[2];
    int n;
    double v[2][N_ROWS][PAIRS_MAX];
    struct qr_buf runs; // JSON of every run
    struct qr_json_writer w;
};

static void keep(struct pairs *p, int i_pair, int side, const struct bench_load *l, const struct bench_result *r)
{
    double v[N_ROWS];
    values_of(r, v);
    for (int k = 0; k < N_ROWS; k++) p->v[side][k][i_pair] = v[k];
    qr_jw_obj(&p->w);
    qr_jw_key(&p->w, "pair");
    qr_jw_int(&p->w, i_pair);
    qr_jw_key(&p->w, "side");
    qr_jw_str(&p->w, side ? "B" : "A");
    qr_jw_key(&p->w, "result");
    bench_result_json(r, p->a->conf, l, &p->side[side], NULL, &p->w);
    qr_jw_obj_end(&p->w);
    if (bench_json_only(p->a)) return;
    fprintf(p->a->out, "pair %d: %s %9.1f output tok/s\n", i_pair + 1, side ? "B" : "A", r->out_s);
    fflush(p->a->out);
}

static enum qr_status measure(struct pairs *p, int i_pair, int side, const struct bench_load *l, struct qr_error *err)
{
    struct bench_run run;
    struct bench_result r;
    enum qr_status st = bench_drive(p->a->conf, &p->side[side], l, false, &run, err);
    if (st != QR_OK) return st;
    if (run.n_failed > 0)
        st = qr_fail(err, QR_EIO, "%.60s: %d of %d requests failed: %.120s", p->side[side].url, run.n_failed, run.n, run.why);
    if (st == QR_OK) st = bench_result_of(&run, p->limits, &r, err);
    if (st == QR_OK) keep(p, i_pair, side, l, &r);
    bench_run_free(&run);
    return st;
}

// Each pair has a seed of its own, so that no server has seen the prompts before. Who begins changes with every pair: what
// the first leaves behind (a warm machine, a cold cache) meets both.
static enum qr_status measure_pair(struct pairs *p, int i, struct qr_error *err)
{
    struct bench_load l;
    enum qr_status st = bench_load_make(p->a->conf, (uint32_t)(p->a->conf->seed + i), p->ids, &l, err);
    if (st != QR_OK) return st;
    for (int k = 0; k < 2 && st == QR_OK; k++) st = measure(p, i, (i + k) % 2, &l, err);
    bench_load_free(&l);
    return st;
}

struct ratio {
    double a, b, mid, lo, hi; // medians of each side, and of the pairs' ratios
};

static struct ratio ratio_of(const struct pairs *p, int k)
{
    double a[PAIRS_MAX], b[PAIRS_MAX], q[PAIRS_MAX];
    for (int i = 0; i < p->n; i++) {
        a[i] = p->v[0][k][i];
        b[i] = p->v[1][k][i];
        q[i] = b[i] > 0 ? a[i] / b[i] : 0;
    }
    struct ratio r = {.a = bench_dist_of(a, p->n).p50, .b = bench_dist_of(b, p->n).p50, .mid = bench_dist_of(q, p->n).p50};
    r.lo = q[0]; // sorted by now
    r.hi = q[p->n - 1];
    return r;
}

static void print_pairs(const struct pairs *p, FILE *out)
{
    fprintf(out, "\nA: %s (%s)\nB: %s (%s)\n%d pairs of runs by turns; medians, and the ratio A/B of each pair\n\n", p->side[0].url,
            p->side[0].model, p->side[1].url, p->side[1].model, p->n);
    fprintf(out, "%-28s %10s %10s   %8s %8s %8s\n", "", "A", "B", "median", "least", "most");
    for (int k = 0; k < N_ROWS; k++) {
        struct ratio r = ratio_of(p, k);
        fprintf(out, "%-28s %10.2f %10.2f   %8.3f %8.3f %8.3f%s\n", rows[k].name, r.a, r.b, r.mid, r.lo, r.hi,
                rows[k].less_is_better ? "   (less is better)" : "");
    }
}

static void write_pairs(const struct pairs *p, struct qr_json_writer *w)
{
    qr_jw_key(w, "pairs");
    qr_jw_int(w, p->n);
    qr_jw_key(w, "versus");
    qr_jw_obj(w);
    for (int k = 0; k < N_ROWS; k++) {
        struct ratio r = ratio_of(p, k);
        const double v[] = {r.a, r.b, r.mid, r.lo, r.hi};
        static const char *const names[] = {"a", "b", "ratio", "ratio_min", "ratio_max"};
        qr_jw_key(w, rows[k].key);
        qr_jw_obj(w);
        for (int i = 0; i < 5; i++) {
            qr_jw_key(w, names[i]);
            qr_jw_double(w, v[i]);
        }
        qr_jw_obj_end(w);
    }
    qr_jw_obj_end(w);
    qr_jw_key(w, "runs");
    qr_jw_raw(w, p->runs.data, p->runs.len);
}

static enum qr_status run_pairs(struct pairs *p, struct qr_json_writer *w, struct qr_error *err)
{
    const struct qr_conf *c = p->a->conf;
    const char *urls[2] = {c->base_url, c->vs};
    int n_conns = c->max_concurrency > 0 ? (int)c->max_concurrency : BENCH_CONNS_MAX;
    enum qr_status st = QR_OK;
    for (int k = 0; k < 2 && st == QR_OK; k++) {
        int n = c->model_name.n;
        st = bench_target_open(c, urls[k], n > k ? c->model_name.v[k] : n ? c->model_name.v[0] : NULL, n_conns, &p->side[k], err);
    }
    qr_jw_init(&p->w, &p->runs);
    qr_jw_arr(&p->w);
    for (int i = 0; i < p->n && st == QR_OK; i++) st = measure_pair(p, i, err);
    qr_jw_arr_end(&p->w);
    if (st == QR_OK && p->runs.failed) st = qr_fail(err, QR_ENOMEM, "no memory for the result");
    if (st == QR_OK && !bench_json_only(p->a)) print_pairs(p, p->a->out);
    if (st == QR_OK) write_pairs(p, w);
    for (int k = 0; k < 2; k++) bench_target_close(&p->side[k]);
    qr_buf_fini(&p->runs);
    return st;
}

enum qr_status bench_versus(const struct bench_args *a, struct bench_ids ids, const struct bench_limits *limits,
                            struct qr_json_writer *w, struct qr_error *err)
{
    int64_t n = a->conf->pairs;
    if (n < 1 || n > PAIRS_MAX)
        return qr_fail_param(err, QR_EINVAL, "pairs", "--pairs: expected 1 to %d, got %lld", PAIRS_MAX, (long long)n);
    struct pairs *p = qr_calloc(QR_MEM_MISC, 1, sizeof *p);
    if (!p) return qr_fail(err, QR_ENOMEM, "no memory for the pairs");
    p->a = a;
    p->ids = ids;
    p->limits = limits;
    p->n = (int)n;
    enum qr_status st = run_pairs(p, w, err);
    qr_free(p);
    return st;
}
