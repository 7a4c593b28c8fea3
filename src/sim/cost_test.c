/* Costs against arithmetic by hand. */
#include "sim/cost.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/test.h"

static void near(double got, double want)
{
    double d = got - want;
    if (d < 0) d = -d;
    if (d > 1e-9 * want) fail_msg("got %.12g, expected %.12g", got, want);
}

// A machine of 1 TB/s and 1 TFLOPS that reaches all of it and has no overheads.
static struct qr_sim_roofline tiny(int32_t n_devices)
{
    struct qr_sim_roofline r = {.n_devices = n_devices, .block_size = 16};
    r.model = (struct qr_sim_model){.n_layers = 2, .hidden = 64, .n_heads = 4, .n_kv_heads = 2, .head_dim = 16,
                                    .ffn = 128, .n_ffn_matrices = 3, .n_vocab = 1000, .ctx_max = 100, .bits = 16};
    r.hardware = (struct qr_sim_hardware){.memory_gib = 1, .memory_gbs = 1000, .tflops = 1, .pcie_gbs = 10,
                                          .link_gbs = 100, .eff_compute = 1, .eff_memory = 1};
    return r;
}
// Of a layer: Q and output 64 x 64, K and V 64 x 32, three of 64 x 128.
#define LAYER (2 * 4096 + 2 * 2048 + 3 * 8192)

QR_TEST(sim_roofline_of_one_row_is_its_memory_traffic)
{
    struct qr_sim_roofline r = tiny(1);
    struct qr_sim_load l = {.work = {.n_rows = 1, .context = 10}, .row_context = 10};
    assert_int_equal(qr_sim_layer_weights(&r.model), LAYER);
    // Arithmetic at one row: 2 operations a weight at 1 TFLOPS; traffic: 2 bytes at 1 TB/s. The same here, so halve one.
    r.hardware.tflops = 2;
    double kv = 2.0 * 2 * 2 * 16 * 2; // K and V, layers, heads, dimension, bytes
    near(qr_sim_roofline_s(&r, &l), (2.0 * LAYER * 2 + kv * 10) * 1e-12);
    l.n_samples = 1;
    near(qr_sim_roofline_s(&r, &l), (2.0 * LAYER * 2 + kv * 10 + 2.0 * 64 * 1000) * 1e-12);
}

QR_TEST(sim_roofline_of_a_prompt_is_its_arithmetic)
{
    struct qr_sim_roofline r = tiny(1);
    // 50 rows from nothing: they attend to 1 + 2 + ... + 50 positions.
    struct qr_sim_load l = {.n_prompt_rows = 50, .prompt_context = 1275, .work.context = 50, .n_samples = 1};
    double layers = 2.0 * LAYER * 2 * 50, attention = 4.0 * 4 * 16 * 2 * 1275, head = 2.0 * 64 * 1000;
    near(qr_sim_roofline_s(&r, &l), (layers + attention + head) * 1e-12);
}

QR_TEST(sim_roofline_splits_over_devices_and_pays_the_links)
{
    struct qr_sim_roofline r = tiny(2);
    struct qr_sim_load l = {.n_prompt_rows = 50, .prompt_context = 1275, .work.context = 50};
    r.hardware.link_us = 3, r.hardware.layer_us = 5, r.hardware.step_us = 7, r.hardware.row_us = 0;
    double work = 2.0 * LAYER * 2 * 50 + 4.0 * 4 * 16 * 2 * 1275;
    // Two all-reduces in each of two layers: of 50 x 64 values of 2 bytes a device sends once as many.
    double reduce = 4 * (3e-6 + 50.0 * 64 * 2 / 100e9);
    near(qr_sim_roofline_s(&r, &l), work * 0.5e-12 + reduce + 2 * 5e-6 + 7e-6);
}

QR_TEST(sim_roofline_copies_cross_the_memory_or_the_bus)
{
    struct qr_sim_roofline r = tiny(1);
    struct qr_sim_load l = {.n_copies = 3, .n_moves = 1};
    double block = 16 * 2.0 * 2 * 2 * 16 * 2;
    near(qr_sim_roofline_copy_s(&r, &l), block / 10e9 + 2 * block * 2 / 1000e9);
}

// OPT-13B on A100-40G: one row reads 25.2 GB of layers and 0.5 of the head at 1,353 GB/s: 19 ms, as everybody measures.
QR_TEST(sim_roofline_of_the_papers_machine_is_plausible)
{
    struct qr_sim_roofline r = {.n_devices = 1, .block_size = 16};
    assert_int_equal(qr_sim_model_find("opt-13b", &r.model, NULL), QR_OK);
    assert_int_equal(qr_sim_hardware_find("a100-40g", &r.hardware, NULL), QR_OK);
    double s = qr_sim_roofline_s(&r, &(struct qr_sim_load){.work = {.n_rows = 1, .context = 1}, .row_context = 1, .n_samples = 1});
    assert_true(s > 0.019 && s < 0.022);
    struct qr_sim_load l = {.n_prompt_rows = 2048, .prompt_context = 2098176, .work.context = 2048, .n_samples = 1};
    s = qr_sim_roofline_s(&r, &l);
    assert_true(s > 0.25 && s < 0.35);
}

