#include "kv/prefix.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/test.h"
#include "kv/table.h"

#define D QR_KV_CLASS_D
#define TOK(...) ((uint32_t[]){__VA_ARGS__})

struct rig {
    struct qr_kv_pool *pool;
    struct qr_kv_prefix *x;
    struct qr_kv_tables *t;
};

static struct rig open_rig(uint32_t n_blocks, int32_t block_size)
{
    struct rig r = {0};
    assert_int_equal(qr_kv_pool_new(n_blocks, &r.pool), QR_OK);
    assert_int_equal(qr_kv_prefix_new(r.pool, block_size, 7, &r.x), QR_OK);
    struct qr_kv_tables_conf c = {.n_tables = 4, .n_blocks_max = 8, .block_size = block_size, .prefix = r.x};
    assert_int_equal(qr_kv_tables_new(r.pool, &c, &r.t), QR_OK);
    return r;
}

static void check(struct rig *r)
{
    qr_kv_pool_check(r->pool);
    qr_kv_tables_check(r->t, 0);
    qr_kv_prefix_check(r->x);
}

static void close_rig(struct rig *r)
{
    for (int32_t i = 0; i < 4; i++) qr_kv_table_drop(r->t, i);
    check(r);
    qr_kv_tables_free(&r->t);
    qr_kv_prefix_free(&r->x);
    assert_null(r->x);
    qr_kv_pool_free(&r->pool);
}

static void is_table(const struct rig *r, int32_t i, int32_t n, const qr_block_id *ids)
{
    assert_int_equal(qr_kv_table_len(r->t, i), n);
    assert_memory_equal(qr_kv_table_ids(r->t, i), ids, (size_t)n * sizeof *ids);
}

static void take_blocks(struct rig *r, int32_t table, int32_t from, int32_t to)
{
    struct qr_batch_copy copy;
    assert_int_equal(qr_kv_table_extend(r->t, table, from, to, &copy), 0);
}

// The worked example of the README.
QR_TEST(prefix_finds_copies_and_evicts_in_this_order)
{
    struct rig r = open_rig(8, 4);
    struct qr_batch_copy copy;
    int32_t n;
    // A: a prompt of 10 tokens, then 3 generated ones.
    take_blocks(&r, 0, 0, 10);
    struct qr_kv_place a = qr_kv_prefix_root(r.x, 1);
    assert_true(qr_kv_prefix_add(r.x, &a, TOK(1, 2, 3, 4), 4, 0));
    assert_true(qr_kv_prefix_add(r.x, &a, TOK(5, 6, 7, 8), 4, 1));
    take_blocks(&r, 0, 10, 13);
    assert_true(qr_kv_prefix_add(r.x, &a, TOK(9, 10, 11 | D, 12 | D), 4, 2));
    is_table(&r, 0, 4, (qr_block_id[]){0, 1, 2, 3});
    // It ends: its last block holds one token.
    assert_true(qr_kv_prefix_add(r.x, &a, TOK(13 | D), 1, 3));
    qr_kv_table_drop(r.t, 0);
    check(&r);
    assert_int_equal(qr_kv_pool_n_free(r.pool), 8);
    assert_int_equal(qr_kv_pool_n_cached(r.pool), 4);
    // B: begins with 6 of A's tokens. Block 0 is shared, of 1 two tokens are copied.
    struct qr_kv_place b = qr_kv_prefix_root(r.x, 1);
    assert_int_equal(qr_kv_prefix_next(r.x, &b, TOK(1, 2, 3, 4), false), 0);
    assert_int_equal(qr_kv_prefix_next(r.x, &b, TOK(5, 6, 99, 98), false), QR_BLOCK_NONE);
    assert_int_equal(qr_kv_prefix_part(r.x, &b, TOK(5, 6, 99, 98), 4, false, &n), 1);
    assert_int_equal(n, 2);
    qr_kv_table_share(r.t, 1, 0);
    qr_kv_table_share(r.t, 1, 1);
    assert_int_equal(qr_kv_table_need(r.t, 1, 6, 8), 1);
    assert_int_equal(qr_kv_table_extend(r.t, 1, 6, 8, &copy), 1);
    assert_int_equal(copy.src, 1);
    assert_int_equal(copy.dst, 4);
    is_table(&r, 1, 2, (qr_block_id[]){0, 4});
    assert_int_equal(qr_kv_pool_refs(r.pool, 1), 1); // pinned until the copy is made
    check(&r);
    qr_kv_tables_unpin(r.t);
    assert_int_equal(qr_kv_pool_refs(r.pool, 1), 0);
    assert_true(qr_kv_prefix_add(r.x, &b, TOK(5, 6, 99, 98), 4, 4));
    check(&r);
    // C: another tenant's. It finds nothing and takes what was never used.
    struct qr_kv_place c = qr_kv_prefix_root(r.x, 2);
    assert_int_equal(qr_kv_prefix_next(r.x, &c, TOK(1, 2, 3, 4), false), QR_BLOCK_NONE);
    assert_int_equal(qr_kv_prefix_part(r.x, &c, TOK(1, 2, 3, 4), 4, false, &n), QR_BLOCK_NONE);
    take_blocks(&r, 2, 0, 12);
    is_table(&r, 2, 3, (qr_block_id[]){5, 6, 7});
    // It grows: A's tail goes first, its blocks 2 and then 1, which B used, last.
    take_blocks(&r, 2, 12, 24);
    is_table(&r, 2, 6, (qr_block_id[]){5, 6, 7, 3, 2, 1});
    assert_int_equal(qr_kv_prefix_n_blocks(r.x), 2); // 0 and 4, which are B's
    assert_int_equal(qr_kv_table_extend(r.t, 2, 24, 25, &copy), -1);
    close_rig(&r);
}

