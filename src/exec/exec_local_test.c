#include "exec/exec_local.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/test.h"

#define NO_MODEL "no tiny models: python tests/tiny-model/make.py BUILD/tiny"
#define BLOCK 16
#define BLOCKS 40
#define STEP_MAX 128

struct bench {
    struct qr_model *model;
    struct qr_workers *workers;
    struct qr_exec *x;
    struct qr_batch *batch;
    struct qr_exec_result result;
};

static bool bench_open(struct bench *b)
{
    const char *path = qr_test_build_path("tiny/tiny.gguf");
    struct qr_gguf *g = NULL;
    struct qr_error err = {0};
    if (access(path, R_OK) != 0) return false;
    memset(b, 0, sizeof *b);
    assert_int_equal(qr_gguf_open(path, &g, &err), QR_OK);
    assert_int_equal(
        qr_workers_new(&(struct qr_workers_conf){.n_threads = 2, .spin_us = 50}, &b->workers, &err), QR_OK);
    assert_int_equal(qr_model_load(g, &(struct qr_model_conf){.workers = b->workers}, &b->model, &err),
                     QR_OK);
    qr_gguf_free(&g);
    struct qr_exec_local_conf c = {b->model, b->workers, 8, STEP_MAX, BLOCK, BLOCKS, {0}, NULL};
    assert_int_equal(qr_exec_local_new(&c, &b->x, &err), QR_OK);
    b->batch = malloc(qr_batch_bytes(&(struct qr_batch_caps){8, STEP_MAX, 256, 8}));
    return true;
}

static void bench_close(struct bench *b)
{
    b->x->ops->close(b->x);
    qr_model_free(&b->model);
    qr_workers_free(&b->workers);
    free(b->batch);
}

static void batch_begin(struct bench *b)
{
    b->batch = qr_batch_init(b->batch, &(struct qr_batch_caps){8, STEP_MAX, 256, 8});
}

static void batch_add(struct bench *b, struct qr_batch_seq s, const int32_t *ids, const uint32_t *table)
{
    s.first_id = b->batch->n_tokens, s.first_block = b->batch->n_table;
    s.n_blocks = (s.pos0 + s.n_tokens + BLOCK - 1) / BLOCK;
    memcpy(qr_batch_ids(b->batch) + s.first_id, ids, (size_t)s.n_tokens * sizeof *ids);
    memcpy(qr_batch_table(b->batch) + s.first_block, table, (size_t)s.n_blocks * sizeof *table);
    b->batch->n_tokens += s.n_tokens, b->batch->n_table += s.n_blocks;
    qr_batch_seqs(b->batch)[b->batch->n_seqs++] = s;
}

static void batch_run(struct bench *b)
{
    qr_ticket t = 0;
    qr_batch_check(b->batch, BLOCK, BLOCKS);
    uint64_t calls = qr_mem_calls();
    assert_int_equal(b->x->ops->submit(b->x, b->batch, &t), QR_OK);
    assert_int_equal(b->x->ops->wait(b->x, t, &b->result), QR_OK);
    assert_int_equal(qr_mem_calls(), calls);
    assert_int_not_equal(b->x->ops->wait(b->x, t + 1, &b->result), QR_OK);
}

static void random_ids(int32_t *ids, int n, uint64_t seed)
{
    for (int i = 0; i < n; i++) ids[i] = 3 + (int32_t)(qr_rand_u64(seed, 0, (uint64_t)i) % 500);
}

static const uint32_t shuffled[8] = {31, 4, 17, 0, 39, 22, 9, 13};

