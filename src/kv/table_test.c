#include "kv/table.h"

#include <string.h>

#include "base/test.h"

struct rig {
    struct qr_kv_pool *pool;
    struct qr_kv_tables *t;
};

static struct rig open_rig(uint32_t n_blocks)
{
    struct rig r = {0};
    struct qr_kv_tables_conf c = {.n_tables = 4, .n_blocks_max = 8, .block_size = 4};
    assert_int_equal(qr_kv_pool_new(n_blocks, &r.pool), QR_OK);
    assert_int_equal(qr_kv_tables_new(r.pool, &c, &r.t), QR_OK);
    return r;
}

static void check(struct rig *r)
{
    qr_kv_pool_check(r->pool);
    qr_kv_tables_check(r->t, 0);
}

static void close_rig(struct rig *r)
{
    check(r);
    qr_kv_tables_free(&r->t);
    assert_int_equal(qr_kv_pool_n_free(r->pool), qr_kv_pool_n_blocks(r->pool));
    qr_kv_pool_free(&r->pool);
}

static void is_table(const struct rig *r, int32_t i, int32_t n, const qr_block_id *ids)
{
    assert_int_equal(qr_kv_table_len(r->t, i), n);
    if (n > 0) assert_memory_equal(qr_kv_table_ids(r->t, i), ids, (size_t)n * sizeof *ids);
}

QR_TEST(table_grows_by_whole_blocks_on_demand)
{
    struct rig r = open_rig(8);
    struct qr_batch_copy copy;
    assert_int_equal(qr_kv_table_need(r.t, 0, 0, 6), 2);
    assert_int_equal(qr_kv_table_extend(r.t, 0, 0, 6, &copy), 0);
    is_table(&r, 0, 2, (qr_block_id[]){0, 1});
    assert_int_equal(qr_kv_table_need(r.t, 0, 6, 8), 0); // the last block has room
    assert_int_equal(qr_kv_table_extend(r.t, 0, 6, 8, &copy), 0);
    is_table(&r, 0, 2, (qr_block_id[]){0, 1});
    assert_int_equal(qr_kv_table_need(r.t, 0, 8, 9), 1);
    assert_int_equal(qr_kv_table_extend(r.t, 0, 8, 9, &copy), 0);
    is_table(&r, 0, 3, (qr_block_id[]){0, 1, 2});
    close_rig(&r);
}

QR_TEST(table_extend_takes_all_or_nothing)
{
    struct rig r = open_rig(2);
    struct qr_batch_copy copy;
    assert_int_equal(qr_kv_table_extend(r.t, 0, 0, 9, &copy), -1);
    is_table(&r, 0, 0, NULL);
    assert_int_equal(qr_kv_pool_n_free(r.pool), 2);
    assert_int_equal(qr_kv_table_extend(r.t, 0, 0, 8, &copy), 0);
    close_rig(&r);
}

QR_TEST(table_fork_shares_and_a_write_copies_only_the_last_block)
{
    struct rig r = open_rig(8);
    struct qr_batch_copy copy = {.src = 99, .dst = 99};
    assert_int_equal(qr_kv_table_extend(r.t, 0, 0, 6, &copy), 0); // blocks 0, 1; block 1 half filled
    qr_kv_table_fork(r.t, 0, 1, 6);
    qr_kv_table_fork(r.t, 0, 2, 6);
    is_table(&r, 2, 2, (qr_block_id[]){0, 1});
    assert_int_equal(qr_kv_pool_refs(r.pool, 1), 3);
    check(&r);

    assert_int_equal(qr_kv_table_need(r.t, 1, 6, 7), 1); // a copy needs a block
    assert_int_equal(qr_kv_table_extend(r.t, 1, 6, 7, &copy), 1);
    assert_int_equal(copy.src, 1);
    assert_int_equal(copy.dst, 2);
    is_table(&r, 1, 2, (qr_block_id[]){0, 2});
    is_table(&r, 0, 2, (qr_block_id[]){0, 1}); // nobody else notices

    assert_int_equal(qr_kv_table_extend(r.t, 0, 6, 7, &copy), 1);
    assert_int_equal(copy.dst, 3);
    assert_int_equal(qr_kv_table_need(r.t, 2, 6, 7), 0); // the last owner writes in place
    assert_int_equal(qr_kv_table_extend(r.t, 2, 6, 7, &copy), 0);
    is_table(&r, 2, 2, (qr_block_id[]){0, 1});
    assert_int_equal(qr_kv_pool_refs(r.pool, 0), 3); // the full block stays shared
    close_rig(&r);
}

QR_TEST(table_fork_on_a_block_border_copies_nothing)
{
    struct rig r = open_rig(8);
    struct qr_batch_copy copy;
    assert_int_equal(qr_kv_table_extend(r.t, 0, 0, 8, &copy), 0);
    qr_kv_table_fork(r.t, 0, 1, 8);
    assert_int_equal(qr_kv_table_extend(r.t, 1, 8, 9, &copy), 0);
    is_table(&r, 1, 3, (qr_block_id[]){0, 1, 2});
    qr_kv_table_fork(r.t, 1, 2, 8); // shares only what holds the first 8 tokens
    is_table(&r, 2, 2, (qr_block_id[]){0, 1});
    close_rig(&r);
}

QR_TEST(table_copy_needs_a_block_of_its_own)
{
    struct rig r = open_rig(2);
    struct qr_batch_copy copy;
    assert_int_equal(qr_kv_table_extend(r.t, 0, 0, 6, &copy), 0);
    qr_kv_table_fork(r.t, 0, 1, 6);
    assert_int_equal(qr_kv_table_extend(r.t, 1, 6, 7, &copy), -1);
    is_table(&r, 1, 2, (qr_block_id[]){0, 1});
    qr_kv_table_drop(r.t, 0); // its other owner goes: now it can be written
    assert_int_equal(qr_kv_table_extend(r.t, 1, 6, 7, &copy), 0);
    close_rig(&r);
}

QR_TEST(table_drops_its_tail_first)
{
    struct rig r = open_rig(3);
    struct qr_batch_copy copy;
    bool evicted;
    assert_int_equal(qr_kv_table_extend(r.t, 0, 0, 12, &copy), 0);
    for (uint32_t i = 0; i < 3; i++) qr_kv_pool_set_cached(r.pool, i, true);
    qr_kv_table_drop(r.t, 0);
    is_table(&r, 0, 0, NULL);
    check(&r);
    // Eviction order is freeing order: the head of a sequence survives longest.
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(qr_kv_pool_take(r.pool, &evicted), 2 - i);
        assert_true(evicted);
    }
    for (uint32_t i = 0; i < 3; i++) qr_kv_pool_unref(r.pool, i);
    close_rig(&r);
}

QR_TEST(table_dump_stars_what_is_shared)
{
    struct rig r = open_rig(8);
    struct qr_batch_copy copy;
    char text[256] = "";
    assert_int_equal(qr_kv_table_extend(r.t, 0, 0, 6, &copy), 0);
    qr_kv_table_fork(r.t, 0, 3, 4);
    FILE *f = fmemopen(text, sizeof text, "w");
    qr_kv_tables_dump(r.t, f);
    fclose(f);
    assert_string_equal(text, "table 0: 0* 1\ntable 3: 0*\n");
    close_rig(&r);
}
