#include "kv/buddy.h"

#include "base/hash.h"
#include "base/mem.h"
#include "base/test.h"

QR_TEST(buddy_splits_the_lowest_half_and_joins_again)
{
    struct qr_buddy *b = NULL;
    assert_int_equal(qr_buddy_new(16, &b), QR_OK);
    assert_int_equal(qr_buddy_take(b, 1), 0);
    assert_int_equal(qr_buddy_take(b, 1), 2);
    assert_int_equal(qr_buddy_take(b, 0), 4);
    assert_int_equal(qr_buddy_n_free(b), 11);
    assert_int_equal(qr_buddy_room(b, 3), 1);
    assert_int_equal(qr_buddy_room(b, 1), 1 + 4); // 6-7 and the half behind
    assert_int_equal(qr_buddy_take(b, 4), QR_BUDDY_NONE);
    qr_buddy_give(b, 0, 1);
    qr_buddy_check(b);
    assert_int_equal(qr_buddy_room(b, 2), 2); // 0-1 waits for its buddy 2-3
    qr_buddy_give(b, 2, 1);
    qr_buddy_give(b, 4, 0);
    qr_buddy_check(b);
    assert_int_equal(qr_buddy_take(b, 4), 0);
    qr_buddy_free(&b);
}

QR_TEST(buddy_pool_of_any_size_gives_its_size_divided_by_the_run)
{
    for (uint32_t n = 1; n < 200; n++) {
        struct qr_buddy *b = NULL;
        assert_int_equal(qr_buddy_new(n, &b), QR_OK);
        for (int k = 0; k < 8; k++) assert_int_equal(qr_buddy_room(b, k), n >> k);
        qr_buddy_check(b);
        qr_buddy_free(&b);
    }
}

QR_TEST(buddy_orders)
{
    assert_int_equal(qr_buddy_order(1), 0);
    assert_int_equal(qr_buddy_order(2), 1);
    assert_int_equal(qr_buddy_order(3), 2);
    assert_int_equal(qr_buddy_order(2048), 11);
    assert_int_equal(qr_buddy_order(2049), 12);
}

// Random takes and gives: runs never overlap, are aligned, and all comes back as one.
QR_TEST(buddy_random_runs_are_disjoint_and_join)
{
    enum { N = 1000, RUNS = 64 };
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct qr_buddy *b = NULL;
        uint8_t owner[N] = {0};
        struct {
            uint32_t start;
            int order;
        } runs[RUNS];
        int n_runs = 0;
        uint32_t n_free = N;
        assert_int_equal(qr_buddy_new(N, &b), QR_OK);
        for (uint64_t i = 0; i < 2000; i++) {
            uint64_t r = qr_rand_u64(seed, 0, i);
            if (n_runs > 0 && (r % 5 < 2 || n_runs == RUNS)) {
                int at = (int)(r >> 8) % n_runs;
                if (at < 0) at += n_runs;
                for (uint32_t k = 0; k < 1u << runs[at].order; k++) owner[runs[at].start + k]--;
                qr_buddy_give(b, runs[at].start, runs[at].order);
                n_free += 1u << runs[at].order;
                runs[at] = runs[--n_runs];
            } else {
                int order = (int)(r >> 16 & 7);
                uint32_t room = qr_buddy_room(b, order), start = qr_buddy_take(b, order);
                assert_int_equal(start == QR_BUDDY_NONE, room == 0);
                if (start == QR_BUDDY_NONE) continue;
                assert_int_equal(start % (1u << order), 0);
                for (uint32_t k = 0; k < 1u << order; k++) assert_int_equal(++owner[start + k], 1);
                n_free -= 1u << order;
                runs[n_runs].start = start, runs[n_runs++].order = order;
                if (order < 20) assert_int_equal(qr_buddy_room(b, order), room - 1);
            }
            assert_int_equal(qr_buddy_n_free(b), n_free);
            if (i % 50 == 0) qr_buddy_check(b);
        }
        while (n_runs > 0) n_runs--, qr_buddy_give(b, runs[n_runs].start, runs[n_runs].order);
        qr_buddy_check(b);
        for (int k = 0; k < 10; k++) assert_int_equal(qr_buddy_room(b, k), N >> k);
        qr_buddy_free(&b);
    }
}

QR_TEST(buddy_new_survives_no_memory)
{
    struct qr_buddy *b = NULL;
    for (uint64_t at = 1; at <= 3; at++) {
        qr_mem_fail_at(at, 0);
        assert_int_equal(qr_buddy_new(64, &b), QR_ENOMEM);
        qr_mem_fail_at(0, 0);
        assert_null(b);
    }
}
