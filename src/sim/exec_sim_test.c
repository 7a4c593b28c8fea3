#include "sim/exec_sim.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/test.h"

static uint64_t mem[4096];
static const int32_t prompt[64] = {5, 6, 7, 8, 9};

static struct qr_exec *open_sim(struct qr_clock_virtual *clock)
{
    struct qr_exec *x = NULL;
    struct qr_exec_sim_conf c = {.n_slots = 4,
                                 .n_tokens_max = 64,
                                 .block_size = 4,
                                 .n_vocab = 100,
                                 .ctx_max = 64,
                                 .n_blocks = 8,
                                 .clock = clock ? &clock->face : NULL,
                                 .n_ram = 2,
                                 .costs = {1, 1000, 10, 100, 2, 500, 0},
                                 .shadow = true};
    assert_int_equal(qr_exec_sim_new(&c, &x, NULL), QR_OK);
    return x;
}

// A batch of one sequence with the given table.
static struct qr_batch *batch(uint64_t step, int32_t slot, int32_t pos0, int32_t n, const int32_t *ids,
                              int32_t n_blocks, const uint32_t *table, uint32_t flags)
{
    struct qr_batch_caps caps = {.n_seqs = 1, .n_tokens = n, .n_table = n_blocks, .n_copies = 1};
    struct qr_batch *b = qr_batch_init(mem, &caps);
    b->step = step;
    b->n_seqs = 1, b->n_tokens = n, b->n_table = n_blocks;
    qr_batch_seqs(b)[0] = (struct qr_batch_seq){slot, n, pos0, 5, 0, 0, n_blocks, flags};
    memcpy(qr_batch_ids(b), ids, (size_t)n * sizeof *ids);
    memcpy(qr_batch_table(b), table, (size_t)n_blocks * sizeof *table);
    return b;
}

static int32_t run(struct qr_exec *x, const struct qr_batch *b)
{
    struct qr_exec_result res;
    qr_ticket t;
    assert_int_equal(x->ops->submit(x, b, &t), QR_OK);
    assert_int_equal(x->ops->wait(x, t, &res), QR_OK);
    return res.n_rows ? res.rows[res.n_rows - 1].token : -1;
}

static bool aborts(struct qr_exec *x, const struct qr_batch *b)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL);
        close(STDERR_FILENO);
        run(x, b);
        signal(SIGKILL, SIG_DFL);
        raise(SIGKILL);
    }
    int st = 0;
    waitpid(pid, &st, 0);
    return WIFSIGNALED(st) && WTERMSIG(st) == SIGABRT;
}

QR_TEST(sim_tokens_depend_on_history_seed_and_choice_alone)
{
    struct qr_exec *x = open_sim(NULL);
    struct qr_sampling a = {.seed = 1, .max_tokens = 20}, b = {.seed = 2, .max_tokens = 20};
    assert_int_equal(x->ops->seq_open(x, 0, &a, 0, prompt, 5, 5), QR_OK);
    assert_int_equal(x->ops->seq_open(x, 1, &a, 0, prompt, 5, 5), QR_OK);
    assert_int_equal(x->ops->seq_open(x, 2, &b, 0, prompt, 5, 5), QR_OK);
    assert_int_equal(x->ops->seq_open(x, 3, &a, 1, prompt, 5, 5), QR_OK);
    int32_t t0 = run(x, batch(1, 0, 0, 5, prompt, 2, (uint32_t[]){0, 1}, QR_BATCH_SAMPLE));
    run(x, batch(2, 1, 0, 3, prompt, 1, (uint32_t[]){3}, 0)); // in two chunks, elsewhere
    assert_int_equal(run(x, batch(3, 1, 3, 2, prompt + 3, 2, (uint32_t[]){3, 2}, QR_BATCH_SAMPLE)), t0);
    int32_t t2 = run(x, batch(4, 2, 0, 5, prompt, 2, (uint32_t[]){4, 5}, QR_BATCH_SAMPLE));
    int32_t t3 = run(x, batch(5, 3, 0, 5, prompt, 2, (uint32_t[]){6, 7}, QR_BATCH_SAMPLE));
    assert_true(t2 != t0 && t3 != t0 && t2 != t3);
    int32_t ids[6] = {5, 6, 7, 8, 9, t0};
    int32_t t4 = run(x, batch(6, 0, 5, 1, ids + 5, 2, (uint32_t[]){0, 1}, QR_BATCH_SAMPLE));
    x->ops->seq_close(x, 1); // preempted and recomputed: the same continuation
    assert_int_equal(x->ops->seq_open(x, 1, &a, 0, ids, 5, 6), QR_OK);
    assert_int_equal(run(x, batch(7, 1, 0, 6, ids, 2, (uint32_t[]){2, 3}, QR_BATCH_SAMPLE)), t4);
    x->ops->close(x);
}

