/* One simulation of a plan: who is late, what is measured, and how much a replica answers at most. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "sim/plan_internal.h"

// How much a replica answers at most shows when requests come faster than asked for; what is asked for keeps a distance
// from it, for near it queues are long and shrink slowly.
#define PRESS 1.2
#define HEADROOM 1.02
// Requests whose answers are counted are half of these: their lengths' mean is within about 3 %.
#define PRESS_MIN 2000
#define PRESS_MAX 40000
// It lasts so many times as long as a request, or a session, so that its second half is no part of its start.
#define PRESS_LATENCIES 3

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

static int64_t blocks_enough(const struct planner *p, const struct qr_sim_workload *w, int32_t n_seqs)
{
    int64_t bs = p->conf->run.block_size, one = (p->conf->run.max_model_len + bs - 1) / bs, most = 1;
    for (size_t i = 0; i < w->n_items; i++) {
        int64_t n = (int64_t)w->items[i].n_prompt + w->items[i].n_output;
        if (n > most) most = n;
    }
    int64_t enough = n_seqs * ((most + bs - 1) / bs);
    return enough > one ? enough : one;
}

static enum qr_status use_of(const struct planner *p, const struct qr_sim_run_conf *rc, const struct qr_sim_result *r,
                             struct qr_plan_use *out)
{
    int64_t *ends = qr_malloc(QR_MEM_MISC, (2 * r->n_records + 1) * sizeof *ends);
    if (!ends) return qr_fail(p->err, QR_ENOMEM, "no memory to sum up %zu requests", rc->workload->n_items);
    *out = (struct qr_plan_use){.peak_seqs = peak_of(r, ends), .n_preemptions = r->end.n_preemptions};
    for (int i = 0; i < QR_STEP_SIZES; i++)
        if (r->end.n_steps_of[i]) out->peak_tokens = i == QR_STEP_SIZES - 1 ? INT32_MAX : 1 << i;
    // Where prompts share, the more there is, the more is found.
    out->n_blocks_enough = p->shares ? rc->n_blocks : blocks_enough(p, rc->workload, out->peak_seqs);
    qr_free(ends);
    return QR_OK;
}

static enum qr_status measure(const struct planner *p, const struct qr_sim_result *r, struct qr_plan_run *out)
{
    const struct qr_plan_limits *l = &p->conf->limits;
    double *v = qr_malloc(QR_MEM_MISC, (3 * r->n_records + 1) * sizeof *v), *at[3];
    double *to[3] = {&out->ttft_s, &out->tpot_s, &out->e2el_s};
    uint64_t n = 0;
    if (!v) return qr_fail(p->err, QR_ENOMEM, "no memory to sum up %" PRIu64 " requests", r->n_records);
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
    out->n_answered = n;
    double all_s = seconds(r->begin_ns, r->end_ns);
    if (all_s > 0) out->tokens_per_s = (double)r->end.n_generated_tokens / all_s, out->requests_per_s = (double)n / all_s;
    qr_free(v);
    return QR_OK;
}

static uint64_t late_max(const struct qr_plan_limits *l, uint64_t n)
{
    return (uint64_t)floor((1 - l->percentile / 100) * (double)n + 1e-9);
}

struct window { // the second half of the time in which requests come
    uint64_t from_ns, to_ns;
};

static struct window window_of(const struct qr_sim_workload *w)
{
    double first, last;
    plan_load_span(w, &first, &last);
    return (struct window){(uint64_t)((first + last) / 2 * 1e9), (uint64_t)(last * 1e9)};
}

static bool within(const struct window *w, uint64_t ns)
{
    return ns > w->from_ns && ns <= w->to_ns;
}

// Requests that came and that were answered within a window, a second.
static void count_flow(const struct qr_sim_result *r, const struct window *w, double *came, double *answered)
{
    uint64_t n_came = 0, n_answered = 0;
    double s = seconds(w->from_ns, w->to_ns);
    for (uint64_t i = 0; i < r->n_records; i++) {
        n_came += within(w, r->records[i].arrival_ns);
        n_answered += within(w, r->records[i].finish_ns);
    }
    *came = s > 0 ? (double)n_came / s : 0;
    *answered = s > 0 ? (double)n_answered / s : 0;
}

static struct qr_sim_run_conf run_conf(const struct planner *p, const struct qr_plan_run *run, const struct qr_sim_workload *w)
{
    struct qr_sim_run_conf rc = p->conf->run;
    rc.workload = w;
    rc.max_num_seqs = run->max_num_seqs, rc.max_num_batched_tokens = run->max_num_batched_tokens;
    rc.n_blocks = run->n_blocks, rc.n_ram = run->n_ram;
    return rc;
}

static enum qr_status run_load(struct planner *p, const struct qr_sim_workload *w, struct qr_plan_run *run,
                               struct qr_sim_summary *whole)
{
    const struct qr_plan_limits *l = &p->conf->limits;
    struct judge j = {.limits = l, .n_late_max = late_max(l, w->n_items)};
    struct qr_sim_run_conf rc = run_conf(p, run, w);
    struct window half = window_of(w);
    struct qr_sim_result r;
    if (!whole) rc.stop = judge, rc.stop_arg = &j;
    enum qr_status st = qr_sim_run(&rc, &r, p->err);
    if (st != QR_OK) return st;
    QR_ASSERT(r.n_refused == 0); // those are no part of the load
    if (whole && qr_sim_summarize(&r, rc.n_choices, whole) != QR_OK)
        st = qr_fail(p->err, QR_ENOMEM, "no memory to sum up %zu requests", w->n_items);
    if (st == QR_OK) st = measure(p, &r, run);
    if (st == QR_OK) st = use_of(p, &rc, &r, &run->use);
    count_flow(&r, &half, &run->came_per_s, &run->answered_per_s);
    run->stopped = r.stopped;
    run->kept = !r.stopped && run->n_late <= late_max(l, run->n_answered);
    qr_sim_result_free(&r);
    return st;
}

enum qr_status plan_run(struct planner *p, int32_t n, double faster, struct qr_plan_run *run, struct qr_sim_summary *whole)
{
    enum qr_status st = plan_load_share(p, n);
    if (st != QR_OK) return st;
    struct qr_sim_workload w = p->share;
    w.items = qr_malloc(QR_MEM_MISC, w.n_items * sizeof *w.items);
    if (!w.items) return qr_fail(p->err, QR_ENOMEM, "no memory to simulate %zu requests", w.n_items);
    memcpy(w.items, p->share.items, w.n_items * sizeof *w.items);
    for (size_t i = 0; i < w.n_items; i++)
        if (w.items[i].is_first) w.items[i].arrival_s /= faster;
    *run = (struct qr_plan_run){.n_replicas = n,
                                .max_num_seqs = run->max_num_seqs,
                                .max_num_batched_tokens = run->max_num_batched_tokens,
                                .n_blocks = run->n_blocks,
                                .n_ram = run->n_ram,
                                .n_requests = w.n_items,
                                .rate = n > 0 ? plan_load_rate(&w) : 0};
    st = run_load(p, &w, run, whole);
    qr_free(w.items);
    return st;
}

/* ==== How much a replica answers. ==== */