// A bijection in each step: two block contents that meet in one hash can be computed.
QR_TEST(prefix_never_trusts_a_hash)
{
    struct rig r = open_rig(8, 2);
    take_blocks(&r, 0, 0, 8);
    struct qr_kv_place at = qr_kv_prefix_root(r.x, 1), other = at, deep;
    int n_collisions = 0;
    for (uint64_t tenant = 2; tenant < 40 && n_collisions < 3; tenant++) {
        struct qr_kv_place root = qr_kv_prefix_root(r.x, tenant);
        uint64_t apart = root.hash ^ at.hash, here = apart ^ ((uint64_t)5 << 32 | 6);
        if (here & ((uint64_t)D << 32 | D)) continue; // not two ids
        n_collisions++;
        struct qr_kv_place a = at, b = root;
        assert_true(qr_kv_prefix_add(r.x, &a, TOK((uint32_t)(here >> 32), (uint32_t)here), 2, 0));
        assert_int_equal(qr_kv_prefix_next(r.x, &b, TOK(5, 6), false), QR_BLOCK_NONE);
        assert_true(qr_kv_prefix_add(r.x, &b, TOK(5, 6), 2, 1));
        assert_true(a.hash == b.hash); // so it was a collision
        b = root;
        assert_int_equal(qr_kv_prefix_next(r.x, &b, TOK(5, 6), false), 1);
        check(&r);
        qr_kv_prefix_forget(r.x, 0);
        qr_kv_prefix_forget(r.x, 1);
    }
    assert_int_equal(n_collisions, 3);
    // The same in one tenant, behind different blocks.
    for (uint32_t id = 1; id < 40; id++) {
        deep = at;
        assert_true(qr_kv_prefix_add(r.x, &deep, TOK(id, id), 2, 2));
        uint64_t here = deep.hash ^ at.hash ^ ((uint64_t)5 << 32 | 6);
        other = at;
        if (!(here & ((uint64_t)D << 32 | D))) break;
        qr_kv_prefix_forget(r.x, 2);
    }
    uint64_t here = deep.hash ^ at.hash ^ ((uint64_t)5 << 32 | 6);
    assert_true(qr_kv_prefix_add(r.x, &other, TOK((uint32_t)(here >> 32), (uint32_t)here), 2, 3));
    struct qr_kv_place child = deep;
    assert_int_equal(qr_kv_prefix_next(r.x, &child, TOK(5, 6), false), QR_BLOCK_NONE);
    assert_true(qr_kv_prefix_add(r.x, &child, TOK(5, 6), 2, 1));
    assert_true(child.hash == other.hash);
    check(&r);
    close_rig(&r);
}

