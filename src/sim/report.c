#include "sim/report.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/words.h"

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// The smallest value that at least a share q of all does not exceed.
static double at_share(const double *sorted, uint64_t n, double q)
{
    uint64_t i = (uint64_t)(q * (double)n);
    if ((double)i < q * (double)n) i++;
    return sorted[i > 0 ? i - 1 : 0];
}

static struct qr_sim_times times_of(double *v, uint64_t n)
{
    struct qr_sim_times t = {0};
    if (n == 0) return t;
    for (uint64_t i = 0; i < n; i++) t.mean += v[i];
    t.mean /= (double)n;
    qsort(v, n, sizeof *v, by_value);
    t.p50 = at_share(v, n, 0.5), t.p90 = at_share(v, n, 0.9), t.p99 = at_share(v, n, 0.99), t.max = v[n - 1];
    return t;
}

static double itl_share(const uint64_t *buckets, uint64_t n, double q)
{
    uint64_t sum = 0;
    for (int i = 0; i < QR_SIM_ITL_BUCKETS; i++) {
        sum += buckets[i];
        if (sum > 0 && (double)sum >= q * (double)n) return qr_sim_itl_ns(i) * 1e-9;
    }
    return 0;
}

// Each is exact to the bucket's 1 %.
static struct qr_sim_times itl_of(const uint64_t *buckets)
{
    struct qr_sim_times t = {0};
    uint64_t n = 0;
    for (int i = 0; i < QR_SIM_ITL_BUCKETS; i++) {
        n += buckets[i];
        t.mean += (double)buckets[i] * qr_sim_itl_ns(i) * 1e-9 * 0.995;
    }
    if (n == 0) return t;
    t.mean /= (double)n;
    t.p50 = itl_share(buckets, n, 0.5), t.p90 = itl_share(buckets, n, 0.9), t.p99 = itl_share(buckets, n, 0.99);
    t.max = itl_share(buckets, n, 1);
    return t;
}

enum time_kind { LATENCY, NORMALIZED, QUEUE, TTFT, TPOT };

static double seconds(uint64_t from, uint64_t to)
{
    return to > from ? (double)(to - from) * 1e-9 : 0;
}

static struct qr_sim_times kind_of(const struct qr_sim_result *r, enum time_kind kind, int32_t n_choices, double *v)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < r->n_records; i++) {
        const struct qr_sim_record *q = &r->records[i];
        double all = seconds(q->arrival_ns, q->finish_ns), tokens = (double)q->n_output / n_choices;
        if (kind == LATENCY) v[n++] = all;
        if (kind == NORMALIZED) v[n++] = all / tokens;
        if (kind == QUEUE) v[n++] = seconds(q->arrival_ns, q->scheduled_ns);
        if (kind == TTFT) v[n++] = seconds(q->arrival_ns, q->first_ns);
        if (kind == TPOT && tokens > 1) v[n++] = seconds(q->first_ns, q->finish_ns) / (tokens - 1);
    }
    return times_of(v, n);
}

