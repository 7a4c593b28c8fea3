/* Learning costs from steps of a machine that is known here, with stolen cores among them. */
#include <math.h>

#include "base/hash.h"
#include "base/test.h"
#include "engine/engine_internal.h"

static const struct qr_costs truth = {.epoch = 1,
                                      .fixed_ns = 260000,
                                      .row_ns = 420000,
                                      .prompt_fixed_ns = 6000000,
                                      .prompt_row_ns = 500000,
                                      .context_ps = 1000000,
                                      .query_context_ps = 180000,
                                      .floor_ns = 2600000};

static uint64_t n_draws;

static double draw(void)
{
    return (double)(qr_rand_u64(8, 0, n_draws++) >> 11) * 0x1p-53;
}

// A step as a server has them: some generating rows, sometimes a prompt's piece, sometimes at a long context.
static void any_step(struct qr_work *w)
{
    *w = (struct qr_work){0};
    int32_t n_rows = draw() < 0.3 ? (int32_t)(draw() * 3) : (int32_t)(draw() * 33);
    for (int32_t i = 0; i < n_rows; i++) qr_work_add(w, 1, (int32_t)(100 + draw() * 500), 1);
    int32_t pos0 = draw() < 0.4 ? (int32_t)(draw() * 7000) : 0;
    if (n_rows == 0 || draw() < 0.3) qr_work_add(w, 8000, pos0, 1 + (int32_t)(draw() * 500));
}

static double median_error(const struct qr_costs *c)
{
    enum { N = 501 };
    double e[N];
    for (int i = 0; i < N; i++) {
        struct qr_work w;
        any_step(&w);
        double x = fabs((double)qr_costs_ns(c, &w) / (double)qr_costs_ns(&truth, &w) - 1);
        int at = i;
        for (; at > 0 && e[at - 1] > x; at--) e[at] = e[at - 1];
        e[at] = x;
    }
    return e[N / 2];
}

static void learn(const struct qr_costs *guess, double stolen)
{
    struct engine_measure m;
    engine_measure_init(&m, guess);
    uint64_t epoch = guess->epoch;
    int n_tables = 0;
    double before = median_error(guess);
    for (int i = 0; i < 3000; i++) {
        struct qr_work w;
        any_step(&w);
        double ns = (double)qr_costs_ns(&truth, &w) * (0.97 + 0.06 * draw());
        if (draw() < stolen) ns *= 2 + 10 * draw();
        if (!engine_measure_take(&m, &w, (uint64_t)ns)) continue;
        assert_int_equal(m.costs.epoch, ++epoch);
        n_tables++;
    }
    double after = median_error(&m.costs);
    printf("engine: costs: %.0f %% off at first, %.1f %% after 3000 steps and %d tables\n", 100 * before, 100 * after,
           n_tables);
    assert_true(after < 0.08);
    assert_true(n_tables < 150); // it comes to rest
}

QR_TEST(engine_learns_costs_from_steps)
{
    struct qr_costs slow = truth, fast = truth, odd = truth;
    slow.fixed_ns *= 4, slow.row_ns *= 4, slow.prompt_fixed_ns *= 4, slow.prompt_row_ns *= 4;
    slow.context_ps *= 4, slow.query_context_ps *= 4, slow.floor_ns *= 4;
    fast.fixed_ns /= 5, fast.row_ns /= 5, fast.prompt_fixed_ns /= 5, fast.prompt_row_ns /= 5;
    fast.context_ps /= 5, fast.query_context_ps /= 5, fast.floor_ns /= 5;
    odd.row_ns *= 3, odd.prompt_row_ns /= 3, odd.context_ps /= 4, odd.query_context_ps *= 4, odd.floor_ns /= 2;
    learn(&truth, 0.1);
    learn(&slow, 0);
    learn(&slow, 0.15);
    learn(&fast, 0.15);
    learn(&odd, 0.15);
}

// A floor that was guessed far too low, or memory that becomes slower, is found out by steps of one row.
QR_TEST(engine_learns_a_floor_that_rules_nowhere)
{
    struct qr_costs low = truth;
    low.floor_ns /= 8;
    struct engine_measure m;
    engine_measure_init(&m, &low);
    struct qr_work w[2] = {{0}};
    for (int i = 0; i < 3; i++) qr_work_add(&w[i > 0], 1, 200, 1);
    for (int i = 0; i < 400; i++) (void)engine_measure_take(&m, &w[i % 2], qr_costs_ns(&truth, &w[i % 2]));
    for (int i = 0; i < 2; i++) {
        double ratio = (double)qr_costs_ns(&m.costs, &w[i]) / (double)qr_costs_ns(&truth, &w[i]);
        if (fabs(ratio - 1) > 0.08) fail_msg("%d rows: %.2f", (int)w[i].n_rows, ratio);
    }
}

QR_TEST(engine_without_a_guess_learns_nothing)
{
    struct engine_measure m;
    struct qr_work w;
    engine_measure_init(&m, &(struct qr_costs){0});
    any_step(&w);
    for (int i = 0; i < 100; i++) assert_false(engine_measure_take(&m, &w, 1000000));
    assert_int_equal(m.costs.epoch, 0);
}