QR_TEST(sim_shadow_catches_wrong_blocks)
{
    struct qr_exec *x = open_sim(NULL);
    struct qr_sampling a = {.seed = 1, .max_tokens = 20};
    int32_t other[5] = {9, 9, 9, 9, 9};
    assert_int_equal(x->ops->seq_open(x, 0, &a, 0, prompt, 5, 5), QR_OK);
    assert_int_equal(x->ops->seq_open(x, 1, &a, 0, other, 5, 5), QR_OK);
    run(x, batch(1, 0, 0, 4, prompt, 1, (uint32_t[]){0}, 0));
    run(x, batch(2, 1, 0, 4, other, 1, (uint32_t[]){1}, 0));
    assert_true(aborts(x, batch(3, 0, 4, 1, prompt + 4, 2, (uint32_t[]){1, 2}, 0))); // another's block
    assert_true(aborts(x, batch(3, 0, 4, 1, prompt + 4, 2, (uint32_t[]){3, 2}, 0))); // never written
    assert_true(aborts(x, batch(3, 0, 4, 1, prompt, 2, (uint32_t[]){0, 2}, 0)));     // not its tokens
    assert_true(
        aborts(x, batch(3, 0, 4, 1, prompt + 4, 2, (uint32_t[]){0, 0}, 0))); // writes over its own past
    assert_false(aborts(x, batch(3, 0, 4, 1, prompt + 4, 2, (uint32_t[]){0, 2}, 0)));
    struct qr_batch *b = batch(3, 0, 4, 1, prompt + 4, 2, (uint32_t[]){5, 2}, 0);
    b->n_copies = 1;
    qr_batch_copies(b)[0] = (struct qr_batch_copy){.src = 0, .dst = 5}; // a copy carries the contents along
    assert_false(aborts(x, b));
    qr_batch_copies(b)[0] = (struct qr_batch_copy){.src = 1, .dst = 5};
    assert_true(aborts(x, b));
    qr_batch_copies(b)[0] = (struct qr_batch_copy){0, 5, QR_TIER_RAM, QR_TIER_POOL}; // nothing was put there
    assert_true(aborts(x, b));
    struct qr_batch *out = batch(3, 1, 4, 1, other + 4, 2, (uint32_t[]){1, 3}, 0);
    out->n_copies = 1;
    qr_batch_copies(out)[0] = (struct qr_batch_copy){0, 1, QR_TIER_POOL, QR_TIER_RAM};
    run(x, out);
    b = batch(4, 0, 4, 1, prompt + 4, 2, (uint32_t[]){5, 2}, 0);
    b->n_copies = 1;
    qr_batch_copies(b)[0] = (struct qr_batch_copy){1, 5, QR_TIER_RAM, QR_TIER_POOL};
    assert_false(aborts(x, b));
    qr_batch_copies(b)[0] = (struct qr_batch_copy){2, 5, QR_TIER_RAM, QR_TIER_POOL}; // leaves the tier
    assert_true(aborts(x, b));
    x->ops->close(x);
}

QR_TEST(sim_clock_advances_by_the_cost_of_a_step)
{
    struct qr_clock_virtual clock;
    qr_clock_virtual_init(&clock);
    struct qr_exec *x = open_sim(&clock);
    struct qr_sampling a = {.seed = 1, .max_tokens = 20};
    assert_int_equal(x->ops->seq_open(x, 0, &a, 0, prompt, 5, 5), QR_OK);
    int32_t t = run(x, batch(1, 0, 0, 5, prompt, 2, (uint32_t[]){0, 1}, QR_BATCH_SAMPLE));
    assert_int_equal(clock.ns, 1000 + 100 + 16 * 2 + 5 / 2); // a tile of 16 rows; 0.5 ns a token of context
    run(x, batch(2, 0, 5, 1, &t, 2, (uint32_t[]){0, 1}, QR_BATCH_SAMPLE));
    assert_int_equal(clock.ns, 1134 + 1000 + 10 + 3);
    x->ops->close(x);
}
