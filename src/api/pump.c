/* The pump: events of the engine become answers and event streams.
 *
 * A client that does not read never holds it up. Writes do not block; once more than API_STREAM_BYTES_MAX of
 * a stream are unsent, the stream's text is collected and written once in a second as one larger event, so
 * that what waits is about the text itself. The request goes on. When that lasts API_SLOW_CLIENT_NS the
 * request is cancelled and its stream ends. */
#define _GNU_SOURCE // pthread_setname_np
#include "api/api_internal.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"

#define LOG_EVERY_NS 10000000000u
#define STOP_WAIT_NS 3000000000u // how long a stopping server waits for the last events of what it cancelled

// --- Measuring ---

static uint64_t since(uint64_t later, uint64_t earlier)
{
    return later > earlier && earlier ? later - earlier : 0;
}

static void count_tokens(struct api_seq *s, const struct qr_gen_event *e)
{
    struct qr_metrics *m = s->call->api->metrics;
    int64_t k = e->n_generated - s->n_generated;
    s->n_generated = e->n_generated;
    s->n_cached = e->n_cached;
    if (k <= 0) return;
    if (s->first_ns == 0) {
        s->first_ns = s->last_ns = e->first_token_ns ? e->first_token_ns : e->now_ns;
        qr_metric_observe(m, QR_HIST_TTFT, since(s->first_ns, s->call->arrival_ns), 1);
        k--;
    }
    if (k <= 0) return;
    qr_metric_observe(m, QR_HIST_ITL, since(e->now_ns, s->last_ns) / (uint64_t)k, (uint64_t)k);
    s->last_ns = e->now_ns;
}

// What is of a request, not of each of its choices: when its last one ends.
static void count_request(struct api_seq *s, const struct qr_gen_event *e)
{
    struct qr_metrics *m = s->call->api->metrics;
    const struct api_gen *g = atomic_load(&s->call->gen);
    struct api_seq *first = s - s->choice;
    if (e->n_generated > first->n_generated_max) first->n_generated_max = e->n_generated;
    if (--first->n_left > 0) return;
    qr_metric_observe(m, QR_HIST_E2E, since(e->now_ns, s->call->arrival_ns), 1);
    // From the engine's arrival: parsing and tokenising are not waiting.
    if (e->scheduled_ns) qr_metric_observe(m, QR_HIST_QUEUE, since(e->scheduled_ns, e->arrival_ns), 1);
    if (s->first_ns) qr_metric_observe(m, QR_HIST_PREFILL_COMPUTED, (uint64_t)(e->n_prompt - e->n_cached), 1);
    qr_metric_observe(m, QR_HIST_PROMPT_LEN, s->n_prompt, 1);
    qr_metric_observe(m, QR_HIST_MAX_GENERATION, (uint64_t)first->n_generated_max, 1);
    if (g->params.sampling.max_tokens >= 0)
        qr_metric_observe(m, QR_HIST_PARAMS_MAX, (uint64_t)g->params.sampling.max_tokens, 1);
    qr_metric_observe(m, QR_HIST_PARAMS_N, (uint64_t)g->n_choices, 1);
    qr_metric_observe(m, QR_HIST_REQ_PREEMPTIONS, (uint64_t)e->n_preemptions, 1);
}

static void count_finish(struct api_seq *s, const struct qr_gen_event *e)
{
    struct qr_metrics *m = s->call->api->metrics;
    uint64_t n = (uint64_t)e->n_generated, last = s->last_ns ? s->last_ns : e->now_ns;
    static const enum qr_metric by_finish[] = {[QR_FINISH_STOP] = QR_METRIC_SUCCESS_STOP,
                                               [QR_FINISH_LENGTH] = QR_METRIC_SUCCESS_LENGTH,
                                               [QR_FINISH_ABORT] = QR_METRIC_SUCCESS_ABORT,
                                               [QR_FINISH_ERROR] = QR_METRIC_SUCCESS_ERROR};
    qr_metric_add(m, by_finish[e->finish], 1); // here, not in the engine, to which a stop string is a cancel
    if (e->scheduled_ns) qr_metric_observe(m, QR_HIST_INFERENCE, since(last, e->scheduled_ns), 1);
    if (s->first_ns) {
        qr_metric_observe(m, QR_HIST_PREFILL, since(s->first_ns, e->scheduled_ns), 1);
        qr_metric_observe(m, QR_HIST_DECODE, since(last, s->first_ns), 1);
    }
    if (n > 1) qr_metric_observe(m, QR_HIST_TPOT, since(last, s->first_ns) / (n - 1), 1);
    qr_metric_observe(m, QR_HIST_GENERATION_LEN, n, 1);
    count_request(s, e);
}

