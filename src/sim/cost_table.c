/* A measured cost table, from the JSON that `quire bench step --costs` writes. */
#include <stdio.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/printable.h"
#include "sim/cost.h"

#define COSTS_BYTES_MAX (64u << 10)

static void read_word(qr_json *root, const char *key, char *out, size_t cap)
{
    size_t n;
    const char *s = qr_json_str(qr_json_get(root, key), &n);
    if (!s) return;
    snprintf(out, cap, "%.*s", (int)(n < cap ? n : cap), s);
    qr_printable_line(out);
}

// What a file says beside its table.
static void read_origin(qr_json *root, struct qr_sim_table *t)
{
    read_word(root, "model", t->model, sizeof t->model);
    read_word(root, "processor", t->processor, sizeof t->processor);
    if (!qr_json_double(qr_json_get(root, "error_median"), &t->error_median)) t->error_median = 0;
    if (!qr_json_double(qr_json_get(root, "error_max"), &t->error_max)) t->error_max = 0;
}

static enum qr_status read_copy(qr_json *root, const char *path, struct qr_sim_table *t, struct qr_error *err)
{
    t->has_copy = qr_json_type(qr_json_get(root, "copy_ns")) != QR_JSON_ABSENT;
    return t->has_copy ? qr_cost_read(root, "copy_ns", 0, path, &t->copy_ns, err) : QR_OK;
}

enum qr_status qr_sim_table_read(const char *path, struct qr_sim_table *out, struct qr_error *err)
{
    FILE *f = fopen(path, "r");
    if (!f) return qr_fail(err, QR_ENOTFOUND, "--costs: cannot read %.150s", path);
    struct qr_buf b = {0};
    char part[4096];
    for (size_t n; b.len <= COSTS_BYTES_MAX && (n = fread(part, 1, sizeof part, f)) > 0;) qr_buf_add(&b, part, n);
    bool unread = ferror(f);
    fclose(f);
    struct qr_json_doc *doc = NULL;
    struct qr_sim_table t = {0};
    enum qr_status st = QR_OK;
    if (unread)
        st = qr_fail(err, QR_EIO, "--costs: cannot read %.150s", path);
    else if (b.failed || b.len > COSTS_BYTES_MAX)
        st = qr_fail(err, QR_EFORMAT, "%.150s: expected a cost table of at most 64 KiB", path);
    else if ((st = qr_json_parse(b.data ? b.data : "", b.len, QR_JSON_DEPTH_MAX, &doc, err)) != QR_OK)
        st = qr_fail_in(err, st, path);
    else
        st = qr_costs_read(qr_json_root(doc), path, &t.costs, err);
    if (st == QR_OK) st = read_copy(qr_json_root(doc), path, &t, err);
    if (st == QR_OK) read_origin(qr_json_root(doc), &t);
    qr_json_free(&doc);
    qr_buf_fini(&b);
    if (st == QR_OK) *out = t;
    return st;
}
