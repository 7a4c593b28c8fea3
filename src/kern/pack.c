#include "kern/pack.h"

#include <string.h>

#include "base/assert.h"
#include "kern/pack/pack_internal.h"

#define LINE 64

const struct pack_fmt *pack_fmt_of(enum qr_wfmt fmt)
{
    static const struct pack_fmt *const fmts[QR_W_COUNT] = {
#define QR_WFMT_INT(NAME, name, ...) &qr_pack_##name,
#define QR_WFMT(NAME, name, ...) &qr_pack_##name,
#include "kern/wfmts.def"
    };
    return fmts[fmt];
}

void qr_wmat_init(struct qr_wmat *w, enum qr_wfmt fmt, int n, int k)
{
    QR_ASSERT(n > 0 && k > 0 && (unsigned)fmt < QR_W_COUNT);
    const struct qr_wfmt_traits *t = qr_wfmt(fmt);
    QR_ASSERT(k % t->group == 0);
    size_t bytes = (size_t)(k / t->group) * t->group_bytes;
    *w = (struct qr_wmat){.fmt = fmt, .n = n, .k = k};
    w->n_panels = (n + QR_PANEL - 1) / QR_PANEL;
    w->panel_bytes = (bytes + LINE - 1) / LINE * LINE;
}

size_t qr_wmat_bytes(const struct qr_wmat *w)
{
    return (size_t)w->n_panels * w->panel_bytes + LINE;
}

void qr_pack_panel(const struct qr_wmat *w, int i, enum qr_qtype type, const void *const rows[QR_PANEL])
{
    QR_ASSERT(i >= 0 && i < w->n_panels);
    uint8_t *panel = w->data + (size_t)i * w->panel_bytes;
    memset(panel, 0, w->panel_bytes);
    for (int lane = 0; lane < QR_PANEL; lane++) {
        if (!rows[lane]) continue;
        bool held = pack_fmt_of(w->fmt)->put(panel, w->k, lane, type, rows[lane]);
        QR_ASSERT(held);
    }
}

void qr_wmat_row(const struct qr_wmat *w, int row, float *out)
{
    QR_ASSERT(row >= 0 && row < w->n);
    qr_panel_unpack_lane(w, row / QR_PANEL, row % QR_PANEL, out, 1);
}

void qr_panel_unpack_lane(const struct qr_wmat *w, int i, int lane, float *out, size_t stride)
{
    const struct pack_fmt *fmt = pack_fmt_of(w->fmt);
    const struct qr_wfmt_traits *t = qr_wfmt(w->fmt);
    const uint8_t *rec = w->data + (size_t)i * w->panel_bytes;
    struct pack_sub sub;
    if (fmt->get) {
        fmt->get(rec, w->k, lane, out, stride);
        return;
    }
    for (int g = 0; g < w->k / t->group; g++, rec += t->group_bytes)
        for (int s = 0; s < t->group / t->sub; s++) {
            fmt->sub(rec, s, lane, &sub);
            float ds = sub.d * (float)sub.sc, dm = sub.m * (float)sub.mn;
            for (int j = 0; j < t->sub; j++, out += stride)
                *out = t->minima ? ds * (float)sub.q[j] - dm : ds * (float)sub.q[j];
        }
}