QR_TEST(exec_scores_the_same_in_any_chunks)
{
    struct bench b;
    if (!bench_open(&b)) QR_SKIP(NO_MODEL);
    enum { N = 90 };
    int32_t ids[N];
    static struct qr_out_row whole[N], row;
    static struct qr_top tops[N][3];
    struct qr_sampling s = {
        .top_p = 1, .repetition = 1, .max_tokens = 4, .n_logprobs = 3, .n_prompt_logprobs = 3};
    random_ids(ids, N, 1);
    for (int chunk = N; chunk > 0; chunk = chunk == N ? 37 : chunk / 3) {
        assert_int_equal(b.x->ops->seq_open(b.x, 3, &s, 0, ids, N, N), QR_OK);
        int seen = 0;
        for (int p = 0; p < N; p += chunk) {
            int n = N - p < chunk ? N - p : chunk;
            uint32_t flags = QR_BATCH_SCORE | (p + n == N ? QR_BATCH_SAMPLE : 0);
            batch_begin(&b);
            batch_add(
                &b, (struct qr_batch_seq){.slot = 3, .n_tokens = n, .pos0 = p, .n_prompt = N, .flags = flags},
                ids + p, shuffled);
            batch_run(&b);
            assert_int_equal(b.result.n_rows, n);
            for (int i = 0; i < n; i++, seen++) {
                row = b.result.rows[i];
                const struct qr_top *top = b.result.tops + row.first_top;
                assert_int_equal(row.pos, p + i);
                assert_int_equal(row.is_score, row.pos < N - 1);
                if (row.is_score) assert_int_equal(row.token, ids[row.pos + 1]);
                assert_int_equal(row.n_top, 3);
                row.first_top = 0;
                if (chunk == N) {
                    whole[seen] = row;
                    memcpy(tops[seen], top, sizeof tops[seen]);
                } else {
                    assert_memory_equal(&row, &whole[seen], sizeof row);
                    assert_memory_equal(top, tops[seen], sizeof tops[seen]);
                }
            }
        }
        assert_int_equal(seen, N);
        b.x->ops->seq_close(b.x, 3);
    }
    bench_close(&b);
}

// Generates `n` tokens after ids[0..n_ids), one a step, with the prompt's remaining rows in the first.
static void generate(struct bench *b, int slot, int32_t *ids, int n_prompt, int n_ids, int done, int n,
                     const uint32_t *table)
{
    for (int i = 0; i < n; i++) {
        batch_begin(b);
        batch_add(b,
                  (struct qr_batch_seq){.slot = slot,
                                        .n_tokens = n_ids - done,
                                        .pos0 = done,
                                        .n_prompt = n_prompt,
                                        .flags = QR_BATCH_SAMPLE},
                  ids + done, table);
        batch_run(b);
        assert_int_equal(b->result.n_rows, 1);
        done = n_ids;
        ids[n_ids++] = b->result.rows[0].token;
    }
}

QR_TEST(exec_resumes_and_copies_blocks)
{
    struct bench b;
    if (!bench_open(&b)) QR_SKIP(NO_MODEL);
    int32_t first[100], again[100];
    const uint32_t other[8] = {1, 2, 3, 5, 6, 7, 8, 10};
    struct qr_sampling s = {.temperature = 1,
                            .top_p = 0.95f,
                            .repetition = 1.2f,
                            .frequency = 0.2f,
                            .seed = 5,
                            .max_tokens = 60,
                            .n_logprobs = -1,
                            .n_prompt_logprobs = -1};
    random_ids(first, 21, 2);
    assert_int_equal(b.x->ops->seq_open(b.x, 0, &s, 0, first, 21, 21), QR_OK);
    generate(&b, 0, first, 21, 21, 0, 50, shuffled);
    b.x->ops->seq_close(b.x, 0);

    // Preempted after 20 tokens: everything is computed anew elsewhere, generated tokens among it.
    memcpy(again, first, sizeof again);
    assert_int_equal(b.x->ops->seq_open(b.x, 5, &s, 0, again, 21, 41), QR_OK);
    generate(&b, 5, again, 21, 41, 0, 30, other);
    assert_memory_equal(first, again, 71 * sizeof first[0]);
    b.x->ops->seq_close(b.x, 5);

    // The same from copies of its full blocks: 32 positions are there, the rest is computed.
    const uint32_t copied[8] = {20, 21, 23, 24, 25, 26, 27, 28};
    memcpy(again, first, sizeof again);
    assert_int_equal(b.x->ops->seq_open(b.x, 6, &s, 0, again, 21, 41), QR_OK);
    batch_begin(&b);
    batch_add(
        &b,
        (struct qr_batch_seq){.slot = 6, .n_tokens = 9, .pos0 = 32, .n_prompt = 21, .flags = QR_BATCH_SAMPLE},
        again + 32, copied);
    for (uint32_t i = 0; i < 2; i++)
        qr_batch_copies(b.batch)[b.batch->n_copies++] = (struct qr_batch_copy){.src = shuffled[i], .dst = copied[i]};
    batch_run(&b);
    again[41] = b.result.rows[0].token;
    generate(&b, 6, again, 21, 42, 41, 29, copied);
    assert_memory_equal(first, again, 71 * sizeof first[0]);
    assert_true(qr_exec_local_kv_bytes(b.x) > 0);
    bench_close(&b); // with a slot open
}

