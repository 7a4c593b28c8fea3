/* The prefix cache as the scheduler uses it: exact plans. Blocks of 16 throughout. */
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "sched/sched_internal.h"

struct rig {
    struct qr_sched *s;
    struct qr_sched_req *reqs[8];
    int n_reqs;
    const struct qr_plan *plan;
    const struct qr_batch *batch;
    int32_t token; // the next one that is drawn
};

static struct rig open_rig(uint32_t n_blocks, bool exact)
{
    struct rig r = {.token = 1000};
    struct qr_sched_conf c = {.max_num_seqs = 4,
                              .max_num_batched_tokens = 512,
                              .max_model_len = 512,
                              .block_size = 16,
                              .n_blocks = n_blocks,
                              .prefix_caching = true,
                              .exact = exact};
    assert_int_equal(qr_sched_new(&c, &r.s), QR_OK);
    return r;
}

struct ask {
    int32_t n_prompt, first, max_tokens, n;
    uint64_t tenant;
    bool no_cache_read, scores;
    const int32_t *ids; // NULL: first, first + 1, ...
};

static struct qr_sched_req *add(struct rig *r, const struct ask *a)
{
    static int32_t ids[512];
    for (int32_t i = 0; i < a->n_prompt; i++) ids[i] = a->ids ? a->ids[i] : a->first + i;
    struct qr_req q = {.prompt = ids,
                       .n_prompt = a->n_prompt,
                       .n_choices = a->n ? a->n : 1,
                       .tenant = a->tenant,
                       .no_cache_read = a->no_cache_read,
                       .sampling = {.max_tokens = a->max_tokens,
                                    .n_prompt_logprobs = a->scores ? 0 : -1,
                                    .n_logprobs = -1}};
    struct qr_sched_req **slot = &r->reqs[r->n_reqs++];
    assert_int_equal(qr_sched_req_new(&q, (qr_req_id)r->n_reqs, slot), QR_OK);
    qr_sched_add(r->s, *slot);
    return *slot;
}

static void step(struct rig *r)
{
    r->plan = qr_sched_plan(r->s, 1, 512);
    qr_sched_check(r->s);
    r->batch = qr_sched_batch(r->s);
    assert_non_null(r->batch);
    qr_batch_check(r->batch, 16, 4096);
    int32_t n = r->batch->n_seqs;
    qr_sched_computed(r->s);
    for (int32_t i = 0; i < n; i++)
        if (r->plan->grants[i].flags & QR_BATCH_SAMPLE)
            qr_sched_append(r->plan->grants[i].r, r->plan->grants[i].seq, r->token++);
    qr_sched_check(r->s);
}

static void end(struct rig *r, struct qr_sched_req *q)
{
    for (int32_t c = 0; c < q->req->n_choices; c++) qr_sched_end(r->s, q, c);
    qr_sched_check(r->s);
}

static void close_rig(struct rig *r)
{
    for (int i = 0; i < r->n_reqs; i++) {
        end(r, r->reqs[i]);
        qr_sched_req_free(&r->reqs[i]);
    }
    struct qr_snapshot o = {0};
    qr_sched_snapshot(r->s, &o);
    assert_int_equal(o.n_blocks_free, o.n_blocks);
    assert_true(qr_sched_trim(r->s));
    qr_sched_check(r->s);
    qr_sched_free(&r->s);
}

static const char *rows(const struct rig *r)
{
    static char text[256];
    int n = 0;
    for (int32_t i = 0; i < r->batch->n_seqs; i++) {
        const struct qr_batch_seq *q = &qr_batch_seqs(r->batch)[i];
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%d:%d+%d", i ? " " : "", q->slot, q->pos0, q->n_tokens);
    }
    return text;
}

static void is_table(const struct rig *r, int32_t i, int32_t n, const uint32_t *ids)
{
    const struct qr_batch_seq *q = &qr_batch_seqs(r->batch)[i];
    assert_int_equal(q->n_blocks, n);
    assert_memory_equal(qr_batch_table(r->batch) + q->first_block, ids, (size_t)n * sizeof *ids);
}

static struct qr_snapshot counts(const struct rig *r)
{
    struct qr_snapshot o = {0};
    qr_sched_snapshot(r->s, &o);
    return o;
}

