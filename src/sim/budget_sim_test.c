/* The step's budget in time over whole workloads, on a virtual clock: what it does to the time between tokens, and
 * what it costs. The scheduler plans by a table; time passes by a table of its own, so that a wrong one shows. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/test.h"
#include "sched/sched.h"

// As measured: SmolLM2-135M Q4_1, two threads of a Zen 4 (lib/costs.c says how).
static const struct qr_costs machine = {.epoch = 1,
                                        .fixed_ns = 2600000,
                                        .row_ns = 420000,
                                        .prompt_fixed_ns = 6000000,
                                        .prompt_row_ns = 500000,
                                        .context_ps = 1000000,
                                        .query_context_ps = 180000};

enum { USERS_MAX = 40, GAPS_MAX = 400000 };

static struct {
    struct qr_sched *s;
    struct qr_sched_req *reqs[USERS_MAX];
    uint64_t last_ns[USERS_MAX]; // of its last token; 0: none yet
    uint64_t now_ns, ttft_ns;
    int64_t n_tokens, n_done;
    qr_req_id last_id;
    uint64_t n_draws;
} world;
static uint64_t gaps[GAPS_MAX];
static int32_t n_gaps;

static void begin(uint64_t step_ns, const struct qr_costs *table)
{
    memset(&world, 0, sizeof world);
    n_gaps = 0;
    struct qr_sched_conf c = {.max_num_seqs = USERS_MAX,
                              .max_num_batched_tokens = 512,
                              .max_model_len = 8192,
                              .block_size = 16,
                              .n_blocks = 8000};
    assert_int_equal(qr_sched_new(&c, &world.s), QR_OK);
    qr_sched_set_budget(world.s, table, step_ns);
}

static void ask(int user, int32_t n_prompt, int32_t max_tokens)
{
    static int32_t ids[8192];
    struct qr_req q = {.prompt = ids,
                       .n_prompt = n_prompt,
                       .n_choices = 1,
                       .arrival_ns = world.now_ns + 1,
                       .sampling = {.max_tokens = max_tokens, .n_prompt_logprobs = -1, .n_logprobs = -1}};
    assert_int_equal(qr_sched_req_new(&q, ++world.last_id, &world.reqs[user]), QR_OK);
    world.reqs[user]->user = &world.last_ns[user];
    world.last_ns[user] = 0;
    qr_sched_add(world.s, world.reqs[user]);
}

// A length whose logarithm is uniform, as lengths of chats about are.
static int32_t length(double lo, double hi)
{
    double u = (double)(qr_rand_u64(11, 0, world.n_draws++) >> 11) * 0x1p-53, x = lo;
    for (int i = 0; i < 20; i++) { // hi / lo to the power of u, without a libm that differs
        u *= 2;
        double f = hi / lo;
        for (int k = 0; k <= i; k++) f = __builtin_sqrt(f);
        if (u >= 1) x *= f, u -= 1;
    }
    return (int32_t)x;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static double percentile_ms(double p)
{
    qsort(gaps, (size_t)n_gaps, sizeof *gaps, by_size);
    return (double)gaps[(int32_t)((double)(n_gaps - 1) * p)] * 1e-6;
}

// One step. Returns its time; users whose request ended have none afterwards.
static uint64_t step(void)
{
    const struct qr_plan *plan = qr_sched_plan(world.s, world.now_ns + 1, 512);
    qr_sched_check(world.s);
    const struct qr_batch *b = qr_sched_batch(world.s);
    assert_non_null(b);
    struct qr_work w;
    qr_work_of(b, &w);
    uint64_t ns = qr_costs_ns(&machine, &w);
    world.now_ns += ns;
    int32_t n = b->n_seqs;
    qr_sched_computed(world.s);
    for (int32_t i = 0; i < n; i++) {
        const struct qr_grant *g = &plan->grants[i];
        if (!(g->flags & QR_BATCH_SAMPLE)) continue;
        uint64_t *last = g->r->user;
        qr_sched_append(g->r, g->seq, 5);
        world.n_tokens++;
        if (*last == 0) world.ttft_ns += world.now_ns - g->r->arrival_ns;
        if (*last && n_gaps < GAPS_MAX) gaps[n_gaps++] = world.now_ns - *last;
        *last = world.now_ns;
    }
    for (int i = 0; i < USERS_MAX; i++) {
        struct qr_sched_req *r = world.reqs[i];
        if (!r || r->seqs[0].n_ids < r->req->n_prompt + r->req->sampling.max_tokens) continue;
        qr_sched_end(world.s, r, 0);
        qr_sched_req_free(&world.reqs[i]);
        world.n_done++;
    }
    return ns;
}

static void finish(void)
{
    for (int i = 0; i < USERS_MAX; i++)
        if (world.reqs[i]) {
            qr_sched_end(world.s, world.reqs[i], 0);
            qr_sched_req_free(&world.reqs[i]);
        }
    qr_sched_free(&world.s);
}

struct outcome {
    double tokens_s, p50_ms, p99_ms, ttft_ms;
};

// So many users, each of whom asks again as soon as the answer is there, for so many answers.
static struct outcome chats(uint64_t step_ns, int n_users, int n_answers)
{
    begin(step_ns, &machine);
    while (world.n_done < n_answers) {
        for (int i = 0; i < n_users; i++)
            if (!world.reqs[i]) ask(i, length(16, 1200), length(16, 600));
        step();
    }
    struct outcome o = {(double)world.n_tokens / ((double)world.now_ns * 1e-9), percentile_ms(0.5),
                        percentile_ms(0.99), (double)world.ttft_ns * 1e-6 / (double)world.last_id};
    finish();
    return o;
}

QR_TEST(sim_budget_steadies_streams_and_costs_little)
{
    struct outcome off = chats(0, 32, 1500), on = chats(QR_STEP_AUTO, 32, 1500);
    static const uint64_t budgets_ms[] = {60, 90, 120, 150, 200};
    printf("sim: 32 users: no budget: %.0f tokens/s, between tokens %.0f ms, p99 %.0f ms, first %.0f ms\n", off.tokens_s,
           off.p50_ms, off.p99_ms, off.ttft_ms);
    printf("sim: 32 users: auto:      %.0f tokens/s, between tokens %.0f ms, p99 %.0f ms, first %.0f ms\n", on.tokens_s,
           on.p50_ms, on.p99_ms, on.ttft_ms);
    for (int i = 0; i < 5; i++) {
        struct outcome o = chats(budgets_ms[i] * 1000000, 32, 1500);
        printf("sim: 32 users: %3d ms:    %.0f tokens/s, between tokens %.0f ms, p99 %.0f ms, first %.0f ms\n",
               (int)budgets_ms[i], o.tokens_s, o.p50_ms, o.p99_ms, o.ttft_ms);
    }
    assert_true(on.p99_ms < 0.6 * off.p99_ms);
    assert_true(on.tokens_s > 0.97 * off.tokens_s);
}

// A prompt of 8,000 tokens among 32 who generate: their p99 stays below twice the largest of the budget, a step of
// theirs, and one tile of that prompt at that context.
static void long_prompt(uint64_t step_ns, const struct qr_costs *table)
{
    begin(step_ns, table);
    for (int i = 0; i < 32; i++) ask(i, 200 + 3 * i, 6000);
    for (int i = 0; i < 150; i++) step();
    n_gaps = 0;
    ask(32, 8000, 1);
    uint64_t from = world.now_ns;
    while (world.reqs[32]) step();
    uint64_t rows_ns = step(); // theirs alone, at the contexts that they have by now
    struct qr_work tile = {0}, worth = {0};
    qr_work_add(&tile, 8000, 7984, 16);
    qr_work_add(&worth, 256, 0, 256);
    uint64_t most = qr_costs_ns(&machine, &tile);
    if (rows_ns > most) most = rows_ns;
    uint64_t budget = step_ns == QR_STEP_AUTO ? rows_ns + qr_costs_ns(&machine, &worth) - machine.fixed_ns : step_ns;
    if (budget > most) most = budget;
    double p99 = percentile_ms(0.99), took = (double)(world.now_ns - from) * 1e-9;
    printf("sim: 8000 tokens among 32, budget %3.0f ms: p99 %.0f ms (bound %.0f), its first token after %.1f s\n",
           (double)budget * 1e-6, p99, 2e-6 * (double)most, took);
    assert_true(p99 <= 2e-6 * (double)most);
    assert_true(took < (step_ns > rows_ns ? 60 : 400)); // a budget that is no budget still lets it through
    finish();
}

QR_TEST(sim_budget_keeps_streams_steady_beside_a_long_prompt)
{
    long_prompt(QR_STEP_AUTO, &machine);
    static const uint64_t budgets_ms[] = {1, 15, 30, 60, 200};
    for (int i = 0; i < 5; i++) long_prompt(budgets_ms[i] * 1000000, &machine);
    // Planned by a table that is off by half.
    struct qr_costs wrong = machine;
    wrong.prompt_row_ns /= 2, wrong.row_ns *= 2;
    long_prompt(60000000, &wrong);
}
