/* quire bench throughput: a load on the engine of this process, all at once. */
#include "bench/bench_internal.h"
#include "bench/inproc.h"

const char bench_throughput_help[] =
    "Loads MODEL and hands it the whole load at once, without a server: what the engine does at most.\n\n"
    "  quire bench throughput smollm2-135m-instruct\n"
    "  quire bench throughput smollm2-135m-instruct --num-prompts 64 --max-num-seqs 32\n"
    "  quire bench throughput MODEL --workload lens.csv.gz --request-rate inf --num-prompts 200\n\n"
    "Arrivals and the order of turns play no part here: everything is there from the start.\n";

static void print(const struct bench_args *a, const struct bench_inproc *r, size_t n)
{
    fprintf(a->out, "Throughput: %.2f requests/s, %.2f total tokens/s, %.2f output tokens/s\n", (double)n / r->seconds,
            (double)(r->n_in + r->n_out) / r->seconds, (double)r->n_out / r->seconds);
    fprintf(a->out, "Total num prompt tokens:  %llu\n", (unsigned long long)r->n_in);
    fprintf(a->out, "Total num output tokens:  %llu\n", (unsigned long long)r->n_out);
}

static enum qr_status save(const struct bench_args *a, const struct bench_inproc *r, size_t n, struct qr_error *err)
{
    struct qr_buf b = {0};
    struct qr_json_writer w;
    qr_jw_init(&w, &b);
    qr_jw_obj(&w);
    bench_put_origin(&w);
    const struct {
        const char *key;
        double v;
    } rows[] = {{"elapsed_time", r->seconds},
                {"num_requests", (double)n},
                {"total_num_tokens", (double)(r->n_in + r->n_out)},
                {"total_output_tokens", (double)r->n_out},
                {"requests_per_second", (double)n / r->seconds},
                {"tokens_per_second", (double)(r->n_in + r->n_out) / r->seconds},
                {"output_tokens_per_second", (double)r->n_out / r->seconds}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        qr_jw_key(&w, rows[i].key);
        qr_jw_double(&w, rows[i].v);
    }
    qr_jw_obj_end(&w);
    enum qr_status st = bench_save(a, &b, err);
    qr_buf_fini(&b);
    return st;
}

enum qr_status bench_throughput(const struct bench_args *a, struct qr_error *err)
{
    struct qr_lib *lib = NULL;
    struct bench_ids ids;
    struct bench_load l = {0};
    struct bench_inproc r;
    enum qr_status st = qr_lib_open(a->lib, &lib, err);
    if (st == QR_OK) st = bench_inproc_ids(a->conf, lib, &ids, err);
    if (st == QR_OK) st = bench_load_make(a->conf, (uint32_t)a->conf->seed, ids, &l, err);
    if (st == QR_OK) st = bench_inproc_run(lib, &l, "requests", &r, err);
    if (st == QR_OK && !bench_json_only(a)) print(a, &r, l.n);
    if (st == QR_OK) st = save(a, &r, l.n, err);
    bench_load_free(&l);
    qr_lib_close(&lib);
    return st;
}
