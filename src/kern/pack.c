#include "kern/pack.h"

#include <string.h>

#include "base/assert.h"
#include "kern/pack/pack_internal.h"

static const struct pack_fmt *const fmts[QR_W_COUNT] = {
    [QR_W_U4G32] = &qr_pack_u4g32, [QR_W_U4G32M] = &qr_pack_u4g32m, [QR_W_U4K] = &qr_pack_u4k,
    [QR_W_I8G32] = &qr_pack_i8g32, [QR_W_I6G16] = &qr_pack_i6g16,   [QR_W_BF16] = &qr_pack_bf16,
    [QR_W_F32] = &qr_pack_f32,
};

#define LINE 64

void qr_wmat_init(struct qr_wmat *w, enum qr_wfmt fmt, int n, int k)
{
    QR_ASSERT(n > 0 && k > 0 && (unsigned)fmt < QR_W_COUNT);
    QR_ASSERT(k % fmts[fmt]->group == 0);
    size_t bytes = (size_t)(k / fmts[fmt]->group) * fmts[fmt]->group_bytes;
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
        bool held = fmts[w->fmt]->put(panel, w->k, lane, type, rows[lane]);
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
    fmts[w->fmt]->get(w->data + (size_t)i * w->panel_bytes, w->k, lane, out, stride);
}
