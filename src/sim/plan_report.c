/* A plan in words and as JSON. */
#include <inttypes.h>
#include <math.h>

#include "base/buf.h"
#include "base/words.h"
#include "sim/plan.h"

#define FEW_REQUESTS 100
#define FALLING_BEHIND 0.9 // the last requests' own time is less, in a trace that is much longer

const char *qr_plan_bind_name(enum qr_plan_bind b)
{
    static const char *const names[] = {[QR_PLAN_MEMORY] = "memory", [QR_PLAN_COMPUTE] = "compute",
                                        [QR_PLAN_BANDWIDTH] = "bandwidth", [QR_PLAN_LATENCY] = "latency target",
                                        [QR_PLAN_NOTHING] = "nothing"};
    return names[b];
}

// The limit that a run at rate_over is farthest beyond.
static const char *over_what(const struct qr_plan_conf *c, const struct qr_plan *p)
{
    const struct qr_plan_run *r = &p->beyond;
    double a = r->ttft_s / c->limits.ttft_s, b = r->tpot_s / c->limits.tpot_s, e = r->e2el_s / c->limits.e2el_s;
    return a >= b && a >= e ? "the time to the first token" : b >= e ? "the time per output token" : "the end-to-end latency";
}

// Up to where it goes, and the beginning of what is said of beyond.
static void say_most(struct qr_buf *b, const struct qr_plan_conf *c, const struct qr_plan *p)
{
    char all[64] = "";
    if (p->planned.n_blocks < p->chosen.n_blocks)
        snprintf(all, sizeof all, " and all of the %.1f k tokens of KV memory", (double)p->chosen.n_blocks * c->run.block_size * 1e-3);
    qr_buf_printf(b, "One replica with these settings%s keeps the target ", all);
    if (p->bind == QR_PLAN_NOTHING)
        qr_buf_printf(b, "even when all of its requests come at once: they are too few to say how many a second it takes.");
    else if (p->ends)
        qr_buf_printf(b, "with this load up to about %.3g times as fast, and answers %.3g requests/s over all of it. %.3g times as fast ",
                      p->faster_most, p->rate_most, p->faster_over);
    else
        qr_buf_printf(b, "up to about %.3g requests/s. At %.3g ", p->rate_most, p->rate_over);
}

static void say_too_slow(struct qr_buf *b, const struct qr_plan *p)
{
    if (p->beyond.answers_most > 0)
        qr_buf_printf(b, "about as many come as it answers at most, %.3g, or more", p->beyond.answers_most);
    else
        qr_buf_printf(b, "requests come faster than it answers");
    qr_buf_printf(b, ", with memory to spare (%.0f %% of the pool filled): %s is in the way.", 100 * p->over.kv_fill,
                  p->bind == QR_PLAN_COMPUTE ? "arithmetic" : "memory bandwidth");
}

const char *qr_plan_why(const struct qr_plan_conf *c, const struct qr_plan *p, char *out, size_t cap)
{
    const struct qr_sim_summary *o = &p->over;
    struct qr_buf b = {0};
    say_most(&b, c, p);
    if (p->bind == QR_PLAN_MEMORY)
        qr_buf_printf(&b, "memory is in the way: %" PRIu64 " of %" PRIu64 " requests gave way because KV blocks ran out, and %.0f %% of "
                          "the pool was filled on average.",
                      o->n_preempted_requests, o->n_finished, 100 * o->kv_fill);
    else if (p->bind == QR_PLAN_LATENCY)
        qr_buf_printf(&b, "it still answers as fast as requests come, but %s is beyond its limit: the latency target is in the way, "
                          "not the machine.",
                      over_what(c, p));
    else if (p->bind != QR_PLAN_NOTHING)
        say_too_slow(&b, p);
    if (p->bind != QR_PLAN_NOTHING)
        qr_buf_printf(&b, " Of a step's time %.0f %% is arithmetic, %.0f %% reading weights and KV.", 100 * p->share_compute,
                      100 - 100 * p->share_compute);
    snprintf(out, cap, "%s", b.data ? b.data : "");
    qr_buf_fini(&b);
    return out;
}

static void print_limit(FILE *f, const char *name, double at_s, double limit_s)
{
    fprintf(f, "  %-30s %10.1f", name, at_s * 1e3);
    if (isfinite(limit_s))
        fprintf(f, " %10g\n", limit_s * 1e3);
    else
        fprintf(f, " %10s\n", "-");
}

// Of runs from..to - 1 those that went exactly as the i-th.
static int n_alike(const struct qr_plan *p, int i, int from, int to)
{
    const struct qr_plan_run *a = &p->runs[i];
    int n = 0;
    for (int k = from; k < to; k++) {
        const struct qr_plan_run *b = &p->runs[k];
        n += a->n_replicas == b->n_replicas && a->rate == b->rate && a->n_ram == b->n_ram && a->kept == b->kept && a->n_late == b->n_late &&
             a->n_answered == b->n_answered && a->answers_most == b->answers_most && a->ttft_s == b->ttft_s && a->tpot_s == b->tpot_s &&
             a->e2el_s == b->e2el_s && a->tokens_per_s == b->tokens_per_s;
    }
    return n;
}

