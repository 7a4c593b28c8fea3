#include "sim/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "sim/plan_internal.h"

// A trace, or sessions, that are no more than a replica takes when they come so many times as fast come all at once.
#define FASTER_MAX 1e4

/* ==== The search. ==== */

static bool has_same_settings(const struct qr_plan_run *a, const struct qr_plan_run *b)
{
    return a->max_num_seqs == b->max_num_seqs && a->max_num_batched_tokens == b->max_num_batched_tokens;
}

static enum qr_status note(struct planner *p, const struct qr_plan_run *run)
{
    struct qr_plan *o = p->plan;
    if (o->n_runs == o->cap_runs) {
        int cap = o->cap_runs ? 2 * o->cap_runs : 64;
        struct qr_plan_run *v = qr_realloc(QR_MEM_MISC, o->runs, (size_t)cap * sizeof *v);
        if (!v) return qr_fail(p->err, QR_ENOMEM, "no memory for a plan");
        o->runs = v, o->cap_runs = cap;
    }
    o->runs[o->n_runs++] = *run;
    if (p->conf->progress) p->conf->progress(p->conf->progress_arg, o->n_runs, run->n_replicas);
    return QR_OK;
}

// As note, in place of what was compared before with the same settings.
static enum qr_status amend(struct planner *p, const struct qr_plan_run *run)
{
    for (int i = 0; i < p->plan->n_runs; i++) {
        struct qr_plan_run *had = &p->plan->runs[i];
        if (had->n_replicas == run->n_replicas && had->rate == run->rate && had->n_ram == run->n_ram && has_same_settings(had, run))
            return *had = *run, QR_OK;
    }
    return note(p, run);
}

static struct qr_plan_run choice(const struct planner *p, int i_seqs, int i_step)
{
    return (struct qr_plan_run){.max_num_seqs = p->conf->seqs[i_seqs],
                                .max_num_batched_tokens = p->conf->steps[i_step].n_tokens,
                                .n_blocks = p->conf->steps[i_step].n_blocks};
}

// Whether a setting that came to no more than `peak` held nothing back, nor would the other.
static bool is_free(int32_t had, int32_t other, int32_t peak)
{
    return had == other || (peak < had && peak < other);
}

// Whether what a run made of its settings held nothing back, nor would these.
static bool is_free_use(const struct planner *p, const struct qr_plan_run *had, const struct qr_plan_use *use, const struct qr_plan_run *r)
{
    uint32_t fewer = had->n_blocks < r->n_blocks ? had->n_blocks : r->n_blocks;
    if (use->n_preemptions > 0 || (had->n_blocks != r->n_blocks && (p->shares || use->n_blocks_enough > fewer))) return false;
    return is_free(had->max_num_seqs, r->max_num_seqs, use->peak_seqs) &&
           is_free(had->max_num_batched_tokens, r->max_num_batched_tokens, use->peak_tokens);
}

// A run goes as it would with any settings that do not hold it back.
static bool goes_alike(const struct planner *p, const struct qr_plan_run *had, const struct qr_plan_run *r)
{
    return !had->stopped && is_free_use(p, had, &had->use, r) && (had->answers_most == 0 || is_free_use(p, had, &had->pressed, r));
}

static const struct qr_plan_run *known(const struct planner *p, int32_t n, const struct qr_plan_run *r)
{
    const struct qr_plan_run *alike = NULL;
    for (int i = 0; i < p->plan->n_runs; i++) {
        const struct qr_plan_run *had = &p->plan->runs[i];
        if (had->n_replicas != n || had->n_ram != r->n_ram) continue;
        if (has_same_settings(had, r)) return had;
        if (!alike && goes_alike(p, had, r)) alike = had;
    }
    return alike;
}

static enum qr_status try(struct planner *p, int32_t n, struct qr_plan_run *run)
{
    const struct qr_plan_run *had = known(p, n, run);
    if (had) {
        struct qr_plan_run r = *had;
        r.max_num_seqs = run->max_num_seqs, r.max_num_batched_tokens = run->max_num_batched_tokens, r.n_blocks = run->n_blocks;
        *run = r;
        return QR_OK;
    }
    enum qr_status st = plan_run(p, n, 1, run, NULL);
    return st == QR_OK ? note(p, run) : st;
}

