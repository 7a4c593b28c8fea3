/* quire bench serve: many users against a server, or against two by turns. */
#include <stdio.h>
#include <string.h>

#include "bench/bench_internal.h"
#include "bench/report.h"
#include "bench/versus.h"

const char bench_serve_help[] =
    "Loads an OpenAI-compatible server (this one, vLLM, llama-server) with streaming completions of exact lengths, and\n"
    "prints what vllm bench serve prints. Prompts are token ids, so servers of one model do the same work. A few short requests\n"
    "go first, so that a wrong address is said at once. A failed request counts in no rate; the first one's reason is shown.\n\n"
    "  quire bench serve --max-concurrency 32                        32 users; the server on port 8000\n"
    "  quire bench serve --request-rate 4 --goodput \"ttft:500 tpot:60\"\n"
    "  quire bench serve --dataset prefix --prefix-len 1000 --input-len 50 --output-len 64 --max-concurrency 16\n"
    "  quire bench serve --workload trace.csv.gz --max-model-len 8192\n"
    "  quire bench serve --vs http://127.0.0.1:8080 --pairs 5        against another server, by turns: ratios\n";

static enum qr_status run_one(const struct bench_args *a, const struct bench_load *l, struct bench_target *t,
                              const struct bench_limits *limits, struct qr_json_writer *w, struct qr_error *err)
{
    struct bench_run run;
    struct bench_result r;
    enum qr_status st = bench_drive(a->conf, t, l, false, &run, err);
    if (st != QR_OK) return st;
    st = bench_result_of(&run, limits, &r, err);
    if (st == QR_OK && r.n_failed > 0)
        fprintf(stderr, "%d of %d requests failed; the first: %s\n", r.n_failed, run.n, run.why);
    if (st == QR_OK && !bench_json_only(a)) bench_result_print(&r, a->conf, l, limits, a->out);
    if (st == QR_OK) {
        qr_jw_key(w, "result");
        bench_result_json(&r, a->conf, l, t, a->conf->save_detailed ? &run : NULL, w);
    }
    if (st == QR_OK && r.n_ok == 0) st = qr_fail(err, QR_EIO, "no request succeeded: %.200s", run.why);
    bench_run_free(&run);
    return st;
}

static enum qr_status measure(const struct bench_args *a, struct bench_ids ids, const struct bench_limits *limits,
                              struct qr_json_writer *w, struct qr_error *err)
{
    const struct qr_conf *c = a->conf;
    struct bench_load l;
    struct bench_target t;
    enum qr_status st = bench_load_make(c, (uint32_t)c->seed, ids, &l, err);
    if (st != QR_OK) return st;
    int n_conns = c->max_concurrency > 0 ? (int)c->max_concurrency : BENCH_CONNS_MAX;
    if (l.n < (size_t)n_conns) n_conns = (int)l.n;
    st = bench_target_open(c, c->base_url, c->model_name.n ? c->model_name.v[0] : NULL, n_conns, &t, err);
    if (st == QR_OK) {
        st = run_one(a, &l, &t, limits, w, err);
        bench_target_close(&t);
    }
    bench_load_free(&l);
    return st;
}

enum qr_status bench_serve(const struct bench_args *a, struct qr_error *err)
{
    const struct qr_conf *c = a->conf;
    struct bench_limits limits;
    struct bench_ids ids;
    if (c->args.n > 0)
        return qr_fail(err, QR_EINVAL, "bench serve takes no argument, got \"%.80s\"; the server is --base-url", c->args.v[0]);
    if (c->max_concurrency < 0 || c->max_concurrency > BENCH_CONNS_MAX)
        return qr_fail_param(err, QR_EINVAL, "max-concurrency", "--max-concurrency: expected 0 (no limit) to %d, got %lld",
                             BENCH_CONNS_MAX, (long long)c->max_concurrency);
    enum qr_status st = bench_limits_parse(c->goodput, &limits, err);
    if (st == QR_OK) st = bench_ids_parse(c->token_ids, &ids, err);
    if (st != QR_OK) return st;
    struct qr_buf json = {0};
    struct qr_json_writer w;
    qr_jw_init(&w, &json);
    qr_jw_obj(&w);
    bench_put_origin(&w);
    qr_jw_key(&w, "seed");
    qr_jw_int(&w, c->seed);
    st = c->vs[0] ? bench_versus(a, ids, &limits, &w, err) : measure(a, ids, &limits, &w, err);
    qr_jw_obj_end(&w);
    if (st == QR_OK) st = bench_save(a, &json, err);
    qr_buf_fini(&json);
    return st;
}
