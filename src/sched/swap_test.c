/* Preemption by swap, plan by plan. Blocks of 16 throughout. */
#include "sched/sched.h"

#include "base/mem.h"
#include "base/test.h"
#include "sched/policy.h"

struct rig {
    struct qr_sched *s;
    struct qr_sched_conf conf;
    struct qr_sched_req *reqs[4];
    qr_req_id last_id;
    const struct qr_plan *plan;
    const struct qr_batch *batch;
};

static void open_rig(struct rig *r, uint32_t n_blocks, uint32_t n_ram)
{
    *r = (struct rig){0};
    r->conf = (struct qr_sched_conf){.max_num_seqs = 4,
                                     .max_num_batched_tokens = 512,
                                     .max_model_len = 1024,
                                     .block_size = 16,
                                     .n_blocks = n_blocks,
                                     .policy = qr_policy_find("priority"),
                                     .n_slots = {[QR_TIER_RAM] = n_ram},
                                     .preempt_costs = {.token_ns = 100, .block_ns = {[QR_TIER_RAM] = 200}}};
    assert_int_equal(qr_sched_new(&r->conf, &r->s), QR_OK);
}

static struct qr_sched_req *add(struct rig *r, int32_t n_prompt, int32_t n)
{
    static int32_t ids[1024];
    struct qr_req q = {.prompt = ids,
                       .n_prompt = n_prompt,
                       .n_choices = n,
                       .sampling = {.max_tokens = 60, .n_prompt_logprobs = -1, .n_logprobs = -1}};
    struct qr_sched_req **slot = &r->reqs[r->last_id++];
    assert_int_equal(qr_sched_req_new(&q, r->last_id, slot), QR_OK);
    assert_int_equal(qr_sched_req_reserve(*slot, &r->conf), QR_OK);
    qr_sched_add(r->s, *slot);
    return *slot;
}

static void plan(struct rig *r)
{
    r->plan = qr_sched_plan(r->s, 1, 512);
    qr_sched_check(r->s);
    r->batch = qr_sched_batch(r->s);
    assert_non_null(r->batch);
    qr_batch_check(r->batch, 16, r->conf.n_blocks);
}

static void step(struct rig *r)
{
    plan(r);
    int32_t n = r->batch->n_seqs;
    qr_sched_computed(r->s);
    for (int32_t i = 0; i < n; i++)
        if (r->plan->grants[i].flags & QR_BATCH_SAMPLE)
            qr_sched_append(r->plan->grants[i].r, r->plan->grants[i].seq, 7);
    qr_sched_check(r->s);
}

static void end(struct rig *r, struct qr_sched_req *q)
{
    for (int32_t c = 0; c < q->req->n_choices; c++) qr_sched_end(r->s, q, c);
    qr_sched_check(r->s);
}

static struct qr_snapshot snap(const struct rig *r)
{
    struct qr_snapshot o = {0};
    qr_sched_snapshot(r->s, &o);
    return o;
}

static void close_rig(struct rig *r)
{
    for (int i = 0; i < 4 && r->reqs[i]; i++) {
        end(r, r->reqs[i]);
        qr_sched_req_free(&r->reqs[i]);
    }
    assert_int_equal(snap(r).n_blocks_free, r->conf.n_blocks);
    assert_int_equal(snap(r).n_slots_used[QR_TIER_RAM], 0);
    qr_sched_free(&r->s);
}

static void is_row(const struct qr_batch *b, int32_t i, int32_t pos0, int32_t n_tokens)
{
    assert_true(i < b->n_seqs);
    assert_int_equal(qr_batch_seqs(b)[i].pos0, pos0);
    assert_int_equal(qr_batch_seqs(b)[i].n_tokens, n_tokens);
}

// Two requests of 64 and 63 tokens in a pool of 10 blocks, run until the second has to go.
static void run_short(struct rig *r)
{
    do step(r);
    while (snap(r).n_preemptions == 0);
}

