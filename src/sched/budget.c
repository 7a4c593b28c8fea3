/* The step's budget in time: how many prompt rows go beside generating ones.
 *
 * Generating rows always go. What they leave of the budget is for prompts, which have a fixed cost in each step
 * that holds a prompt row (weights are unpacked). So prompts go in pieces that are worth it, SCHED_CHUNK_WORTH
 * rows or what costs as much: if the budget has no room for one, steps go by without until patience ends, and
 * then one goes that makes the step no longer than half as long again as it would be. A prompt's rest that fits goes at
 * once. As a prompt's context grows its rows cost more, and its pieces shrink, down to one tile. */
#include "base/assert.h"
#include "sched/sched_internal.h"

#define PATIENCE_STEPS 3 // without a prompt row, while prompts could use one

static uint64_t worth_ns(const struct qr_costs *c)
{
    return c->prompt_fixed_ns + SCHED_CHUNK_WORTH * c->prompt_row_ns;
}

void sched_time_begin(struct qr_sched *s)
{
    struct sched_time *t = &s->time;
    struct qr_work *w = &t->work;
    *w = (struct qr_work){0};
    t->left_ns = UINT64_MAX;
    t->is_open = t->is_forced = t->is_spent = false;
    if (t->budget_ns == 0 || t->costs.epoch == 0) return;
    for (int32_t i = 0; i < s->n_running; i++)
        for (int32_t j = 0; j < s->running[i]->req->n_choices; j++) {
            const struct qr_seq *q = &s->running[i]->seqs[j];
            if (q->n_granted > 0) qr_work_add(w, s->running[i]->req->n_prompt, q->n_computed, 1);
        }
    if (w->n_rows == 0) return; // nobody waits for a token
    uint64_t rows_ns = qr_costs_ns(&t->costs, w), worth = worth_ns(&t->costs);
    uint64_t auto_ns = rows_ns + t->costs.prompt_fixed_ns + SCHED_CHUNK_AUTO * t->costs.prompt_row_ns;
    uint64_t budget_ns = t->budget_ns == QR_STEP_AUTO ? auto_ns : t->budget_ns;
    uint64_t longest = budget_ns > rows_ns ? budget_ns : rows_ns;
    t->left_ns = budget_ns > rows_ns ? budget_ns - rows_ns : 0;
    t->is_open = t->left_ns >= worth;
    if (t->is_open || t->n_waited < PATIENCE_STEPS) return;
    t->is_open = t->is_forced = true;
    uint64_t most = longest + longest / 2 - rows_ns;
    if (most > worth) most = worth;
    if (t->left_ns < most) t->left_ns = most;
}

// What it adds to the step.
static uint64_t chunk_ns(const struct qr_sched *s, const struct qr_sched_req *r, const struct qr_seq *q, int32_t n)
{
    const struct sched_time *t = &s->time;
    struct qr_work w = t->work;
    qr_work_add(&w, r->req->n_prompt, q->n_computed, n);
    return qr_costs_ns(&t->costs, &w) - qr_costs_ns(&t->costs, &t->work);
}

int32_t sched_time_limit(const struct qr_sched *s, const struct qr_sched_req *r, const struct qr_seq *q, int32_t want,
                         bool is_rest)
{
    const struct sched_time *t = &s->time;
    if (t->left_ns == UINT64_MAX || want <= 0) return want;
    int32_t n = want;
    // Down to whole tiles: positions, not counts, so that later chunks begin on a border.
    while (n > 0 && chunk_ns(s, r, q, n) > t->left_ns)
        n = (q->n_computed + n - 1) / SCHED_CHUNK * SCHED_CHUNK - q->n_computed;
    if (n < 0) n = 0;
    if (n == want && is_rest) return n;
    if (n > 0) return t->is_open || t->work.n_prompt_tile > 0 ? n : 0;
    if (!t->is_forced || t->work.n_prompt_tile > 0) return 0;
    int32_t tile = (q->n_computed / SCHED_CHUNK + 1) * SCHED_CHUNK - q->n_computed;
    return tile < want ? tile : want; // patience ended: some progress, whatever a tile costs here
}

void sched_time_spend(struct qr_sched *s, const struct qr_sched_req *r, const struct qr_seq *q, int32_t n)
{
    struct sched_time *t = &s->time;
    if (t->left_ns == UINT64_MAX || n <= 0) return;
    uint64_t ns = chunk_ns(s, r, q, n);
    t->is_spent = true;
    t->left_ns -= ns < t->left_ns ? ns : t->left_ns;
    qr_work_add(&t->work, r->req->n_prompt, q->n_computed, n);
}

int32_t sched_time_rows(const struct qr_sched *s, int32_t left)
{
    const struct sched_time *t = &s->time;
    if (t->left_ns == UINT64_MAX || t->costs.prompt_row_ns == 0) return left;
    uint64_t fixed = t->costs.prompt_fixed_ns, ns = t->left_ns > fixed ? t->left_ns - fixed : 0;
    uint64_t n = ns / t->costs.prompt_row_ns / SCHED_CHUNK * SCHED_CHUNK;
    if (n < SCHED_CHUNK) n = SCHED_CHUNK;
    return n < (uint64_t)left ? (int32_t)n : left;
}

void sched_time_end(struct qr_sched *s, bool prompts)
{
    struct sched_time *t = &s->time;
    t->n_waited = t->left_ns == UINT64_MAX || !prompts || t->is_spent ? 0 : t->n_waited + 1;
}

void qr_sched_set_budget(struct qr_sched *s, const struct qr_costs *costs, uint64_t step_ns)
{
    s->time.costs = *costs;
    s->time.budget_ns = step_ns;
}
