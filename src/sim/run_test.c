/* Whole simulations: determinism, every preset, sessions, figures that must agree with each other. */
#include "sim/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/test.h"
#include "sim/report.h"
#include "sim/system.h"

static struct qr_sim_cost cost;

static struct qr_sim_run_conf conf_of(const struct qr_sim_workload *w, const struct qr_sim_system *s, uint32_t n_slots)
{
    cost = (struct qr_sim_cost){.kind = QR_SIM_TABLE, .table = {1, 20000000, 50000, 100000, 100000, 500, 0}, .copy_ns = 1000};
    return (struct qr_sim_run_conf){.workload = w,
                                    .cost = &cost,
                                    .block_size = s->block_size,
                                    .max_num_seqs = 64,
                                    .max_num_batched_tokens = s->max_num_batched_tokens,
                                    .max_model_len = 512,
                                    .n_vocab = 1000,
                                    .n_blocks = n_slots / (uint32_t)s->block_size,
                                    .layout = s->layout,
                                    .page_blocks = 2,
                                    .batching = s->batching,
                                    .n_choices = 1,
                                    .seed = 7,
                                    .check_every = 1};
}

static struct qr_sim_workload workload_of(const char *source, double rate, int64_t n, double burstiness)
{
    struct qr_sim_workload w;
    struct qr_error err;
    struct qr_sim_workload_conf c = {.source = source, .rate = rate, .n_requests = n, .burstiness = burstiness, .seed = 5};
    if (qr_sim_workload_make(&c, &w, &err) != QR_OK) fail_msg("%s", err.msg);
    return w;
}

static void run(const struct qr_sim_run_conf *c, struct qr_sim_result *r)
{
    struct qr_error err = {0};
    qr_log_set_level(QR_LOG_WARN);
    if (qr_sim_run(c, r, &err) != QR_OK) fail_msg("%s", err.msg);
    qr_log_set_level(QR_LOG_INFO);
}

static const struct qr_sim_system *preset(const char *name)
{
    const struct qr_sim_system *s = NULL;
    assert_int_equal(qr_sim_system_find(name, &s, NULL), QR_OK);
    return s;
}

static uint64_t hash_of(const struct qr_sim_result *r)
{
    uint64_t h = qr_hash_bytes(1, &r->end, sizeof r->end);
    h = qr_hash_bytes(h, r->itl, sizeof r->itl);
    return qr_hash_bytes(h, r->records, r->n_records * sizeof *r->records);
}

QR_TEST(sim_same_seed_same_figures_byte_for_byte)
{
    struct qr_sim_workload w = workload_of("60/40*3,200/100", 8, 300, 0.5);
    struct qr_sim_run_conf c = conf_of(&w, preset("quire"), 2048);
    struct qr_sim_result a, b;
    run(&c, &a);
    run(&c, &b);
    assert_true(hash_of(&a) == hash_of(&b));
    qr_sim_result_free(&b);
    c.check_every = 0; // looking on changes nothing
    run(&c, &b);
    assert_true(hash_of(&a) == hash_of(&b));
    qr_sim_result_free(&a);
    qr_sim_result_free(&b);
    qr_sim_workload_free(&w);
}

static void agree(const struct qr_sim_run_conf *c, const struct qr_sim_result *r)
{
    struct qr_sim_summary s;
    const struct qr_kv_slots *k = &r->end.kv_slots_sum;
    assert_int_equal(qr_sim_summarize(r, c->n_choices, &s), QR_OK);
    assert_int_equal(k->used + k->reserved + k->internal + k->external + k->free,
                     r->end.n_steps * c->n_blocks * (uint64_t)c->block_size);
    assert_true(fabs(s.kv_used + s.kv_reserved + s.kv_internal + s.kv_external - 1) < 1e-9);
    assert_int_equal(s.n_output_tokens, r->end.n_generated_tokens);
    for (uint64_t i = 0; i < r->n_records; i++) {
        const struct qr_sim_record *q = &r->records[i];
        assert_int_equal(q->n_output, c->n_choices * c->workload->items[q->item].n_output);
        assert_true(q->arrival_ns <= q->scheduled_ns && q->scheduled_ns < q->first_ns && q->first_ns <= q->finish_ns);
    }
}

