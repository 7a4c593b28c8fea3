#include "kv/tier.h"

#include "base/hash.h"
#include "base/mem.h"
#include "base/test.h"

QR_TEST(tier_saves_a_shared_block_once)
{
    struct qr_kv_tier *t = NULL;
    bool first;
    assert_int_equal(qr_kv_tier_new(3, 10, &t), QR_OK);
    qr_kv_tier_begin(t);
    assert_int_equal(qr_kv_tier_count(t, (qr_block_id[]){7, 2}, 2), 2);
    assert_int_equal(qr_kv_tier_count(t, (qr_block_id[]){7, 5}, 2), 1); // 7 was counted
    assert_int_equal(qr_kv_tier_save(t, 7, &first), 0);
    assert_true(first);
    assert_int_equal(qr_kv_tier_save(t, 2, &first), 1);
    assert_int_equal(qr_kv_tier_save(t, 7, &first), 0);
    assert_false(first);
    assert_int_equal(qr_kv_tier_n_free(t), 1);
    assert_int_equal(qr_kv_tier_ref_sum(t), 3);
    qr_kv_tier_check(t);

    qr_kv_tier_begin(t); // another request: the same block holds something else by now
    assert_int_equal(qr_kv_tier_save(t, 7, &first), 2);
    assert_true(first);
    assert_int_equal(qr_kv_tier_take(t), QR_SLOT_NONE);
    qr_kv_tier_unref(t, 0);
    assert_int_equal(qr_kv_tier_take(t), QR_SLOT_NONE); // the other table still has it
    qr_kv_tier_unref(t, 0);
    assert_int_equal(qr_kv_tier_take(t), 0);
    qr_kv_tier_check(t);
    qr_kv_tier_free(&t);
    assert_null(t);
}

QR_TEST(tier_loads_a_shared_slot_into_one_block)
{
    struct qr_kv_tier *t = NULL;
    assert_int_equal(qr_kv_tier_new(4, 10, &t), QR_OK);
    qr_slot_id a = qr_kv_tier_take(t), b = qr_kv_tier_take(t);
    qr_kv_tier_begin(t);
    assert_int_equal(qr_kv_tier_block_of(t, a), QR_BLOCK_NONE);
    qr_kv_tier_note(t, a, 9);
    assert_int_equal(qr_kv_tier_block_of(t, a), 9);
    assert_int_equal(qr_kv_tier_block_of(t, b), QR_BLOCK_NONE);
    qr_kv_tier_begin(t);
    assert_int_equal(qr_kv_tier_block_of(t, a), QR_BLOCK_NONE);
    qr_kv_tier_free(&t);
}

QR_TEST(tier_of_no_slots_has_no_room)
{
    struct qr_kv_tier *t = NULL;
    assert_int_equal(qr_kv_tier_new(0, 10, &t), QR_OK);
    assert_int_equal(qr_kv_tier_n_free(t), 0);
    assert_int_equal(qr_kv_tier_take(t), QR_SLOT_NONE);
    qr_kv_tier_check(t);
    qr_kv_tier_free(&t);
    for (uint64_t at = 1; at <= 3; at++) {
        qr_mem_fail_at(at, 0);
        assert_int_equal(qr_kv_tier_new(4, 10, &t), QR_ENOMEM);
        qr_mem_fail_at(0, 0);
        assert_null(t);
    }
}

QR_TEST(tier_random_takes_and_drops_keep_count)
{
    enum { N = 20 };
    struct qr_kv_tier *t = NULL;
    uint32_t refs[N] = {0}, n_used = 0;
    assert_int_equal(qr_kv_tier_new(N, 100, &t), QR_OK);
    for (uint64_t i = 0; i < 3000; i++) {
        uint64_t h = qr_rand_u64(11, 0, i);
        uint32_t k = (uint32_t)(h >> 8) % N;
        if (h % 3 == 0) {
            qr_slot_id id = qr_kv_tier_take(t);
            assert_int_equal(id == QR_SLOT_NONE, n_used == N);
            if (id == QR_SLOT_NONE) continue;
            assert_int_equal(refs[id], 0);
            refs[id] = 1;
            n_used++;
        } else if (refs[k] > 0 && h % 3 == 1) {
            qr_kv_tier_ref(t, k);
            refs[k]++;
        } else if (refs[k] > 0) {
            qr_kv_tier_unref(t, k);
            n_used -= --refs[k] == 0;
        }
        assert_int_equal(qr_kv_tier_n_free(t), N - n_used);
        qr_kv_tier_check(t);
    }
    qr_kv_tier_free(&t);
}
