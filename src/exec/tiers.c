#include "exec/tiers.h"

#include <string.h>

#include "base/assert.h"

enum qr_status tiers_init(struct tiers *t, struct kvmem *pool, const struct tiers_conf *conf,
                          struct qr_error *err)
{
    uint32_t n = conf->n_ram + conf->n_staging;
    *t = (struct tiers){.pool = pool, .has_ram = n > 0};
    if (t->has_ram && kvmem_init(&t->ram, n, pool->block_bytes) != QR_OK)
        return qr_fail(err, QR_ENOMEM, "executor: no memory for %u blocks of %zu bytes beside the pool", n,
                       pool->block_bytes);
    if (conf->n_file == 0) return QR_OK;
    struct tier_file_conf fc = {.path = conf->path,
                                .n_slots = conf->n_file,
                                .pool = pool,
                                .ram = &t->ram,
                                .block_bytes = pool->block_bytes};
    return tier_file_new(&fc, &t->file, err);
}

void tiers_fini(struct tiers *t)
{
    tier_file_free(&t->file); // its thread uses the memory
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
