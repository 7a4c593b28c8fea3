#include "kv/layout.h"

#include <string.h>

#include "base/assert.h"
#include "kv/buddy.h"

static const char *const names[QR_KV_LAYOUTS] = {"paged", "contiguous-max", "contiguous-pow2",
                                                 "contiguous-oracle", "virtual"};

const char *qr_kv_layout_name(enum qr_kv_layout_kind kind)
{
    return names[kind];
}

enum qr_status qr_kv_layout_parse(const char *name, enum qr_kv_layout_kind *out, struct qr_error *err)
{
    for (int i = 0; i < QR_KV_LAYOUTS; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum qr_kv_layout_kind)i;
            return QR_OK;
        }
    return qr_fail_param(err, QR_EINVAL, "kv-layout",
                         "--kv-layout: expected paged, contiguous-max, contiguous-pow2, contiguous-oracle or "
                         "virtual, got \"%.40s\"",
                         name);
}

static uint32_t blocks_for(const struct qr_kv_layout_conf *c, int32_t n_tokens)
{
    return (uint32_t)((n_tokens + c->block_size - 1) / c->block_size);
}

// Tokens that a contiguous layout sets aside.
static int32_t reserved(const struct qr_kv_layout_conf *c, const struct qr_kv_want *w)
{
    int32_t answer = w->n_total - w->n_prompt, over = 1;
    if (c->kind == QR_KV_CONTIGUOUS_MAX) return c->max_len;
    if (c->kind == QR_KV_CONTIGUOUS_ORACLE || answer == 0) return w->n_total;
    while (over < answer) over *= 2;
    return over < c->max_len - w->n_prompt ? w->n_prompt + over : c->max_len;
}

uint32_t qr_kv_layout_asked(const struct qr_kv_layout_conf *c, const struct qr_kv_want *w)
{
    return blocks_for(c, reserved(c, w));
}

uint32_t qr_kv_layout_claim(const struct qr_kv_layout_conf *c, const struct qr_kv_want *w)
{
    if (c->kind == QR_KV_PAGED) return blocks_for(c, w->n_known);
    if (c->kind == QR_KV_VIRTUAL)
        return (blocks_for(c, w->n_known) + c->page_blocks - 1) / c->page_blocks * c->page_blocks;
    return 1u << qr_buddy_order(qr_kv_layout_asked(c, w));
}

uint32_t qr_kv_layout_capacity(const struct qr_kv_layout_conf *c, const struct qr_kv_want *w)
{
    // On demand: what must fit is the sequence at its longest.
    struct qr_kv_want whole = {.n_prompt = w->n_prompt, .n_known = w->n_total, .n_total = w->n_total};
    uint32_t n_blocks = c->kind == QR_KV_VIRTUAL ? c->n_blocks / c->page_blocks * c->page_blocks : c->n_blocks;
    return n_blocks / qr_kv_layout_claim(c, &whole);
}

enum qr_status qr_kv_layout_new(struct qr_kv_pool *pool, const struct qr_kv_layout_conf *conf,
                                struct qr_kv_layout **out)
{
    QR_ASSERT(conf->kind != QR_KV_PAGED && conf->kind < QR_KV_LAYOUTS);
    return conf->kind == QR_KV_VIRTUAL ? kv_virtual_new(pool, conf, out) : kv_contiguous_new(pool, conf, out);
}
