/* quire bench latency: one batch of a fixed size, again and again. */
#include <string.h>

#include "base/mem.h"
#include "bench/bench_internal.h"
#include "bench/inproc.h"
#include "bench/report.h"

const char bench_latency_help[] =
    "Loads MODEL and times one batch of --batch-size prompts of --input-len tokens until each has its --output-len tokens, --num-iters\n"
    "times after --num-iters-warmup that do not count; prompts are new each time. Prints what vllm bench latency prints.\n\n"
    "  quire bench latency smollm2-135m-instruct\n"
    "  quire bench latency smollm2-135m-instruct --batch-size 1 --output-len 256\n";

#define ITERS_MAX 100000

static enum qr_status check(const struct qr_conf *c, struct qr_error *err)
{
    const struct {
        const char *flag;
        int64_t v, lo, hi;
    } rows[] = {{"batch-size", c->batch_size, 1, 65536},
                {"num-iters", c->num_iters, 1, ITERS_MAX},
                {"num-iters-warmup", c->num_iters_warmup, 0, ITERS_MAX}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].v < rows[i].lo || rows[i].v > rows[i].hi)
            return qr_fail_param(err, QR_EINVAL, rows[i].flag, "--%s: expected %lld to %lld, got %lld", rows[i].flag,
                                 (long long)rows[i].lo, (long long)rows[i].hi, (long long)rows[i].v);
    return QR_OK;
}

// The batch of an iteration: a load of equal lengths.
static enum qr_status one(const struct qr_conf *c, struct qr_lib *lib, uint32_t seed, struct bench_ids ids, double *seconds,
                          struct qr_error *err)
{
    struct qr_conf batch = *c;
    struct bench_load l;
    struct bench_inproc r = {0};
    batch.dataset = "random";
    batch.workload = "";
    batch.request_rate = "inf";
    batch.random_range_ratio = 0;
    batch.num_prompts = c->batch_size;
    if (batch.input_len == 0) batch.input_len = 32;
    enum qr_status st = bench_load_make(&batch, seed, ids, &l, err);
    if (st != QR_OK) return st;
    st = bench_inproc_run(lib, &l, NULL, &r, err);
    bench_load_free(&l);
    *seconds = r.seconds;
    return st;
}

static void print(const struct bench_args *a, double mean, const double *sorted, int64_t n)
{
    static const int shares[] = {10, 25, 50, 75, 90, 99};
    fprintf(a->out, "Avg latency: %.6f seconds\n", mean);
    for (int i = 0; i < 6; i++)
        fprintf(a->out, "%d%% percentile latency: %.6f seconds\n", shares[i], bench_percentile(sorted, n, shares[i]));
}

static enum qr_status save(const struct bench_args *a, double mean, const double *sorted, int64_t n, struct qr_error *err)
{
    static const int shares[] = {10, 25, 50, 75, 90, 99};
    struct qr_buf b = {0};
    struct qr_json_writer w;
    char key[8];
    qr_jw_init(&w, &b);
    qr_jw_obj(&w);
    bench_put_origin(&w);
    qr_jw_key(&w, "avg_latency");
    qr_jw_double(&w, mean);
    qr_jw_key(&w, "latencies");
    qr_jw_arr(&w);
    for (int64_t i = 0; i < n; i++) qr_jw_double(&w, sorted[i]);
    qr_jw_arr_end(&w);
    qr_jw_key(&w, "percentiles");
    qr_jw_obj(&w);
    for (int i = 0; i < 6; i++) {
        snprintf(key, sizeof key, "%d", shares[i]);
        qr_jw_key(&w, key);
        qr_jw_double(&w, bench_percentile(sorted, n, shares[i]));
    }
    qr_jw_obj_end(&w);
    qr_jw_obj_end(&w);
    enum qr_status st = bench_save(a, &b, err);
    qr_buf_fini(&b);
    return st;
}

static enum qr_status measure(const struct bench_args *a, struct qr_lib *lib, double *v, struct qr_error *err)
{
    const struct qr_conf *c = a->conf;
    int64_t n_warm = c->num_iters_warmup, n = c->num_iters;
    struct bench_ids ids;
    enum qr_status st = bench_inproc_ids(c, lib, &ids, err);
    for (int64_t i = 0; st == QR_OK && i < n_warm + n; i++) {
        double s = 0;
        st = one(c, lib, (uint32_t)(c->seed + i), ids, &s, err);
        if (i >= n_warm) v[i - n_warm] = s;
        bench_progress("iterations", (uint64_t)i + 1, (uint64_t)(n_warm + n));
    }
    if (st != QR_OK) return st;
    double mean = bench_dist_of(v, n).mean; // sorts
    if (!bench_json_only(a)) print(a, mean, v, n);
    return save(a, mean, v, n, err);
}

enum qr_status bench_latency(const struct bench_args *a, struct qr_error *err)
{
    struct qr_lib *lib = NULL;
    double *v = NULL;
    enum qr_status st = check(a->conf, err);
    if (st == QR_OK && !(v = qr_malloc(QR_MEM_MISC, (size_t)a->conf->num_iters * sizeof *v)))
        st = qr_fail(err, QR_ENOMEM, "no memory for the times");
    if (st == QR_OK) st = qr_lib_open(a->lib, &lib, err);
    if (st == QR_OK) st = measure(a, lib, v, err);
    qr_lib_close(&lib);
    qr_free(v);
    return st;
}