// The worked example of the README.
QR_TEST(sched_begins_with_what_another_left)
{
    struct rig r = open_rig(10, false);
    struct qr_sched_req *a = add(&r, &(struct ask){.n_prompt = 40, .max_tokens = 20});
    step(&r);
    assert_string_equal(rows(&r), "0:0+40");
    for (int i = 0; i < 9; i++) step(&r);
    assert_int_equal(a->seqs[0].n_computed, 49); // block 2 is full with 8 generated tokens, block 3 has one
    end(&r, a);
    assert_int_equal(counts(&r).n_blocks_cached, 4);
    // The next turn: prompt, answer, and 10 tokens more.
    int32_t turn[60];
    for (int32_t i = 0; i < 40; i++) turn[i] = i;
    for (int32_t i = 0; i < 10; i++) turn[40 + i] = 1000 + i;
    for (int32_t i = 0; i < 10; i++) turn[50 + i] = 500 + i;
    struct qr_sched_req *b = add(&r, &(struct ask){.n_prompt = 60, .max_tokens = 20, .ids = turn});
    step(&r);
    assert_string_equal(rows(&r), "0:49+11");
    is_table(&r, 0, 4, (uint32_t[]){0, 1, 2, 4});
    assert_int_equal(r.batch->n_copies, 1);
    assert_int_equal(qr_batch_copies(r.batch)[0].src, 3);
    assert_int_equal(qr_batch_copies(r.batch)[0].dst, 4);
    assert_int_equal(b->n_cached, 49);
    struct qr_snapshot o = counts(&r);
    assert_int_equal(o.n_cache_queries, 100);
    assert_int_equal(o.n_cache_hits, 49);
    assert_int_equal(o.n_cache_generated, 9); // the last one that was drawn has no K and V
    assert_int_equal(o.n_prompt_tokens, 40 + 11);
    // Another tenant's, the same: it shares nothing.
    add(&r, &(struct ask){.n_prompt = 60, .max_tokens = 20, .ids = turn, .tenant = 5});
    step(&r);
    assert_string_equal(rows(&r), "0:60+1 1:0+60");
    is_table(&r, 1, 4, (uint32_t[]){5, 6, 7, 8});
    assert_int_equal(counts(&r).n_cache_hits, 49);
    close_rig(&r);
}

QR_TEST(sched_choices_copy_one_cached_block_each)
{
    struct rig r = open_rig(16, false);
    struct qr_sched_req *a = add(&r, &(struct ask){.n_prompt = 22, .max_tokens = 20});
    step(&r);
    end(&r, a);
    struct qr_sched_req *b = add(&r, &(struct ask){.n_prompt = 22, .max_tokens = 20, .n = 3});
    step(&r); // nothing is left for the leader: all part at once
    assert_string_equal(rows(&r), "0:21+1 1:21+1 2:21+1");
    for (int32_t i = 0; i < 3; i++) {
        is_table(&r, i, 2, (uint32_t[]){0, 2 + (uint32_t)i});
        assert_int_equal(qr_batch_copies(r.batch)[i].src, 1);
    }
    assert_int_equal(b->n_cached, 21);
    close_rig(&r);
}

// As sched_preempts_the_latest_and_resumes_it_with_its_tokens, but what B left is there when it comes back.
QR_TEST(sched_a_preempted_request_finds_its_own_blocks)
{
    struct rig r = open_rig(10, false);
    struct qr_sched_req *a = add(&r, &(struct ask){.n_prompt = 64, .max_tokens = 60});
    struct qr_sched_req *b = add(&r, &(struct ask){.n_prompt = 63, .first = 200, .max_tokens = 60});
    for (int i = 0; i < 18; i++) step(&r);
    assert_int_equal(b->n_preemptions, 1);
    assert_int_equal(b->n_live, 1);
    assert_int_equal(counts(&r).n_blocks_cached, 4); // of its 5, A took the last
    end(&r, a);
    step(&r);
    assert_string_equal(rows(&r), "0:64+16");
    struct qr_snapshot o = counts(&r);
    assert_int_equal(o.n_recomputed_tokens, 79 - 64);
    assert_int_equal(o.n_prompt_tokens, 127);
    assert_int_equal(o.n_cache_hits, 0); // what it had computed itself is no hit
    assert_int_equal(b->n_cached, 0);
    close_rig(&r);
}

