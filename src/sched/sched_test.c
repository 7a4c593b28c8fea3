/* The scheduler by itself: exact plans, as a caller sees them. Blocks of 16 throughout. */
#include "sched/sched.h"

#include <string.h>

#include "base/mem.h"
#include "base/test.h"

struct rig {
    struct qr_sched *s;
    struct qr_sched_req *reqs[8];
    qr_req_id last_id;
    const struct qr_plan *plan;
    const struct qr_batch *batch;
};

static void open_rig(struct rig *r, int32_t n_seqs, int32_t budget, uint32_t n_blocks)
{
    *r = (struct rig){0};
    struct qr_sched_conf c = {.max_num_seqs = n_seqs,
                              .max_num_batched_tokens = budget,
                              .max_model_len = 1024,
                              .block_size = 16,
                              .n_blocks = n_blocks};
    assert_int_equal(qr_sched_new(&c, &r->s), QR_OK);
}

static struct qr_sched_req *add(struct rig *r, int32_t n_prompt, int32_t max_tokens, int32_t n,
                                int32_t priority)
{
    static int32_t ids[1024];
    for (int32_t i = 0; i < n_prompt; i++) ids[i] = i;
    struct qr_req q = {.prompt = ids,
                       .n_prompt = n_prompt,
                       .n_choices = n,
                       .priority = priority,
                       .sampling = {.max_tokens = max_tokens, .n_prompt_logprobs = -1, .n_logprobs = -1}};
    struct qr_sched_req **slot = &r->reqs[r->last_id++];
    assert_int_equal(qr_sched_req_new(&q, r->last_id, slot), QR_OK);
    qr_sched_add(r->s, *slot);
    return *slot;
}

// One step: every sequence that is due draws token 1000 + step. Nothing ends by itself.
static void step(struct rig *r, int32_t budget)
{
    r->plan = qr_sched_plan(r->s, 1, budget);
    qr_sched_check(r->s);
    r->batch = qr_sched_batch(r->s);
    assert_non_null(r->batch);
    qr_batch_check(r->batch, 16, 4096);
    int32_t n = r->batch->n_seqs;
    qr_sched_computed(r->s);
    for (int32_t i = 0; i < n; i++)
        if (r->plan->grants[i].flags & QR_BATCH_SAMPLE)
            qr_sched_append(r->plan->grants[i].r, r->plan->grants[i].seq, 1000 + (int32_t)r->batch->step);
    qr_sched_check(r->s);
}

static void close_rig(struct rig *r)
{
    for (int i = 0; i < 8; i++) {
        if (!r->reqs[i]) continue;
        for (int32_t c = 0; c < r->reqs[i]->req->n_choices; c++) qr_sched_end(r->s, r->reqs[i], c);
        qr_sched_check(r->s);
        qr_sched_req_free(&r->reqs[i]);
    }
    struct qr_snapshot o = {0};
    qr_sched_snapshot(r->s, &o);
    assert_int_equal(o.n_blocks_free, o.n_blocks);
    assert_true(qr_sched_idle(r->s));
    qr_sched_free(&r->s);
}

// The batch as text: "slot:pos0+n" per row, in order.
static const char *rows(const struct qr_batch *b)
{
    static char text[256];
    int n = 0;
    for (int32_t i = 0; i < b->n_seqs; i++) {
        const struct qr_batch_seq *q = &qr_batch_seqs(b)[i];
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%d:%d+%d", i ? " " : "", q->slot, q->pos0,
                      q->n_tokens);
    }
    return text;
}

static void is_table(const struct qr_batch *b, int32_t i, int32_t n, const uint32_t *ids)
{
    assert_int_equal(qr_batch_seqs(b)[i].n_blocks, n);
    assert_memory_equal(qr_batch_table(b) + qr_batch_seqs(b)[i].first_block, ids, (size_t)n * sizeof *ids);
}

QR_TEST(sched_prefills_in_chunks_then_generates)
{
    struct rig r;
    open_rig(&r, 4, 32, 16);
    add(&r, 70, 10, 1, 0);
    step(&r, 32);
    assert_string_equal(rows(r.batch), "0:0+32");
    is_table(r.batch, 0, 2, (uint32_t[]){0, 1});
    assert_int_equal(qr_batch_seqs(r.batch)[0].flags, 0);
    step(&r, 32);
    assert_string_equal(rows(r.batch), "0:32+32");
    step(&r, 32);
    assert_string_equal(rows(r.batch), "0:64+6");
    assert_int_equal(qr_batch_seqs(r.batch)[0].flags, QR_BATCH_SAMPLE);
    is_table(r.batch, 0, 5, (uint32_t[]){0, 1, 2, 3, 4});
    step(&r, 32);
    assert_string_equal(rows(r.batch), "0:70+1");
    assert_int_equal(qr_batch_ids(r.batch)[0], 1003); // the token drawn in step 3
    close_rig(&r);
}

