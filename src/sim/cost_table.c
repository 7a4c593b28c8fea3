/* A measured cost table, from the JSON that `quire bench step --costs` writes. */
#include <stdio.h>

#include "base/buf.h"
#include "base/json.h"
#include "sim/cost.h"

#define COSTS_BYTES_MAX (64u << 10)

enum qr_status qr_sim_costs_read(const char *path, struct qr_costs *out, struct qr_error *err)
{
    FILE *f = fopen(path, "r");
    if (!f) return qr_fail(err, QR_ENOTFOUND, "--costs: cannot read %.150s", path);
    struct qr_buf b = {0};
    char part[4096];
    for (size_t n; b.len <= COSTS_BYTES_MAX && (n = fread(part, 1, sizeof part, f)) > 0;) qr_buf_add(&b, part, n);
    fclose(f);
    struct qr_json_doc *doc = NULL;
    struct qr_error why = {0};
    struct qr_costs c = {0};
    enum qr_status st = QR_OK;
    if (b.failed || b.len > COSTS_BYTES_MAX)
        st = qr_fail(err, QR_EFORMAT, "%.150s: expected a cost table of at most 64 KiB", path);
    else if ((st = qr_json_parse(b.data ? b.data : "", b.len, QR_JSON_DEPTH_MAX, &doc, &why)) != QR_OK)
        (void)qr_fail(err, st, "%.100s: %.140s", path, why.msg);
    else
        st = qr_costs_read(qr_json_root(doc), path, &c, err);
    // A step that takes no time would let the clock stand still.
    if (st == QR_OK && c.fixed_ns == 0) st = qr_fail(err, QR_EFORMAT, "%.100s: fixed_ns: expected at least 1", path);
    qr_json_free(&doc);
    qr_buf_fini(&b);
    if (st == QR_OK) *out = c;
    return st;
}
