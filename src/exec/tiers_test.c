#include "exec/tiers.h"

#include <string.h>

#include "base/mem.h"
#include "base/test.h"

enum { BYTES = 1000 };

static void fill(struct kvmem *m)
{
    for (uint32_t b = 0; b < m->n_blocks; b++) {
        kvmem_touch(m, b);
        memset(m->base + (size_t)b * BYTES, (int)b + 1, BYTES);
    }
}

static void is_block(const struct kvmem *m, uint32_t block, int value)
{
    for (size_t i = 0; i < BYTES; i += BYTES - 1)
        assert_int_equal(m->base[(size_t)block * BYTES + i], value);
}

QR_TEST(tiers_copy_blocks_out_in_and_on_write_by_phases)
{
    struct kvmem pool;
    struct tiers t;
    static uint64_t mem[64];
    struct qr_batch_caps caps = {.n_copies = 4};
    assert_int_equal(kvmem_init(&pool, 9, BYTES), QR_OK);
    assert_int_equal(tiers_init(&t, &pool, &(struct tiers_conf){.n_ram = 3}, NULL), QR_OK);
    fill(&pool);
    assert_true(qr_batch_bytes(&caps) <= sizeof mem);
    struct qr_batch *b = qr_batch_init(mem, &caps);
    struct qr_batch_copy *c = qr_batch_copies(b);
    c[0] = (struct qr_batch_copy){4, 2, QR_TIER_POOL, QR_TIER_RAM};
    c[1] = (struct qr_batch_copy){5, 0, QR_TIER_POOL, QR_TIER_RAM};
    c[2] = (struct qr_batch_copy){2, 7, QR_TIER_RAM, QR_TIER_POOL};
    c[3] = (struct qr_batch_copy){7, 4, QR_TIER_POOL, QR_TIER_POOL};
    b->n_copies = 4;
    qr_batch_check(b, 16, 9);
    assert_int_equal(tiers_phase(b, 0), 2);
    assert_int_equal(tiers_phase(b, 2), 1);
    assert_int_equal(tiers_phase(b, 3), 1);
    tiers_touch(&t, b);
    for (int i = 0; i < 4; i++) tiers_copy(&t, &c[i]);
    is_block(&t.ram, 2, 5);
    is_block(&t.ram, 0, 6);
    is_block(&pool, 7, 5);
    is_block(&pool, 4, 5);
    is_block(&pool, 5, 6);
    assert_true(kvmem_resident_bytes(&t.ram) > 0);
    tiers_trim(&t);
    assert_int_equal(kvmem_resident_bytes(&t.ram), 0);
    tiers_fini(&t);
    kvmem_fini(&pool);
}

QR_TEST(tiers_without_memory_of_their_own)
{
    struct kvmem pool;
    struct tiers t;
    size_t before = qr_mem_live_bytes(QR_MEM_KV);
    assert_int_equal(kvmem_init(&pool, 9, BYTES), QR_OK);
    assert_int_equal(tiers_init(&t, &pool, &(struct tiers_conf){0}, NULL), QR_OK);
    tiers_copy(&t, &(struct qr_batch_copy){.src = 1, .dst = 2});
    tiers_trim(&t);
    tiers_fini(&t);
    kvmem_fini(&pool);
    assert_int_equal(qr_mem_live_bytes(QR_MEM_KV), before);
}
