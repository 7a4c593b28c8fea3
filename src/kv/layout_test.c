/* Layouts as tables use them. Blocks of 4 tokens unless said otherwise. */
#include "kv/layout.h"

#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "kv/table.h"

struct rig {
    struct qr_kv_pool *pool;
    struct qr_kv_tables *t;
};

static struct rig open_rig(enum qr_kv_layout_kind kind, uint32_t n_blocks, int32_t max_len, uint32_t page_blocks)
{
    struct rig r = {0};
    struct qr_kv_tables_conf c = {.n_tables = 8,
                                  .n_blocks_max = qr_kv_blocks_for(max_len, 4),
                                  .block_size = 4,
                                  .layout = kind,
                                  .max_len = max_len,
                                  .page_blocks = page_blocks};
    assert_int_equal(qr_kv_pool_new(n_blocks, &r.pool), QR_OK);
    assert_int_equal(qr_kv_tables_new(r.pool, &c, &r.t), QR_OK);
    return r;
}

static void close_rig(struct rig *r)
{
    qr_kv_pool_check(r->pool);
    qr_kv_tables_check(r->t, 0);
    qr_kv_tables_free(&r->t);
    assert_int_equal(qr_kv_pool_n_free(r->pool), qr_kv_pool_n_blocks(r->pool));
    qr_kv_pool_free(&r->pool);
}

static void write_to(struct rig *r, int32_t i, int32_t from, int32_t to)
{
    struct qr_batch_copy copy;
    assert_int_equal(qr_kv_table_extend(r->t, i, from, to, &copy), 0);
    qr_kv_pool_check(r->pool);
    qr_kv_tables_check(r->t, 0);
}

QR_TEST(layout_names_read_back)
{
    struct qr_error err;
    enum qr_kv_layout_kind k;
    for (int i = 0; i < QR_KV_LAYOUTS; i++) {
        assert_int_equal(qr_kv_layout_parse(qr_kv_layout_name((enum qr_kv_layout_kind)i), &k, &err), QR_OK);
        assert_int_equal(k, i);
    }
    assert_int_equal(qr_kv_layout_parse("contiguous", &k, &err), QR_EINVAL);
    assert_non_null(strstr(err.msg, "got \"contiguous\""));
}

// As Kwon et al. describe them: of an answer of 25 tokens, pow2 reserves 32 and oracle 25.
QR_TEST(layout_reserves_as_the_paper_says)
{
    struct qr_kv_layout_conf c = {.block_size = 1, .max_len = 2048, .n_blocks = 15728, .page_blocks = 1};
    struct qr_kv_want w = {.n_prompt = 100, .n_known = 100, .n_total = 125};
    c.kind = QR_KV_CONTIGUOUS_MAX;
    assert_int_equal(qr_kv_layout_asked(&c, &w), 2048);
    assert_int_equal(qr_kv_layout_capacity(&c, &w), 7); // 7.00 batched requests
    c.kind = QR_KV_CONTIGUOUS_POW2;
    assert_int_equal(qr_kv_layout_asked(&c, &w), 132);
    assert_int_equal(qr_kv_layout_claim(&c, &w), 256); // the buddy allocator's rounding
    c.kind = QR_KV_CONTIGUOUS_ORACLE;
    assert_int_equal(qr_kv_layout_asked(&c, &w), 125);
    assert_int_equal(qr_kv_layout_claim(&c, &w), 128);
    c.kind = QR_KV_PAGED;
    assert_int_equal(qr_kv_layout_claim(&c, &w), 100);
    c.kind = QR_KV_VIRTUAL;
    c.page_blocks = 204;
    assert_int_equal(qr_kv_layout_claim(&c, &w), 204);
    c.kind = QR_KV_CONTIGUOUS_POW2; // never beyond the longest sequence
    w.n_total = 2000;
    assert_int_equal(qr_kv_layout_asked(&c, &w), 2048);
}