QR_TEST(sched_generating_rows_come_first_and_prompts_get_whole_tiles)
{
    struct rig r;
    open_rig(&r, 4, 64, 64);
    add(&r, 20, 10, 1, 0);
    add(&r, 200, 10, 1, 0);
    add(&r, 15, 10, 1, 0);
    step(&r, 64);
    assert_string_equal(rows(r.batch), "0:0+20 1:0+32"); // 44 were left: two tiles; 12 are less than a tile
    step(&r, 64);
    assert_string_equal(rows(r.batch), "0:20+1 1:32+48 2:0+15"); // a whole rest fits into less than a tile
    step(&r, 64);
    assert_string_equal(rows(r.batch), "0:21+1 1:80+48 2:15+1");
    step(&r, 10); // less than a tile is left: the prompt waits
    assert_string_equal(rows(r.batch), "0:22+1 2:16+1");
    close_rig(&r);
}

QR_TEST(sched_a_long_prompt_leaves_room_for_short_ones_behind_it)
{
    struct rig r;
    open_rig(&r, 4, 128, 256);
    add(&r, 1000, 10, 1, 0);
    step(&r, 128);
    assert_string_equal(rows(r.batch), "0:0+128");
    add(&r, 40, 10, 1, 0);
    add(&r, 900, 10, 1, 0);
    step(&r, 128);
    assert_string_equal(rows(r.batch),
                        "0:128+80 1:0+40"); // the short one whole, the long one the tiles before it
    step(&r, 128);
    assert_string_equal(rows(r.batch),
                        "0:208+96 1:40+1 2:0+16"); // a tile, so that who comes behind it is next
    add(&r, 70, 10, 1, 0);
    step(&r, 128);
    assert_string_equal(rows(r.batch), "0:304+96 1:41+1 3:0+16"); // more than half is not given
    step(&r, 128);
    assert_string_equal(rows(r.batch), "0:400+64 1:42+1 3:16+54");
    step(&r, 128);
    assert_string_equal(rows(r.batch), "0:464+112 1:43+1 3:70+1"); // in the end first come, first served
    close_rig(&r);
}

QR_TEST(sched_a_tiny_budget_still_computes_a_prompt_alone)
{
    struct rig r;
    open_rig(&r, 4, 5, 64);
    add(&r, 12, 10, 1, 0);
    step(&r, 5);
    assert_string_equal(rows(r.batch), "0:0+5");
    step(&r, 5);
    step(&r, 5);
    assert_string_equal(rows(r.batch), "0:10+2");
    close_rig(&r);
}

QR_TEST(sched_rotates_when_generating_rows_exceed_the_budget)
{
    struct rig r;
    open_rig(&r, 5, 64, 64);
    for (int i = 0; i < 5; i++) add(&r, 8, 50, 1, 0);
    step(&r, 64);
    step(&r, 2);
    assert_string_equal(rows(r.batch), "0:8+1 1:8+1");
    step(&r, 2);
    assert_string_equal(rows(r.batch), "2:8+1 3:8+1");
    step(&r, 2);
    assert_string_equal(rows(r.batch), "0:9+1 4:8+1"); // the round goes on; rows stand in serving order
    assert_int_equal(qr_sched_end(r.s, r.reqs[1], 0), 1);
    step(&r, 2);
    assert_string_equal(rows(r.batch), "2:9+1 3:9+1");
    close_rig(&r);
}

QR_TEST(sched_a_prompt_gets_a_tile_although_generating_rows_fill_the_budget)
{
    struct rig r;
    open_rig(&r, 8, 64, 64);
    for (int i = 0; i < 4; i++) add(&r, 8, 200, 1, 0);
    step(&r, 64);
    add(&r, 64, 10, 1, 0);
    int waited = 0;
    for (step(&r, 4); r.reqs[4]->seqs[0].n_computed == 0; step(&r, 4)) waited++;
    assert_int_equal(waited, 32);
    close_rig(&r);
}

