#include "sim/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

// A replica's load lasts so long, within these numbers of requests: a queue that grows shows within minutes, and the
// tail of a few hundred is not one request's luck.
#define LOAD_S 300.0
#define LOAD_MIN 400
#define LOAD_MAX 4000
// One request at a time: so rare that two meet only by chance.
#define ALONE_RATE 1e-3
#define ALONE_REQUESTS 100
// Sharing and rounding are not in the arithmetic of the least number of replicas.
#define LEAST_MARGIN 0.9

struct planner {
    const struct qr_plan_conf *conf;
    struct qr_plan *plan;
    struct qr_sim_workload share; // of one of n_share replicas
    int32_t n_share;              // 0: none is there; -1: requests come alone
    int64_t n_sessions;           // of the source, where it has sessions; else 0
    double rate;
    bool shares; // prompts may have parts in common: what the pool keeps of them matters
    struct qr_error *err;
};

/* ==== Loads. ==== */

static int64_t requests_for(const struct planner *p, double rate)
{
    int64_t n = p->conf->load.n_requests;
    if (n == 0) n = rate * LOAD_S < LOAD_MIN ? LOAD_MIN : rate * LOAD_S > LOAD_MAX ? LOAD_MAX : (int64_t)(rate * LOAD_S);
    return p->n_sessions > 0 && n > p->n_sessions ? p->n_sessions : n;
}

// Keeps each n-th session. Turns of a session stand together.
static void keep_each(struct qr_sim_workload *w, int32_t n)
{
    int64_t i_session = -1;
    size_t kept = 0;
    for (size_t i = 0; i < w->n_items; i++) {
        i_session += w->items[i].is_first;
        if (i_session % n != 0) continue;
        struct qr_sim_item it = w->items[i];
        if (it.next >= 0) it.next = (int64_t)kept + 1;
        w->items[kept++] = it;
    }
    w->n_items = kept;
}

// The load of one of n replicas; n -1: the same requests one at a time.
static enum qr_status load_share(struct planner *p, int32_t n)
{
    if (p->n_share == n) return QR_OK;
    struct qr_sim_workload_conf c = p->conf->load;
    bool timed = c.rate == 0 && n > 0;
    if (n < 0) {
        c.rate = ALONE_RATE;
        c.n_requests = p->n_sessions > 0 && p->n_sessions < ALONE_REQUESTS ? p->n_sessions : ALONE_REQUESTS;
    } else if (!timed) {
        c.rate = c.rate / n;
        c.n_requests = requests_for(p, c.rate);
    }
    qr_sim_workload_free(&p->share);
    p->n_share = 0;
    enum qr_status st = qr_sim_workload_make(&c, &p->share, p->err);
    if (st != QR_OK) return st;
    if (timed && n > 1) keep_each(&p->share, n);
    p->n_share = n;
    return QR_OK;
}

// Requests a second by their arrivals; turns behind a session's first come when they may.
static double rate_of(const struct qr_sim_workload *w)
{
    double first = INFINITY, last = 0;
    for (size_t i = 0; i < w->n_items; i++) {
        if (!w->items[i].is_first) continue;
        if (w->items[i].arrival_s < first) first = w->items[i].arrival_s;
        if (w->items[i].arrival_s > last) last = w->items[i].arrival_s;
    }
    return last > first ? (double)(w->n_items - 1) / (last - first) : 0;
}

// What one request costs at least, in seconds: its rows and positions, as if it shared every step.
static double least_s(const struct planner *p, const struct qr_sim_workload *w)
{
    struct qr_costs g = qr_sim_cost_guess(p->conf->run.cost);
    double sum = 0;
    for (size_t i = 0; i < w->n_items; i++) {
        const struct qr_sim_item *it = &w->items[i];
        double in = it->n_prompt, out = it->n_output;
        sum += out * (double)g.row_ns + out * (in + out / 2) * (double)g.context_ps * 1e-3;
        if (p->shares) continue; // what prompts share may never be computed
        sum += in * (double)g.prompt_row_ns + in * in / 2 * (double)g.query_context_ps * 1e-3;
    }
    return sum * 1e-9 / (double)w->n_items;
}