static bool same_settings(const struct plan_pressed *k, const struct qr_plan_run *r)
{
    return k->max_num_seqs == r->max_num_seqs && k->max_num_batched_tokens == r->max_num_batched_tokens &&
           k->n_blocks == r->n_blocks && k->n_ram == r->n_ram;
}

// What was answered when at least as much came says it; so does what was answered when less came and was too much.
// The search for a number of replicas takes only what was measured for that number, so that no order matters.
static const struct plan_pressed *pressed_before(const struct planner *p, const struct qr_plan_run *run, double came, bool searching)
{
    for (int i = 0; i < p->n_pressed && i < PLAN_PRESSED_MAX; i++) {
        const struct plan_pressed *k = &p->pressed[i];
        if (!same_settings(k, run)) continue;
        if (searching ? k->came == came : k->came >= came || k->answered >= came * HEADROOM || k->answered < k->came) return k;
    }
    return NULL;
}

// *out stays NULL where the source has too few sessions to say it.
static enum qr_status press(struct planner *p, double faster, const struct qr_plan_run *run, double came,
                            const struct plan_pressed **out)
{
    const struct qr_sim_workload_conf *load = &p->conf->load;
    double rate = PRESS * load->rate * faster / run->n_replicas;
    double least = PRESS_LATENCIES * rate * plan_load_longest_s(&p->share, run->e2el_s);
    double n = fmax((double)plan_load_size(rate), fmax(PRESS_MIN / fmin(1, load->burstiness), least));
    struct qr_sim_workload w;
    struct qr_sim_result r;
    if (p->n_sessions > 0 && (double)p->n_sessions < least) return QR_OK;
    enum qr_status st = plan_load_at(p, rate, (int64_t)fmin(n, PRESS_MAX), &w);
    if (st != QR_OK) return st;
    struct window half = window_of(&w);
    struct qr_sim_run_conf rc = run_conf(p, run, &w);
    struct plan_pressed k = {run->max_num_seqs, run->max_num_batched_tokens, run->n_blocks, run->n_ram, came, 0, {0}};
    double pressed;
    st = qr_sim_run(&rc, &r, p->err);
    if (st == QR_OK) {
        count_flow(&r, &half, &pressed, &k.answered);
        st = use_of(p, &rc, &r, &k.use);
        p->pressed[p->n_pressed % PLAN_PRESSED_MAX] = k;
        *out = &p->pressed[p->n_pressed++ % PLAN_PRESSED_MAX];
        qr_sim_result_free(&r);
    }
    qr_sim_workload_free(&w);
    return st;
}

enum qr_status plan_sustains(struct planner *p, double faster, struct qr_plan_run *run)
{
    if (p->n_arrivals > 0 || !run->kept) return QR_OK;
    // Turns of sessions come when they may: what came is what there was.
    double came = p->n_sessions > 0 ? run->came_per_s : p->rate * faster / run->n_replicas;
    const struct plan_pressed *k = pressed_before(p, run, came, faster == 1);
    enum qr_status st = k ? QR_OK : press(p, faster, run, came, &k);
    if (st != QR_OK || !k || k->answered >= came * HEADROOM) return st;
    run->kept = false;
    run->answers_most = k->answered, run->pressed = k->use;
    return QR_OK;
}