static void sum_up(const struct qr_sim_result *r, struct qr_sim_summary *o)
{
    const struct qr_snapshot *e = &r->end;
    for (uint64_t i = 0; i < r->n_records; i++) {
        o->n_output_tokens += (uint64_t)r->records[i].n_output;
        o->n_prompt_tokens += (uint64_t)r->records[i].n_prompt;
        o->n_cached_tokens += (uint64_t)r->records[i].n_cached;
        o->n_preempted_requests += r->records[i].n_preemptions > 0;
    }
    o->n_finished = r->n_records, o->n_refused = r->n_refused;
    o->recorded = r->recorded, o->n_unfinished = r->n_unfinished;
    o->n_unfinished_tokens = r->n_unfinished_tokens, o->n_output_tokens += r->n_unfinished_tokens;
    o->n_steps = e->n_steps, o->step_ns = e->step_ns;
    o->n_preemptions = e->n_preemptions, o->n_recomputed_tokens = e->n_recomputed_tokens;
    o->duration_s = seconds(r->begin_ns, r->end_ns);
    if (o->duration_s > 0) {
        o->requests_per_s = (double)o->n_finished / o->duration_s;
        o->tokens_per_s = (double)o->n_output_tokens / o->duration_s;
        o->total_tokens_per_s = (double)(o->n_output_tokens + o->n_prompt_tokens) / o->duration_s;
    }
    if (o->n_prompt_tokens) o->hit_rate = (double)o->n_cached_tokens / (double)o->n_prompt_tokens;
    if (e->n_steps == 0) return;
    o->batch_mean = (double)e->n_step_seqs / (double)e->n_steps;
    o->step_tokens_mean = (double)e->n_step_tokens / (double)e->n_steps;
    const struct qr_kv_slots *k = &e->kv_slots_sum;
    double held = (double)(k->used + k->reserved + k->internal + k->external), all = held + (double)k->free;
    if (all > 0) o->kv_fill = (double)k->used / all;
    if (e->n_entries_sum > e->n_unshared_sum && r->shares)
        o->kv_shared = 1 - (double)e->n_unshared_sum / (double)e->n_entries_sum;
    if (held <= 0) return;
    o->kv_used = (double)k->used / held, o->kv_reserved = (double)k->reserved / held;
    o->kv_internal = (double)k->internal / held, o->kv_external = (double)k->external / held;
}

enum qr_status qr_sim_summarize(const struct qr_sim_result *r, int32_t n_choices, struct qr_sim_summary *out)
{
    struct qr_sim_summary o = {0};
    double *v = qr_malloc(QR_MEM_MISC, (r->n_records + 1) * sizeof *v);
    if (!v) return QR_ENOMEM;
    sum_up(r, &o);
    o.latency = kind_of(r, LATENCY, n_choices, v);
    o.normalized = kind_of(r, NORMALIZED, n_choices, v);
    o.queue = kind_of(r, QUEUE, n_choices, v);
    o.ttft = kind_of(r, TTFT, n_choices, v);
    o.tpot = kind_of(r, TPOT, n_choices, v);
    o.itl = itl_of(r->itl);
    o.normalized_latency_s = o.normalized.mean;
    qr_free(v);
    *out = o;
    return QR_OK;
}

static void print_times(FILE *f, const char *name, const struct qr_sim_times *t)
{
    fprintf(f, "  %-30s %10.4g %10.4g %10.4g %10.4g %10.4g\n", name, t->mean, t->p50, t->p90, t->p99, t->max);
}

void qr_sim_print(const struct qr_sim_summary *s, FILE *f)
{
    fprintf(f, "requests    %" PRIu64 " finished, %" PRIu64 " %s, in %.1f %s seconds\n", s->n_finished,
            s->recorded ? s->n_unfinished : s->n_refused, s->recorded ? "unfinished" : "refused", s->duration_s,
            s->recorded ? "recorded" : "simulated");
    fprintf(f, "throughput  %.3f requests/s, %.1f tokens/s generated, %.1f with prompts\n", s->requests_per_s,
            s->tokens_per_s, s->total_tokens_per_s);
    fprintf(f, "batch       %.2f sequences and %.1f tokens a step, %" PRIu64 " steps of %.2f ms\n", s->batch_mean,
            s->step_tokens_mean, s->n_steps, s->n_steps ? (double)s->step_ns * 1e-6 / (double)s->n_steps : 0.0);
    fprintf(f, "KV memory   %.1f %% token states, %.1f %% reserved, %.1f %% internal, %.1f %% external fragmentation; "
               "%.1f %% of the pool filled, %.1f %% saved by sharing\n",
            100 * s->kv_used, 100 * s->kv_reserved, 100 * s->kv_internal, 100 * s->kv_external, 100 * s->kv_fill, 100 * s->kv_shared);
    fprintf(f, "cache       %.1f %% of prompt tokens found (%" PRIu64 " of %" PRIu64 ")\n", 100 * s->hit_rate,
            s->n_cached_tokens, s->n_prompt_tokens);
    char times[QR_COUNT_BYTES], requests[QR_COUNT_BYTES], tokens[QR_COUNT_BYTES];
    fprintf(f, "preempted   %s, %s; %s computed again\n", qr_count(times, s->n_preemptions, "time"),
            qr_count(requests, s->n_preempted_requests, "request"), qr_count(tokens, s->n_recomputed_tokens, "token"));
    if (s->n_finished == 0) return; // the times below are theirs
    fprintf(f, "\n  %-30s %10s %10s %10s %10s %10s\n", "seconds", "mean", "p50", "p90", "p99", "max");
    print_times(f, "latency", &s->latency);
    print_times(f, "normalised latency, a token", &s->normalized);
    print_times(f, "queue", &s->queue);
    print_times(f, "time to first token", &s->ttft);
    print_times(f, "time per output token", &s->tpot);
    print_times(f, "between tokens (to 1 %)", &s->itl);
}