QR_TEST(sim_every_system_serves_all_and_their_order_is_the_papers)
{
    double tokens_per_s[16];
    // Prompts that are followed by answers of very different lengths, more than any of them can serve at once.
    struct qr_sim_workload w = workload_of("25/33*4,60/90*4,100/300", INFINITY, 150, 1);
    for (int i = 0; i < qr_sim_system_count(); i++) {
        const struct qr_sim_system *sys = qr_sim_system_at(i);
        struct qr_sim_run_conf c = conf_of(&w, sys, 4096);
        struct qr_sim_result r;
        struct qr_sim_summary s;
        run(&c, &r);
        assert_int_equal(r.n_records, 150);
        agree(&c, &r);
        assert_int_equal(qr_sim_summarize(&r, 1, &s), QR_OK);
        tokens_per_s[i] = s.tokens_per_s;
        if (qr_kv_layout_is_contiguous(sys->layout) || sys->batching == QR_BATCHING_WORST_CASE)
            assert_int_equal(s.n_preemptions, 0);
        if (sys->layout == QR_KV_PAGED) assert_true(s.kv_external == 0 && s.kv_internal < 0.04);
        qr_sim_result_free(&r);
    }
    static const char *const faster[][2] = {{"vllm", "orca-oracle"}, {"orca-oracle", "orca-pow2"}, {"orca-pow2", "orca-max"},
                                            {"orca-max", "ft"}, {"vllm", "tgi1"}, {"tgi1", "orca-oracle"}};
    for (size_t i = 0; i < sizeof faster / sizeof faster[0]; i++)
        assert_true(tokens_per_s[preset(faster[i][0]) - qr_sim_system_at(0)] >
                    tokens_per_s[preset(faster[i][1]) - qr_sim_system_at(0)]);
    qr_sim_workload_free(&w);
}

// 8 requests at once, each reserving all 512 slots of 4,096: the arithmetic of a single step, by hand.
QR_TEST(sim_contiguous_max_wastes_what_arithmetic_says)
{
    struct qr_sim_workload w = workload_of("100/28", INFINITY, 8, 1);
    struct qr_sim_run_conf c = conf_of(&w, preset("orca-max"), 4096);
    struct qr_sim_result r;
    run(&c, &r);
    const struct qr_kv_slots *k = &r.end.kv_slots_sum;
    // All run in step: step i (from 0) ends with 100 + i tokens computed, of 128 in the end.
    assert_int_equal(r.end.n_steps, 28);
    uint64_t used = 0;
    for (uint64_t i = 0; i < 28; i++) used += 8 * (100 + i);
    assert_int_equal(k->used, used);
    assert_int_equal(k->reserved, 28 * 8 * 128 - used);
    assert_int_equal(k->internal, 28 * 8 * (512 - 128));
    assert_int_equal(k->external, 0);
    assert_int_equal(k->free, 0);
    qr_sim_result_free(&r);
    qr_sim_workload_free(&w);
}

QR_TEST(sim_static_batches_answer_together)
{
    struct qr_sim_workload w = workload_of("20/5,20/100", INFINITY, 40, 1);
    struct qr_sim_run_conf c = conf_of(&w, preset("ft"), 4096);
    struct qr_sim_result r;
    run(&c, &r);
    for (uint64_t i = 0; i < r.n_records; i++) // eight fit
        assert_true(r.records[i].finish_ns == r.records[i / 8 * 8].finish_ns);
    qr_sim_result_free(&r);
    qr_sim_workload_free(&w);
}

QR_TEST(sim_choices_and_shared_prefixes_run_on_every_layout)
{
    struct qr_sim_workload_conf wc = {
        .source = "30/20,50/60", .rate = 20, .n_requests = 60, .burstiness = 1, .seed = 5, .shared_tokens = 20};
    struct qr_sim_workload w;
    assert_int_equal(qr_sim_workload_make(&wc, &w, NULL), QR_OK);
    for (int i = 0; i < qr_sim_system_count(); i++) {
        struct qr_sim_run_conf c = conf_of(&w, qr_sim_system_at(i), 2048);
        struct qr_sim_result r;
        c.n_choices = 3;
        c.shared_tokens = 20;
        run(&c, &r);
        assert_int_equal(r.n_records, 60);
        agree(&c, &r);
        qr_sim_result_free(&r);
    }
    qr_sim_workload_free(&w);
}

// Beams share what they have in common, so they need fewer blocks than as many answers.
QR_TEST(sim_beams_run_on_every_layout_and_share_more_than_answers)
{
    struct qr_sim_workload w = workload_of("30/20,50/60", 20, 40, 1);
    double shared[2];
    for (int i = 0; i < qr_sim_system_count(); i++) {
        struct qr_sim_run_conf c = conf_of(&w, qr_sim_system_at(i), 2048);
        struct qr_sim_result r;
        c.n_choices = c.beam_width = 4;
        run(&c, &r);
        assert_int_equal(r.n_records, 40);
        for (uint64_t k = 0; k < r.n_records; k++)
            assert_int_equal(r.records[k].n_output, 4 * w.items[r.records[k].item].n_output);
        qr_sim_result_free(&r);
    }
    for (int beams = 0; beams < 2; beams++) {
        struct qr_sim_run_conf c = conf_of(&w, preset("quire"), 4096);
        struct qr_sim_result r;
        struct qr_sim_summary s;
        c.n_choices = 4;
        c.beam_width = beams ? 4 : 0;
        run(&c, &r);
        assert_int_equal(qr_sim_summarize(&r, 4, &s), QR_OK);
        shared[beams] = s.kv_shared;
        qr_sim_result_free(&r);
    }
    assert_true(shared[0] > 0.05 && shared[1] > shared[0] + 0.1);
    qr_sim_workload_free(&w);
}