QR_TEST(sched_admits_in_order_while_slots_and_blocks_last)
{
    struct rig r;
    open_rig(&r, 3, 512, 16);
    add(&r, 64, 20, 1, 0);  // 4 blocks
    add(&r, 100, 20, 1, 0); // 7, and 2 spare ones
    add(&r, 16, 20, 1, 0);  // 1 and 3 spare ones: 15 of 16
    add(&r, 16, 20, 1, 0);  // no slot
    step(&r, 512);
    assert_string_equal(rows(r.batch), "0:0+64 1:0+100 2:0+16");
    assert_int_equal(r.reqs[3]->state, QR_SCHED_WAITING);
    assert_int_equal(qr_sched_end(r.s, r.reqs[0], 0), 0);
    step(&r, 512);
    // The freed slot and its blocks, newest first, serve the next request.
    assert_string_equal(rows(r.batch), "1:100+1 2:16+1 0:0+16");
    close_rig(&r);
}

QR_TEST(sched_a_request_that_finds_no_room_holds_back_those_behind_it)
{
    struct rig r;
    open_rig(&r, 4, 512, 16);
    add(&r, 128, 20, 1, 0); // 8 blocks
    add(&r, 128, 20, 1, 0); // 8 more and 2 spare: not now
    add(&r, 16, 20, 1, 0);  // would fit; first come, first served
    step(&r, 512);
    assert_string_equal(rows(r.batch), "0:0+128");
    assert_int_equal(qr_sched_end(r.s, r.reqs[0], 0), 0);
    step(&r, 512);
    assert_string_equal(rows(r.batch), "0:0+128 1:0+16");
    close_rig(&r);
}

// Two requests of 4 blocks fill 8 of 9; each will want a fifth.
QR_TEST(sched_preempts_the_latest_and_resumes_it_with_its_tokens)
{
    struct rig r;
    open_rig(&r, 4, 512, 10);
    struct qr_sched_req *a = add(&r, 64, 60, 1, 0), *b = add(&r, 63, 60, 1, 0);
    step(&r, 512);
    assert_string_equal(rows(r.batch), "0:0+64 1:0+63");
    for (int i = 0; i < 16; i++) step(&r, 512); // a: block 5; b: block 5
    assert_int_equal(a->seqs[0].n_computed, 80);
    assert_int_equal(b->seqs[0].n_computed, 79);
    step(&r, 512); // a wants block 6, none is free: b yields
    assert_string_equal(rows(r.batch), "0:80+1");
    assert_int_equal(r.plan->n_preemptions, 1);
    assert_ptr_equal(r.plan->preemptions[0].victim, b);
    assert_ptr_equal(r.plan->preemptions[0].for_whom, a);
    assert_int_equal(r.plan->preemptions[0].n_tokens, 79);
    assert_int_equal(r.plan->n_orders, 1);
    assert_int_equal(r.plan->orders[0].kind, QR_ORDER_CLOSE);
    assert_int_equal(r.plan->orders[0].slot, 1);
    assert_int_equal(b->state, QR_SCHED_WAITING);
    assert_int_equal(b->n_preemptions, 1);
    step(&r, 512); // b knows 80 tokens: 5 blocks and 2 spare ones; 4 are free
    assert_string_equal(rows(r.batch), "0:81+1");
    assert_int_equal(qr_sched_end(r.s, a, 0), 0);
    step(&r, 512); // prompt and generated tokens, in one chunk, and on it goes
    assert_string_equal(rows(r.batch), "0:0+80");
    assert_int_equal(qr_batch_seqs(r.batch)[0].n_prompt, 63);
    assert_int_equal(qr_batch_seqs(r.batch)[0].flags, QR_BATCH_SAMPLE);
    assert_int_equal(qr_batch_ids(r.batch)[62], 62);
    assert_int_equal(qr_batch_ids(r.batch)[63], 1001);
    assert_int_equal(qr_batch_ids(r.batch)[79], 1017);
    struct qr_snapshot o = {0};
    qr_sched_snapshot(r.s, &o);
    assert_int_equal(o.n_preemptions, 1);
    assert_int_equal(o.n_preempted_tokens, 79);
    assert_int_equal(o.n_recomputed_tokens, 79);
    assert_int_equal(o.n_prompt_tokens, 127);
    close_rig(&r);
}

QR_TEST(sched_the_latest_waits_for_a_block_rather_than_give_up_its_own)
{
    struct rig r;
    open_rig(&r, 4, 512, 10);
    struct qr_sched_req *a = add(&r, 63, 60, 1, 0), *b = add(&r, 64, 60, 1, 0);
    step(&r, 512);
    for (int i = 0; i < 16; i++) step(&r, 512);
    step(&r, 512); // b wants block 6 and nobody came after it; a still has room for one token
    assert_string_equal(rows(r.batch), "0:79+1");
    assert_int_equal(r.plan->n_preemptions, 0);
    assert_int_equal(qr_sched_end(r.s, a, 0), 0);
    step(&r, 512);
    assert_string_equal(rows(r.batch), "1:80+1");
    assert_int_equal(b->n_preemptions, 0);
    close_rig(&r);
}

