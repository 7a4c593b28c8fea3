/* quire bench step: where a step's time goes, and what steps cost. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/machine.h"
#include "base/workers.h"
#include "bench/bench_internal.h"
#include "bench/fit.h"
#include "bench/inproc.h"
#include "bench/report.h"
#include "bench/stepper.h"
#include "core/phase.h"

const char bench_step_help[] =
    "Loads MODEL and times steps of it: where the time of a step of 1 and of 32 users goes, at --context tokens each, and what\n"
    "planning and publishing add. With --costs FILE it measures steps of many shapes and writes the cost table that\n"
    "`quire sim --costs FILE` reads:\n"
    "  {\"fixed_ns\", \"row_ns\", \"prompt_fixed_ns\", \"prompt_row_ns\", \"context_ps\", \"query_context_ps\", \"floor_ns\"}\n"
    "a step costs the larger of the floor and fixed + rows generated; + (with a prompt: prompt fixed + prompt rows, each prompt's\n"
    "rounded up to 16) + positions of all sequences + prompt rows x positions.\n\n"
    "  quire bench step smollm2-135m-instruct\n"
    "  quire bench step smollm2-135m-instruct --costs smollm2.json\n";

#define USERS_MAX 32
#define N_TIMED 64      // steps of a column
#define N_COST_STEPS 9  // of a shape of the cost table
#define SHAPES_MAX 80

static const char *const phase_names[] = {
#define QR_PHASE(id, what) what,
    QR_PHASE_LIST
#undef QR_PHASE
};

struct column { // medians, in ns a step
    int n_users;
    double phase[QR_PHASE_COUNT], between, total, outside; // outside: plan and publish
    uint64_t n_runs;
};

struct measuring {
    const struct bench_args *a;
    struct qr_lib *lib;
    struct qr_phases *phases;
    int32_t context;
    struct column columns[2];
    double barrier_ns;
    struct qr_costs costs;
    double error_median, error_max;
    bool has_costs;
};

/* ==== A step's phases. ==== */

static enum qr_status time_phases(struct measuring *m, struct column *c, struct qr_error *err)
{
    struct stepper s;
    static double v[QR_PHASE_COUNT + 2][N_TIMED];
    struct step_shape shape = {.n_rows = c->n_users, .context = m->context};
    enum qr_status st = stepper_open(m->lib, c->n_users, m->context, &s, err);
    if (st != QR_OK) return st;
    stepper_plan(&s, &shape);
    for (int i = -4; i < N_TIMED; i++) { // a few to get warm
        memset(m->phases, 0, sizeof *m->phases);
        double total = (double)stepper_run(&s), sum = 0;
        bench_progress(c->n_users == 1 ? "steps of one user" : "steps of many users", (uint64_t)(i + 5), N_TIMED + 4);
        if (i < 0) continue;
        for (int p = 0; p < QR_PHASE_COUNT; p++) sum += v[p][i] = (double)m->phases->ns[p];
        v[QR_PHASE_COUNT][i] = total - sum;
        v[QR_PHASE_COUNT + 1][i] = total;
    }
    stepper_close(&s);
    c->n_runs = 0;
    for (int p = 0; p < QR_PHASE_COUNT; p++) {
        c->phase[p] = bench_dist_of(v[p], N_TIMED).p50;
        c->n_runs += m->phases->n_runs[p];
    }
    c->between = bench_dist_of(v[QR_PHASE_COUNT], N_TIMED).p50;
    c->total = bench_dist_of(v[QR_PHASE_COUNT + 1], N_TIMED).p50;
    return QR_OK;
}

static struct qr_gen request_of(const int32_t *prompt, int32_t n_out)
{
    return (struct qr_gen){.req = {.prompt = prompt,
                                   .n_prompt = 4,
                                   .n_choices = 1,
                                   .sampling = {.top_p = 1,
                                                .repetition = 1,
                                                .seed = 1,
                                                .max_tokens = n_out,
                                                .ignore_eos = true,
                                                .n_logprobs = -1,
                                                .n_prompt_logprobs = -1}}};
}