QR_TEST(sim_refuses_what_can_never_fit_and_says_so)
{
    struct qr_sim_workload w = workload_of("60/40,500/40", INFINITY, 20, 1);
    struct qr_sim_run_conf c = conf_of(&w, preset("quire"), 2048);
    struct qr_sim_result r;
    run(&c, &r);
    assert_true(r.n_refused > 0 && r.n_records + r.n_refused == 20);
    assert_non_null(strstr(r.refused_why, "maximum context length is 512 tokens"));
    qr_sim_result_free(&r);
    qr_sim_workload_free(&w);
}

QR_TEST(sim_sessions_wait_for_their_answers)
{
    const char *dir = qr_test_shared();
    char path[512];
    if (!dir) QR_SKIP("no shared data");
    snprintf(path, sizeof path, "%s/data/sharegpt_sessions_llama2.csv.gz", dir);
    struct qr_sim_workload w = workload_of(path, 2, 60, 1);
    struct qr_sim_run_conf c = conf_of(&w, preset("quire"), 16384);
    struct qr_sim_result r;
    uint64_t *finish = calloc(w.n_items, sizeof *finish);
    c.max_model_len = 16384;
    run(&c, &r);
    assert_int_equal(r.n_records, w.n_items);
    int n_later = 0;
    for (uint64_t i = 0; i < r.n_records; i++) finish[r.records[i].item] = r.records[i].finish_ns;
    for (uint64_t i = 0; i < r.n_records; i++) {
        int64_t item = r.records[i].item;
        if (w.items[item].is_first) continue;
        n_later++;
        assert_true(r.records[i].arrival_ns >= finish[item - 1]);
    }
    assert_true(n_later > 50);
    free(finish);
    qr_sim_result_free(&r);
    qr_sim_workload_free(&w);
}

QR_TEST(sim_run_survives_no_memory)
{
    struct qr_sim_workload w = workload_of("20/5", INFINITY, 3, 1);
    struct qr_sim_run_conf c = conf_of(&w, preset("quire"), 256);
    size_t live = qr_mem_live_bytes(QR_MEM_MISC) + qr_mem_live_bytes(QR_MEM_SCHED) + qr_mem_live_bytes(QR_MEM_EXEC);
    qr_log_set_level((enum qr_log_level)-1);
    for (uint64_t at = 1; at <= 12; at++) { // what is taken before the first step
        struct qr_sim_result r;
        qr_mem_fail_at(at, 0);
        assert_int_equal(qr_sim_run(&c, &r, NULL), QR_ENOMEM);
        qr_mem_fail_at(0, 0);
        assert_int_equal(qr_mem_live_bytes(QR_MEM_MISC) + qr_mem_live_bytes(QR_MEM_SCHED) + qr_mem_live_bytes(QR_MEM_EXEC),
                         live);
    }
    qr_log_set_level(QR_LOG_INFO);
    qr_sim_workload_free(&w);
}

QR_TEST(sim_report_is_json_and_text)
{
    struct qr_sim_workload w = workload_of("60/40", 10, 50, 1);
    struct qr_sim_run_conf c = conf_of(&w, preset("quire"), 2048);
    struct qr_sim_result r;
    struct qr_sim_summary s;
    struct qr_buf b = {0};
    struct qr_json_writer jw;
    struct qr_json_doc *doc = NULL;
    run(&c, &r);
    assert_int_equal(qr_sim_summarize(&r, 1, &s), QR_OK);
    qr_jw_init(&jw, &b);
    qr_jw_obj(&jw);
    qr_sim_json(&s, &jw);
    qr_jw_obj_end(&jw);
    assert_int_equal(qr_json_parse(b.data, b.len, 8, &doc, NULL), QR_OK);
    double p99 = 0;
    int64_t n = 0;
    assert_true(qr_json_int64(qr_json_get(qr_json_root(doc), "requests"), &n) && n == 50);
    assert_true(qr_json_double(qr_json_get(qr_json_get(qr_json_root(doc), "ttft_s"), "p99"), &p99) && p99 == s.ttft.p99);
    assert_true(s.ttft.p50 <= s.ttft.p90 && s.ttft.p90 <= s.ttft.p99 && s.ttft.p99 <= s.ttft.max);
    // The mean of all gaps between tokens by the histogram, and by what requests took.
    assert_true(fabs(s.itl.mean / s.tpot.mean - 1) < 0.01);
    char text[4096] = "";
    FILE *f = fmemopen(text, sizeof text, "w");
    qr_sim_print(&s, f);
    fclose(f);
    assert_non_null(strstr(text, "requests    50 finished, 0 refused"));
    char *csv = NULL;
    size_t csv_len = 0;
    f = open_memstream(&csv, &csv_len);
    qr_sim_csv(&r, f);
    fclose(f);
    int n_lines = 0;
    for (size_t i = 0; i < csv_len; i++) n_lines += csv[i] == '\n';
    assert_int_equal(n_lines, 51);
    free(csv);
    qr_json_free(&doc);
    qr_buf_fini(&b);
    qr_sim_result_free(&r);
    qr_sim_workload_free(&w);
}
