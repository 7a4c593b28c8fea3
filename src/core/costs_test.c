#include "core/costs.h"

#include <string.h>

#include "base/test.h"

static const struct qr_costs table = {.epoch = 3,
                                      .fixed_ns = 1000,
                                      .row_ns = 100,
                                      .prompt_fixed_ns = 500,
                                      .prompt_row_ns = 10,
                                      .context_ps = 2000,
                                      .query_context_ps = 3000};

QR_TEST(costs_of_rows_tiles_and_contexts)
{
    struct qr_work w = {0};
    qr_work_add(&w, 10, 20, 1); // generates: reads 21 positions
    assert_int_equal(qr_costs_ns(&table, &w), 1000 + 100 + 21 * 2);
    qr_work_add(&w, 40, 7, 17); // 17 prompt rows take two tiles; the last attends to 24 positions
    assert_int_equal(qr_costs_ns(&table, &w), 1000 + 100 + 21 * 2 + 500 + 320 + 24 * 2 + 17 * 24 * 3);
    w = (struct qr_work){0};
    qr_work_add(&w, 10, 5, 9); // recomputed: 5 prompt rows and 4 generated ones
    assert_int_equal(w.n_rows, 4);
    assert_int_equal(w.n_prompt_tile, 16);
    assert_int_equal(w.query_context, 50);
    assert_int_equal(w.context, 14);
}

QR_TEST(costs_are_written_and_read)
{
    struct qr_buf b = {0};
    struct qr_json_writer w;
    struct qr_json_doc *doc = NULL;
    struct qr_costs c = {0};
    struct qr_error err;
    qr_jw_init(&w, &b);
    qr_costs_write(&table, &w);
    assert_int_equal(qr_json_parse(b.data, b.len, 4, &doc, &err), QR_OK);
    assert_int_equal(qr_costs_read(qr_json_root(doc), "t", &c, &err), QR_OK);
    assert_memory_equal(&c, &table, sizeof c);
    qr_json_free(&doc);
    qr_buf_fini(&b);
    static const char *const bad[] = {"[]", "{\"fixed_ns\":1}", "{\"fixed_ns\":-1}", "{\"fixed_ns\":1.5}"};
    static const char *const said[] = {"t: expected an object of costs, got an array", "t: row_ns: expected a whole",
                                       "t: fixed_ns: expected", "t: fixed_ns: expected"};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(qr_json_parse(bad[i], strlen(bad[i]), 4, &doc, &err), QR_OK);
        assert_int_equal(qr_costs_read(qr_json_root(doc), "t", &c, &err), QR_EFORMAT);
        assert_non_null(strstr(err.msg, said[i]));
        assert_memory_equal(&c, &table, sizeof c); // untouched
        qr_json_free(&doc);
    }
}
