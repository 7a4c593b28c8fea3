#include "metrics/metrics.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/assert.h"
#include "base/machine.h"
#include "base/mem.h"

// --- The tables that metrics.def expands to ---

enum kind { COUNTER, GAUGE };
struct row {
    enum kind kind;
    const char *name, *label, *help;
};
static const struct row rows[QR_METRIC_COUNT] = {
#define QR_COUNTER(id, name, label, help) {COUNTER, name, label, help},
#define QR_GAUGE(id, name, label, help) {GAUGE, name, label, help},
#define QR_HIST(id, name, family, help)
#include "metrics/metrics.def"
#undef QR_COUNTER
#undef QR_GAUGE
#undef QR_HIST
};

// Bucket bounds, ascending, in the unit that is shown. vLLM's, and for ITL finer ones below its first (10
// ms): a small model on a CPU answers every token within it.
#define BOUNDS_MAX 40
struct family {
    double unit;
    int n;
    double le[BOUNDS_MAX];
}; // unit: what is observed = what is shown * unit
#define SECONDS 1e9
static const struct family TTFT = {SECONDS, 22, {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                                 1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560}},
                           ITL = {SECONDS, 27, {.00025, .0005, .00075, .001, .0015, .0025, .004, .006, .01,
                                                .025,   .05,   .075,   .1,   .15,   .2,    .3,   .4,   .5,
                                                .75,    1,     2.5,    5,    7.5,   10,    20,   40,   80}},
                           LAT = {SECONDS, 21, {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                                30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}},
                           TOK = {1,
                                  19,
                                  {1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5,
                                   5e5, 1e6}},
                           N = {1, 5, {1, 2, 5, 10, 20}}, PREEMPT = {1, 7, {1, 2, 3, 4, 5, 10, 20}},
                           ITER = {1, 13, {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}};

struct hist_row {
    const char *name;
    const struct family *family;
    const char *help;
};
static const struct hist_row hist_rows[QR_HIST_COUNT] = {
#define QR_COUNTER(id, name, label, help)
#define QR_GAUGE(id, name, label, help)
#define QR_HIST(id, name, family, help) {name, &family, help},
#include "metrics/metrics.def"
#undef QR_COUNTER
#undef QR_GAUGE
#undef QR_HIST
};

struct hist {
    _Atomic uint64_t count[BOUNDS_MAX + 1]; // not cumulative; the last is +Inf
    _Atomic uint64_t sum;
};

struct qr_metrics {
    _Atomic uint64_t value[QR_METRIC_COUNT]; // the bits of a double
    struct hist hist[QR_HIST_COUNT];
    double created_s;     // unix time
    pthread_mutex_t lock; // of what follows
    char labels[320];     // model_name="...",engine="0"
    char cache[1024];     // labels of cache_config_info
    char version[64];
    double tokens_max;
};

