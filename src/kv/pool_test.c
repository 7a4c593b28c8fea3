#include "kv/pool.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/test.h"

static qr_block_id take(struct qr_kv_pool *p)
{
    bool evicted = true;
    qr_block_id id = qr_kv_pool_take(p, &evicted);
    assert_false(evicted);
    qr_kv_pool_check(p);
    return id;
}

static qr_block_id take_evicting(struct qr_kv_pool *p)
{
    bool evicted = false;
    qr_block_id id = qr_kv_pool_take(p, &evicted);
    assert_true(evicted);
    qr_kv_pool_check(p);
    return id;
}

QR_TEST(pool_takes_fresh_blocks_from_the_lowest_and_then_says_none)
{
    struct qr_kv_pool *p = NULL;
    assert_int_equal(qr_kv_pool_new(3, &p), QR_OK);
    assert_int_equal(qr_kv_pool_n_free(p), 3);
    for (uint32_t i = 0; i < 3; i++) assert_int_equal(take(p), i);
    assert_int_equal(take(p), QR_BLOCK_NONE);
    assert_int_equal(qr_kv_pool_n_free(p), 0);
    qr_kv_pool_free(&p);
    assert_null(p);
}

QR_TEST(pool_prefers_the_block_freed_last_to_a_fresh_one)
{
    struct qr_kv_pool *p = NULL;
    assert_int_equal(qr_kv_pool_new(8, &p), QR_OK);
    for (int i = 0; i < 4; i++) assert_int_equal(take(p), i);
    qr_kv_pool_unref(p, 1);
    qr_kv_pool_unref(p, 3);
    assert_int_equal(take(p), 3);
    assert_int_equal(take(p), 1);
    assert_int_equal(take(p), 4); // none was used before: the lowest fresh one
    qr_kv_pool_free(&p);
}

QR_TEST(pool_evicts_cached_blocks_last_and_oldest_first)
{
    struct qr_kv_pool *p = NULL;
    assert_int_equal(qr_kv_pool_new(5, &p), QR_OK);
    for (int i = 0; i < 4; i++) assert_int_equal(take(p), i);
    for (uint32_t i = 0; i < 3; i++) qr_kv_pool_set_cached(p, i, true);
    // A request that frees tail first: 2, 1, 0. Its head is the newest on the list and is evicted last (K6).
    qr_kv_pool_unref(p, 2);
    qr_kv_pool_unref(p, 1);
    qr_kv_pool_unref(p, 0);
    qr_kv_pool_unref(p, 3); // plain
    assert_int_equal(qr_kv_pool_n_cached(p), 3);
    assert_int_equal(qr_kv_pool_n_free(p), 5);
    assert_int_equal(take(p), 3); // plain
    assert_int_equal(take(p), 4); // fresh
    assert_int_equal(take_evicting(p), 2);
    qr_kv_pool_ref(p, 1); // a hit brings a cached block back
    assert_int_equal(qr_kv_pool_refs(p, 1), 1);
    assert_int_equal(take_evicting(p), 0);
    assert_int_equal(take(p), QR_BLOCK_NONE);
    qr_kv_pool_unref(p, 1); // still cached
    assert_int_equal(qr_kv_pool_n_cached(p), 1);
    qr_kv_pool_check(p);
    qr_kv_pool_free(&p);
}

QR_TEST(pool_counts_references)
{
    struct qr_kv_pool *p = NULL;
    assert_int_equal(qr_kv_pool_new(2, &p), QR_OK);
    qr_block_id id = take(p);
    qr_kv_pool_ref(p, id);
    qr_kv_pool_ref(p, id);
    assert_int_equal(qr_kv_pool_refs(p, id), 3);
    assert_int_equal(qr_kv_pool_ref_sum(p), 3);
    qr_kv_pool_unref(p, id);
    qr_kv_pool_unref(p, id);
    assert_int_equal(qr_kv_pool_n_free(p), 1);
    qr_kv_pool_unref(p, id);
    assert_int_equal(qr_kv_pool_n_free(p), 2);
    assert_int_equal(qr_kv_pool_refs(p, 1), 0); // never used
    qr_kv_pool_free(&p);
}

// Against a model that is plain arrays: which block comes is checked by rule, not by the list that chose it.
QR_TEST(pool_random_operations_agree_with_a_plain_model)
{
    enum { N = 12 };
    struct qr_kv_pool *p = NULL;
    assert_int_equal(qr_kv_pool_new(N, &p), QR_OK);
    uint32_t refs[N] = {0};
    bool cached[N] = {0};
    for (uint64_t i = 0; i < 20000; i++) {
        uint32_t id = (uint32_t)(qr_rand_u64(1, 2, i) % N), n_free = 0, n_cached = 0, n_plain = 0;
        switch (qr_rand_u64(1, 1, i) % 5) {
        case 0:
        case 1: {
            bool evicted;
            for (int k = 0; k < N; k++) n_plain += refs[k] == 0 && !cached[k];
            qr_block_id got = qr_kv_pool_take(p, &evicted);
            if (got == QR_BLOCK_NONE) break;
            assert_int_equal(refs[got], 0);
            assert_int_equal(evicted, cached[got]);
            assert_true(!evicted || n_plain == 0);
            refs[got] = 1;
            cached[got] = false;
            break;
        }
        case 2:
            if (refs[id] || cached[id]) {
                qr_kv_pool_ref(p, id);
                refs[id]++;
            }
            break;
        case 3:
            if (refs[id]) {
                qr_kv_pool_unref(p, id);
                refs[id]--;
            }
            break;
        default:
            if (refs[id]) {
                cached[id] = i % 2;
                qr_kv_pool_set_cached(p, id, cached[id]);
            }
        }
        qr_kv_pool_check(p);
        for (uint32_t k = 0; k < N; k++) {
            n_free += refs[k] == 0;
            n_cached += refs[k] == 0 && cached[k];
            assert_int_equal(qr_kv_pool_refs(p, k), refs[k]);
        }
        assert_int_equal(qr_kv_pool_n_free(p), n_free);
        assert_int_equal(qr_kv_pool_n_cached(p), n_cached);
    }
    qr_kv_pool_free(&p);
}

QR_TEST(pool_new_without_memory_leaves_nothing)
{
    size_t live = qr_mem_live_bytes(QR_MEM_SCHED);
    for (uint64_t at = 1; at <= 2; at++) {
        struct qr_kv_pool *p = NULL;
        qr_mem_fail_at(at, 0);
        enum qr_status st = qr_kv_pool_new(4, &p);
        qr_mem_fail_at(0, 0);
        assert_int_equal(st, QR_ENOMEM);
        assert_null(p);
    }
    assert_int_equal(qr_mem_live_bytes(QR_MEM_SCHED), live);
}

QR_TEST(pool_dump_names_every_block_in_use_and_the_free_list)
{
    struct qr_kv_pool *p = NULL;
    char text[512] = "";
    assert_int_equal(qr_kv_pool_new(4, &p), QR_OK);
    for (int i = 0; i < 3; i++) assert_int_equal(take(p), i);
    qr_kv_pool_ref(p, 0);
    qr_kv_pool_set_cached(p, 2, true);
    qr_kv_pool_unref(p, 2);
    qr_kv_pool_unref(p, 1);
    FILE *f = fmemopen(text, sizeof text, "w");
    qr_kv_pool_dump(p, f);
    fclose(f);
    assert_string_equal(text,
                        "pool: 4 blocks, 3 free (1 never used, 1 cached)\n  block 0: refs 2\n  free: 1 2c\n");
    qr_kv_pool_free(&p);
}
