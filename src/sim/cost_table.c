/* A measured cost table, from the JSON that `quire bench step --costs` writes. */
#include <stdio.h>

#include "base/buf.h"
#include "base/json.h"
#include "sim/cost.h"

#define COSTS_BYTES_MAX (64u << 10)

static enum qr_status parse(const char *path, qr_json *o, struct qr_sim_costs *out, struct qr_error *err)
{
    struct {
        const char *key;
        uint64_t *to;
    } keys[] = {{"fixed_ns", &out->fixed_ns},           {"row_ns", &out->row_ns},
                {"prompt_fixed_ns", &out->prompt_fixed_ns}, {"prompt_row_ns", &out->prompt_row_ns},
                {"context_ps", &out->context_ps},       {"query_context_ps", &out->query_context_ps}};
    if (qr_json_type(o) != QR_JSON_OBJ)
        return qr_fail(err, QR_EFORMAT, "%.100s: expected an object, got %s", path, qr_json_type_name(qr_json_type(o)));
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        qr_json *v = qr_json_get(o, keys[i].key);
        int64_t n = 0;
        if (!qr_json_int64(v, &n) || n < 0 || n > (int64_t)1 << 50)
            return qr_fail(err, QR_EFORMAT, "%.100s: %s: expected a whole number >= 0, got %s", path, keys[i].key,
                           v ? qr_json_type_name(qr_json_type(v)) : "nothing");
        *keys[i].to = (uint64_t)n;
    }
    // A step that takes no time would let the clock stand still.
    if (out->fixed_ns == 0) return qr_fail(err, QR_EFORMAT, "%.100s: fixed_ns: expected at least 1", path);
    return QR_OK;
}

enum qr_status qr_sim_costs_read(const char *path, struct qr_sim_costs *out, struct qr_error *err)
{
    FILE *f = fopen(path, "r");
    if (!f) return qr_fail(err, QR_ENOTFOUND, "--costs: cannot read %.150s", path);
    struct qr_buf b = {0};
    char part[4096];
    for (size_t n; b.len <= COSTS_BYTES_MAX && (n = fread(part, 1, sizeof part, f)) > 0;) qr_buf_add(&b, part, n);
    fclose(f);
    struct qr_json_doc *doc = NULL;
    struct qr_error why = {0};
    struct qr_sim_costs c = {0};
    enum qr_status st = QR_OK;
    if (b.failed || b.len > COSTS_BYTES_MAX)
        st = qr_fail(err, QR_EFORMAT, "%.150s: expected a cost table of at most 64 KiB", path);
    else if ((st = qr_json_parse(b.data ? b.data : "", b.len, QR_JSON_DEPTH_MAX, &doc, &why)) != QR_OK)
        (void)qr_fail(err, st, "%.100s: %.140s", path, why.msg);
    else
        st = parse(path, qr_json_root(doc), &c, err);
    qr_json_free(&doc);
    qr_buf_fini(&b);
    if (st == QR_OK) *out = c;
    return st;
}
