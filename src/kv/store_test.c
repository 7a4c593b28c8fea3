#include "kv/store.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/test.h"

enum { BS = 4 };
#define D QR_KV_CLASS_D

static struct qr_kv_store *open_store(uint32_t n)
{
    struct qr_kv_store *st = NULL;
    assert_int_equal(qr_kv_store_new(n, BS, &st), QR_OK);
    return st;
}

static const struct qr_kv_key root = {1, 2}, a = {3, 4}, b = {5, 6};

static qr_slot_id put_ready(struct qr_kv_store *st, struct qr_kv_key before, struct qr_kv_key behind,
                            const uint32_t *tokens)
{
    qr_slot_id id = qr_kv_store_put(st, &before, &behind, tokens);
    if (id == QR_SLOT_NONE) return id;
    qr_kv_store_ready(st, id);
    qr_kv_store_unpin(st, id);
    qr_kv_store_check(st);
    return id;
}

QR_TEST(store_finds_what_is_ready_behind_its_place)
{
    struct qr_kv_store *st = open_store(4);
    const uint32_t x[BS] = {1, 2, 3, 4}, y[BS] = {1, 2, 3, 5};
    qr_slot_id id = qr_kv_store_put(st, &root, &a, x);
    assert_int_equal(qr_kv_store_find(st, &root, x, true), QR_SLOT_NONE); // on its way
    assert_true(qr_kv_store_has(st, &root, x));
    qr_kv_store_ready(st, id);
    qr_kv_store_unpin(st, id);
    assert_int_equal(qr_kv_store_find(st, &root, x, true), id);
    assert_int_equal(qr_kv_store_find(st, &root, y, true), QR_SLOT_NONE);
    assert_int_equal(qr_kv_store_find(st, &a, x, true), QR_SLOT_NONE); // another prefix
    assert_int_equal(qr_kv_store_tag(st, id)->behind.a, 3);
    qr_kv_store_drop(st, id);
    assert_int_equal(qr_kv_store_find(st, &root, x, true), QR_SLOT_NONE);
    assert_int_equal(qr_kv_store_n_ready(st), 0);
    qr_kv_store_check(st);
    qr_kv_store_free(&st);
}

QR_TEST(store_prefers_the_wanted_class_and_may_take_the_other)
{
    struct qr_kv_store *st = open_store(4);
    const uint32_t p[BS] = {1, 2, 3, 4}, d[BS] = {1, 2, 3 | D, 4 | D};
    qr_slot_id as_d = put_ready(st, root, a, d);
    assert_int_equal(qr_kv_store_find(st, &root, p, true), QR_SLOT_NONE);
    assert_int_equal(qr_kv_store_find(st, &root, p, false), as_d);
    qr_slot_id as_p = put_ready(st, root, b, p);
    assert_int_equal(qr_kv_store_find(st, &root, p, false), as_p);
    assert_int_equal(qr_kv_store_find(st, &root, d, false), as_d); // wanted as D: found as D only
    qr_kv_store_free(&st);
}

QR_TEST(store_uses_the_longest_idle_again_and_no_pinned_one)
{
    struct qr_kv_store *st = open_store(3);
    uint32_t t[5][BS];
    for (uint32_t i = 0; i < 5; i++)
        for (uint32_t k = 0; k < BS; k++) t[i][k] = 10 * i + k;
    for (int i = 0; i < 3; i++) assert_int_equal(put_ready(st, root, a, t[i]), i);
    qr_kv_store_pin(st, 0);
    qr_kv_store_unpin(st, 0); // used: now the latest
    qr_kv_store_pin(st, 1);
    assert_int_equal(put_ready(st, root, a, t[3]), 2);
    assert_int_equal(qr_kv_store_find(st, &root, t[2], true), QR_SLOT_NONE);
    assert_int_equal(qr_kv_store_find(st, &root, t[1], true), 1);
    qr_kv_store_pin(st, 0), qr_kv_store_pin(st, 2);
    assert_int_equal(put_ready(st, root, a, t[4]), QR_SLOT_NONE);
    qr_kv_store_drop(st, 1); // not found any more, and free when it may
    assert_int_equal(put_ready(st, root, a, t[4]), QR_SLOT_NONE);
    qr_kv_store_unpin(st, 1);
    assert_int_equal(put_ready(st, root, a, t[4]), 1);
    qr_kv_store_unpin(st, 0), qr_kv_store_unpin(st, 2);
    qr_kv_store_reset(st);
    assert_int_equal(qr_kv_store_n_ready(st), 0);
    qr_kv_store_check(st);
    qr_kv_store_free(&st);
}

QR_TEST(store_imports_slots_in_any_order)
{
    struct qr_kv_store *st = open_store(6);
    struct {
        struct qr_kv_tag tag;
        uint32_t tokens[BS];
    } t = {.tag = {root, a}};
    for (uint32_t i = 0; i < BS; i++) t.tag.tokens[i] = i;
    assert_true(qr_kv_store_import(st, 4, &t.tag));
    assert_false(qr_kv_store_import(st, 1, &t.tag)); // holds the same
    t.tag.tokens[0] = 7;
    assert_false(qr_kv_store_import(st, 4, &t.tag));
    assert_true(qr_kv_store_import(st, 1, &t.tag));
    assert_false(qr_kv_store_import(st, 6, &t.tag));
    assert_int_equal(qr_kv_store_find(st, &root, t.tag.tokens, true), 1);
    qr_kv_store_check(st);
    qr_kv_store_free(&st);
}

QR_TEST(store_random_life_keeps_its_lists)
{
    enum { N = 12 };
    struct qr_kv_store *st = open_store(N);
    uint32_t pins[N] = {0};
    for (uint64_t i = 0; i < 4000; i++) {
        uint64_t h = qr_rand_u64(5, 0, i);
        uint32_t t[BS] = {(uint32_t)(h >> 8) % 30, 1, 2, 3}, k = (uint32_t)(h >> 20) % N;
        if (h % 4 == 0 && !qr_kv_store_has(st, &root, t)) {
            qr_slot_id id = qr_kv_store_put(st, &root, &a, t);
            if (id != QR_SLOT_NONE) pins[id] = 1;
            if (id != QR_SLOT_NONE && h >> 40 & 1) qr_kv_store_ready(st, id);
            if (id != QR_SLOT_NONE && !(h >> 40 & 1)) qr_kv_store_drop(st, id);
        } else if (h % 4 == 1) {
            qr_slot_id id = qr_kv_store_find(st, &root, t, true);
            if (id != QR_SLOT_NONE) qr_kv_store_pin(st, id), pins[id]++;
        } else if (pins[k] > 0 && h % 4 == 2) {
            if (h >> 41 & 1) qr_kv_store_drop(st, k);
            qr_kv_store_unpin(st, k), pins[k]--;
        }
        qr_kv_store_check(st);
    }
    qr_kv_store_free(&st);
    for (uint64_t at = 1; at <= 4; at++) {
        qr_mem_fail_at(at, 0);
        assert_int_equal(qr_kv_store_new(4, BS, &st), QR_ENOMEM);
        qr_mem_fail_at(0, 0);
        assert_null(st);
    }
}
