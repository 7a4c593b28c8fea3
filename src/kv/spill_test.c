#include "kv/spill.h"

#include "base/mem.h"
#include "base/test.h"

enum { BS = 4 };

static struct qr_kv_spill *open_spill(uint32_t n_ram, uint32_t n_file)
{
    struct qr_kv_spill *sp = NULL;
    struct qr_kv_spill_conf c = {.n_blocks = 8, .block_size = BS, .n_ram = n_ram, .n_file = n_file, .key = {7, 9}};
    assert_int_equal(qr_kv_spill_new(&c, &sp), QR_OK);
    return sp;
}

QR_TEST(spill_keys_chain_tokens_classes_and_tenants)
{
    struct qr_kv_spill *sp = open_spill(1, 1);
    const uint32_t x[BS] = {1, 2, 3, 4}, y[BS] = {1, 2, 3, 4 | QR_KV_CLASS_D};
    struct qr_kv_key root = qr_kv_spill_root(sp, 0), other = qr_kv_spill_root(sp, 1);
    struct qr_kv_key a = qr_kv_spill_behind(sp, &root, x), b = qr_kv_spill_behind(sp, &root, y);
    struct qr_kv_key c = qr_kv_spill_behind(sp, &other, x), again = qr_kv_spill_behind(sp, &root, x);
    assert_true(root.a != other.a && a.a != b.a && a.a != c.a && a.b != c.b);
    assert_memory_equal(&a, &again, sizeof a);
    qr_kv_spill_register(sp, 3, &root, x);
    again = qr_kv_spill_key(sp, 3);
    assert_memory_equal(&a, &again, sizeof a);
    qr_kv_spill_free(&sp);
}

QR_TEST(spill_orders_a_copy_once)
{
    struct qr_kv_spill *sp = open_spill(2, 4);
    const uint32_t x[BS] = {1, 2, 3, 4};
    struct qr_kv_key root = qr_kv_spill_root(sp, 0);
    uint32_t n;
    qr_kv_spill_register(sp, 5, &root, x);
    qr_kv_spill_evict(sp, 5, x);
    const struct qr_kv_spilled *o = qr_kv_spill_orders(sp, &n);
    assert_int_equal(n, 1);
    assert_int_equal(o[0].block, 5);
    assert_int_equal(o[0].ram, 0);
    assert_int_equal(o[0].file, 0);
    qr_kv_spill_clear(sp);
    qr_kv_spill_register(sp, 6, &root, x); // the same again: it is on its way
    qr_kv_spill_evict(sp, 6, x);
    assert_false(qr_kv_spill_save(sp, 6, x));
    (void)qr_kv_spill_orders(sp, &n);
    assert_int_equal(n, 0);
    qr_kv_store_ready(qr_kv_spill_ram(sp), 0);
    qr_kv_store_unpin(qr_kv_spill_ram(sp), 0);
    qr_kv_store_drop(qr_kv_spill_file(sp), 0); // the file failed
    qr_kv_store_unpin(qr_kv_spill_file(sp), 0);
    assert_true(qr_kv_spill_save(sp, 6, x));
    o = qr_kv_spill_orders(sp, &n);
    assert_int_equal(o[0].ram, QR_SLOT_NONE);
    qr_kv_spill_check(sp);
    qr_kv_spill_free(&sp);
    for (uint64_t at = 1; at <= 12; at++) {
        struct qr_kv_spill_conf c = {.n_blocks = 8, .block_size = BS, .n_ram = 1, .n_file = 1};
        qr_mem_fail_at(at, 0);
        assert_int_equal(qr_kv_spill_new(&c, &sp), QR_ENOMEM);
        qr_mem_fail_at(0, 0);
        assert_null(sp);
    }
}
