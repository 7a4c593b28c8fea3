#include "bench/fit.h"

#include <math.h>

#include "base/test.h"

static struct qr_work work_of(int64_t rows, int64_t context, int64_t prompt, int64_t prompt_at)
{
    return (struct qr_work){.n_rows = rows,
                                .n_prompt_tile = (prompt + 15) / 16 * 16,
                                .context = rows * context + (prompt ? prompt_at + prompt : 0),
                                .query_context = prompt * (prompt_at + prompt)};
}

#define SAMPLES_MAX 200

static size_t samples_of(const struct qr_costs *c, double noise, struct fit_sample *out)
{
    static const int rows[] = {0, 1, 2, 4, 6, 8, 16, 32}, contexts[] = {32, 300, 1000}, prompts[] = {0, 16, 128, 512}, ats[] = {0, 512};
    size_t n = 0;
    for (int r = 0; r < 8; r++)
        for (int x = 0; x < 3; x++)
            for (int p = 0; p < 4; p++)
                for (int a = 0; a < 2; a++) {
                    if (rows[r] + prompts[p] == 0) continue;
                    out[n].work = work_of(rows[r], contexts[x], prompts[p], ats[a]);
                    out[n].ns = (double)qr_costs_ns(c, &out[n].work) * (1 + (n % 2 ? noise : -noise));
                    n++;
                }
    return n;
}

// The table found from `made`'s times is off by less than `within` at each of them.
static void fits(const struct qr_costs *made, double noise, double within, struct qr_costs *c)
{
    static struct fit_sample s[SAMPLES_MAX];
    size_t n = samples_of(made, noise, s);
    assert_true(fit_costs(s, n, c));
    for (size_t i = 0; i < n; i++) assert_true(fit_error(c, &s[i]) < within);
}

QR_TEST(fit_finds_the_table_that_made_the_times)
{
    const struct qr_costs made = {1, 2000000, 300000, 5000000, 90000, 250000, 9000, 0};
    struct qr_costs c;
    fits(&made, 0, 1e-4, &c);
    assert_true(fabs((double)c.row_ns - 300000) < 30 && fabs((double)c.context_ps - 250000) < 25);
    fits(&made, 0.05, 0.12, &c);
}

QR_TEST(fit_finds_from_how_many_rows_on_arithmetic_binds)
{
    const struct qr_costs made = {1, 160000, 656000, 5000000, 90000, 700000, 9000, 2850000};
    struct qr_costs c;
    fits(&made, 0, 1e-4, &c);
    assert_true(fabs((double)c.floor_ns - 2850000) < 300 && fabs((double)c.row_ns - 656000) < 70);
    fits(&made, 0.05, 0.12, &c);
}

QR_TEST(fit_gives_no_negative_cost)
{
    const struct qr_costs made = {1, 1000, 0, 0, 90000, 0, 0, 0};
    struct qr_costs c;
    static struct fit_sample s[SAMPLES_MAX];
    size_t n = samples_of(&made, 0.1, s);
    assert_true(fit_costs(s, n, &c));
    assert_true(c.fixed_ns >= 1);
    for (size_t i = 0; i < n; i++) assert_true(fit_error(&c, &s[i]) < 0.6);
    assert_false(fit_costs(s, 1, &c));
}
