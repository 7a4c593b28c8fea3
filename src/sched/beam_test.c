/* The worked example of a beam step in README.md, in exact ids. */
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "sched/sched_internal.h"

static struct qr_sched *s;
static struct qr_sched_req *r;

// A step of the engine: returns how many rows and how many copies it had.
static void step(int32_t want_rows, int32_t want_copies)
{
    const struct qr_plan *plan = qr_sched_plan(s, 0, 32);
    assert_int_equal(plan->n_preemptions, 0);
    const struct qr_batch *b = qr_sched_batch(s);
    assert_non_null(b);
    qr_batch_check(b, 4, 8);
    assert_int_equal(b->n_seqs, want_rows);
    assert_int_equal(b->n_copies, want_copies);
    qr_sched_computed(s);
    qr_sched_check(s);
}

static void search(const struct qr_beam_move *moves, int32_t n, int32_t first_token)
{
    qr_sched_move_beams(s, r, moves, n);
    for (int32_t i = 0; i < 3; i++) qr_sched_append(r, &r->seqs[i], first_token + i);
    qr_sched_check(s);
}

static void expect_table(int32_t beam, int32_t n, const uint32_t *want)
{
    int32_t slot = r->seqs[beam].slot;
    assert_int_equal(qr_kv_table_len(s->tables, slot), n);
    assert_memory_equal(qr_kv_table_ids(s->tables, slot), want, (size_t)n * sizeof *want);
}

static void expect_used(uint32_t want)
{
    assert_int_equal(qr_kv_pool_n_blocks(s->pool) - qr_kv_pool_n_free(s->pool), want);
}

QR_TEST(sched_beams_share_copy_and_die_as_in_the_example)
{
    static const int32_t prompt[] = {11, 12, 13, 14, 15, 16};
    struct qr_sched_conf conf = {
        .max_num_seqs = 3, .max_num_batched_tokens = 32, .max_model_len = 12, .block_size = 4, .n_blocks = 8};
    struct qr_req req = {.prompt = prompt, .n_prompt = 6, .n_choices = 3, .beam = {.width = 3, .length_penalty = 1}};
    req.sampling = (struct qr_sampling){.max_tokens = 4, .n_candidates = 6, .n_logprobs = -1, .n_prompt_logprobs = -1};
    enum { A, B, C, D, E };
    assert_int_equal(qr_sched_new(&conf, &s), QR_OK);
    assert_int_equal(qr_sched_req_fits(&conf, &req, NULL), QR_OK);
    assert_int_equal(qr_sched_req_new(&req, 1, &r), QR_OK);
    qr_sched_add(s, r);
    step(1, 0); // the leader's whole prompt
    expect_used(2);
    search((struct qr_beam_move[]){{0, 1}, {0, 2}}, 2, 100);
    for (int32_t i = 0; i < 3; i++) expect_table(i, 2, (uint32_t[]){A, B});
    expect_used(2);
    step(3, 2); // two copy the shared block, the last one writes in place
    expect_table(0, 2, (uint32_t[]){A, C});
    expect_table(1, 2, (uint32_t[]){A, D});
    expect_table(2, 2, (uint32_t[]){A, B});
    search((struct qr_beam_move[]){{1, 0}}, 1, 200); // two children of beam 1, one of beam 2
    expect_table(0, 2, (uint32_t[]){A, D});
    expect_used(3);
    assert_int_equal(qr_seq_id(r, &r->seqs[0], 6), 101);
    assert_int_equal(qr_seq_id(r, &r->seqs[0], 7), 200);
    step(3, 1);
    expect_table(0, 2, (uint32_t[]){A, C});
    expect_table(1, 2, (uint32_t[]){A, D});
    search((struct qr_beam_move[]){{0, 1}, {0, 2}}, 2, 300);
    expect_used(2);
    step(3, 0); // full blocks stay shared; each takes one of its own
    expect_used(5);
    for (int32_t i = 0; i < 3; i++) {
        const uint32_t *ids = qr_kv_table_ids(s->tables, r->seqs[i].slot);
        assert_true(ids[0] == A && ids[1] == C);
        assert_int_equal(qr_seq_id(r, &r->seqs[i], 6), 101);
        assert_int_equal(qr_seq_id(r, &r->seqs[i], 7), 200);
        assert_int_equal(qr_seq_id(r, &r->seqs[i], 8), 300 + i);
    }
    for (int32_t i = 0; i < 3; i++) qr_sched_end(s, r, i);
    expect_used(0);
    qr_sched_req_free(&r);
    qr_sched_free(&s);
}