QR_TEST(sched_a_preempted_request_takes_no_answer_for_its_prompt_and_no_prompt_for_its_answer)
{
    struct rig r = open_rig(32, false);
    struct qr_sched_req *a = add(&r, &(struct ask){.n_prompt = 32, .max_tokens = 60});
    for (int i = 0; i < 17; i++) step(&r); // draws 1000 .. 1016
    sched_preempt(r.s, a, a);
    qr_sched_reset_prefix(r.s); // all that it left is gone
    // Somebody else's prompt is all that A has, computed as a prompt.
    int32_t ids[49];
    for (int32_t i = 0; i < 32; i++) ids[i] = i;
    for (int32_t i = 0; i < 17; i++) ids[32 + i] = 1000 + i;
    qr_queue_remove(&r.s->waiting, a);
    struct qr_sched_req *b = add(&r, &(struct ask){.n_prompt = 49, .max_tokens = 2, .ids = ids});
    step(&r);
    assert_string_equal(rows(&r), "0:0+49");
    end(&r, b);
    qr_queue_insert(&r.s->waiting, a);
    step(&r);
    assert_string_equal(rows(&r), "0:32+17"); // the prompt's two blocks, not the third
    close_rig(&r);
}

QR_TEST(sched_a_preempted_request_computes_again_in_the_classes_that_it_had)
{
    struct rig r = open_rig(32, false);
    struct qr_sched_req *a = add(&r, &(struct ask){.n_prompt = 20, .max_tokens = 60});
    for (int i = 0; i < 14; i++) step(&r); // draws 1000 .. 1013, of which 13 have K and V
    end(&r, a);
    int32_t ids[50];
    for (int32_t i = 0; i < 50; i++) ids[i] = i < 20 ? i : i < 34 ? 1000 + i - 20 : 500 + i;
    struct qr_sched_req *b = add(&r, &(struct ask){.n_prompt = 50, .max_tokens = 20, .ids = ids});
    for (int i = 0; i < 3; i++) step(&r);
    assert_int_equal(b->n_cached, 33);
    assert_int_equal(b->seqs[0].n_computed, 52);
    sched_preempt(r.s, b, b);
    qr_sched_reset_prefix(r.s);
    step(&r); // positions 20 to 32 came from an answer: they are computed as one
    assert_string_equal(rows(&r), "0:0+20");
    assert_int_equal(qr_batch_seqs(r.batch)[0].flags, 0);
    step(&r);
    assert_string_equal(rows(&r), "0:20+13");
    assert_int_equal(qr_batch_seqs(r.batch)[0].flags, QR_BATCH_EXACT);
    step(&r);
    assert_string_equal(rows(&r), "0:33+20");
    assert_int_equal(qr_batch_seqs(r.batch)[0].flags, QR_BATCH_SAMPLE);
    assert_int_equal(counts(&r).n_cache_generated, 13);
    close_rig(&r);
}

QR_TEST(sched_two_that_compute_the_same_at_once_do_not_disturb_each_other)
{
    struct rig r = open_rig(8, false);
    struct qr_sched_req *a = add(&r, &(struct ask){.n_prompt = 40, .max_tokens = 60});
    struct qr_sched_req *b = add(&r, &(struct ask){.n_prompt = 40, .max_tokens = 60});
    step(&r);
    assert_string_equal(rows(&r), "0:0+40 1:0+40");
    is_table(&r, 0, 3, (uint32_t[]){0, 1, 2});
    is_table(&r, 1, 3, (uint32_t[]){3, 4, 5});
    assert_int_equal(qr_kv_prefix_n_blocks(r.s->prefix), 2); // those of A
    for (int i = 0; i < 8; i++) step(&r);
    assert_int_equal(qr_kv_prefix_n_blocks(r.s->prefix), 4); // the answers differ
    end(&r, a);
    assert_true(qr_kv_pool_is_cached(r.s->pool, 5));
    // Another request takes what is free: A's blocks 2 and 1 are evicted, and with 1 what B has behind it is lost
    // until that step has ended: then B's own blocks are found.
    struct qr_sched_req *c = add(&r, &(struct ask){.n_prompt = 30, .first = 300, .max_tokens = 17});
    for (int i = 0; i < 6; i++) step(&r);
    assert_int_equal(c->seqs[0].n_computed, 35);
    assert_false(qr_kv_pool_is_cached(r.s->pool, 1));
    assert_true(qr_kv_pool_is_cached(r.s->pool, 4) && qr_kv_pool_is_cached(r.s->pool, 5));
    assert_int_equal(b->seqs[0].place.block, 5);
    end(&r, c);
    struct qr_sched_req *d = add(&r, &(struct ask){.n_prompt = 40, .max_tokens = 1});
    step(&r);
    assert_int_equal(d->n_cached, 32); // blocks 3 and 4; to copy 5, one more would have to be free
    close_rig(&r);
}