QR_TEST(prefix_the_first_of_equal_blocks_is_found_and_its_end_takes_what_is_behind_it)
{
    struct rig r = open_rig(6, 2);
    take_blocks(&r, 0, 0, 4); // 0 1
    take_blocks(&r, 1, 0, 5); // 2 3 4
    struct qr_kv_place a = qr_kv_prefix_root(r.x, 0), b = a;
    assert_true(qr_kv_prefix_add(r.x, &a, TOK(1, 2), 2, 0));
    assert_false(qr_kv_prefix_add(r.x, &b, TOK(1, 2), 2, 2)); // stays its owner's own
    assert_int_equal(b.block, 0);
    assert_true(qr_kv_prefix_add(r.x, &b, TOK(3, 4), 2, 3));
    assert_true(qr_kv_prefix_add(r.x, &b, TOK(5), 1, 4));
    check(&r);
    // The first owner goes and its block is taken: what the second one has behind it is found no more.
    qr_kv_table_drop(r.t, 0);
    take_blocks(&r, 2, 0, 4); // the plain 1, then the fresh 5
    take_blocks(&r, 2, 4, 6);
    is_table(&r, 2, 3, (qr_block_id[]){1, 5, 0});
    assert_int_equal(qr_kv_prefix_n_blocks(r.x), 0);
    assert_false(qr_kv_prefix_holds(r.x, &b));
    assert_false(qr_kv_prefix_is_old(r.x, &b)); // so it may begin at the root again
    b = qr_kv_prefix_root(r.x, 0);
    assert_true(qr_kv_prefix_add(r.x, &b, TOK(1, 2), 2, 2));
    assert_true(qr_kv_prefix_add(r.x, &b, TOK(3, 4), 2, 3));
    check(&r);
    close_rig(&r);
}

QR_TEST(prefix_classes_choose_between_equal_tokens)
{
    struct rig r = open_rig(6, 2);
    int32_t n;
    take_blocks(&r, 0, 0, 8);
    struct qr_kv_place root = qr_kv_prefix_root(r.x, 0), at = root;
    assert_true(qr_kv_prefix_add(r.x, &at, TOK(1, 2 | D), 2, 0));
    at = root;
    assert_int_equal(qr_kv_prefix_next(r.x, &at, TOK(1, 2), false), 0); // an answer serves as a prompt
    at = root;
    assert_int_equal(qr_kv_prefix_next(r.x, &at, TOK(1, 2), true), QR_BLOCK_NONE);
    assert_int_equal(qr_kv_prefix_next(r.x, &at, TOK(1, 2 | D), true), 0);
    at = root;
    assert_true(qr_kv_prefix_add(r.x, &at, TOK(1, 2), 2, 1)); // not equal
    at = root;
    assert_int_equal(qr_kv_prefix_next(r.x, &at, TOK(1, 2), false), 1);
    at = root;
    assert_int_equal(qr_kv_prefix_next(r.x, &at, TOK(1 | D, 2 | D), false), QR_BLOCK_NONE); // no prompt as an answer
    assert_int_equal(qr_kv_prefix_part(r.x, &root, TOK(1, 2), 2, false, &n), 1);
    assert_int_equal(n, 2);
    assert_int_equal(qr_kv_prefix_part(r.x, &root, TOK(1, 2 | D), 2, false, &n), 0);
    assert_int_equal(qr_kv_prefix_part(r.x, &root, TOK(1 | D), 1, false, &n), QR_BLOCK_NONE);
    assert_int_equal(n, 0);
    close_rig(&r);
}

QR_TEST(prefix_longer_blocks_make_shorter_ones_superfluous)
{
    struct rig r = open_rig(8, 4);
    take_blocks(&r, 0, 0, 24);
    struct qr_kv_place root = qr_kv_prefix_root(r.x, 0), at = root;
    assert_true(qr_kv_prefix_add(r.x, &at, TOK(1), 1, 0));
    assert_true(qr_kv_prefix_add(r.x, &at, TOK(1, 2), 2, 1)); // covers block 0
    assert_false(qr_kv_pool_is_cached(r.pool, 0));
    assert_false(qr_kv_prefix_add(r.x, &at, TOK(1, 2), 2, 0)); // covered
    assert_false(qr_kv_prefix_add(r.x, &at, TOK(1), 1, 0));
    assert_true(qr_kv_prefix_add(r.x, &at, TOK(1, 3), 2, 2)); // beside it
    assert_true(qr_kv_prefix_add(r.x, &at, TOK(1, 2, 3, 4), 4, 3)); // a full one covers too
    at = root;
    assert_false(qr_kv_pool_is_cached(r.pool, 1));
    assert_false(qr_kv_prefix_add(r.x, &at, TOK(1, 2, 3), 3, 1));
    assert_true(qr_kv_prefix_add(r.x, &at, TOK(1, 2 | D, 3), 3, 1)); // but not in other classes
    int32_t n;
    assert_int_equal(qr_kv_prefix_part(r.x, &root, TOK(1, 2, 3, 9), 4, false, &n), 3);
    assert_int_equal(n, 3);
    assert_int_equal(qr_kv_prefix_n_blocks(r.x), 3);
    check(&r);
    close_rig(&r);
}