// Whether it would go on: what was compared says so.
static enum qr_status sustains(struct planner *p, struct qr_plan_run *run)
{
    bool was = run->kept;
    enum qr_status st = plan_sustains(p, 1, run);
    return st == QR_OK && was && !run->kept ? amend(p, run) : st;
}

// Whether any settings of every other choice, from the largest down, keep the limits with n replicas.
static enum qr_status will_do(struct planner *p, int32_t n, bool *out)
{
    *out = false;
    for (int k = p->conf->n_steps - 1; k >= 0; k -= 2)
        for (int i = p->conf->n_seqs - 1; i >= 0; i -= 2) {
            struct qr_plan_run run = choice(p, i, k);
            enum qr_status st = try(p, n, &run);
            if (st != QR_OK) return st;
            if (n > 0 && (st = sustains(p, &run)) != QR_OK) return st;
            if (run.kept) return *out = true, QR_OK;
        }
    return QR_OK;
}

// The limits that a request alone is beyond, with both numbers.
static const char *say_alone(const struct qr_plan_limits *l, const struct qr_plan_run *r, char *out, size_t cap)
{
    const struct {
        const char *what;
        double s, limit_s;
    } rows[] = {{"have the first token", r->ttft_s, l->ttft_s}, {"have each token", r->tpot_s, l->tpot_s},
                {"have ended", r->e2el_s, l->e2el_s}};
    size_t n = 0;
    for (int i = 0; i < 3; i++)
        if (isfinite(rows[i].limit_s) && n < cap)
            n += (size_t)snprintf(out + n, cap - n, "%s%s within %.4g ms (limit %g)", n ? ", " : "", rows[i].what, rows[i].s * 1e3,
                                  rows[i].limit_s * 1e3);
    return out;
}

static enum qr_status check_alone(struct planner *p)
{
    bool ok;
    const struct qr_plan_limits *l = &p->conf->limits;
    enum qr_status st = will_do(p, -1, &ok);
    if (st != QR_OK) return st;
    struct qr_plan_run *best = &p->plan->alone;
    *best = p->plan->runs[0];
    for (int i = 1; i < p->plan->n_runs; i++)
        if (p->plan->runs[i].kept || (!best->kept && p->plan->runs[i].n_answered > best->n_answered)) *best = p->plan->runs[i];
    p->plan->n_runs = 0; // they say nothing of a load
    if (ok) return QR_OK;
    // To the end, for figures that are true.
    struct qr_plan_run run = choice(p, p->conf->n_seqs - 1, p->conf->n_steps - 1);
    struct qr_sim_summary s;
    if ((st = plan_run(p, -1, 1, &run, &s)) != QR_OK) return st;
    return qr_fail(p->err, QR_ETOOBIG, "no number of replicas keeps the target: alone on the machine, %g %% of requests %s", l->percentile,
                   say_alone(l, &run, (char[160]){0}, 160));
}

static enum qr_status find_replicas(struct planner *p)
{
    int32_t n = p->plan->n_replicas_least, below = n - 1; // below: too few
    int32_t most = p->n_arrivals > 0 && p->n_arrivals < QR_PLAN_REPLICAS_MAX ? (int32_t)p->n_arrivals : QR_PLAN_REPLICAS_MAX;
    bool ok = false;
    for (;;) {
        enum qr_status st = will_do(p, n, &ok);
        if (st != QR_OK) return st;
        if (ok) break;
        below = n;
        if (n >= most)
            return qr_fail(p->err, QR_ETOOBIG,
                           "%d replicas do not keep the target: requests that come together are too much for one", n);
        n = n > most / 2 ? most : 2 * n;
    }
    while (n - below > 1) {
        int32_t mid = below + (n - below) / 2;
        enum qr_status st = will_do(p, mid, &ok);
        if (st != QR_OK) return st;
        if (ok)
            n = mid;
        else
            below = mid;
    }
    p->plan->n_replicas = n;
    return QR_OK;
}