QR_TEST(swap_saves_what_is_computed_and_goes_on_from_there)
{
    struct rig r;
    open_rig(&r, 10, 8);
    struct qr_sched_req *a = add(&r, 64, 1), *b = add(&r, 63, 1);
    run_short(&r);
    assert_int_equal(r.plan->preemptions[0].tier, QR_TIER_RAM);
    assert_int_equal(r.plan->preemptions[0].n_blocks, 5);
    assert_int_equal(r.plan->preemptions[0].swap_ns, 1000);
    assert_int_equal(r.plan->preemptions[0].compute_ns, 7900);
    assert_int_equal(r.batch->n_seqs, 1); // a goes on in the very step that saves b
    assert_int_equal(r.batch->n_copies, 5);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(qr_batch_copies(r.batch)[i].dst_tier, QR_TIER_RAM);
        assert_int_equal(qr_batch_copies(r.batch)[i].dst, i);
    }
    assert_int_equal(b->seqs[0].n_computed, 79);
    assert_int_equal(snap(&r).n_slots_used[QR_TIER_RAM], 5);
    step(&r); // b waits for room
    assert_int_equal(r.batch->n_copies, 0);
    end(&r, a);
    step(&r);
    assert_int_equal(r.batch->n_copies, 5);
    assert_int_equal(qr_batch_copies(r.batch)[0].src_tier, QR_TIER_RAM);
    is_row(r.batch, 0, 79, 1);
    struct qr_snapshot o = snap(&r);
    assert_int_equal(o.n_recomputed_tokens, 0);
    assert_int_equal(o.n_preempted_tokens, 0);
    assert_int_equal(o.n_swaps, 1);
    assert_int_equal(o.n_blocks_out[QR_TIER_RAM], 5);
    assert_int_equal(o.n_blocks_in[QR_TIER_RAM], 5);
    assert_int_equal(o.n_slots_used[QR_TIER_RAM], 0);
    close_rig(&r);
}

QR_TEST(swap_or_recompute_goes_by_cost_and_room)
{
    static const struct {
        uint64_t token_ns;
        uint32_t n_ram;
        enum qr_preempt_mode mode;
        enum qr_tier tier, best;
    } want[] = {
        {100, 8, QR_PREEMPT_AUTO, QR_TIER_RAM, QR_TIER_RAM},
        {10, 8, QR_PREEMPT_AUTO, QR_TIER_POOL, QR_TIER_RAM}, // 790 ns against 1,000
        {10, 8, QR_PREEMPT_SWAP, QR_TIER_RAM, QR_TIER_RAM},
        {100, 4, QR_PREEMPT_AUTO, QR_TIER_POOL, QR_TIER_RAM}, // 5 blocks do not fit
        {100, 4, QR_PREEMPT_SWAP, QR_TIER_POOL, QR_TIER_RAM},
        {100, 0, QR_PREEMPT_AUTO, QR_TIER_POOL, QR_TIER_POOL},
        {100, 8, QR_PREEMPT_RECOMPUTE, QR_TIER_POOL, QR_TIER_POOL},
    };
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        struct rig r;
        open_rig(&r, 10, want[i].n_ram);
        qr_sched_free(&r.s);
        r.conf.preempt_mode = want[i].mode;
        assert_int_equal(qr_sched_new(&r.conf, &r.s), QR_OK);
        struct qr_preempt_costs costs = r.conf.preempt_costs;
        costs.token_ns = want[i].token_ns;
        qr_sched_set_costs(r.s, &costs);
        add(&r, 64, 1), add(&r, 63, 1);
        run_short(&r);
        assert_int_equal(r.plan->preemptions[0].tier, want[i].tier);
        assert_int_equal(r.plan->preemptions[0].best, want[i].best);
        assert_int_equal(r.plan->preemptions[0].had_room, want[i].n_ram == 8 && want[i].best == QR_TIER_RAM);
        close_rig(&r);
    }
}