enum qr_status qr_metrics_new(struct qr_metrics **out)
{
    struct qr_metrics *m = qr_calloc(QR_MEM_MISC, 1, sizeof *m);
    if (!m) return QR_ENOMEM;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    m->created_s = (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
    pthread_mutex_init(&m->lock, NULL);
    strcpy(m->labels, "model_name=\"\",engine=\"0\"");
    m->tokens_max = INFINITY;
    qr_metric_set(m, QR_METRIC_SLEEP_AWAKE, 1);
    *out = m;
    return QR_OK;
}

void qr_metrics_free(struct qr_metrics **m)
{
    if (!*m) return;
    pthread_mutex_destroy(&(*m)->lock);
    qr_free(*m);
    *m = NULL;
}

// A label's value, escaped as the text format asks.
static void label_value(const char *s, char *out, size_t cap)
{
    size_t n = 0;
    for (; *s && n + 3 < cap; s++) {
        if (*s == '\\' || *s == '"' || *s == '\n') out[n++] = '\\';
        out[n++] = *s == '\n' ? 'n' : *s;
    }
    out[n] = 0;
}

enum qr_status qr_metrics_describe(struct qr_metrics *m, const struct qr_metrics_about *about)
{
    char name[256], version[64];
    label_value(about->model_name ? about->model_name : "", name, sizeof name);
    label_value(about->version ? about->version : "", version, sizeof version);
    if (about->cache_labels && strlen(about->cache_labels) >= sizeof m->cache) return QR_ETOOBIG;
    pthread_mutex_lock(&m->lock);
    snprintf(m->labels, sizeof m->labels, "model_name=\"%s\",engine=\"0\"", name);
    snprintf(m->cache, sizeof m->cache, "%s", about->cache_labels ? about->cache_labels : "");
    snprintf(m->version, sizeof m->version, "%s", version);
    m->tokens_max = about->tokens_max ? (double)about->tokens_max : INFINITY;
    pthread_mutex_unlock(&m->lock);
    return QR_OK;
}

// --- Recording ---

static uint64_t bits_of(double v)
{
    uint64_t b;
    memcpy(&b, &v, sizeof b);
    return b;
}

static double double_of(uint64_t b)
{
    double v;
    memcpy(&v, &b, sizeof v);
    return v;
}

void qr_metric_add(struct qr_metrics *m, enum qr_metric id, double v)
{
    uint64_t old = atomic_load_explicit(&m->value[id], memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&m->value[id], &old, bits_of(double_of(old) + v),
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
}

void qr_metric_set(struct qr_metrics *m, enum qr_metric id, double v)
{
    atomic_store_explicit(&m->value[id], bits_of(v), memory_order_relaxed);
}

double qr_metric_get(const struct qr_metrics *m, enum qr_metric id)
{
    return double_of(atomic_load_explicit(&m->value[id], memory_order_relaxed));
}

void qr_metric_observe(struct qr_metrics *m, enum qr_hist id, uint64_t v, uint64_t times)
{
    QR_ASSERT((unsigned)id < QR_HIST_COUNT);
    const struct family *f = hist_rows[id].family;
    struct hist *h = &m->hist[id];
    int i = 0;
    while (i < f->n && (double)v > f->le[i] * f->unit) i++;
    atomic_fetch_add_explicit(&h->count[i], times, memory_order_relaxed);
    atomic_fetch_add_explicit(&h->sum, v * times, memory_order_relaxed);
}

static double ratio(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

// Step sizes are counted by powers of two, which every bound of ITER is.
static void take_steps(struct qr_metrics *m, const struct qr_snapshot *s)
{
    struct hist *h = &m->hist[QR_HIST_ITERATION];
    uint64_t count[BOUNDS_MAX + 1] = {0};
    for (int i = 0; i < QR_STEP_SIZES; i++) {
        int k = 0;
        while (k < ITER.n && (i == QR_STEP_SIZES - 1 || ldexp(1, i) > ITER.le[k])) k++;
        count[k] += s->n_steps_of[i];
    }
    for (int k = 0; k <= ITER.n; k++) atomic_store_explicit(&h->count[k], count[k], memory_order_relaxed);
    atomic_store_explicit(&h->sum, s->n_step_tokens, memory_order_relaxed);
}

void qr_metrics_take(struct qr_metrics *m, const struct qr_snapshot *s)
{
    take_steps(m, s);
    const struct {
        enum qr_metric id;
        double v;
    } of[] = {
        {QR_METRIC_RUNNING, s->n_running},
        {QR_METRIC_WAITING, s->n_waiting},
        {QR_METRIC_WAITING_CAPACITY, s->n_waiting},
        {QR_METRIC_STEP_BUDGET, s->step_budget_ns == UINT64_MAX ? 0 : (double)s->step_budget_ns * 1e-9},
        {QR_METRIC_COSTS_EPOCH, (double)s->costs.epoch},
        {QR_METRIC_WAITING_TOKENS, (double)s->n_waiting_tokens},
        {QR_METRIC_WAITING_PREEMPTED, s->n_waiting_begun},
        {QR_METRIC_OLDEST_WAIT,
         s->oldest_arrival_ns && s->now_ns > s->oldest_arrival_ns ? (double)(s->now_ns - s->oldest_arrival_ns) * 1e-9
                                                                  : 0},
        {QR_METRIC_RETRY_AFTER, s->retry_after_s},
        {QR_METRIC_EXPIRED, (double)s->n_expired},
        {QR_METRIC_AGED, (double)s->n_aged},
        {QR_METRIC_YIELDS, (double)s->n_yields},
        {QR_METRIC_KV_USAGE, ratio(s->n_blocks_used, s->n_blocks)},
        {QR_METRIC_BLOCKS_FREE, s->n_blocks_free},
        {QR_METRIC_BLOCKS_USED, s->n_blocks_used},
        {QR_METRIC_BLOCKS_CACHED, s->n_blocks_cached},
        {QR_METRIC_FRAGMENTATION,
         ratio((double)(s->slots_allocated - s->slots_filled), (double)s->slots_allocated)},
        {QR_METRIC_WASTE, ratio((double)s->waste_slots, (double)s->waste_of_slots)},
        {QR_METRIC_KV_ENTRIES, (double)s->n_entries_sum},
        {QR_METRIC_KV_HELD, (double)s->n_unshared_sum},
        {QR_METRIC_KV_SHARED, s->n_entries_sum > s->n_unshared_sum
                                  ? 1 - ratio((double)s->n_unshared_sum, (double)s->n_entries_sum)
                                  : 0},
        {QR_METRIC_PREEMPTIONS, (double)s->n_preemptions},
        {QR_METRIC_PREEMPT_SWAP, (double)s->n_swaps},
        {QR_METRIC_PREEMPT_RECOMPUTE, (double)(s->n_preemptions - s->n_swaps)},
        {QR_METRIC_SWAP_RAM_USED, s->n_slots_used[QR_TIER_RAM]},
        {QR_METRIC_SWAP_RAM_FREE, s->n_slots[QR_TIER_RAM] - s->n_slots_used[QR_TIER_RAM]},
        {QR_METRIC_SWAP_RAM_OUT, (double)(s->n_blocks_out[QR_TIER_RAM] * s->block_bytes)},
        {QR_METRIC_SWAP_RAM_IN, (double)(s->n_blocks_in[QR_TIER_RAM] * s->block_bytes)},
        {QR_METRIC_SWAP_FILE_USED, s->n_slots_used[QR_TIER_FILE]},
        {QR_METRIC_SWAP_FILE_FREE, s->n_slots[QR_TIER_FILE] - s->n_slots_used[QR_TIER_FILE]},
        {QR_METRIC_SWAP_FILE_OUT, (double)(s->n_blocks_out[QR_TIER_FILE] * s->block_bytes)},
        {QR_METRIC_SWAP_FILE_IN, (double)(s->n_blocks_in[QR_TIER_FILE] * s->block_bytes)},
        {QR_METRIC_PREEMPTED_TOKENS, (double)s->n_preempted_tokens},
        {QR_METRIC_RECOMPUTED_TOKENS, (double)s->n_recomputed_tokens},
        {QR_METRIC_PROMPT_COMPUTED, (double)s->n_prompt_tokens},
        {QR_METRIC_PROMPT_TOKENS, (double)(s->n_prompt_tokens + s->n_cache_hits)},
        {QR_METRIC_PROMPT_HIT, (double)s->n_cache_hits},
        {QR_METRIC_PROMPT_CACHED, (double)s->n_cache_hits},
        {QR_METRIC_CACHED_DEVICE, (double)(s->n_cache_hits - s->n_cache_hits_of[QR_TIER_RAM] -
                                           s->n_cache_hits_of[QR_TIER_FILE])},
        {QR_METRIC_CACHED_HOST, (double)s->n_cache_hits_of[QR_TIER_RAM]},
        {QR_METRIC_CACHED_DISK, (double)s->n_cache_hits_of[QR_TIER_FILE]},
        {QR_METRIC_PREFIX_RAM, s->n_spilled[QR_TIER_RAM]},
        {QR_METRIC_PREFIX_FILE, s->n_spilled[QR_TIER_FILE]},
        {QR_METRIC_CACHE_QUERIES, (double)s->n_cache_queries},
        {QR_METRIC_CACHE_HITS, (double)s->n_cache_hits},
        {QR_METRIC_CACHE_GENERATED, (double)s->n_cache_generated},
        {QR_METRIC_GENERATION_TOKENS, (double)s->n_generated_tokens},
        {QR_METRIC_STEPS, (double)s->n_steps},
        {QR_METRIC_STEP_SECONDS, (double)s->step_ns * 1e-9},
        {QR_METRIC_REFUSED, (double)s->n_refused},
    };
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) qr_metric_set(m, of[i].id, of[i].v);
}

// --- Rendering ---

static void number(struct qr_buf *b, double v)
{
    if (v == floor(v) && fabs(v) < 1e15)
        qr_buf_printf(b, "%.0f\n", v);
    else
        qr_buf_printf(b, "%.9g\n", v);
}

static void head(struct qr_buf *b, const char *name, const char *suffix, const char *help, const char *type)
{
    qr_buf_printf(b, "# HELP %s%s %s\n# TYPE %s%s %s\n", name, suffix, help, name, suffix, type);
}

static void sample(struct qr_buf *b, const char *name, const char *suffix, const char *labels,
                   const char *more, double v)
{
    qr_buf_printf(b, "%s%s{%s%s%s} ", name, suffix, labels, *more ? "," : "", more);
    number(b, v);
}

// All series of the name that begins at row i. Returns the row after them.
static int render_name(const struct qr_metrics *m, int i, struct qr_buf *b)
{
    const struct row *r = &rows[i];
    bool counter = r->kind == COUNTER;
    int end = i;
    while (end < QR_METRIC_COUNT && strcmp(rows[end].name, r->name) == 0) end++;
    head(b, r->name, counter ? "_total" : "", r->help, counter ? "counter" : "gauge");
    for (int k = i; k < end; k++)
        sample(b, r->name, counter ? "_total" : "", m->labels, rows[k].label,
               qr_metric_get(m, (enum qr_metric)k));
    if (!counter) return end;
    head(b, r->name, "_created", r->help, "gauge");
    for (int k = i; k < end; k++) sample(b, r->name, "_created", m->labels, rows[k].label, m->created_s);
    return end;
}

static void render_hist(const struct qr_metrics *m, int i, struct qr_buf *b)
{
    const struct hist_row *r = &hist_rows[i];
    const struct family *f = r->family;
    uint64_t total = 0;
    head(b, r->name, "", r->help, "histogram");
    for (int k = 0; k <= f->n; k++) {
        total += atomic_load_explicit(&m->hist[i].count[k], memory_order_relaxed);
        if (k < f->n && f == &TOK && k > 0 && f->le[k] > m->tokens_max) continue;
        char le[32];
        if (k == f->n)
            strcpy(le, "+Inf");
        else
            snprintf(le, sizeof le, f->le[k] == floor(f->le[k]) ? "%.1f" : "%g", f->le[k]);
        qr_buf_printf(b, "%s_bucket{%s,le=\"%s\"} %llu\n", r->name, m->labels, le, (unsigned long long)total);
    }
    qr_buf_printf(b, "%s_count{%s} %llu\n", r->name, m->labels, (unsigned long long)total);
    sample(b, r->name, "_sum", m->labels, "",
           (double)atomic_load_explicit(&m->hist[i].sum, memory_order_relaxed) / f->unit);
    head(b, r->name, "_created", r->help, "gauge");
    sample(b, r->name, "_created", m->labels, "", m->created_s);
}

static void render_process(const struct qr_metrics *m, struct qr_buf *b)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    double cpu_s = (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
                   (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
    head(b, "process_resident_memory_bytes", "", "Resident memory size in bytes.", "gauge");
    qr_buf_printf(b, "process_resident_memory_bytes %llu\n", (unsigned long long)qr_machine_rss_bytes());
    head(b, "process_cpu_seconds_total", "", "Total user and system CPU time spent in seconds.", "counter");
    qr_buf_printf(b, "process_cpu_seconds_total %.3f\n", cpu_s);
    head(b, "process_start_time_seconds", "", "Start time of the process since unix epoch in seconds.",
         "gauge");
    qr_buf_printf(b, "process_start_time_seconds %.3f\n", m->created_s);
}

void qr_metrics_render(struct qr_metrics *m, struct qr_buf *out)
{
    if (!qr_buf_reserve(out, 96 * 1024)) return;
    pthread_mutex_lock(&m->lock);
    for (int i = 0; i < QR_METRIC_COUNT;) i = render_name(m, i, out);
    for (int i = 0; i < QR_HIST_COUNT; i++) render_hist(m, i, out);
    head(out, "vllm:cache_config_info", "", "Information of the KV cache's configuration.", "gauge");
    sample(out, "vllm:cache_config_info", "", "engine=\"0\"", m->cache, 1);
    head(out, "quire:build_info", "", "The program's version.", "gauge");
    qr_buf_printf(out, "quire:build_info{version=\"%s\"} 1\n", m->version);
    render_process(m, out);
    pthread_mutex_unlock(&m->lock);
}
