#include "exec/kvmem.h"

#include <string.h>

#include "base/mem.h"
#include "base/test.h"

QR_TEST(kvmem_counts_extents_once)
{
    struct kvmem m;
    // 7 blocks an extent, and a rest: block 6 lies across a border.
    assert_int_equal(kvmem_init(&m, 100, 300 * 1024), QR_OK);
    assert_int_equal(kvmem_resident_bytes(&m), 0);
    kvmem_touch(&m, 0);
    kvmem_touch(&m, 0);
    kvmem_touch(&m, 5);
    assert_int_equal(kvmem_resident_bytes(&m), KVMEM_EXTENT);
    kvmem_touch(&m, 6);
    assert_int_equal(kvmem_resident_bytes(&m), 2 * KVMEM_EXTENT);
    for (uint32_t b = 0; b < 100; b++) kvmem_touch(&m, b);
    assert_int_equal(kvmem_resident_bytes(&m),
                     (100 * 300 * 1024 + KVMEM_EXTENT - 1) / KVMEM_EXTENT * KVMEM_EXTENT);
    kvmem_fini(&m);
}

QR_TEST(kvmem_trims_to_nothing_and_grows_again)
{
    struct kvmem m;
    assert_int_equal(kvmem_init(&m, 100, 300 * 1024), QR_OK);
    for (int round = 0; round < 2; round++) {
        kvmem_touch(&m, 0);
        kvmem_touch(&m, 99);
        assert_int_equal(m.base[99 * 300 * 1024], 0);
        memset(m.base, 1, 300 * 1024);
        memset(m.base + 99 * 300 * 1024, 1, 300 * 1024);
        assert_true(kvmem_resident_bytes(&m) >= 2 * KVMEM_EXTENT);
        kvmem_trim(&m);
        assert_int_equal(kvmem_resident_bytes(&m), 0);
    }
    kvmem_fini(&m);
}

QR_TEST(kvmem_refuses_what_cannot_be_addressed)
{
    struct kvmem m;
    assert_int_equal(kvmem_init(&m, UINT32_MAX, (size_t)1 << 40), QR_ENOMEM);
    size_t before = qr_mem_live_bytes(QR_MEM_KV);
    qr_mem_fail_at(1, 0);
    assert_int_equal(kvmem_init(&m, 10, 4096), QR_ENOMEM);
    qr_mem_fail_at(0, 0);
    assert_int_equal(qr_mem_live_bytes(QR_MEM_KV), before);
}