QR_TEST(prefix_reset_forgets_and_places_from_before_stay_old)
{
    struct rig r = open_rig(4, 2);
    take_blocks(&r, 0, 0, 4);
    struct qr_kv_place at = qr_kv_prefix_root(r.x, 0), before;
    assert_true(qr_kv_prefix_add(r.x, &at, TOK(1, 2), 2, 0));
    before = at;
    assert_true(qr_kv_prefix_add(r.x, &at, TOK(3, 4), 2, 1));
    qr_kv_table_drop(r.t, 0);
    take_blocks(&r, 1, 0, 2);
    qr_kv_prefix_reset(r.x);
    check(&r);
    assert_int_equal(qr_kv_pool_n_cached(r.pool), 0);
    assert_int_equal(qr_kv_prefix_n_blocks(r.x), 0);
    assert_false(qr_kv_prefix_holds(r.x, &before));
    assert_true(qr_kv_prefix_is_old(r.x, &before));
    at = qr_kv_prefix_root(r.x, 0);
    assert_int_equal(qr_kv_prefix_next(r.x, &at, TOK(1, 2), false), QR_BLOCK_NONE);
    close_rig(&r);
}

// Random blocks in a tiny pool against a flat list of what is registered, with the whole path of each.
QR_TEST(prefix_random_trees_equal_a_list)
{
    enum { N = 12, BS = 3, DEEP = 5 };
    struct { bool on; int32_t n; uint32_t path[DEEP * BS]; } list[N] = {0}; // NOLINT: one struct a block
    struct rig r = open_rig(N, BS);
    uint64_t calls = qr_mem_calls(), draws = 0;
    uint64_t n_found = 0, n_evicted = 0;
    for (int i = 0; i < 20000; i++) {
        uint32_t path[DEEP * BS];
        int32_t n = 1 + (int32_t)(qr_rand_u64(3, 1, draws++) % (DEEP * BS)), at_full = 0;
        for (int32_t k = 0; k < n; k++) path[k] = (uint32_t)(qr_rand_u64(3, 1, draws++) % 2);
        qr_kv_table_drop(r.t, 0);
        struct qr_kv_place at = qr_kv_prefix_root(r.x, 0);
        while (at_full + BS <= n) { // what is found is what the list has
            qr_block_id id = qr_kv_prefix_next(r.x, &at, path + at_full, false);
            if (id == QR_BLOCK_NONE) break;
            assert_true(list[id].on && list[id].n == at_full + BS);
            assert_memory_equal(list[id].path, path, (size_t)(at_full + BS) * sizeof *path);
            qr_kv_table_share(r.t, 0, id);
            at_full += BS;
            n_found++;
        }
        for (uint32_t id = 0; id < N && at_full + BS <= n; id++) // and what is not found it has not
            assert_false(list[id].on && list[id].n == at_full + BS &&
                         memcmp(list[id].path, path, (size_t)list[id].n * sizeof *path) == 0);
        for (int32_t from = at_full; from < n; from += BS) {
            struct qr_batch_copy copy;
            int32_t to = from + BS < n ? from + BS : n;
            if (qr_kv_table_extend(r.t, 0, from, to, &copy) < 0) break;
            for (uint32_t k = 0; k < N; k++)
                if (list[k].on && !qr_kv_pool_is_cached(r.pool, k)) list[k].on = false, n_evicted++;
            qr_block_id id = qr_kv_table_ids(r.t, 0)[from / BS];
            if (!qr_kv_prefix_add(r.x, &at, path + from, to - from, id)) continue;
            list[id].on = true, list[id].n = to;
            memcpy(list[id].path, path, (size_t)to * sizeof *path);
        }
        for (uint32_t k = 0; k < N; k++)
            if (list[k].on && !qr_kv_pool_is_cached(r.pool, k)) list[k].on = false; // covered by a longer one
        check(&r);
    }
    assert_int_equal(qr_mem_calls(), calls);
    assert_true(n_found > 5000 && n_evicted > 5000);
    close_rig(&r);
}

QR_TEST(prefix_dump_shows_the_tree)
{
    struct rig r = open_rig(4, 2);
    char text[512] = "";
    take_blocks(&r, 0, 0, 4);
    struct qr_kv_place at = qr_kv_prefix_root(r.x, 0xab);
    assert_true(qr_kv_prefix_add(r.x, &at, TOK(1, 2), 2, 0));
    assert_true(qr_kv_prefix_add(r.x, &at, TOK(3 | D), 1, 1));
    FILE *f = fmemopen(text, sizeof text, "w");
    qr_kv_prefix_dump(r.x, f);
    fclose(f);
    assert_string_equal(text, "prefix: 2 blocks cached\n  block 0: 2 tokens at the root of ab: 1 2\n"
                              "  block 1: 1 tokens behind 0: 3d\n");
    close_rig(&r);
}