QR_TEST(sim_load_sums_a_batch)
{
    _Alignas(8) char mem[1024];
    struct qr_batch_caps caps = {.n_seqs = 3, .n_tokens = 40, .n_table = 8, .n_copies = 2};
    assert_true(qr_batch_bytes(&caps) <= sizeof mem);
    memset(mem, 0, sizeof mem);
    struct qr_batch *b = qr_batch_init(mem, &caps);
    b->n_seqs = 3;
    b->n_copies = 2;
    qr_batch_copies(b)[0] = (struct qr_batch_copy){0, 1, QR_TIER_POOL, QR_TIER_RAM};
    qr_batch_copies(b)[1] = (struct qr_batch_copy){2, 3, QR_TIER_POOL, QR_TIER_POOL};
    struct qr_batch_seq *q = qr_batch_seqs(b);
    q[0] = (struct qr_batch_seq){.n_tokens = 1, .pos0 = 30, .n_prompt = 20, .flags = QR_BATCH_SAMPLE};
    q[1] = (struct qr_batch_seq){.n_tokens = 17, .pos0 = 16, .n_prompt = 100};
    q[2] = (struct qr_batch_seq){.n_tokens = 5, .pos0 = 0, .n_prompt = 3, .flags = QR_BATCH_SAMPLE}; // computed again
    struct qr_sim_load l;
    qr_sim_load_of(b, &l);
    assert_int_equal(l.work.n_rows, 1 + 2);
    assert_int_equal(l.n_prompt_rows, 17 + 3);
    assert_int_equal(l.work.n_prompt_tile, 32 + 16);
    assert_int_equal(l.work.context, 31 + 33 + 5);
    assert_int_equal(l.row_context, 31 + 4 + 5);
    int64_t attended = 1 + 2 + 3;
    for (int p = 17; p <= 33; p++) attended += p;
    assert_int_equal(l.prompt_context, attended);
    assert_int_equal(l.work.query_context, 17 * 33 + 3 * 3);
    assert_int_equal(l.n_samples, 2);
    assert_int_equal(l.n_copies, 2);
    assert_int_equal(l.n_moves, 1);
}

QR_TEST(sim_table_and_recorded_costs)
{
    struct qr_sim_cost c = {.kind = QR_SIM_TABLE, .table = {1, 1000, 10, 200, 3, 4000, 500}, .copy_ns = 70};
    struct qr_sim_load l = {.work = {2, 16, 30, 100}, .n_copies = 2};
    assert_int_equal(qr_sim_cost_ns(&c, &l), 1000 + 20 + 200 + 48 + 120 + 50);
    assert_int_equal(qr_sim_copy_ns(&c, &l), 140);
    l = (struct qr_sim_load){.work.n_rows = 1};
    assert_int_equal(qr_sim_cost_ns(&c, &l), 1010);
    static const uint64_t times[] = {5, 7};
    c = (struct qr_sim_cost){.kind = QR_SIM_RECORDED, .recorded_ns = times, .n_recorded = 2};
    assert_int_equal(qr_sim_cost_ns(&c, &l), 5);
    assert_int_equal(qr_sim_cost_ns(&c, &l), 7);
    assert_int_equal(qr_sim_cost_ns(&c, &l), 7);
    assert_int_equal(c.i_recorded, 3);
}

static enum qr_status read_table(const char *text, struct qr_sim_table *out, struct qr_error *err)
{
    char path[] = "/tmp/quire-costs-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    enum qr_status st = qr_sim_table_read(path, out, err);
    unlink(path);
    return st;
}

static enum qr_status read_text(const char *text, struct qr_costs *out, struct qr_error *err)
{
    struct qr_sim_table t = {0};
    enum qr_status st = read_table(text, &t, err);
    *out = t.costs;
    return st;
}

// What a plan is priced at before the engine has measured: within 15 % of the roofline where that is straight.
QR_TEST(sim_cost_guess_is_close_to_the_roofline)
{
    struct qr_sim_cost c = {.kind = QR_SIM_ROOFLINE, .roofline = {.n_devices = 1, .block_size = 16}};
    assert_int_equal(qr_sim_model_find("opt-13b", &c.roofline.model, NULL), QR_OK);
    assert_int_equal(qr_sim_hardware_find("a100-40g", &c.roofline.hardware, NULL), QR_OK);
    struct qr_costs g = qr_sim_cost_guess(&c);
    static const struct qr_sim_load loads[] = {
        {.work = {1, 0, 1, 0}, .row_context = 1, .n_samples = 1},
        {.work = {30, 0, 12000, 0}, .row_context = 12000, .n_samples = 30},
        {.work = {1, 1024, 1025, 1024 * 1024}, .n_prompt_rows = 1024, .row_context = 1, .prompt_context = 524800, .n_samples = 1}};
    for (int i = 0; i < 3; i++) {
        double ratio = (double)qr_costs_ns(&g, &loads[i].work) / (double)qr_sim_cost_ns(&c, &loads[i]);
        if (ratio < 0.85 || ratio > 1.15) fail_msg("load %d: %.3f", i, ratio);
    }
}

