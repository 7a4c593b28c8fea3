/* The step's budget in time: exact pieces of a prompt beside one generating sequence. */
#include <string.h>

#include "base/test.h"
#include "sched/sched.h"
#include "sched/sched_internal.h"

static struct qr_sched *s;
static struct qr_sched_req *reqs[4];
static int n_reqs;

// A generating row makes a step of 2000 ns; prompt rows take 1000 and 100 each.
static void begin_with(uint64_t budget_ns, uint64_t query_context_ps, uint64_t floor_ns)
{
    struct qr_sched_conf c = {
        .max_num_seqs = 4, .max_num_batched_tokens = 512, .max_model_len = 4096, .block_size = 16, .n_blocks = 512};
    struct qr_costs costs = {.epoch = 1,
                             .fixed_ns = 1000,
                             .row_ns = 1000,
                             .prompt_fixed_ns = 1000,
                             .prompt_row_ns = 100,
                             .query_context_ps = query_context_ps,
                             .floor_ns = floor_ns};
    assert_int_equal(qr_sched_new(&c, &s), QR_OK);
    qr_sched_set_budget(s, &costs, budget_ns);
    n_reqs = 0;
}

static void begin(uint64_t budget_ns, uint64_t query_context_ps)
{
    begin_with(budget_ns, query_context_ps, 0);
}

static void add(int32_t n_prompt)
{
    static int32_t ids[4096];
    struct qr_req q = {.prompt = ids,
                       .n_prompt = n_prompt,
                       .n_choices = 1,
                       .sampling = {.max_tokens = 200, .n_prompt_logprobs = -1, .n_logprobs = -1}};
    assert_int_equal(qr_sched_req_new(&q, (qr_req_id)n_reqs + 1, &reqs[n_reqs]), QR_OK);
    qr_sched_add(s, reqs[n_reqs++]);
}

// Steps, and what request i computes in each: "192 192 ...".
static const char *steps(int i, int n)
{
    static char text[256];
    int at = 0;
    text[0] = 0;
    for (int k = 0; k < n; k++) {
        const struct qr_plan *plan = qr_sched_plan(s, 1, 512);
        qr_sched_check(s);
        int32_t n_grants = plan->n_grants, n_tokens = 0;
        assert_non_null(qr_sched_batch(s));
        for (int32_t j = 0; j < n_grants; j++)
            if (plan->grants[j].r == reqs[i]) n_tokens = plan->grants[j].n_tokens;
        qr_sched_computed(s);
        for (int32_t j = 0; j < n_grants; j++)
            if (plan->grants[j].flags & QR_BATCH_SAMPLE) qr_sched_append(plan->grants[j].r, plan->grants[j].seq, 7);
        at += sprintf(text + at, "%s%d", k ? " " : "", n_tokens);
    }
    return text;
}

static void end(void)
{
    for (int i = 0; i < n_reqs; i++) {
        qr_sched_end(s, reqs[i], 0);
        qr_sched_req_free(&reqs[i]);
    }
    qr_sched_free(&s);
}

QR_TEST(budget_fills_a_step_with_prompt_rows)
{
    begin(2000 + 1000 + 20000, 0);
    add(10);
    add(1000);
    assert_string_equal(steps(1, 5), "496 192 192 120 1"); // nobody generates in the first step
    end();
}

// The generating row takes as long as the floor, and prompts find less of the budget left.
QR_TEST(budget_counts_what_a_step_takes_at_least)
{
    begin_with(2000 + 1000 + 20000, 0, 9000);
    add(10);
    steps(0, 1);
    add(1000);
    assert_string_equal(steps(1, 3), "128 128 128");
    end();
}

QR_TEST(budget_auto_leaves_256_rows)
{
    begin(QR_STEP_AUTO, 0);
    add(10);
    steps(0, 1);
    add(1000);
    assert_string_equal(steps(1, 5), "256 256 256 232 1");
    end();
}

QR_TEST(budget_too_small_for_a_piece_saves_up_steps)
{
    begin(10000, 0); // 8000 left, and a piece worth its fixed cost takes 13800
    add(10);
    steps(0, 1);
    add(1000);
    assert_string_equal(steps(1, 9), "0 0 0 112 0 0 0 112 0"); // every fourth step is half as long again
    add(20); // a whole prompt that fits goes at once, and then a piece may share its fixed cost
    assert_string_equal(steps(2, 2), "20 1");
    end();
}

QR_TEST(budget_pieces_shrink_as_their_context_grows)
{
    begin(2000 + 1000 + 20000, 1000);
    add(10);
    steps(0, 1);
    add(1000);
    assert_string_equal(steps(1, 12), "96 64 48 48 48 32 32 32 32 32 32 16");
    end();
}

QR_TEST(budget_guarantees_a_tile_whatever_it_costs)
{
    begin(3000, 100000);
    add(10);
    steps(0, 1);
    add(1000);
    assert_string_equal(steps(1, 8), "0 0 0 16 0 0 0 16");
    end();
}

QR_TEST(budget_does_not_bind_while_nobody_generates)
{
    begin(3000, 100000);
    add(1200);
    assert_string_equal(steps(0, 4), "512 512 176 1");
    end();
}