QR_TEST(swap_keeps_shared_blocks_shared)
{
    struct rig r;
    open_rig(&r, 13, 13);
    struct qr_sched_req *a = add(&r, 64, 1), *b = add(&r, 37, 3); // 2 shared blocks, then 2 of each choice
    run_short(&r);
    assert_ptr_equal(r.plan->preemptions[0].victim, b);
    assert_int_equal(r.plan->preemptions[0].n_tokens, 36 + 3 * (b->seqs[0].n_computed - 36));
    assert_int_equal(r.batch->n_copies, 8);
    assert_int_equal(snap(&r).n_slots_used[QR_TIER_RAM], 8);
    assert_int_equal(qr_sched_end(r.s, b, 1), -1); // a choice leaves while they wait
    qr_sched_check(r.s);
    assert_int_equal(snap(&r).n_slots_used[QR_TIER_RAM], 6);
    int32_t n_computed = b->seqs[0].n_computed;
    end(&r, a);
    step(&r);
    assert_int_equal(r.batch->n_seqs, 2);
    assert_int_equal(r.batch->n_copies, 6);
    is_row(r.batch, 0, n_computed, 1);
    is_row(r.batch, 1, n_computed, 1);
    const struct qr_batch_seq *q = qr_batch_seqs(r.batch);
    const uint32_t *x = qr_batch_table(r.batch) + q[0].first_block, *y = qr_batch_table(r.batch) + q[1].first_block;
    assert_true(x[0] == y[0] && x[1] == y[1] && x[2] != y[2]);
    close_rig(&r);
}

// A rig in which everything that runs is preempted in one plan.
static void open_rig_at(struct rig *r, uint32_t n_blocks, uint64_t preempt_at)
{
    open_rig(r, n_blocks, n_blocks);
    qr_sched_free(&r->s);
    r->conf.preempt_at = preempt_at;
    assert_int_equal(qr_sched_new(&r->conf, &r->s), QR_OK);
}

QR_TEST(swap_out_and_in_again_in_one_step)
{
    struct rig r;
    open_rig_at(&r, 80, 2);
    add(&r, 900, 2);
    step(&r);
    is_row(r.batch, 0, 0, 512);
    step(&r);
    assert_int_equal(r.batch->n_copies, 64);
    is_row(r.batch, 0, 512, 387);
    assert_int_equal(qr_batch_copies(r.batch)[31].dst_tier, QR_TIER_RAM);
    assert_int_equal(qr_batch_copies(r.batch)[32].src_tier, QR_TIER_RAM);
    step(&r);
    assert_int_equal(r.batch->n_seqs, 2); // both choices draw from the shared prompt
    close_rig(&r);
}

QR_TEST(swap_of_a_half_computed_prompt_goes_to_the_next_leader)
{
    struct rig r;
    open_rig_at(&r, 64, 2);
    struct qr_sched_req *b = add(&r, 900, 2);
    b->class = 1; // worse than who comes next
    step(&r);
    struct qr_sched_req *first = add(&r, 500, 1);
    step(&r);
    is_row(r.batch, 0, 0, 500);
    assert_int_equal(snap(&r).n_slots_used[QR_TIER_RAM], 32);
    assert_int_equal(qr_sched_end(r.s, b, 0), -1);
    qr_sched_check(r.s);
    assert_int_equal(snap(&r).n_slots_used[QR_TIER_RAM], 32);
    end(&r, first);
    step(&r);
    is_row(r.batch, 0, 512, 388);
    close_rig(&r);
}

QR_TEST(swap_that_failed_is_recomputed)
{
    struct rig r;
    open_rig(&r, 10, 8);
    struct qr_sched_req *a = add(&r, 64, 1), *b = add(&r, 63, 1);
    do {
        plan(&r);
        if (snap(&r).n_preemptions > 0) break;
        qr_sched_computed(r.s);
        for (int32_t i = 0; i < r.batch->n_seqs; i++)
            if (r.plan->grants[i].flags & QR_BATCH_SAMPLE)
                qr_sched_append(r.plan->grants[i].r, r.plan->grants[i].seq, 7);
    } while (true);
    qr_sched_failed(r.s);
    end(&r, a); // as all requests of the batch
    assert_int_equal(b->seqs[0].n_computed, 0);
    assert_int_equal(snap(&r).n_slots_used[QR_TIER_RAM], 0);
    step(&r);
    is_row(r.batch, 0, 0, 80);
    close_rig(&r);
}

QR_TEST(swap_allocates_nothing_in_a_step)
{
    struct rig r;
    open_rig(&r, 12, 20);
    for (int i = 0; i < 4; i++) add(&r, 30, i == 3 ? 2 : 1);
    uint64_t calls = qr_mem_calls();
    for (int i = 0; i < 50; i++) step(&r);
    assert_true(snap(&r).n_swaps > 0);
    assert_int_equal(qr_mem_calls(), calls);
    close_rig(&r);
}