// Answers that need a row's peak, its norm or all of it, side by side in one step: each as when it is alone.
QR_TEST(exec_gives_rows_of_every_kind_what_they_get_alone)
{
    struct bench b;
    if (!bench_open(&b)) QR_SKIP(NO_MODEL);
    enum { SEQS = 8 };
    int32_t ids[SEQS][64];
    struct qr_sampling s[SEQS];
    struct qr_out_row alone[SEQS];
    for (int together = 0; together < 2; together++) {
        batch_begin(&b);
        for (int i = 0; i < SEQS; i++) {
            int n = 3 + 3 * i;
            uint32_t table[4] = {(uint32_t)i * 4, (uint32_t)i * 4 + 1, (uint32_t)i * 4 + 2, (uint32_t)i * 4 + 3};
            s[i] = (struct qr_sampling){.temperature = i % 4 == 3 ? 0.8f : 0,
                                        .top_p = 0.95f,
                                        .top_k = 40,
                                        .repetition = 1,
                                        .seed = 9,
                                        .max_tokens = 4,
                                        .n_logprobs = i % 4 == 0 ? -1 : i % 4 == 2 ? 3 : 0,
                                        .n_prompt_logprobs = -1};
            random_ids(ids[i], n, (uint64_t)i);
            assert_int_equal(b.x->ops->seq_open(b.x, i, &s[i], 0, ids[i], n - 1, n), QR_OK);
            if (!together) batch_begin(&b);
            batch_add(&b, (struct qr_batch_seq){.slot = i, .n_tokens = n, .n_prompt = n - i % 2, .flags = QR_BATCH_SAMPLE},
                      ids[i], table);
            if (together) continue;
            batch_run(&b);
            alone[i] = b.result.rows[0];
            assert_true(i % 4 == 0 ? alone[i].rank == 0 : alone[i].rank > 0 && alone[i].logprob < 0);
            b.x->ops->seq_close(b.x, i);
        }
    }
    batch_run(&b);
    assert_int_equal(b.result.n_rows, SEQS);
    for (int i = 0; i < SEQS; i++) {
        struct qr_out_row row = b.result.rows[i];
        row.i_seq = 0, row.first_top = alone[i].first_top;
        assert_memory_equal(&row, &alone[i], sizeof row);
    }
    bench_close(&b);
}

QR_TEST(exec_batches_rows_in_order)
{
    struct bench b;
    if (!bench_open(&b)) QR_SKIP(NO_MODEL);
    enum { SEQS = 5 };
    int32_t ids[SEQS][64], alone[SEQS];
    struct qr_sampling s = {
        .top_p = 1, .repetition = 1, .max_tokens = 4, .n_logprobs = -1, .n_prompt_logprobs = -1};
    for (int together = 0; together < 2; together++) {
        batch_begin(&b);
        for (int i = 0; i < SEQS; i++) {
            int n = 3 + 7 * i;
            uint32_t table[4] = {(uint32_t)i * 4, (uint32_t)i * 4 + 1, (uint32_t)i * 4 + 2,
                                 (uint32_t)i * 4 + 3};
            random_ids(ids[i], n, (uint64_t)i);
            assert_int_equal(b.x->ops->seq_open(b.x, i, &s, 0, ids[i], n, n), QR_OK);
            if (!together) batch_begin(&b);
            batch_add(&b,
                      (struct qr_batch_seq){
                          .slot = i, .n_tokens = n, .n_prompt = n, .flags = i == 2 ? 0 : QR_BATCH_SAMPLE},
                      ids[i], table);
            if (together) continue;
            batch_run(&b);
            assert_int_equal(b.result.n_rows, i != 2);
            alone[i] = i == 2 ? -1 : b.result.rows[0].token;
            b.x->ops->seq_close(b.x, i);
        }
    }
    batch_run(&b);
    assert_int_equal(b.result.n_rows, SEQS - 1);
    for (int r = 0; r < SEQS - 1; r++) {
        const struct qr_out_row *row = &b.result.rows[r];
        assert_int_equal(row->i_seq, r < 2 ? r : r + 1);
        assert_int_equal(row->token, alone[row->i_seq]);
    }
    bench_close(&b);
}