// What the engine adds to a step, planning and publishing: while all users generate, the mean time from step to step less the
// mean time within the executor.
static enum qr_status time_outside(struct measuring *m, struct column *c, struct qr_error *err)
{
    const int32_t n_out = 160, from = 40, to = 150; // tokens of the first user between which it is measured
    int32_t prompts[USERS_MAX][4];
    struct qr_snapshot a = {0}, b = {0};
    uint64_t at_ns = 0, end_ns = 0;
    int n_done = 0, n_vocab = qr_lib_info(m->lib)->model.n_vocab;
    qr_req_id first = 0;
    for (int i = 0; i < c->n_users; i++) {
        qr_req_id id;
        for (int k = 0; k < 4; k++) prompts[i][k] = 1 + (i * 31 + k * 7) % (n_vocab - 1);
        struct qr_gen g = request_of(prompts[i], n_out);
        enum qr_status st = qr_lib_submit(m->lib, &g, &id, err);
        if (st != QR_OK) return st == QR_AGAIN ? qr_fail(err, QR_EIO, "the engine takes no request") : st;
        if (i == 0) first = id;
    }
    while (n_done < c->n_users) {
        struct qr_gen_event e;
        enum qr_status st = qr_lib_next(m->lib, &e, 1000);
        if (st == QR_AGAIN) continue;
        if (st != QR_OK) return qr_fail(err, st, "the engine has stopped");
        n_done += e.finish != QR_FINISH_NONE;
        if (e.id != first) continue;
        if (!at_ns && e.n_generated >= from) {
            at_ns = e.now_ns;
            qr_lib_snapshot(m->lib, &a);
            c->outside = -e.n_generated; // of how many tokens: below
        } else if (at_ns && !end_ns && e.n_generated >= to) {
            end_ns = e.now_ns;
            qr_lib_snapshot(m->lib, &b);
            c->outside += e.n_generated;
        }
    }
    double period = (double)(end_ns - at_ns) / fmax(1, c->outside);
    c->outside = fmax(0, period - (double)(b.step_ns - a.step_ns) / (double)(b.n_steps - a.n_steps));
    return QR_OK;
}

#define SPIN_NS 1000

static void spin_task(void *arg, int i, int worker)
{
    struct qr_clock *clock = arg;
    for (uint64_t end = clock->now_ns(clock) + SPIN_NS; clock->now_ns(clock) < end;) {}
}

// What a phase pays for its start and its end: a run of two tasks a worker that take a microsecond each, less those two.
static enum qr_status time_barrier(struct measuring *m, struct qr_error *err)
{
    struct qr_workers_conf wc = {.n_threads = qr_lib_info(m->lib)->n_threads, .spin_us = 50};
    struct qr_workers *w = NULL;
    struct qr_clock *clock = qr_clock_wall();
    enum qr_status st = qr_workers_new(&wc, &w, err);
    if (st != QR_OK) return st;
    static double v[2001];
    for (int i = 0; i < 2001; i++) {
        uint64_t t0 = clock->now_ns(clock);
        qr_workers_run(w, wc.n_threads * 2, spin_task, clock);
        v[i] = fmax(0, (double)(clock->now_ns(clock) - t0) - 2 * SPIN_NS);
    }
    m->barrier_ns = bench_dist_of(v, 2001).p50;
    qr_workers_free(&w);
    return QR_OK;
}

/* ==== The cost table. ==== */

static int list_shapes(const struct stepper *s, struct step_shape out[SHAPES_MAX])
{
    static const int32_t rows[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 31}, prompts[] = {16, 64, 128, 256, 512}, contexts[] = {32, 300, 1000};
    const int n_rows = sizeof rows / sizeof *rows;
    int n = 0;
    for (int r = 0; r < n_rows; r++)
        for (int c = 0; c < 3; c++)
            if (rows[r] < s->n_seqs && contexts[c] <= s->len) out[n++] = (struct step_shape){rows[r], contexts[c], 0, 0};
    for (int p = 0; p < 5; p++)
        for (int32_t at = 0; at <= 512; at += 256)
            if (prompts[p] <= s->info.n_tokens_max && at + prompts[p] <= s->len)
                out[n++] = (struct step_shape){0, 0, prompts[p], at};
    for (int r = 0; r < n_rows; r += 3)
        for (int p = 1; p < 5; p += 2)
            if (rows[r] < s->n_seqs && 300 <= s->len && rows[r] + prompts[p] <= s->info.n_tokens_max)
                out[n++] = (struct step_shape){rows[r], 300, prompts[p], 0};
    return n;
}

// What a step of a shape takes in the long run: the mean of all but the slowest.
static double usual_ns(double *v, int n)
{
    struct bench_dist d = bench_dist_of(v, n); // sorts v
    return n > 1 ? (d.mean * n - v[n - 1]) / (n - 1) : d.mean;
}

