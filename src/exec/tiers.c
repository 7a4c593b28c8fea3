#include "exec/tiers.h"

#include <string.h>

#include "base/assert.h"
#include "base/log.h"

static enum qr_status open_kept(struct tiers *t, const struct tiers_conf *conf, struct qr_error *err)
{
    struct tier_file_conf fc = {.path = conf->prefix_path,
                                .flag = "prefix-cache-file",
                                .n_slots = conf->n_prefix_file,
                                .pool = t->pool,
                                .ram = &t->ram,
                                .block_bytes = t->pool->block_bytes,
                                .tag_bytes = conf->prefix_tag_bytes,
                                .identity = {conf->prefix_identity[0], conf->prefix_identity[1]}};
    struct qr_error why = {0};
    enum qr_status st = tier_file_new(&fc, &t->kept, &why);
    // Somebody else's file stays as it is, and the cache goes without.
    if (st == QR_EINVAL) QR_WARN("exec", "%s; cached prefixes stay in memory", why.msg);
    if (st == QR_EINVAL) return QR_OK;
    if (st != QR_OK && err) *err = why;
    return st;
}

enum qr_status tiers_init(struct tiers *t, struct kvmem *pool, const struct tiers_conf *conf,
                          struct qr_error *err)
{
    uint32_t n = conf->n_ram + conf->n_staging + conf->n_prefix_ram;
    *t = (struct tiers){.pool = pool, .has_ram = n > 0, .n_file = conf->n_file};
    if (t->has_ram && kvmem_init(&t->ram, n, pool->block_bytes) != QR_OK)
        return qr_fail(err, QR_ENOMEM, "executor: no memory for %u blocks of %zu bytes beside the pool", n,
                       pool->block_bytes);
    enum qr_status st = QR_OK;
    if (conf->n_file > 0) {
        struct tier_file_conf fc = {.path = conf->path,
                                    .flag = "swap-file",
                                    .n_slots = conf->n_file,
                                    .pool = pool,
                                    .ram = &t->ram,
                                    .block_bytes = pool->block_bytes};
        st = tier_file_new(&fc, &t->file, err);
    }
    return st == QR_OK && conf->n_prefix_file > 0 ? open_kept(t, conf, err) : st;
}

void tiers_fini(struct tiers *t)
{
    tier_file_free(&t->file); // their threads use the memory
    tier_file_free(&t->kept);
    if (t->has_ram) kvmem_fini(&t->ram);
    *t = (struct tiers){0};
}

void tiers_touch(struct tiers *t, const struct qr_batch *b)
{
    const struct qr_batch_copy *c = qr_batch_copies(b);
    for (int32_t i = 0; i < b->n_copies; i++)
        kvmem_touch(c[i].dst_tier == QR_TIER_POOL ? t->pool : &t->ram, c[i].dst);
}

static uint8_t *place(const struct tiers *t, uint32_t tier, uint32_t id)
{
    const struct kvmem *m = tier == QR_TIER_POOL ? t->pool : &t->ram;
    QR_ASSERT(id < m->n_blocks);
    return m->base + (size_t)id * m->block_bytes;
}

void tiers_copy(const struct tiers *t, const struct qr_batch_copy *c)
{
    memcpy(place(t, c->dst_tier, c->dst), place(t, c->src_tier, c->src), t->pool->block_bytes);
}

void tiers_trim(struct tiers *t)
{
    if (t->has_ram) kvmem_trim(&t->ram);
}

int32_t tiers_phase(const struct qr_batch *b, int32_t first)
{
    const struct qr_batch_copy *c = qr_batch_copies(b);
    int32_t n = first;
    while (n < b->n_copies && qr_batch_copy_phase(&c[n]) == qr_batch_copy_phase(&c[first])) n++;
    return n - first;
}

void tiers_io_submit(struct tiers *t, const struct qr_io *io, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        struct qr_io one = io[i];
        bool kept = one.file >= t->n_file;
        if (one.kind == QR_IO_READ) kvmem_touch(t->pool, one.mem);
        if (kept) one.file -= t->n_file;
        tier_file_submit(kept ? t->kept : t->file, &one, 1);
    }
}

int32_t tiers_io_poll(struct tiers *t, struct qr_io_done *out, int32_t cap, int timeout_ms)
{
    int32_t n = 0;
    if (t->file) n = tier_file_poll(t->file, out, cap, t->kept ? timeout_ms / 2 : timeout_ms);
    if (!t->kept || n == cap) return n;
    int32_t m = tier_file_poll(t->kept, out + n, cap - n, n > 0 ? 0 : timeout_ms);
    for (int32_t i = n; i < n + m; i++) out[i].io.file += t->n_file;
    return n + m;
}