// How near to its limits a run came: 1 is at one of them.
static double nearness(const struct qr_plan_limits *l, const struct qr_plan_run *r)
{
    double a = r->ttft_s / l->ttft_s, b = r->tpot_s / l->tpot_s, c = r->e2el_s / l->e2el_s;
    return a > b ? (a > c ? a : c) : b > c ? b : c;
}

// Fewer late ones first, then farther from the limits.
static bool is_better(const struct qr_plan_limits *l, const struct qr_plan_run *a, const struct qr_plan_run *b)
{
    if (a->n_late != b->n_late) return a->n_late < b->n_late;
    return nearness(l, a) < nearness(l, b) * 0.99; // what differs by less is the smaller settings' by order
}

// Of all settings the best; of equal ones the smallest.
static enum qr_status find_settings(struct planner *p)
{
    struct qr_plan_run *best = &p->plan->chosen;
    bool any = false;
    for (int k = 0; k < p->conf->n_steps; k++)
        for (int i = 0; i < p->conf->n_seqs; i++) {
            struct qr_plan_run run = choice(p, i, k);
            enum qr_status st = try(p, p->plan->n_replicas, &run);
            if (st != QR_OK) return st;
            if (!run.kept || (any && !is_better(&p->conf->limits, &run, best))) continue;
            if ((st = sustains(p, &run)) != QR_OK) return st;
            if (!run.kept) continue;
            *best = run;
            any = true;
        }
    QR_ASSERT(any);
    if (best->use.n_preemptions == 0 || p->conf->n_ram == 0) return QR_OK;
    struct qr_plan_run run = *best;
    run.n_ram = p->conf->n_ram;
    enum qr_status st = plan_run(p, p->plan->n_replicas, 1, &run, NULL);
    if (st == QR_OK) st = plan_sustains(p, 1, &run);
    if (st == QR_OK) st = note(p, &run);
    if (st == QR_OK && run.kept && is_better(&p->conf->limits, &run, best)) *best = run;
    return st;
}

// *answered: of what it can do, the latest.
static enum qr_status try_faster(struct planner *p, double faster, bool *ok, double *answered)
{
    struct qr_plan_run run = p->plan->chosen;
    enum qr_status st = plan_run(p, p->plan->n_replicas, faster, &run, NULL);
    if (st == QR_OK) st = plan_sustains(p, faster, &run);
    if (st == QR_OK) st = note(p, &run);
    *ok = run.kept;
    if (run.kept) *answered = run.requests_per_s;
    return st;
}

// Of a step's time what is arithmetic, by the cost's own table.
static double compute_share(const struct qr_sim_cost *cost, const struct qr_sim_summary *s, double held)
{
    struct qr_costs g = qr_sim_cost_guess(cost);
    const struct qr_work nothing = {0};
    double prompts = (double)(s->n_prompt_tokens - s->n_cached_tokens + s->n_recomputed_tokens);
    double mean = s->n_finished ? (double)s->n_prompt_tokens / (double)s->n_finished : 0;
    double compute = (double)s->n_output_tokens * (double)g.row_ns +
                     prompts * ((double)g.prompt_row_ns + mean / 2 * (double)g.query_context_ps * 1e-3);
    double reads = (double)s->n_steps * (double)qr_costs_ns(&g, &nothing) + held * (double)g.context_ps * 1e-3;
    return compute + reads > 0 ? compute / (compute + reads) : 0;
}

// Of one replica: as asked for, where arrivals are drawn.
static double share_rate(const struct planner *p)
{
    return p->plan->ends ? p->plan->chosen.rate : p->rate / p->plan->n_replicas;
}