static enum qr_status look_at_load(struct planner *p)
{
    struct qr_sim_workload_conf c = p->conf->load;
    struct qr_sim_workload w;
    c.needs_rate = true;
    if (isinf(c.rate))
        return qr_fail(p->err, QR_EINVAL, "--request-rate: expected requests a second, above 0, to plan for, got inf");
    enum qr_status st = qr_sim_workload_make(&c, &w, p->err);
    if (st != QR_OK) return st;
    if (w.items[0].session >= 0)
        for (size_t i = 0; i < w.n_items; i++) p->n_sessions += w.items[i].is_first;
    p->shares = w.n_hashes > 0 || p->n_sessions > 0 || p->conf->run.shared_tokens > 0;
    p->rate = rate_of(&w);
    if (c.rate > 0 && p->n_sessions == 0) p->rate = c.rate;
    double least = ceil(LEAST_MARGIN * p->rate * least_s(p, &w));
    memcpy(p->plan->unused, w.unused, sizeof w.unused);
    qr_sim_workload_free(&w);
    p->plan->rate = p->rate;
    if (!(least <= QR_PLAN_REPLICAS_MAX))
        return qr_fail(p->err, QR_ETOOBIG, "%.4g requests/s need at least %.0f replicas: expected at most %d", p->rate, least,
                       QR_PLAN_REPLICAS_MAX);
    p->plan->n_replicas_least = least < 1 ? 1 : (int32_t)least;
    return QR_OK;
}

/* ==== One simulation. ==== */

struct judge {
    const struct qr_plan_limits *limits;
    uint64_t n_late, n_late_max;
};

static double seconds(uint64_t from, uint64_t to)
{
    return to > from ? (double)(to - from) * 1e-9 : 0;
}

static void times_of(const struct qr_sim_record *r, double out[3])
{
    out[0] = seconds(r->arrival_ns, r->first_ns);
    out[1] = r->n_output > 1 ? seconds(r->first_ns, r->finish_ns) / (r->n_output - 1) : 0;
    out[2] = seconds(r->arrival_ns, r->finish_ns);
}

static bool is_late(const struct qr_plan_limits *l, const struct qr_sim_record *r)
{
    double t[3];
    times_of(r, t);
    return t[0] > l->ttft_s || t[1] > l->tpot_s || t[2] > l->e2el_s;
}

