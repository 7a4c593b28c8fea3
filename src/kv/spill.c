#include "kv/spill.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/sip.h"

struct keys { // meaningful for blocks that are registered
    struct qr_kv_key before, behind;
};

struct qr_kv_spill {
    struct qr_kv_spill_conf conf;
    struct qr_kv_store *ram, *file;
    struct keys *keys;            // (n_blocks)
    struct qr_kv_spilled *orders; // (n_blocks)
    uint32_t n_orders;
    struct qr_kv_tag *tag; // being hashed
};

enum qr_status qr_kv_spill_new(const struct qr_kv_spill_conf *conf, struct qr_kv_spill **out)
{
    struct qr_kv_spill *sp = qr_calloc(QR_MEM_SCHED, 1, sizeof *sp);
    if (!sp) return QR_ENOMEM;
    sp->conf = *conf;
    sp->keys = qr_malloc(QR_MEM_SCHED, conf->n_blocks * sizeof *sp->keys);
    sp->orders = qr_malloc(QR_MEM_SCHED, conf->n_blocks * sizeof *sp->orders);
    sp->tag = qr_calloc(QR_MEM_SCHED, 1, qr_kv_tag_bytes(conf->block_size));
    if (!sp->keys || !sp->orders || !sp->tag || qr_kv_store_new(conf->n_ram, conf->block_size, &sp->ram) != QR_OK ||
        qr_kv_store_new(conf->n_file, conf->block_size, &sp->file) != QR_OK) {
        qr_kv_spill_free(&sp);
        return QR_ENOMEM;
    }
    *out = sp;
    return QR_OK;
}

void qr_kv_spill_free(struct qr_kv_spill **spill)
{
    struct qr_kv_spill *sp = *spill;
    if (!sp) return;
    qr_kv_store_free(&sp->ram);
    qr_kv_store_free(&sp->file);
    qr_free(sp->keys);
    qr_free(sp->orders);
    qr_free(sp->tag);
    qr_free(sp);
    *spill = NULL;
}

struct qr_kv_store *qr_kv_spill_ram(const struct qr_kv_spill *sp)
{
    return sp->ram;
}

struct qr_kv_store *qr_kv_spill_file(const struct qr_kv_spill *sp)
{
    return sp->file;
}

struct qr_kv_key qr_kv_spill_root(const struct qr_kv_spill *sp, uint64_t tenant)
{
    uint64_t out[2];
    qr_sip128(sp->conf.key, &tenant, sizeof tenant, out);
    return (struct qr_kv_key){out[0], out[1]};
}

struct qr_kv_key qr_kv_spill_behind(const struct qr_kv_spill *sp, const struct qr_kv_key *before,
                                    const uint32_t *tokens)
{
    uint64_t out[2];
    size_t bytes = (size_t)sp->conf.block_size * sizeof *tokens;
    sp->tag->before = *before;
    memcpy(sp->tag->tokens, tokens, bytes);
    qr_sip128(sp->conf.key, sp->tag, sizeof *sp->tag + bytes, out);
    return (struct qr_kv_key){out[0], out[1]};
}

void qr_kv_spill_register(struct qr_kv_spill *sp, qr_block_id id, const struct qr_kv_key *before,
                          const uint32_t *tokens)
{
    QR_ASSERT(id < sp->conf.n_blocks);
    sp->keys[id] = (struct keys){*before, qr_kv_spill_behind(sp, before, tokens)};
}

struct qr_kv_key qr_kv_spill_key(const struct qr_kv_spill *sp, qr_block_id id)
{
    QR_ASSERT(id < sp->conf.n_blocks);
    return sp->keys[id].behind;
}

static qr_slot_id offer(struct qr_kv_store *st, const struct keys *k, const uint32_t *tokens)
{
    if (qr_kv_store_n_slots(st) == 0 || qr_kv_store_has(st, &k->before, tokens)) return QR_SLOT_NONE;
    return qr_kv_store_put(st, &k->before, &k->behind, tokens);
}

static bool add_order(struct qr_kv_spill *sp, struct qr_kv_spilled o)
{
    if (o.ram == QR_SLOT_NONE && o.file == QR_SLOT_NONE) return false;
    QR_ASSERT(sp->n_orders < sp->conf.n_blocks);
    sp->orders[sp->n_orders++] = o;
    return true;
}

void qr_kv_spill_evict(struct qr_kv_spill *sp, qr_block_id id, const uint32_t *tokens)
{
    const struct keys *k = &sp->keys[id];
    qr_slot_id ram = offer(sp->ram, k, tokens);
    add_order(sp, (struct qr_kv_spilled){id, ram, offer(sp->file, k, tokens)});
}

bool qr_kv_spill_save(struct qr_kv_spill *sp, qr_block_id id, const uint32_t *tokens)
{
    return add_order(sp, (struct qr_kv_spilled){id, QR_SLOT_NONE, offer(sp->file, &sp->keys[id], tokens)});
}

const struct qr_kv_spilled *qr_kv_spill_orders(const struct qr_kv_spill *sp, uint32_t *n)
{
    *n = sp->n_orders;
    return sp->orders;
}

void qr_kv_spill_clear(struct qr_kv_spill *sp)
{
    sp->n_orders = 0;
}

void qr_kv_spill_check(const struct qr_kv_spill *sp)
{
    qr_kv_store_check(sp->ram);
    qr_kv_store_check(sp->file);
}