static void json_times(struct qr_json_writer *w, const char *key, const struct qr_sim_times *t)
{
    qr_jw_key(w, key);
    qr_jw_obj(w);
    const struct {
        const char *key;
        double v;
    } rows[] = {{"mean", t->mean}, {"p50", t->p50}, {"p90", t->p90}, {"p99", t->p99}, {"max", t->max}};
    for (int i = 0; i < 5; i++) qr_jw_key(w, rows[i].key), qr_jw_double(w, rows[i].v);
    qr_jw_obj_end(w);
}

void qr_sim_json(const struct qr_sim_summary *s, struct qr_json_writer *w)
{
    const struct {
        const char *key;
        uint64_t v;
    } counts[] = {{"requests", s->n_finished}, {"refused", s->n_refused}, {"steps", s->n_steps},
                  {"preemptions", s->n_preemptions}, {"preempted_requests", s->n_preempted_requests},
                  {"recomputed_tokens", s->n_recomputed_tokens}, {"prompt_tokens", s->n_prompt_tokens},
                  {"cached_tokens", s->n_cached_tokens}, {"output_tokens", s->n_output_tokens}};
    const struct {
        const char *key;
        double v;
    } figures[] = {{"duration_s", s->duration_s}, {"requests_per_s", s->requests_per_s},
                   {"tokens_per_s", s->tokens_per_s}, {"total_tokens_per_s", s->total_tokens_per_s},
                   {"normalized_latency_s", s->normalized_latency_s}, {"batch_mean", s->batch_mean},
                   {"step_tokens_mean", s->step_tokens_mean}, {"step_s_sum", (double)s->step_ns * 1e-9},
                   {"kv_used", s->kv_used}, {"kv_reserved", s->kv_reserved}, {"kv_internal", s->kv_internal},
                   {"kv_external", s->kv_external}, {"kv_fill", s->kv_fill}, {"kv_shared", s->kv_shared}, {"hit_rate", s->hit_rate}};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        qr_jw_key(w, counts[i].key), qr_jw_int(w, (int64_t)counts[i].v);
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
        qr_jw_key(w, figures[i].key), qr_jw_double(w, figures[i].v);
    json_times(w, "latency_s", &s->latency);
    json_times(w, "normalized_s", &s->normalized);
    json_times(w, "queue_s", &s->queue);
    json_times(w, "ttft_s", &s->ttft);
    json_times(w, "tpot_s", &s->tpot);
    json_times(w, "itl_s", &s->itl);
}

void qr_sim_csv(const struct qr_sim_result *r, FILE *f)
{
    fputs("request,arrival_s,prompt_tokens,output_tokens,cached_tokens,scheduled_s,first_token_s,finish_s,preemptions\n", f);
    for (uint64_t i = 0; i < r->n_records; i++) {
        const struct qr_sim_record *q = &r->records[i];
        fprintf(f, "%" PRId64 ",%.9f,%d,%d,%d,%.9f,%.9f,%.9f,%d\n", q->item, (double)q->arrival_ns * 1e-9, q->n_prompt,
                q->n_output, q->n_cached, (double)q->scheduled_ns * 1e-9, (double)q->first_ns * 1e-9,
                (double)q->finish_ns * 1e-9, q->n_preemptions);
    }
}
