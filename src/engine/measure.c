/* Learning what steps cost, while serving.
 *
 * Each step votes on one term of the table: the one that makes up at least half of its time by the table in force.
 * The vote is what that term would have to be for the step to come out right; a term is the median of its
 * last votes. So a stolen core, a page fault or a paused machine are outliers that change nothing, no step
 * is wasted on calibration, and terms that never dominate stay what they were, because they never matter. Terms that
 * had no votes yet follow a term of their kind that had: a machine slower than guessed is slower in both. */
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "engine/engine_internal.h"

#define VOTES_MIN 8      // before they move a term
#define STEPS_A_TABLE 16 // measured ones, at least, between two tables
#define CHANGE 0.03      // of a term, below which no table is made

static const int partner[QR_COST_TERMS] = {
    [QR_COST_FIXED] = QR_COST_ROW,
    [QR_COST_ROW] = QR_COST_FLOOR,
    [QR_COST_PROMPT_FIXED] = QR_COST_PROMPT_ROW,
    [QR_COST_PROMPT_ROW] = QR_COST_QUERY_CONTEXT,
    [QR_COST_CONTEXT] = QR_COST_ROW,
    [QR_COST_QUERY_CONTEXT] = QR_COST_PROMPT_ROW,
    [QR_COST_FLOOR] = QR_COST_ROW,
};

void engine_measure_init(struct engine_measure *m, const struct qr_costs *costs)
{
    memset(m, 0, sizeof *m);
    m->costs = *costs;
    qr_costs_terms(costs, m->first);
    memcpy(m->now, m->first, sizeof m->now);
}

static double median(const struct engine_votes *v)
{
    double sorted[ENGINE_VOTES];
    int n = v->n < ENGINE_VOTES ? (int)v->n : ENGINE_VOTES;
    for (int i = 0; i < n; i++) {
        int at = i;
        for (; at > 0 && sorted[at - 1] > v->v[i]; at--) sorted[at] = sorted[at - 1];
        sorted[at] = v->v[i];
    }
    return sorted[n / 2];
}

static void vote(struct engine_measure *m, const struct qr_work *w, double ns)
{
    const struct qr_costs known = qr_costs_of_terms(m->now, 0);
    double n[QR_COST_TERMS], sum = 0;
    int most = 0;
    // What one row takes is the floor, even where the table has it too low to rule.
    bool few = w->n_rows <= 1 && m->first[QR_COST_FLOOR] > 0;
    qr_work_counts(w, few || qr_costs_floor_rules(&known, w), n);
    for (int i = 0; i < QR_COST_TERMS; i++) {
        sum += n[i] * m->now[i];
        if (n[i] * m->now[i] > n[most] * m->now[most]) most = i;
    }
    double part = n[most] * m->now[most];
    if (part < sum / 2) return;
    double v = (ns - (sum - part)) / n[most];
    double least = m->now[most] / 8; // the other terms may be far too large yet
    struct engine_votes *votes = &m->votes[most];
    votes->v[votes->n++ % ENGINE_VOTES] = v > least ? v : least;
}

bool engine_measure_take(struct engine_measure *m, const struct qr_work *w, uint64_t ns)
{
    if (m->costs.epoch == 0) return false;
    vote(m, w, (double)ns);
    if (++m->n_steps % STEPS_A_TABLE != 0) return false;
    double before[QR_COST_TERMS];
    bool changed = false;
    for (int i = 0; i < QR_COST_TERMS; i++)
        if (m->votes[i].n >= VOTES_MIN) m->now[i] = median(&m->votes[i]);
    for (int i = 0; i < QR_COST_TERMS; i++) {
        int p = partner[i];
        if (m->votes[i].n < VOTES_MIN && m->votes[p].n >= VOTES_MIN && m->first[p] > 0)
            m->now[i] = m->first[i] * m->now[p] / m->first[p];
    }
    qr_costs_terms(&m->costs, before);
    for (int i = 0; i < QR_COST_TERMS; i++) changed |= fabs(m->now[i] - before[i]) > CHANGE * before[i];
    if (!changed) return false;
    m->costs = qr_costs_of_terms(m->now, m->costs.epoch + 1);
    return true;
}

// Steps that the table has no words for say nothing: scores take the model's head for each prompt row, and generated
// tokens that are recomputed read their context more than once.
static bool is_plain(const struct qr_batch *b)
{
    for (int32_t i = 0; i < b->n_seqs; i++) {
        const struct qr_batch_seq *q = &qr_batch_seqs(b)[i];
        if (q->flags & QR_BATCH_SCORE || (q->n_tokens > 1 && q->pos0 + q->n_tokens > q->n_prompt)) return false;
    }
    return true;
}

void engine_measure_step(struct qr_engine *e, const struct qr_batch *b, const struct qr_exec_result *res)
{
    struct engine_measure *m = &e->measure;
    struct qr_work w;
    if (m->costs.epoch == 0 || !is_plain(b)) return;
    qr_work_of(b, &w);
    if (!engine_measure_take(m, &w, res->elapsed_ns - res->copy_ns)) return;
    trace_budget(e, &m->costs, e->conf.step_budget_ns);
    qr_sched_set_budget(e->sched, &m->costs, e->conf.step_budget_ns);
    QR_DEBUG_LOG("engine", "costs, table %llu: at least %.3f ms, fixed %.3f ms, a row %.3f ms, prompts %.3f ms, a prompt row %.3f ms",
                 (unsigned long long)m->costs.epoch, (double)m->costs.floor_ns * 1e-6, (double)m->costs.fixed_ns * 1e-6,
                 (double)m->costs.row_ns * 1e-6, (double)m->costs.prompt_fixed_ns * 1e-6, (double)m->costs.prompt_row_ns * 1e-6);
}