static bool judge(void *arg, const struct qr_sim_record *r)
{
    struct judge *j = arg;
    j->n_late += is_late(j->limits, r);
    return j->n_late > j->n_late_max;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int by_time(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

// Requests between their first step and their end, at most at once. Those that were preempted count on.
static int32_t peak_of(const struct qr_sim_result *r, int64_t *v)
{
    size_t n = 0;
    int32_t now = 0, most = 0;
    for (uint64_t i = 0; i < r->n_records; i++) {
        const struct qr_sim_record *q = &r->records[i];
        if (!q->first_ns) continue;
        v[n++] = (int64_t)q->scheduled_ns * 2 + 1; // an end at the same time comes first
        v[n++] = q->finish_ns ? (int64_t)q->finish_ns * 2 : INT64_MAX - 1;
    }
    qsort(v, n, sizeof *v, by_time);
    for (size_t i = 0; i < n; i++) {
        now += v[i] & 1 ? 1 : -1;
        if (now > most) most = now;
    }
    return most;
}

static enum qr_status measure(const struct qr_plan_limits *l, const struct qr_sim_result *r, struct qr_plan_run *out)
{
    double *v = qr_malloc(QR_MEM_MISC, (3 * r->n_records + 1) * sizeof *v), *at[3];
    int64_t *ends = qr_malloc(QR_MEM_MISC, (2 * r->n_records + 1) * sizeof *ends);
    double *to[3] = {&out->ttft_s, &out->tpot_s, &out->e2el_s};
    uint64_t n = 0;
    if (v && ends) {
        for (int k = 0; k < 3; k++) at[k] = v + (uint64_t)k * r->n_records;
        for (uint64_t i = 0; i < r->n_records; i++) {
            double t[3];
            if (!r->records[i].finish_ns) continue;
            times_of(&r->records[i], t);
            for (int k = 0; k < 3; k++) at[k][n] = t[k];
            n++;
            out->n_late += is_late(l, &r->records[i]);
        }
        uint64_t i = (uint64_t)ceil(l->percentile / 100 * (double)n - 1e-9);
        for (int k = 0; k < 3 && n > 0; k++) qsort(at[k], n, sizeof **at, by_value), *to[k] = at[k][i > 0 ? i - 1 : 0];
        out->peak_seqs = peak_of(r, ends);
    }
    enum qr_status st = v && ends ? QR_OK : QR_ENOMEM;
    out->n_answered = n;
    out->n_preemptions = r->end.n_preemptions;
    if (r->end_ns > r->begin_ns) out->tokens_per_s = (double)r->end.n_generated_tokens / seconds(r->begin_ns, r->end_ns);
    for (int i = 0; i < QR_STEP_SIZES; i++)
        if (r->end.n_steps_of[i]) out->peak_tokens = i == QR_STEP_SIZES - 1 ? INT32_MAX : 1 << i;
    qr_free(v);
    qr_free(ends);
    return st;
}

static uint64_t late_max(const struct qr_plan_limits *l, uint64_t n)
{
    return (uint64_t)floor((1 - l->percentile / 100) * (double)n + 1e-9);
}

// Simulates one of n replicas whose requests come `faster` times as fast. With `whole`, to the end and summed up.
static enum qr_status simulate(struct planner *p, int32_t n, double faster, struct qr_plan_run *run,
                               struct qr_sim_summary *whole)
{
    const struct qr_plan_conf *c = p->conf;
    enum qr_status st = load_share(p, n);
    if (st != QR_OK) return st;
    struct qr_sim_workload w = p->share;
    w.items = qr_malloc(QR_MEM_MISC, w.n_items * sizeof *w.items);
    if (!w.items) return qr_fail(p->err, QR_ENOMEM, "no memory to simulate %zu requests", w.n_items);
    memcpy(w.items, p->share.items, w.n_items * sizeof *w.items);
    for (size_t i = 0; i < w.n_items; i++)
        if (w.items[i].is_first) w.items[i].arrival_s /= faster;
    struct judge j = {.limits = &c->limits, .n_late_max = late_max(&c->limits, w.n_items)};
    struct qr_sim_run_conf rc = c->run;
    rc.workload = &w;
    rc.max_num_seqs = run->max_num_seqs, rc.max_num_batched_tokens = run->max_num_batched_tokens;
    rc.n_blocks = run->n_blocks, rc.n_ram = run->n_ram;
    if (!whole) rc.stop = judge, rc.stop_arg = &j;
    struct qr_sim_result r;
    st = qr_sim_run(&rc, &r, p->err);
    run->n_replicas = n, run->n_requests = w.n_items, run->rate = n > 0 ? rate_of(&w) : 0;
    if (st == QR_OK) {
        if (measure(&c->limits, &r, run) != QR_OK || (whole && qr_sim_summarize(&r, c->run.n_choices, whole) != QR_OK))
            st = qr_fail(p->err, QR_ENOMEM, "no memory to sum up %zu requests", w.n_items);
        else if (r.n_records == 0)
            st = qr_fail(p->err, QR_ETOOBIG, "no request can be served: %.200s", r.refused_why);
        run->stopped = r.stopped;
        run->kept = !r.stopped && run->n_late <= late_max(&c->limits, run->n_answered);
        p->plan->n_refused = r.n_refused;
        snprintf(p->plan->refused_why, sizeof p->plan->refused_why, "%s", r.refused_why);
        qr_sim_result_free(&r);
    }
    qr_free(w.items);
    return st;
}

/* ==== The search. ==== */

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

static struct qr_plan_run choice(const struct planner *p, int i_seqs, int i_step)
{
    return (struct qr_plan_run){.max_num_seqs = p->conf->seqs[i_seqs],
                                .max_num_batched_tokens = p->conf->steps[i_step].n_tokens,
                                .n_blocks = p->conf->steps[i_step].n_blocks};
}

// A run that no setting held back went as it would with any others that do not.
static bool is_same(const struct planner *p, const struct qr_plan_run *had, const struct qr_plan_run *r)
{
    if (had->max_num_seqs == r->max_num_seqs && had->max_num_batched_tokens == r->max_num_batched_tokens) return true;
    if (p->shares && had->n_blocks != r->n_blocks) return false;
    return !had->stopped && had->n_preemptions == 0 && had->peak_seqs < had->max_num_seqs && had->peak_seqs < r->max_num_seqs &&
           had->peak_tokens < had->max_num_batched_tokens && had->peak_tokens < r->max_num_batched_tokens;
}

static const struct qr_plan_run *known(const struct planner *p, int32_t n, const struct qr_plan_run *r)
{
    for (int i = 0; i < p->plan->n_runs; i++) {
        const struct qr_plan_run *had = &p->plan->runs[i];
        if (had->n_replicas == n && had->n_ram == r->n_ram && is_same(p, had, r)) return had;
    }
    return NULL;
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
    enum qr_status st = simulate(p, n, 1, run, NULL);
    return st == QR_OK ? note(p, run) : st;
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
    if ((st = simulate(p, -1, 1, &run, &s)) != QR_OK) return st;
    return qr_fail(p->err, QR_ETOOBIG, "no number of replicas keeps the target: alone on the machine, %g %% of requests %s", l->percentile,
                   say_alone(l, &run, (char[160]){0}, 160));
}

static enum qr_status find_replicas(struct planner *p)
{
    int32_t n = p->plan->n_replicas_least, below = n - 1; // below: too few
    bool ok = false;
    for (;;) {
        enum qr_status st = will_do(p, n, &ok);
        if (st != QR_OK) return st;
        if (ok) break;
        below = n;
        if (n > QR_PLAN_REPLICAS_MAX / 2)
            return qr_fail(p->err, QR_ETOOBIG,
                           "%d replicas do not keep the target: requests that come together are too much for one", n);
        n *= 2;
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

static uint32_t blocks_enough(struct planner *p, const struct qr_plan_run *run)
{
    int64_t bs = p->conf->run.block_size, longest = p->conf->run.max_model_len, most = 1;
    if (p->shares) return run->n_blocks; // the more, the more is found
    for (size_t i = 0; i < p->share.n_items; i++) {
        int64_t n = (int64_t)p->share.items[i].n_prompt + p->share.items[i].n_output;
        if (n > most && n <= longest) most = n;
    }
    int64_t enough = run->peak_seqs * ((most + bs - 1) / bs), one = (longest + bs - 1) / bs;
    if (enough < one) enough = one;
    return enough < run->n_blocks ? (uint32_t)enough : run->n_blocks;
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
            *best = run;
            any = true;
        }
    QR_ASSERT(any);
    if (best->n_preemptions == 0 || p->conf->n_ram == 0) return QR_OK;
    struct qr_plan_run run = *best;
    run.n_ram = p->conf->n_ram;
    run.n_late = 0;
    enum qr_status st = simulate(p, p->plan->n_replicas, 1, &run, NULL);
    if (st == QR_OK) st = note(p, &run);
    if (st == QR_OK && run.kept && is_better(&p->conf->limits, &run, best)) *best = run;
    return st;
}

static enum qr_status try_faster(struct planner *p, double faster, bool *ok)
{
    struct qr_plan_run run = p->plan->chosen;
    run.n_late = 0;
    enum qr_status st = simulate(p, p->plan->n_replicas, faster, &run, NULL);
    if (st == QR_OK) st = note(p, &run);
    *ok = run.kept;
    return st;
}

// Of a step's time what is arithmetic, by the cost's own table.
static double compute_share(const struct qr_sim_cost *cost, const struct qr_sim_summary *s, double held)
{
    struct qr_costs g = qr_sim_cost_guess(cost);
    double prompts = (double)(s->n_prompt_tokens - s->n_cached_tokens + s->n_recomputed_tokens);
    double mean = s->n_finished ? (double)s->n_prompt_tokens / (double)s->n_finished : 0;
    double compute = (double)s->n_output_tokens * (double)g.row_ns +
                     prompts * ((double)g.prompt_row_ns + mean / 2 * (double)g.query_context_ps * 1e-3);
    double reads = (double)s->n_steps * (double)g.fixed_ns + held * (double)g.context_ps * 1e-3;
    return compute + reads > 0 ? compute / (compute + reads) : 0;
}

// How much more one replica takes, and what is in its way then.
static enum qr_status find_limit(struct planner *p)
{
    struct qr_plan *o = p->plan;
    double lo = 1, hi = 1.25;
    bool ok = true;
    for (;; lo = hi, hi *= 1.5) {
        enum qr_status st = try_faster(p, hi, &ok);
        if (st != QR_OK) return st;
        if (!ok || hi > 1e4) break;
    }
    while (hi / lo > 1.05) {
        double mid = sqrt(lo * hi);
        enum qr_status st = try_faster(p, mid, &ok);
        if (st != QR_OK) return st;
        if (ok)
            lo = mid;
        else
            hi = mid;
    }
    struct qr_plan_run run = o->chosen;
    run.n_late = 0;
    enum qr_status st = simulate(p, o->n_replicas, hi, &run, &o->over);
    if (st != QR_OK) return st;
    o->rate_most = o->chosen.rate * lo;
    o->rate_over = o->chosen.rate * hi;
    double held = o->over.kv_fill * (double)o->over.n_steps * run.n_blocks * p->conf->run.block_size;
    o->share_compute = compute_share(p->conf->run.cost, &o->over, held);
    // What was under way when the last request came is still to be answered.
    double span = (double)run.n_requests / o->rate_over;
    o->over_keeps_up = o->over.duration_s - span <= 0.05 * span + o->alone.e2el_s + 2 * o->expected.latency.p50;
    o->bind = o->over.n_preemptions * 50 > o->over.n_finished ? QR_PLAN_MEMORY
              : o->over_keeps_up                              ? QR_PLAN_LATENCY
              : o->share_compute >= 0.5                       ? QR_PLAN_COMPUTE
                                                              : QR_PLAN_BANDWIDTH;
    return QR_OK;
}

enum qr_status qr_plan_make(const struct qr_plan_conf *conf, struct qr_plan *out, struct qr_error *err)
{
    struct qr_plan o = {0};
    struct planner p = {.conf = conf, .plan = &o, .err = err};
    QR_ASSERT(conf->n_seqs > 0 && conf->n_steps > 0 && conf->limits.percentile > 0 && conf->limits.percentile <= 100);
    enum qr_status st = look_at_load(&p);
    if (st == QR_OK) st = check_alone(&p);
    if (st == QR_OK) st = find_replicas(&p);
    if (st == QR_OK) st = find_settings(&p);
    if (st == QR_OK) {
        struct qr_plan_run run = o.chosen;
        run.n_late = 0;
        st = simulate(&p, o.n_replicas, 1, &run, &o.expected);
        o.chosen = run;
        o.n_blocks_enough = blocks_enough(&p, &run);
    }
    uint64_t n_refused = o.n_refused;
    if (st == QR_OK) st = find_limit(&p);
    o.n_refused = n_refused;
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