QR_TEST(sim_cost_file_is_read_and_checked)
{
    struct qr_costs c;
    struct qr_error err;
    struct qr_sim_table t;
    assert_int_equal(read_text("{\"fixed_ns\":1,\"row_ns\":2,\"prompt_fixed_ns\":3,\"prompt_row_ns\":4,\"context_ps\":5,"
                               "\"query_context_ps\":6, \"model\":\"x\"}",
                               &c, &err),
                     QR_OK);
    assert_int_equal(c.query_context_ps, 6);
    assert_int_equal(read_text("{\"fixed_ns\":1,\"row_ns\":-2}", &c, &err), QR_EFORMAT);
    assert_non_null(strstr(err.msg, "row_ns: expected a whole number from 0 to"));
    static const char *const fixed[] = {"-5", "0", "0.5", "true"};
    static const char *const got[] = {"got -5", "got 0", "got 0.5", "got a boolean"};
    for (int i = 0; i < 4; i++) { // one message for whatever it cannot be
        char text[40];
        snprintf(text, sizeof text, "{\"fixed_ns\":%s}", fixed[i]);
        assert_int_equal(read_text(text, &c, &err), QR_EFORMAT);
        assert_non_null(strstr(err.msg, "fixed_ns: expected a whole number from 1 to"));
        if (!strstr(err.msg, got[i])) fail_msg("%s", err.msg);
    }
    assert_int_equal(read_text("{\"fixed_ns\":1}", &c, &err), QR_EFORMAT);
    assert_non_null(strstr(err.msg, "row_ns: expected a whole number from 0 to"));
    assert_int_equal(read_text("nonsense", &c, &err), QR_EFORMAT);
    assert_int_equal(qr_sim_table_read("/nonexistent", &t, &err), QR_ENOTFOUND);
}

#define ZEROS "{\"fixed_ns\":1,\"row_ns\":0,\"prompt_fixed_ns\":0,\"prompt_row_ns\":0,\"context_ps\":0,\"query_context_ps\":0"

QR_TEST(sim_cost_file_may_say_what_a_copy_takes)
{
    struct qr_error err;
    struct qr_sim_table t;
    assert_int_equal(read_table(ZEROS "}", &t, &err), QR_OK);
    assert_false(t.has_copy);
    assert_int_equal(read_table(ZEROS ",\"copy_ns\":0}", &t, &err), QR_OK);
    assert_true(t.has_copy && t.copy_ns == 0);
    assert_int_equal(read_table(ZEROS ",\"copy_ns\":-1}", &t, &err), QR_EFORMAT);
    assert_non_null(strstr(err.msg, "copy_ns: expected a whole number from 0 to"));
}

QR_TEST(sim_a_copy_beside_a_table_is_the_hardwares)
{
    struct qr_sim_cost c = {
        .kind = QR_SIM_TABLE, .copy_ns = QR_SIM_COPY_BY_HARDWARE, .roofline = {.n_devices = 1, .block_size = 16}};
    assert_int_equal(qr_sim_model_find("opt-13b", &c.roofline.model, NULL), QR_OK);
    assert_int_equal(qr_sim_hardware_find("a100-40g", &c.roofline.hardware, NULL), QR_OK);
    struct qr_sim_load l = {.n_copies = 3, .n_moves = 1};
    uint64_t beside_table = qr_sim_copy_ns(&c, &l);
    c.kind = QR_SIM_ROOFLINE;
    assert_int_equal(beside_table, qr_sim_copy_ns(&c, &l));
    assert_true(beside_table > 500000 && beside_table < 1000000); // 13.1 MB through 25 GB/s
}

QR_TEST(sim_cost_file_says_of_what_it_is)
{
    struct qr_sim_table t;
    struct qr_error err;
    assert_int_equal(read_table("{\"fixed_ns\":1,\"row_ns\":2,\"prompt_fixed_ns\":3,\"prompt_row_ns\":4,\"context_ps\":5,"
                                "\"query_context_ps\":6,\"model\":\"a\\nb\",\"processor\":\"EPYC\",\"error_median\":0.07,"
                                "\"error_max\":0.34}",
                                &t, &err),
                     QR_OK);
    assert_string_equal(t.model, "a b");
    assert_string_equal(t.processor, "EPYC");
    assert_true(t.error_median == 0.07 && t.error_max == 0.34 && t.costs.row_ns == 2);
    assert_int_equal(read_table("{\"fixed_ns\":1,\"row_ns\":2,\"prompt_fixed_ns\":3,\"prompt_row_ns\":4,\"context_ps\":5,"
                                "\"query_context_ps\":6,\"model\":7}",
                                &t, &err),
                     QR_OK);
    assert_true(t.model[0] == 0 && t.processor[0] == 0 && t.error_median == 0);
}