QR_TEST(layout_contiguous_hands_out_consecutive_ids)
{
    struct rig r = open_rig(QR_KV_CONTIGUOUS_ORACLE, 16, 64, 0);
    struct qr_kv_want w = {.n_prompt = 10, .n_known = 10, .n_total = 19}; // 5 blocks, a run of 8
    assert_true(qr_kv_tables_room(r.t, &w, 2, 0, 0));
    assert_false(qr_kv_tables_room(r.t, &w, 3, 0, 0));
    qr_kv_table_admit(r.t, 0, &w);
    qr_kv_table_admit(r.t, 1, &w);
    assert_false(qr_kv_tables_room(r.t, &w, 1, 0, 0));
    assert_false(qr_kv_tables_share(r.t));
    write_to(&r, 1, 0, 10);
    write_to(&r, 0, 0, 10);
    write_to(&r, 1, 10, 19);
    assert_memory_equal(qr_kv_table_ids(r.t, 1), ((qr_block_id[]){8, 9, 10, 11, 12}), 5 * sizeof(qr_block_id));
    assert_memory_equal(qr_kv_table_ids(r.t, 0), ((qr_block_id[]){0, 1, 2}), 3 * sizeof(qr_block_id));
    struct qr_kv_held h = qr_kv_table_held(r.t, 0);
    assert_int_equal(h.n_blocks, 8);
    assert_int_equal(h.n_rounding, 3);
    qr_kv_table_drop(r.t, 1);
    assert_int_equal(qr_kv_table_held(r.t, 1).n_blocks, 0);
    assert_true(qr_kv_tables_room(r.t, &w, 1, 0, 0));
    close_rig(&r);
}

QR_TEST(layout_virtual_puts_pages_under_a_growing_sequence)
{
    struct rig r = open_rig(QR_KV_VIRTUAL, 17, 64, 4); // 4 pages of 4 blocks of 4 tokens; a block is left over
    struct qr_kv_want w = {.n_prompt = 10, .n_known = 10, .n_total = 40};
    struct qr_batch_copy copy;
    assert_int_equal(qr_kv_tables_n_free(r.t), 16);
    assert_true(qr_kv_tables_room(r.t, &w, 4, 0, 0));
    assert_false(qr_kv_tables_room(r.t, &w, 4, 0, 1));
    qr_kv_table_admit(r.t, 0, &w);
    qr_kv_table_admit(r.t, 1, &w);
    write_to(&r, 0, 0, 10);
    write_to(&r, 1, 0, 10);
    assert_int_equal(qr_kv_table_held(r.t, 0).n_blocks, 4);
    assert_int_equal(qr_kv_table_need(r.t, 0, 10, 16), 0); // within its page
    assert_int_equal(qr_kv_table_need(r.t, 0, 10, 17), 4);
    write_to(&r, 0, 10, 17);
    assert_memory_equal(qr_kv_table_ids(r.t, 0), ((qr_block_id[]){0, 1, 2, 3, 8}), 5 * sizeof(qr_block_id));
    write_to(&r, 1, 10, 17);
    assert_int_equal(qr_kv_tables_n_free(r.t), 0);
    assert_int_equal(qr_kv_table_extend(r.t, 1, 17, 33, &copy), -1);
    qr_kv_table_drop(r.t, 0);
    assert_int_equal(qr_kv_tables_n_free(r.t), 8);
    close_rig(&r);
}

QR_TEST(layout_new_survives_no_memory)
{
    static const enum qr_kv_layout_kind kinds[] = {QR_KV_CONTIGUOUS_MAX, QR_KV_VIRTUAL};
    for (int k = 0; k < 2; k++)
        for (uint64_t at = 1; at < 12; at++) {
            struct qr_kv_pool *pool = NULL;
            struct qr_kv_tables *t = NULL;
            struct qr_kv_tables_conf c = {
                .n_tables = 2, .n_blocks_max = 4, .block_size = 4, .layout = kinds[k], .max_len = 16};
            assert_int_equal(qr_kv_pool_new(8, &pool), QR_OK);
            size_t live = qr_mem_live_bytes(QR_MEM_SCHED);
            uint64_t before = qr_mem_calls();
            qr_mem_fail_at(at, 0);
            enum qr_status st = qr_kv_tables_new(pool, &c, &t);
            bool reached = qr_mem_calls() - before >= at;
            qr_mem_fail_at(0, 0);
            assert_int_equal(st, reached ? QR_ENOMEM : QR_OK);
            qr_kv_tables_free(&t);
            assert_int_equal(qr_mem_live_bytes(QR_MEM_SCHED), live);
            qr_kv_pool_free(&pool);
        }
}