static void print_run(const struct qr_plan_run *r, int n_others, FILE *f)
{
    fprintf(f, "  %8d %8.3g %5d %7d %9.0f %9.1f %9.0f %9.0f  ", r->n_replicas, r->rate, r->max_num_seqs, r->max_num_batched_tokens,
            r->ttft_s * 1e3, r->tpot_s * 1e3, r->e2el_s * 1e3, r->tokens_per_s);
    if (r->stopped)
        fprintf(f, "no: %" PRIu64 " late of the first %" PRIu64, r->n_late, r->n_answered);
    else if (r->answers_most > 0)
        fprintf(f, "no: it answers %.3g requests/s at most", r->answers_most);
    else
        fprintf(f, "%s: %.1f %%%s", r->kept ? "yes" : "no", 100 - 100 * (double)r->n_late / (double)r->n_answered,
                r->n_ram ? ", swapping" : "");
    if (n_others > 0) fprintf(f, " (so with %s)", qr_count((char[QR_COUNT_BYTES]){0}, (uint64_t)n_others, "other setting"));
    fputc('\n', f);
}

static void print_runs(const struct qr_plan *p, FILE *f)
{
    fprintf(f, "\nHow it was found: arithmetic alone asks for %d; these simulations of one replica were compared\n"
               "(seqs: --max-num-seqs, tokens: --max-num-batched-tokens; times at the percentile). What differs in nothing else is\n"
               "one line; settings that neither steps nor batches come near were not simulated again.\n\n",
            p->n_replicas_least);
    fprintf(f, "  %8s %8s %5s %7s %9s %9s %9s %9s  %s\n", "replicas", "rate", "seqs", "tokens", "TTFT ms", "TPOT ms", "E2EL ms", "tokens/s",
            "in time");
    for (int i = 0; i < p->n_runs; i++)
        if (n_alike(p, i, 0, i) == 0) print_run(&p->runs[i], n_alike(p, i, i + 1, p->n_runs), f);
}

// What a trace that ends does not show.
static void say_trace(const struct qr_plan *p, FILE *f)
{
    const struct qr_plan_run *r = &p->planned;
    if (!p->ends) return;
    if (r->n_requests < FEW_REQUESTS)
        fprintf(f, "  A replica's share of the file is %s: these figures may be their luck.\n",
                qr_count((char[QR_COUNT_BYTES]){0}, r->n_requests, "request"));
    if (r->answered_per_s < FALLING_BEHIND * r->came_per_s)
        fprintf(f, "  In the second half of the load %.3g requests/s come to a replica, and it answers %.3g: were it longer, it "
                   "might not keep the target.\n",
                r->came_per_s, r->answered_per_s);
}

void qr_plan_print(const struct qr_plan_conf *c, const struct qr_plan *p, FILE *f)
{
    const struct qr_plan_run *r = &p->planned;
    const struct qr_sim_summary *s = &p->expected;
    char why[1024];
    double block = (double)c->run.block_bytes;
    fprintf(f, "Settings\n  replicas                %10d\n  max-num-seqs            %10d\n  max-num-batched-tokens  %10d", p->n_replicas,
            r->max_num_seqs, r->max_num_batched_tokens);
    if (r->use.peak_tokens < INT32_MAX)
        fprintf(f, "  tokens: no step had more than %d%s", r->use.peak_tokens,
                c->run.step_budget_ns > 0 ? "; --step-budget-ms says how long steps may be" : "");
    fputc('\n', f);
    fprintf(f, "  kv-cache-memory         %10.0f  bytes: %u blocks, %.1f k tokens, of %u that there could be\n", r->n_blocks * block,
            r->n_blocks, (double)r->n_blocks * c->run.block_size * 1e-3, p->chosen.n_blocks);
    fprintf(f, "  swap-space              %10.0f  bytes%s\n", r->n_ram * block,
            r->n_ram                ? ": requests that give way come back sooner than by computing again"
            : r->use.n_preemptions == 0 ? ": no request gives way"
                                    : "");
    fprintf(f, "\nTo expect, a replica at %.3g of %.3g requests/s (%" PRIu64 " simulated)\n", r->rate, p->rate, r->n_requests);
    fprintf(f, "  %.1f tokens/s generated (all replicas: %.1f), %.1f requests at once, at most %d\n", s->tokens_per_s,
            s->tokens_per_s * p->n_replicas, s->batch_mean, r->use.peak_seqs);
    fprintf(f, "  %.1f %% of requests in time (%g asked for); %" PRIu64 " gave way for want of memory\n\n",
            100 - 100 * (double)r->n_late / (double)r->n_answered, c->limits.percentile, s->n_preempted_requests);
    fprintf(f, "  %-20s at %4g %%  %10s %10s\n", "ms", c->limits.percentile, "expected", "limit");
    print_limit(f, "time to first token", r->ttft_s, c->limits.ttft_s);
    print_limit(f, "time per output token", r->tpot_s, c->limits.tpot_s);
    print_limit(f, "end-to-end latency", r->e2el_s, c->limits.e2el_s);
    fprintf(f, "\nWhat binds: %s\n  %s\n", qr_plan_bind_name(p->bind), qr_plan_why(c, p, why, sizeof why));
    say_trace(p, f);
    print_runs(p, f);
}