static enum qr_status time_costs(struct measuring *m, struct qr_error *err)
{
    const struct qr_lib_info *info = qr_lib_info(m->lib);
    int32_t len = info->max_model_len < 1024 ? info->max_model_len : 1024;
    struct stepper s;
    struct step_shape shapes[SHAPES_MAX];
    struct fit_sample samples[SHAPES_MAX];
    double errors[SHAPES_MAX];
    int32_t n_seqs = info->max_num_seqs < USERS_MAX ? info->max_num_seqs : USERS_MAX;
    enum qr_status st = stepper_open(m->lib, n_seqs, len, &s, err);
    if (st != QR_OK) return st;
    int n = list_shapes(&s, shapes);
    // Round after round over all shapes: a slow while of the machine meets them all.
    static double v[SHAPES_MAX][N_COST_STEPS];
    for (int i = 0; i < N_COST_STEPS; i++)
        for (int k = 0; k < n; k++) {
            stepper_plan(&s, &shapes[k]);
            qr_work_of(s.batch, &samples[k].work);
            v[k][i] = (double)stepper_run(&s);
            bench_progress("steps of the cost table", (uint64_t)(i * n + k + 1), (uint64_t)(N_COST_STEPS * n));
        }
    stepper_close(&s);
    // What the engine adds to a step is part of it.
    for (int k = 0; k < n; k++) samples[k].ns = usual_ns(v[k], N_COST_STEPS) + m->columns[0].outside;
    if (!fit_costs(samples, (size_t)n, &m->costs))
        return qr_fail(err, QR_ETOOBIG, "steps of %d tokens at most do not tell the costs apart", s.info.n_tokens_max);
    for (int k = 0; k < n; k++) errors[k] = fit_error(&m->costs, &samples[k]);
    struct bench_dist d = bench_dist_of(errors, n);
    m->error_median = d.p50;
    m->error_max = errors[n - 1];
    m->has_costs = true;
    return QR_OK;
}

static enum qr_status save_costs(const struct measuring *m, struct qr_error *err)
{
    const char *path = m->a->conf->costs;
    struct qr_buf b = {0};
    struct qr_json_writer w;
    qr_jw_init(&w, &b);
    qr_jw_obj(&w);
    bench_put_origin(&w);
    qr_jw_key(&w, "model");
    qr_jw_str(&w, qr_lib_info(m->lib)->served_name);
    qr_jw_key(&w, "threads");
    qr_jw_int(&w, qr_lib_info(m->lib)->n_threads);
    qr_costs_put(&m->costs, &w);
    bench_put_real(&w, "error_median", m->error_median);
    bench_put_real(&w, "error_max", m->error_max);
    qr_jw_obj_end(&w);
    FILE *f = b.failed ? NULL : fopen(path, "w");
    bool ok = f && fwrite(b.data, 1, b.len, f) == b.len && fputc('\n', f) != EOF;
    if (f) ok = fclose(f) == 0 && ok;
    qr_buf_fini(&b);
    return ok ? QR_OK : qr_fail_param(err, QR_EIO, "costs", "--costs: cannot write %.150s", path);
}

/* ==== On paper. ==== */

static void print_row(FILE *out, const char *name, double a, double b)
{
    fprintf(out, "%-38s %9.3f %9.3f\n", name, a * 1e-6, b * 1e-6);
}

