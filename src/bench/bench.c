#include "bench/bench_internal.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/machine.h"

static const struct bench_entry entries[] = {
#define QR_BENCH(name, model, args, summary) {#name, BENCH_##model, QR_VERB_BENCH_##name, args, summary, bench_##name, bench_##name##_help},
#include "bench/bench.def"
#undef QR_BENCH
};

const struct bench_entry *qr_bench_list(size_t *n)
{
    *n = sizeof entries / sizeof *entries;
    return entries;
}

const struct bench_entry *qr_bench_find(const char *name)
{
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        if (strcmp(entries[i].name, name) == 0) return &entries[i];
    return NULL;
}

enum qr_status bench_save(const struct bench_args *a, const struct qr_buf *json, struct qr_error *err)
{
    const char *path = a->conf->json;
    if (!path[0]) return QR_OK;
    if (json->failed) return qr_fail(err, QR_ENOMEM, "no memory for the result");
    FILE *f = bench_json_only(a) ? a->out : fopen(path, "w");
    if (!f) return qr_fail_param(err, QR_EIO, "json", "--json: cannot write %.150s", path);
    bool ok = fwrite(json->data, 1, json->len, f) == json->len && fputc('\n', f) != EOF;
    if (f != a->out) ok = fclose(f) == 0 && ok;
    return ok ? QR_OK : qr_fail_param(err, QR_EIO, "json", "--json: cannot write %.150s", path);
}

void bench_put_real(struct qr_json_writer *w, const char *key, double v)
{
    qr_jw_key(w, key);
    qr_jw_double(w, v);
}

void bench_put_int(struct qr_json_writer *w, const char *key, int64_t v)
{
    qr_jw_key(w, key);
    qr_jw_int(w, v);
}

void bench_put_str(struct qr_json_writer *w, const char *key, const char *v)
{
    qr_jw_key(w, key);
    qr_jw_str(w, v);
}

void bench_put_origin(struct qr_json_writer *w)
{
    char date[32];
    time_t now = time(NULL);
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &tm);
    qr_jw_key(w, "quire");
    qr_jw_str(w, QUIRE_VERSION);
    qr_jw_key(w, "date");
    qr_jw_str(w, date);
    qr_jw_key(w, "processor");
    qr_jw_str(w, qr_machine_cpu_model());
    qr_jw_key(w, "cores");
    qr_jw_int(w, qr_machine_cpus());
}