// --- Writing ---

static void begin_stream(struct call *c)
{
    struct api_gen *g = atomic_load(&c->gen);
    http_add_header(c->req, "Cache-Control", "no-cache");
    http_add_header(c->req, "X-Accel-Buffering", "no"); // nginx hands events on at once
    http_stream_begin(c->req, 200, "text/event-stream; charset=utf-8");
    atomic_fetch_add_explicit(&c->api->by_route[c->route - api_routes][2], 1, memory_order_relaxed);
    g->streaming = true;
}

static void give_up(struct call *c, const char *why)
{
    QR_INFO("api", "%s: %s; its request is cancelled", atomic_load(&c->gen)->id, why);
    gen_fail(c, 503, NULL, why);
    gen_abandon(c);
}

static void write_scratch(struct call *c, uint64_t now_ns)
{
    struct api *a = c->api;
    struct api_gen *g = atomic_load(&c->gen);
    enum qr_status rc =
        a->scratch.failed ? QR_ENOMEM : http_stream_write(c->req, a->scratch.data, a->scratch.len);
    if (rc == QR_OK) {
        g->slow_since_ns = 0;
    } else if (rc == QR_AGAIN) {
        if (!g->slow_since_ns) g->slow_since_ns = now_ns;
        g->retry_ns = now_ns + API_SLOW_RETRY_NS;
        if (since(now_ns, g->slow_since_ns) > API_SLOW_CLIENT_NS) {
            qr_metric_add(a->metrics, QR_METRIC_SLOW, 1);
            give_up(c, "The client does not read.");
        }
    } else if (rc == QR_ENOMEM) {
        give_up(c, "The server is out of memory.");
    } else {
        gen_abandon(c); // gone; its own report follows
    }
}

// Sends what there is of a sequence, unless the reader is slow and it is not its turn yet.
static void flush_seq(struct api_seq *s, uint64_t now_ns)
{
    struct call *c = s->call;
    struct api_gen *g = atomic_load(&c->gen);
    struct qr_buf *b = &c->api->scratch;
    bool first = g->params.chat && !s->begun;
    if (!first && !s->done && s->text.len == 0 && pieces_empty(&s->pieces)) return;
    if (g->slow_since_ns && now_ns < g->retry_ns && !s->done) return;
    if (!g->streaming) begin_stream(c);
    qr_buf_clear(b);
    if (first) render_role(s, b);
    s->begun |= first;
    if (s->done || s->text.len || !pieces_empty(&s->pieces)) render_chunk(s, b);
    write_scratch(c, now_ns);
}

static void finish(struct call *c, uint64_t now_ns)
{
    struct api *a = c->api;
    struct api_gen *g = atomic_load(&c->gen);
    struct qr_buf *b = &a->scratch;
    qr_buf_clear(b);
    if (g->params.stream) {
        if (g->params.include_usage) render_usage_chunk(c, b);
        qr_buf_str(b, "data: [DONE]\n\n");
        write_scratch(c, now_ns);
        if (g->answered) return; // write_scratch gave up
        http_stream_end(c->req);
        g->answered = true;
        return;
    }
    render_answer(c, b);
    if (b->failed) {
        gen_fail(c, 503, NULL, "The server is out of memory.");
        return;
    }
    g->answered = true;
    call_reply(c, 200, "application/json", b->data, b->len);
}

// Scores of a prompt come once, and belong to all its choices.
static void add_token(struct api_seq *s, const struct qr_gen_token *t)
{
    if (!t->is_prompt) {
        pieces_add(s, t);
        return;
    }
    for (int32_t k = 0; k < atomic_load(&s->call->gen)->n_choices; k++) pieces_add(s - s->choice + k, t);
}