// Where too much comes, what is in its way: `faster` times the chosen load.
static enum qr_status look_beyond(struct planner *p, double faster)
{
    struct qr_plan *o = p->plan;
    struct qr_plan_run run = o->chosen;
    enum qr_status st = plan_run(p, o->n_replicas, faster, &run, &o->over);
    if (st != QR_OK) return st;
    o->rate_over = share_rate(p) * faster;
    double held = o->over.kv_fill * (double)o->over.n_steps * run.n_blocks * p->conf->run.block_size;
    o->share_compute = compute_share(p->conf->run.cost, &o->over, held);
    run.kept = true; // whether in time or not: does it answer what comes?
    if ((st = plan_sustains(p, faster, &run)) != QR_OK) return st;
    o->beyond = run;
    // Of a load that ends: what was under way when the last request came is still to be answered.
    double span = (double)run.n_requests / o->rate_over;
    double rest = plan_load_longest_s(&p->share, o->alone.e2el_s) + 2 * o->expected.latency.p50;
    bool keeps_up = run.kept && (!o->ends || o->over.duration_s - span <= 0.05 * span + rest);
    o->bind = o->over.n_preemptions * 50 > o->over.n_finished ? QR_PLAN_MEMORY
              : keeps_up                                      ? QR_PLAN_LATENCY
              : o->share_compute >= 0.5                       ? QR_PLAN_COMPUTE
                                                              : QR_PLAN_BANDWIDTH;
    return QR_OK;
}

// How much more one replica takes.
static enum qr_status find_limit(struct planner *p)
{
    struct qr_plan *o = p->plan;
    double lo = 1, hi = 1.25, answered = o->chosen.requests_per_s;
    bool ok = false;
    enum qr_status st = o->ends ? try_faster(p, FASTER_MAX, &ok, &answered) : QR_OK;
    if (st != QR_OK) return st;
    if (ok) return o->bind = QR_PLAN_NOTHING, o->rate_most = INFINITY, QR_OK;
    for (;; lo = hi, hi *= 1.5) {
        if ((st = try_faster(p, hi, &ok, &answered)) != QR_OK) return st;
        if (!ok || (o->ends && hi > FASTER_MAX)) break;
    }
    while (hi / lo > 1.05) {
        double mid = sqrt(lo * hi);
        if ((st = try_faster(p, mid, &ok, &answered)) != QR_OK) return st;
        if (ok)
            lo = mid;
        else
            hi = mid;
    }
    o->faster_most = lo, o->faster_over = hi;
    o->rate_most = o->ends ? answered : share_rate(p) * lo;
    return look_beyond(p, hi);
}

// With as much memory as it takes, if that changes nothing; else with all.
static enum qr_status find_memory(struct planner *p)
{
    struct qr_plan *o = p->plan;
    struct qr_plan_run run = o->chosen;
    enum qr_status st = plan_run(p, o->n_replicas, 1, &run, &o->expected);
    if (st != QR_OK) return st;
    o->chosen = o->planned = run;
    if (run.use.n_blocks_enough >= run.n_blocks) return QR_OK;
    run.n_blocks = (uint32_t)run.use.n_blocks_enough;
    struct qr_sim_summary s;
    st = plan_run(p, o->n_replicas, 1, &run, &s);
    if (st == QR_OK) st = plan_sustains(p, 1, &run);
    if (st == QR_OK && run.kept && run.n_late <= o->chosen.n_late && run.use.n_preemptions <= o->chosen.use.n_preemptions)
        o->planned = run, o->expected = s;
    return st;
}

enum qr_status qr_plan_make(const struct qr_plan_conf *conf, struct qr_plan *out, struct qr_error *err)
{
    struct qr_plan o = {0};
    struct planner p = {.conf = conf, .plan = &o, .err = err};
    QR_ASSERT(conf->n_seqs > 0 && conf->n_steps > 0 && conf->limits.percentile > 0 && conf->limits.percentile <= 100);
    enum qr_status st = plan_load_look(&p);
    o.ends = p.n_arrivals > 0 || p.n_sessions > 0;
    if (st == QR_OK) st = check_alone(&p);
    if (st == QR_OK) st = find_replicas(&p);
    if (st == QR_OK) st = find_settings(&p);
    if (st == QR_OK) st = find_memory(&p);
    if (st == QR_OK) st = find_limit(&p);
    qr_sim_workload_free(&p.share);
    if (st == QR_OK)
        *out = o;
    else
        qr_plan_free(&o);
    return st;
}

void qr_plan_free(struct qr_plan *p)
{
    qr_free(p->runs);
    p->runs = NULL;
    p->n_runs = p->cap_runs = 0;
}
