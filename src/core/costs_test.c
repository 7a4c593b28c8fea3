#include "core/costs.h"

#include <string.h>

#include "base/test.h"

static const struct qr_costs table = {.epoch = 3,
                                      .fixed_ns = 1000,
                                      .row_ns = 100,
                                      .prompt_fixed_ns = 500,
                                      .prompt_row_ns = 10,
                                      .context_ps = 2000,
                                      .query_context_ps = 3000,
                                      .floor_ns = 900};

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

QR_TEST(costs_of_few_rows_are_the_floor)
{
    struct qr_costs c = table;
    struct qr_work w = {.n_rows = 3, .context = 50, .n_prompt_tile = 16};
    double ns[QR_COST_TERMS], counts[QR_COST_TERMS];
    c.floor_ns = 1400;
    assert_true(qr_costs_floor_rules(&c, &w));
    assert_int_equal(qr_costs_ns(&c, &w), 1400 + 50 * 2 + 500 + 160);
    w.n_rows = 5;
    assert_false(qr_costs_floor_rules(&c, &w));
    assert_int_equal(qr_costs_ns(&c, &w), 1500 + 50 * 2 + 500 + 160);
    qr_costs_terms(&c, ns);
    for (w.n_rows = 0; w.n_rows < 8; w.n_rows++) { // the sum of the terms, each as often as it counts
        double sum = 0;
        qr_work_counts(&w, qr_costs_floor_rules(&c, &w), counts);
        for (int i = 0; i < QR_COST_TERMS; i++) sum += counts[i] * ns[i];
        assert_int_equal(sum, qr_costs_ns(&c, &w));
    }
    struct qr_costs again = qr_costs_of_terms(ns, c.epoch);
    assert_memory_equal(&again, &c, sizeof c);
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
    // No sum goes round, however large the table and the step.
    struct qr_costs most = {1, QR_COST_MAX, QR_COST_MAX, QR_COST_MAX, QR_COST_MAX, QR_COST_MAX, QR_COST_MAX, QR_COST_MAX};
    struct qr_work huge = {.n_rows = 1 << 20, .n_prompt_tile = 1 << 20, .context = 1ll << 40, .query_context = 1ll << 40};
    assert_int_equal(qr_costs_ns(&most, &huge), QR_STEP_NS_MAX);
    struct qr_work wraps[] = {{.n_rows = 1 << 24}, {.n_prompt_tile = 1 << 24}, {.context = 1ll << 50}, {.query_context = 1ll << 50}};
    for (int i = 0; i < 4; i++) assert_int_equal(qr_costs_ns(&most, &wraps[i]), QR_STEP_NS_MAX);
    assert_int_equal(qr_costs_ns(&most, &(struct qr_work){.n_rows = 3}), 4 * QR_COST_MAX);
    // Tables of before there was a floor are read as they are.
    static const char old[] = "{\"fixed_ns\":1,\"row_ns\":2,\"prompt_fixed_ns\":3,\"prompt_row_ns\":4,\"context_ps\":5,"
                              "\"query_context_ps\":6}";
    struct qr_costs first = {0};
    assert_int_equal(qr_json_parse(old, sizeof old - 1, 4, &doc, &err), QR_OK);
    assert_int_equal(qr_costs_read(qr_json_root(doc), "t", &first, &err), QR_OK);
    assert_true(first.epoch == 1 && first.query_context_ps == 6 && first.floor_ns == 0);
    qr_json_free(&doc);
    static const char *const bad[] = {"[]", "{\"fixed_ns\":1}", "{\"fixed_ns\":-1}", "{\"fixed_ns\":1.5}", "{\"epoch\":0}"};
    static const char *const said[] = {"t: expected an object of costs, got an array", "t: row_ns: expected a whole",
                                       "t: fixed_ns: expected", "t: fixed_ns: expected", "t: epoch: expected a whole number from 1"};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(qr_json_parse(bad[i], strlen(bad[i]), 4, &doc, &err), QR_OK);
        assert_int_equal(qr_costs_read(qr_json_root(doc), "t", &c, &err), QR_EFORMAT);
        assert_non_null(strstr(err.msg, said[i]));
        assert_memory_equal(&c, &table, sizeof c); // untouched
        qr_json_free(&doc);
    }
}