static void print(const struct measuring *m)
{
    FILE *out = m->a->out;
    const struct column *c = m->columns;
    const struct qr_lib_info *info = qr_lib_info(m->lib);
    char title[48];
    fprintf(out, "%s, %d threads, %s; %d tokens of context\n\n", info->served_name, info->n_threads, qr_machine_cpu_model(),
            m->context);
    snprintf(title, sizeof title, "%d users", c[1].n_users);
    fprintf(out, "%-38s %9s %9s\n", "ms a step (median)", c[0].n_users == 1 ? "1 user" : "", title);
    for (int p = 0; p < QR_PHASE_COUNT; p++) print_row(out, phase_names[p], c[0].phase[p], c[1].phase[p]);
    print_row(out, "between phases", c[0].between, c[1].between);
    print_row(out, "step", c[0].total, c[1].total);
    print_row(out, "plan, publish", c[0].outside, c[1].outside);
    fprintf(out, "%-38s %9.0f %9.0f\n", "tok/s", 1e9 / (c[0].total + c[0].outside), c[1].n_users * 1e9 / (c[1].total + c[1].outside));
    fprintf(out, "\nOf it are %llu starts and ends of phases, %.2f us each: %.3f ms a step.\n", (unsigned long long)c[1].n_runs,
            m->barrier_ns * 1e-3, (double)c[1].n_runs * m->barrier_ns * 1e-6);
    if (!m->has_costs) return;
    const struct qr_costs *k = &m->costs;
    fprintf(out,
            "\nA step costs %.3f ms, and %.3f ms a generated row, but %.3f ms at least; with a prompt %.3f ms more, and %.4f ms a row\n"
            "of it (rounded up to 16); %.1f ns a position of each sequence, %.3f ns a prompt row and position. Off by %.1f %%\n"
            "(median), %.1f %% at most.\n",
            (double)k->fixed_ns * 1e-6, (double)k->row_ns * 1e-6, (double)k->floor_ns * 1e-6,
            (double)k->prompt_fixed_ns * 1e-6, (double)k->prompt_row_ns * 1e-6, (double)k->context_ps * 1e-3,
            (double)k->query_context_ps * 1e-3, 100 * m->error_median, 100 * m->error_max);
}

static enum qr_status save(const struct measuring *m, struct qr_error *err)
{
    struct qr_buf b = {0};
    struct qr_json_writer w;
    qr_jw_init(&w, &b);
    qr_jw_obj(&w);
    bench_put_origin(&w);
    qr_jw_key(&w, "model");
    qr_jw_str(&w, qr_lib_info(m->lib)->served_name);
    bench_put_real(&w, "context", m->context);
    bench_put_real(&w, "barrier_ns", m->barrier_ns);
    qr_jw_key(&w, "steps");
    qr_jw_arr(&w);
    for (int i = 0; i < 2; i++) {
        const struct column *c = &m->columns[i];
        qr_jw_obj(&w);
        bench_put_real(&w, "users", c->n_users);
        for (int p = 0; p < QR_PHASE_COUNT; p++) bench_put_real(&w, phase_names[p], c->phase[p]);
        bench_put_real(&w, "between phases", c->between);
        bench_put_real(&w, "step", c->total);
        bench_put_real(&w, "plan, publish", c->outside);
        qr_jw_obj_end(&w);
    }
    qr_jw_arr_end(&w);
    if (m->has_costs) {
        qr_jw_key(&w, "costs");
        qr_costs_write(&m->costs, &w);
    }
    qr_jw_obj_end(&w);
    enum qr_status st = bench_save(m->a, &b, err);
    qr_buf_fini(&b);
    return st;
}

static enum qr_status measure(struct measuring *m, struct qr_error *err)
{
    const struct qr_lib_info *info = qr_lib_info(m->lib);
    enum qr_status st = time_barrier(m, err);
    m->columns[0].n_users = 1;
    m->columns[1].n_users = info->max_num_seqs < USERS_MAX ? info->max_num_seqs : USERS_MAX;
    for (int i = 0; i < 2 && st == QR_OK; i++) {
        st = time_phases(m, &m->columns[i], err);
        if (st == QR_OK) st = time_outside(m, &m->columns[i], err);
    }
    if (st == QR_OK && m->a->conf->costs[0]) st = time_costs(m, err);
    if (st == QR_OK && !bench_json_only(m->a)) print(m);
    if (st == QR_OK && m->has_costs) st = save_costs(m, err);
    return st == QR_OK ? save(m, err) : st;
}

enum qr_status bench_step(const struct bench_args *a, struct qr_error *err)
{
    static struct qr_phases phases; // outlives the executor
    struct qr_lib_conf conf = *a->lib;
    struct measuring m = {.a = a, .phases = &phases, .context = (int32_t)a->conf->context};
    if (a->conf->context < 1 || a->conf->context > 1 << 20)
        return qr_fail_param(err, QR_EINVAL, "context", "--context: expected 1 to %d, got %lld", 1 << 20,
                             (long long)a->conf->context);
    conf.phases = &phases;
    conf.prefix_caching = false;
    conf.kv_idle_release_ns = 0;
    enum qr_status st = qr_lib_open(&conf, &m.lib, err);
    if (st == QR_OK) st = measure(&m, err);
    qr_lib_close(&m.lib);
    return st;
}