QR_TEST(sched_choices_share_the_prompt_and_copy_its_last_block)
{
    struct rig r;
    open_rig(&r, 4, 512, 16);
    add(&r, 21, 20, 3, 0);
    step(&r, 512);
    assert_string_equal(rows(r.batch), "0:0+20"); // the leader, without the last prompt token
    assert_int_equal(qr_batch_seqs(r.batch)[0].flags, 0);
    assert_int_equal(r.plan->n_orders, 3); // all slots are opened together
    step(&r, 512);
    assert_string_equal(rows(r.batch), "0:20+1 1:20+1 2:20+1");
    assert_int_equal(r.batch->n_copies, 2);
    is_table(r.batch, 0, 2, (uint32_t[]){0, 2});
    is_table(r.batch, 1, 2, (uint32_t[]){0, 3});
    is_table(r.batch, 2, 2, (uint32_t[]){0, 1}); // the last owner writes in place
    assert_int_equal(qr_batch_copies(r.batch)[0].src, 1);
    assert_int_equal(qr_batch_copies(r.batch)[0].dst, 2);
    assert_int_equal(qr_batch_copies(r.batch)[1].dst, 3);
    struct qr_snapshot o = {0};
    qr_sched_snapshot(r.s, &o);
    assert_int_equal(o.slots_allocated, 64);
    assert_int_equal(o.slots_filled, 16 + 3 * 5); // the shared block counts once
    close_rig(&r);
}

QR_TEST(sched_a_cancelled_leader_hands_its_blocks_on)
{
    struct rig r;
    open_rig(&r, 4, 32, 16);
    struct qr_sched_req *q = add(&r, 60, 20, 3, 0);
    step(&r, 32);
    assert_string_equal(rows(r.batch), "0:0+32");
    assert_int_equal(qr_sched_end(r.s, q, 0), 0);
    qr_sched_check(r.s);
    step(&r, 32);
    assert_string_equal(rows(r.batch), "1:32+27"); // choice 1 goes on where choice 0 was
    is_table(r.batch, 0, 4, (uint32_t[]){0, 1, 2, 3});
    assert_int_equal(qr_sched_end(r.s, q, 1), 1);
    step(&r, 32);
    assert_string_equal(rows(r.batch), "2:59+1");
    close_rig(&r);
}

QR_TEST(sched_scores_every_prompt_position_once)
{
    struct rig r;
    open_rig(&r, 4, 16, 16);
    struct qr_sched_req *q = add(&r, 33, 4, 1, 0);
    q->req->sampling.n_prompt_logprobs = 0;
    step(&r, 16);
    assert_int_equal(qr_batch_seqs(r.batch)[0].flags, QR_BATCH_SCORE);
    q->n_scored = 16;
    step(&r, 16);
    assert_int_equal(qr_batch_seqs(r.batch)[0].flags, QR_BATCH_SCORE);
    q->n_scored = 32; // of 33 positions the last is followed by no prompt token
    step(&r, 16);
    assert_int_equal(qr_batch_seqs(r.batch)[0].flags, QR_BATCH_SAMPLE);
    close_rig(&r);
}

QR_TEST(sched_allocates_nothing_in_a_step)
{
    struct rig r;
    open_rig(&r, 4, 64, 12);
    for (int i = 0; i < 4; i++) add(&r, 30, 100, i == 3 ? 2 : 1, 0);
    uint64_t calls = qr_mem_calls();
    for (int i = 0; i < 90; i++) step(&r, 64); // admissions, forks, copies and preemptions among them
    struct qr_snapshot o = {0};
    qr_sched_snapshot(r.s, &o);
    assert_true(o.n_preemptions > 0);
    assert_int_equal(qr_mem_calls(), calls);
    close_rig(&r);
}

QR_TEST(sched_dump_shows_requests_tables_and_pool)
{
    struct rig r;
    open_rig(&r, 1, 64, 12);
    char text[1024] = "";
    add(&r, 20, 5, 1, 0);
    add(&r, 20, 5, 1, 0);
    step(&r, 64);
    FILE *f = fmemopen(text, sizeof text, "w");
    qr_sched_dump(r.s, f);
    fclose(f);
    assert_non_null(strstr(
        text,
        "running request 1: order 1, prompt 20, preempted 0 times\n  choice 0: slot 0, computed 20 of 21\n"));
    assert_non_null(strstr(text, "waiting request 2"));
    assert_non_null(strstr(text, "table 0: 0 1\n"));
    close_rig(&r);
}