// One event, under gen.lock.
static void take(struct api_seq *s, const struct qr_gen_event *e)
{
    struct call *c = s->call;
    struct api_gen *g = atomic_load(&c->gen);
    count_tokens(s, e);
    if (e->finish != QR_FINISH_NONE) {
        s->done = true;
        s->finish = e->finish;
        s->stop_token = e->stop_token;
        s->stop_string = e->stop_string;
        g->n_open--;
        count_finish(s, e);
    }
    if (g->answered || atomic_load(&c->gone)) return;
    for (size_t i = 0; i < e->n_tokens; i++) add_token(s, &e->tokens[i]);
    qr_buf_add(&s->text, e->text.data, e->text.bytes);
    if (e->finish == QR_FINISH_ERROR) {
        gen_fail(c, e->status == QR_AGAIN ? 503 : 500, NULL, e->error[0] ? e->error : "The engine failed.");
        gen_abandon(c);
        return;
    }
    if (g->params.stream) flush_seq(s, e->now_ns);
    if (g->n_open == 0 && !g->answered) finish(c, e->now_ns);
}

// --- The line in the log ---

struct last {
    uint64_t ns, prompt, generated, preemptions;
};

static void log_line(struct api *a, struct qr_lib *lib, struct last *l, uint64_t now_ns)
{
    if (now_ns - l->ns < LOG_EVERY_NS) return;
    struct qr_snapshot s;
    qr_lib_snapshot(lib, &s);
    double seconds = (double)(now_ns - l->ns) * 1e-9;
    uint64_t prompt = s.n_prompt_tokens - l->prompt, generated = s.n_generated_tokens - l->generated;
    if (l->ns && (prompt || generated || s.n_running || s.n_waiting)) {
        double hits = (double)s.n_cache_hits, asked = (double)s.n_cache_queries;
        QR_INFO(
            "engine",
            "Engine 000: Avg prompt throughput: %.1f tokens/s, Avg generation throughput: %.1f tokens/s, "
            "Running: %d reqs, "
            "Waiting: %d reqs, Preemptions: %llu, CPU KV cache usage: %.1f%%, Prefix cache hit rate: %.1f%%",
            (double)prompt / seconds, (double)generated / seconds, s.n_running, s.n_waiting,
            (unsigned long long)(s.n_preemptions - l->preemptions),
            s.n_blocks ? 100.0 * s.n_blocks_used / s.n_blocks : 0, asked > 0 ? 100 * hits / asked : 0);
    }
    *l = (struct last){now_ns, s.n_prompt_tokens, s.n_generated_tokens, s.n_preemptions};
}

void *pump_thread(void *api)
{
    struct api *a = api;
    pthread_setname_np(pthread_self(), "quire-pump");
    struct qr_lib *lib = atomic_load(&a->lib);
    struct qr_clock *clock = qr_clock_wall();
    struct last last = {.ns = clock->now_ns(clock)};
    uint64_t stop_ns = 0;
    for (;;) {
        struct qr_gen_event e;
        enum qr_status rc = qr_lib_next(lib, &e, atomic_load(&a->stopping) ? 20 : 200);
        uint64_t now_ns = clock->now_ns(clock);
        if (rc == QR_OK && e.user) {
            struct api_seq *s = (struct api_seq *)e.user + e.choice;
            struct call *c = s->call;
            struct api_gen *g = atomic_load(&c->gen);
            pthread_mutex_lock(&g->lock);
            take(s, &e);
            pthread_mutex_unlock(&g->lock);
            if (e.finish != QR_FINISH_NONE) call_unref(&c); // the event was the last use of the sequence
        } else if (rc != QR_OK && rc != QR_AGAIN) {
            if (!atomic_load(&a->stopping)) {
                QR_ERROR("api", "the engine stopped (%s)", qr_status_name(rc));
                atomic_store(&a->dead, true);
                calls_fail_all(a);
            }
            break;
        }
        log_line(a, lib, &last, now_ns);
        if (!atomic_load(&a->stopping)) continue;
        if (!stop_ns) stop_ns = now_ns + STOP_WAIT_NS;
        if (atomic_load(&a->n_live) == 0 || now_ns > stop_ns) break;
    }
    qr_buf_fini(&a->scratch);
    return NULL;
}
