/* Loads of a plan: the whole, a replica's share, and what of it can never fit. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "sched/request.h"
#include "sim/plan_internal.h"

// A replica's load lasts so long, within these numbers of requests: a queue that grows fast shows within minutes, and the
// tail of a few hundred is not one request's luck.
#define LOAD_S 300.0
#define LOAD_MIN 400
#define LOAD_MAX 4000
// Of fewer requests a percentile is one request's luck.
#define LOAD_LEAST 20
// One request at a time: so rare that two meet only by chance.
#define ALONE_RATE 1e-3
#define ALONE_REQUESTS 100
// Sharing and rounding are not in the arithmetic of the least number of replicas.
#define LEAST_MARGIN 0.9

struct unfit { // what was taken out of a load
    uint64_t n;
    struct qr_error why; // of the first
};

int64_t plan_load_size(double rate)
{
    return rate * LOAD_S < LOAD_MIN ? LOAD_MIN : rate * LOAD_S > LOAD_MAX ? LOAD_MAX : (int64_t)(rate * LOAD_S);
}

static int64_t requests_for(const struct planner *p, double rate)
{
    int64_t n = p->conf->load.n_requests ? p->conf->load.n_requests : plan_load_size(rate);
    return p->n_sessions > 0 && n > p->n_sessions ? p->n_sessions : n;
}

// Memory beside the widest steps is the smallest.
static bool fits(const struct qr_plan_conf *c, const struct qr_sim_item *it, struct qr_error *why)
{
    const struct qr_sim_run_conf *r = &c->run;
    struct qr_sched_conf sc = {.max_num_seqs = 1,
                               .max_num_batched_tokens = c->steps[0].n_tokens,
                               .max_model_len = r->max_model_len,
                               .block_size = r->block_size,
                               .n_blocks = c->steps[c->n_steps - 1].n_blocks,
                               .layout = r->layout};
    struct qr_req q = {.n_prompt = it->n_prompt, .n_choices = 1, .sampling.max_tokens = it->n_output};
    return qr_sched_req_fits(&sc, &q, why) == QR_OK;
}

// Takes out what a server would refuse, and the turns of its session behind it. Turns of a session stand together.
static void drop_unfit(const struct planner *p, struct qr_sim_workload *w, struct unfit *u)
{
    size_t kept = 0;
    bool dropping = false;
    for (size_t i = 0; i < w->n_items; i++) {
        struct qr_sim_item it = w->items[i];
        dropping = (dropping && !it.is_first) || !fits(p->conf, &it, u->n > 0 ? NULL : &u->why);
        u->n += dropping;
        if (dropping) continue;
        it.next = -1;
        if (!it.is_first) w->items[kept - 1].next = (int64_t)kept;
        w->items[kept++] = it;
    }
    w->n_items = kept;
}

// A workload of requests that fit, of which there is at least one.
static enum qr_status make(const struct planner *p, const struct qr_sim_workload_conf *c, struct qr_sim_workload *out,
                           struct unfit *u)
{
    enum qr_status st = qr_sim_workload_make(c, out, p->err);
    if (st != QR_OK) return st;
    drop_unfit(p, out, u);
    if (out->n_items > 0) return QR_OK;
    qr_sim_workload_free(out);
    return qr_fail(p->err, QR_ETOOBIG, "no request can be served: %.200s", u->why.msg);
}

enum qr_status plan_load_at(struct planner *p, double rate, int64_t n, struct qr_sim_workload *out)
{
    struct qr_sim_workload_conf c = p->conf->load;
    c.rate = rate;
    c.n_requests = p->n_sessions > 0 && n > p->n_sessions ? p->n_sessions : n;
    return make(p, &c, out, &(struct unfit){0});
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

enum qr_status plan_load_share(struct planner *p, int32_t n)
{
    if (p->n_share == n) return QR_OK;
    double rate = n < 0 ? ALONE_RATE : p->conf->load.rate / n;
    bool timed = n > 0 && rate == 0;
    struct qr_sim_workload w;
    enum qr_status st = timed ? make(p, &p->conf->load, &w, &(struct unfit){0})
                              : plan_load_at(p, rate, n < 0 ? ALONE_REQUESTS : requests_for(p, rate), &w);
    if (st != QR_OK) return st;
    qr_sim_workload_free(&p->share);
    p->share = w;
    if (timed && n > 1) keep_each(&p->share, n);
    p->n_share = n;
    return QR_OK;
}

void plan_load_span(const struct qr_sim_workload *w, double *first_s, double *last_s)
{
    *first_s = INFINITY, *last_s = 0;
    for (size_t i = 0; i < w->n_items; i++) {
        if (!w->items[i].is_first) continue;
        *first_s = fmin(*first_s, w->items[i].arrival_s);
        *last_s = fmax(*last_s, w->items[i].arrival_s);
    }
}

// Requests a second by their arrivals; turns behind a session's first come when they may.
double plan_load_rate(const struct qr_sim_workload *w)
{
    double first, last;
    plan_load_span(w, &first, &last);
    return last > first ? (double)(w->n_items - 1) / (last - first) : 0;
}

double plan_load_longest_s(const struct qr_sim_workload *w, double turn_s)
{
    double now = 0, most = 0;
    for (size_t i = 0; i < w->n_items; i++) {
        now = turn_s + (w->items[i].is_first ? 0 : now + fmax(w->items[i].think_s, 0));
        most = fmax(most, now);
    }
    return most;
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

// A plan is of a rate, and of percentiles.
static enum qr_status check_load(const struct planner *p, const struct qr_sim_workload *w)
{
    const struct qr_sim_workload_conf *c = &p->conf->load;
    bool drawn = c->rate > 0 && p->n_sessions == 0; // anew, as many as are wanted
    if (drawn && c->n_requests > 0 && c->n_requests < LOAD_LEAST)
        return qr_fail(p->err, QR_EINVAL, "--num-prompts: expected at least %d requests to plan from, got %lld", LOAD_LEAST,
                       (long long)c->n_requests);
    if (!drawn && w->n_items < LOAD_LEAST)
        return qr_fail(p->err, QR_EINVAL, "--workload: %.120s: expected at least %d requests that fit to plan from, got %zu", c->source,
                       LOAD_LEAST, w->n_items);
    if (!drawn && !(plan_load_rate(w) > 0))
        return qr_fail(p->err, QR_EINVAL,
                       "--workload: %.120s: expected arrivals at more than one time, got all %zu requests at once, which is no rate to "
                       "plan for%s",
                       c->source, w->n_items, p->n_sessions > 0 ? "" : " (--request-rate places them anew)");
    return QR_OK;
}

static enum qr_status set_least(struct planner *p, const struct qr_sim_workload *w)
{
    double rate = p->rate, span = (double)w->n_items / p->rate;
    if (p->n_sessions > 0) rate = (double)w->n_items / (span + plan_load_longest_s(w, 0)); // few sessions go on long behind the last start
    double least = ceil(LEAST_MARGIN * rate * least_s(p, w));
    if (!(least <= QR_PLAN_REPLICAS_MAX))
        return qr_fail(p->err, QR_ETOOBIG, "%.4g requests/s need at least %.0f replicas: expected at most %d", p->rate, least,
                       QR_PLAN_REPLICAS_MAX);
    if (p->n_arrivals > 0) least = fmin(least, (double)p->n_arrivals);
    p->plan->n_replicas_least = least < 1 ? 1 : (int32_t)least;
    return QR_OK;
}

enum qr_status plan_load_look(struct planner *p)
{
    const struct qr_sim_workload_conf *load = &p->conf->load;
    struct qr_sim_workload_conf c = *load;
    struct qr_sim_workload w;
    struct unfit u = {0};
    int64_t n_first = 0;
    c.needs_rate = true;
    if (isinf(c.rate))
        return qr_fail(p->err, QR_EINVAL, "--request-rate: expected requests a second, above 0, to plan for, got inf");
    enum qr_status st = make(p, &c, &w, &u);
    if (st != QR_OK) return st;
    for (size_t i = 0; i < w.n_items; i++) n_first += w.items[i].is_first;
    if (w.items[0].session >= 0) p->n_sessions = n_first;
    if (load->rate == 0) p->n_arrivals = n_first;
    p->shares = w.n_hashes > 0 || p->n_sessions > 0 || p->conf->run.shared_tokens > 0;
    p->rate = plan_load_rate(&w);
    if (load->rate > 0 && p->n_sessions == 0) p->rate = load->rate * (double)w.n_items / (double)(w.n_items + u.n);
    p->plan->rate = p->rate;
    p->plan->n_unfit = u.n, p->plan->n_load = w.n_items + u.n;
    snprintf(p->plan->unfit_why, sizeof p->plan->unfit_why, "%s", u.why.msg);
    memcpy(p->plan->unused, w.unused, sizeof w.unused);
    st = check_load(p, &w);
    if (st == QR_OK) st = set_least(p, &w);
    qr_sim_workload_free(&w);
    return st;
}