/* ==== As JSON. ==== */

static void num(struct qr_json_writer *w, const char *key, double v)
{
    qr_jw_key(w, key);
    if (isfinite(v))
        qr_jw_double(w, v);
    else
        qr_jw_null(w);
}

static void whole(struct qr_json_writer *w, const char *key, int64_t v)
{
    qr_jw_key(w, key);
    qr_jw_int(w, v);
}

static void flag(struct qr_json_writer *w, const char *key, bool v)
{
    qr_jw_key(w, key);
    qr_jw_bool(w, v);
}

static void json_run(const struct qr_plan_conf *c, const struct qr_plan_run *r, struct qr_json_writer *w)
{
    qr_jw_obj(w);
    whole(w, "replicas", r->n_replicas);
    num(w, "request_rate", r->rate);
    whole(w, "max_num_seqs", r->max_num_seqs);
    whole(w, "max_num_batched_tokens", r->max_num_batched_tokens);
    whole(w, "kv_cache_memory_bytes", (int64_t)(r->n_blocks * c->run.block_bytes));
    whole(w, "swap_space_bytes", (int64_t)(r->n_ram * c->run.block_bytes));
    flag(w, "kept", r->kept);
    flag(w, "stopped", r->stopped);
    num(w, "answers_per_s_most", r->answers_most > 0 ? r->answers_most : NAN);
    whole(w, "requests", (int64_t)r->n_requests);
    whole(w, "answered", (int64_t)r->n_answered);
    whole(w, "late", (int64_t)r->n_late);
    num(w, "ttft_s", r->ttft_s);
    num(w, "tpot_s", r->tpot_s);
    num(w, "e2el_s", r->e2el_s);
    num(w, "tokens_per_s", r->tokens_per_s);
    whole(w, "preemptions", (int64_t)r->use.n_preemptions);
    whole(w, "peak_seqs", r->use.peak_seqs);
    qr_jw_obj_end(w);
}

static void json_times(const struct qr_plan_limits *l, struct qr_json_writer *w)
{
    qr_jw_key(w, "target");
    qr_jw_obj(w);
    num(w, "ttft_s", l->ttft_s);
    num(w, "tpot_s", l->tpot_s);
    num(w, "e2el_s", l->e2el_s);
    num(w, "percentile", l->percentile);
    qr_jw_obj_end(w);
}

void qr_plan_json(const struct qr_plan_conf *c, const struct qr_plan *p, struct qr_json_writer *w)
{
    const struct qr_plan_run *r = &p->planned;
    char why[1024];
    json_times(&c->limits, w);
    qr_jw_key(w, "settings");
    qr_jw_obj(w);
    whole(w, "replicas", p->n_replicas);
    whole(w, "max_num_seqs", r->max_num_seqs);
    whole(w, "max_num_batched_tokens", r->max_num_batched_tokens);
    whole(w, "kv_cache_memory_bytes", (int64_t)(r->n_blocks * c->run.block_bytes));
    whole(w, "swap_space_bytes", (int64_t)(r->n_ram * c->run.block_bytes));
    whole(w, "block_size", c->run.block_size);
    qr_jw_obj_end(w);
    num(w, "request_rate", p->rate);
    whole(w, "requests_that_never_fit", (int64_t)p->n_unfit);
    qr_jw_key(w, "expected_at_percentile");
    json_run(c, r, w);
    qr_jw_key(w, "expected");
    qr_jw_obj(w);
    qr_sim_json(&p->expected, w);
    qr_jw_obj_end(w);
    qr_jw_key(w, "binds");
    qr_jw_str(w, qr_plan_bind_name(p->bind));
    qr_jw_key(w, "why");
    qr_jw_str(w, qr_plan_why(c, p, why, sizeof why));
    num(w, "replica_rate_most", p->rate_most);
    num(w, "share_compute", p->share_compute);
    whole(w, "replicas_by_arithmetic", p->n_replicas_least);
    qr_jw_key(w, "alone");
    json_run(c, &p->alone, w);
    qr_jw_key(w, "runs");
    qr_jw_arr(w);
    for (int i = 0; i < p->n_runs; i++) json_run(c, &p->runs[i], w);
    qr_jw_arr_end(w);
}
