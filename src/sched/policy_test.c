/* Policies over the scheduler: exact orders of admission, who makes way for whom, ageing, sharing. */
#include "sched/policy.h"

#include <string.h>

#include "base/test.h"
#include "sched/sched.h"

enum { N = 64 };
static struct {
    struct qr_sched *s;
    struct qr_sched_req *reqs[N];
    int n;
    const struct qr_plan *plan;
} rig;

static void open_rig(const char *policy, int32_t n_seqs, uint32_t n_blocks, int32_t starve_steps)
{
    memset(&rig, 0, sizeof rig);
    struct qr_sched_conf c = {.max_num_seqs = n_seqs,
                              .max_num_batched_tokens = 256,
                              .max_model_len = 512,
                              .block_size = 16,
                              .n_blocks = n_blocks,
                              .policy = qr_policy_find(policy),
                              .starve_steps = starve_steps};
    assert_int_equal(qr_sched_new(&c, &rig.s), QR_OK);
}

static int add(int32_t n_prompt, int32_t priority, uint64_t key)
{
    static int32_t ids[256];
    struct qr_req q = {.prompt = ids,
                       .n_prompt = n_prompt,
                       .n_choices = 1,
                       .priority = priority,
                       .fair_key = key,
                       .sampling = {.max_tokens = 200, .n_prompt_logprobs = -1, .n_logprobs = -1}};
    assert_int_equal(qr_sched_req_new(&q, (qr_req_id)rig.n + 1, &rig.reqs[rig.n]), QR_OK);
    qr_sched_add(rig.s, rig.reqs[rig.n]);
    return rig.n++;
}

static void step(void)
{
    rig.plan = qr_sched_plan(rig.s, 1, 256);
    qr_sched_check(rig.s);
    int32_t n = rig.plan->n_grants;
    assert_non_null(qr_sched_batch(rig.s));
    qr_sched_computed(rig.s);
    for (int32_t i = 0; i < n; i++)
        if (rig.plan->grants[i].flags & QR_BATCH_SAMPLE)
            qr_sched_append(rig.plan->grants[i].r, rig.plan->grants[i].seq, 7);
    qr_sched_check(rig.s);
}

static void end(int i)
{
    qr_sched_end(rig.s, rig.reqs[i], 0);
    qr_sched_check(rig.s);
}

static const char *running(void)
{
    static char text[N * 4];
    int n = 0;
    text[0] = 0;
    for (int i = 0; i < rig.n; i++)
        if (rig.reqs[i]->state == QR_SCHED_RUNNING) n += sprintf(text + n, "%s%d", n ? " " : "", i);
    return text;
}

static void close_rig(void)
{
    for (int i = 0; i < rig.n; i++) {
        if (rig.reqs[i]->state != QR_SCHED_ENDED) end(i);
        qr_sched_req_free(&rig.reqs[i]);
    }
    assert_true(qr_sched_idle(rig.s));
    qr_sched_free(&rig.s);
}

QR_TEST(policy_priority_beats_arrival_in_admission_and_preemption)
{
    open_rig("priority", 4, 10, 0);
    int low = add(64, 1, 0), high = add(64, 0, 0);
    step();
    assert_int_equal(rig.reqs[high]->seqs[0].slot, 0); // it went first
    for (int i = 0; i < 17; i++) step();
    assert_int_equal(rig.reqs[low]->state, QR_SCHED_WAITING);
    assert_int_equal(rig.reqs[high]->seqs[0].n_computed, 81);
    close_rig();
}

QR_TEST(policy_priority_takes_the_slot_of_a_running_request)
{
    open_rig("priority", 2, 64, 0);
    int a = add(20, 5, 0), b = add(20, 5, 0);
    step();
    add(20, 5, 0); // an equal one waits
    step();
    assert_string_equal(running(), "0 1");
    int high = add(20, -1, 0);
    step(); // the latest of the worse class makes way, and the better one begins in the same step
    assert_int_equal(rig.plan->n_preemptions, 1);
    assert_ptr_equal(rig.plan->preemptions[0].victim, rig.reqs[b]);
    assert_ptr_equal(rig.plan->preemptions[0].for_whom, rig.reqs[high]);
    assert_string_equal(running(), "0 3");
    end(high);
    step(); // who was preempted comes back before its equal that never ran
    assert_string_equal(running(), "0 1");
    assert_int_equal(rig.reqs[b]->seqs[0].n_ids, 23); // with what it had generated, and one more
    end(a);
    step();
    assert_string_equal(running(), "1 2");
    struct qr_snapshot o = {0};
    qr_sched_snapshot(rig.s, &o);
    assert_int_equal(o.n_yields, 1);
    close_rig();
}

QR_TEST(policy_priority_takes_blocks_only_where_they_suffice)
{
    open_rig("priority", 4, 16, 0);
    add(100, 0, 0); // 7 blocks
    add(50, 5, 0);  // 4
    step();
    int high = add(200, 0, 0); // 13 blocks and spare ones: also without the worse request there is no room
    step();
    assert_string_equal(running(), "0 1");
    assert_int_equal(rig.plan->n_preemptions, 0);
    end(high);
    int better = add(70, 0, 0); // 5 and spare ones: with the worse one's there is
    step();
    assert_string_equal(running(), "0 3");
    assert_int_equal(rig.reqs[better]->state, QR_SCHED_RUNNING);
    close_rig();
}

QR_TEST(policy_priority_does_not_play_ping_pong)
{
    open_rig("priority", 1, 64, 0);
    int low = add(20, 5, 0), n = 0;
    for (step(); n < 10; n++) {
        int high = add(20, 0, 0);
        step();
        if (rig.reqs[high]->state != QR_SCHED_RUNNING) break;
        end(high);
        step();
        assert_int_equal(rig.reqs[low]->state, QR_SCHED_RUNNING);
    }
    assert_int_equal(n, 4); // then it keeps its place until it ends
    close_rig();
}

QR_TEST(policy_priority_starves_nobody)
{
    open_rig("priority", 1, 64, 5);
    int high = add(20, 0, 0), n = 0;
    step();
    int low = add(20, 9, 0);
    for (; rig.reqs[low]->state != QR_SCHED_RUNNING; n++) {
        int next = add(20, 0, 0);
        end(high);
        high = next;
        step();
    }
    assert_int_equal(n, 6); // five later ones went before it
    assert_true(rig.reqs[low]->aged);
    step();
    assert_int_equal(rig.reqs[low]->state, QR_SCHED_RUNNING); // and nobody takes its place again
    close_rig();
}

QR_TEST(policy_fcfs_knows_no_priority)
{
    open_rig("fcfs", 1, 64, 0);
    int a = add(20, 0, 1);
    step();
    add(20, 9, 1);
    add(20, -9, 2);
    step();
    end(a);
    step();
    assert_string_equal(running(), "1");
    close_rig();
}

QR_TEST(policy_fair_lets_a_small_client_past_a_flood)
{
    open_rig("fair", 2, 64, 0);
    for (int i = 0; i < 20; i++) add(40, 0, 1);
    step();
    assert_string_equal(running(), "0 1");
    add(40, 0, 2);
    end(0);
    step();
    assert_string_equal(running(), "1 2"); // equal so far: the older
    end(1);
    step();
    assert_string_equal(running(), "2 20");
    close_rig();
}