QR_TEST(sched_tokens_behind_a_stop_are_forgotten)
{
    for (int32_t n_kept = 33; n_kept < 52; n_kept++) {
        struct rig r = open_rig(16, false);
        struct qr_sched_req *a = add(&r, &(struct ask){.n_prompt = 33, .max_tokens = 40});
        for (int i = 0; i < 20; i++) step(&r);
        assert_int_equal(a->seqs[0].n_ids, 53);
        assert_int_equal(qr_kv_prefix_n_blocks(r.s->prefix), 3);
        a->seqs[0].n_kept = n_kept; // as the engine does when a stop string was found in the token before
        end(&r, a);
        int32_t ids[64];
        for (int32_t i = 0; i < 33; i++) ids[i] = i;
        for (int32_t i = 33; i < 64; i++) ids[i] = 1000 + i - 33;
        struct qr_sched_req *b = add(&r, &(struct ask){.n_prompt = 60, .max_tokens = 1, .ids = ids});
        step(&r);
        assert_int_equal(b->n_cached, n_kept);
        close_rig(&r);
    }
}

QR_TEST(sched_who_may_not_read_the_cache_computes_and_leaves_its_blocks)
{
    struct rig r = open_rig(16, false);
    struct qr_sched_req *a = add(&r, &(struct ask){.n_prompt = 40, .max_tokens = 2});
    step(&r);
    end(&r, a);
    struct qr_sched_req *b = add(&r, &(struct ask){.n_prompt = 40, .max_tokens = 2, .no_cache_read = true});
    step(&r);
    assert_string_equal(rows(&r), "0:0+40");
    end(&r, b);
    struct qr_sched_req *c = add(&r, &(struct ask){.n_prompt = 40, .max_tokens = 2, .scores = true});
    step(&r);
    assert_string_equal(rows(&r), "0:0+40");
    assert_int_equal(counts(&r).n_cache_queries, 40); // A's
    assert_int_equal(b->n_cached + c->n_cached, 0);
    close_rig(&r);
}

QR_TEST(sched_admits_by_what_sharing_leaves_to_take)
{
    // A and B share 4 blocks of 5; without sharing, 10 blocks and two to spare would be 12.
    struct rig r = open_rig(8, false);
    add(&r, &(struct ask){.n_prompt = 70, .max_tokens = 8});
    step(&r);
    add(&r, &(struct ask){.n_prompt = 70, .max_tokens = 8});
    step(&r);
    assert_string_equal(rows(&r), "0:70+1 1:64+6");
    is_table(&r, 1, 5, (uint32_t[]){0, 1, 2, 3, 5});
    // In a pool of 5 nothing is left to copy a block to: the last one is computed.
    struct rig small = open_rig(5, false);
    struct qr_sched_req *a = add(&small, &(struct ask){.n_prompt = 70, .max_tokens = 8});
    step(&small);
    end(&small, a);
    add(&small, &(struct ask){.n_prompt = 70, .max_tokens = 8});
    step(&small);
    assert_string_equal(rows(&small), "0:64+6");
    close_rig(&small);
    close_rig(&r);
}

QR_TEST(sched_exact_numerics_know_one_class)
{
    struct rig r = open_rig(16, true);
    struct qr_sched_req *a = add(&r, &(struct ask){.n_prompt = 30, .max_tokens = 20});
    for (int i = 0; i < 4; i++) {
        step(&r);
        assert_true(qr_batch_seqs(r.batch)[0].flags & QR_BATCH_EXACT);
    }
    end(&r, a);
    int32_t ids[40];
    for (int32_t i = 0; i < 40; i++) ids[i] = i < 30 ? i : 1000 + i - 30;
    add(&r, &(struct ask){.n_prompt = 40, .max_tokens = 2, .ids = ids});
    step(&r);
    assert_string_equal(rows(&r), "0:33+7");
    assert_int_equal(counts(&r).n_cache_generated, 0);
    close_rig(&r);
}

QR_TEST(sched_prefix_allocates_nothing_in_a_step)
{
    struct rig r = open_rig(12, false);
    for (int i = 0; i < 4; i++) add(&r, &(struct ask){.n_prompt = 30 + i, .max_tokens = 100, .n = i == 3 ? 2 : 1});
    uint64_t calls = qr_mem_calls();
    for (int i = 0; i < 90; i++) step(&r);
    assert_true(counts(&r).n_preemptions > 0);
    qr_sched_reset_prefix(r.s);
    for (int i = 0; i < 10; i++) step(&r);
    assert_int_equal(qr_mem_calls(), calls);
    close_rig(&r);
}
