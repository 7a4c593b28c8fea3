#include "bench/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/printable.h"
#include "client/client.h"

#define SECONDS_MAX 7200 // of which output tokens are counted one by one
#define CONNS_MAX 4096
#define SILENCE_MS 600000 // a server that says nothing for so long has failed

struct flight { // a request under way
    uint64_t sent_ns, first_ns, last_ns;
    int n_events;
    int64_t n_tokens, n_cached; // as usage says; -1: it did not
    char failure[160];
};

struct run {
    const struct bench_target *t;
    const struct bench_load *load;
    const struct bench_goal *goal;
    struct bench_result *r;
    struct qr_client *client;
    struct flight *flights; // (load->n)
    struct qr_buf body;
    char model[256];
    size_t next; // item to send
    uint64_t start_ns, shown_ns;
    uint32_t *per_second; // (SECONDS_MAX) output tokens
};

static uint64_t now_ns(void)
{
    return qr_clock_wall()->now_ns(qr_clock_wall());
}

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* ==== Requests. ==== */

static void write_body(struct run *u, const struct bench_item *it)
{
    struct qr_json_writer w;
    qr_buf_clear(&u->body);
    qr_jw_init(&w, &u->body);
    qr_jw_obj(&w);
    qr_jw_key(&w, "model");
    qr_jw_str(&w, u->model);
    qr_jw_key(&w, "prompt");
    qr_jw_arr(&w);
    for (int32_t i = 0; i < it->n_prompt; i++) qr_jw_int(&w, it->prompt[i]);
    qr_jw_arr_end(&w);
    qr_jw_key(&w, "max_tokens");
    qr_jw_int(&w, it->n_out);
    qr_jw_key(&w, "temperature");
    qr_jw_int(&w, 0);
    qr_jw_key(&w, "ignore_eos");
    qr_jw_bool(&w, true);
    qr_jw_key(&w, "stream");
    qr_jw_bool(&w, true);
    qr_jw_key(&w, "stream_options");
    qr_jw_raw(&w, "{\"include_usage\":true}", 22);
    qr_jw_obj_end(&w);
}

static enum qr_status send_item(struct run *u, size_t i, struct qr_error *err)
{
    write_body(u, &u->load->items[i]);
    if (u->body.failed) return qr_fail(err, QR_ENOMEM, "no memory for a request");
    struct flight *f = &u->flights[i];
    *f = (struct flight){.n_tokens = -1};
    enum qr_status st =
        qr_client_start(u->client, "POST", "/v1/completions", u->body.data, u->body.len, f, err);
    f->sent_ns = now_ns();
    return st;
}

// What an event of the stream says, read as a document: an error, or usage at its end.
static void read_event(struct flight *f, const struct qr_client_event *e, bool *has_choice)
{
    struct qr_json_doc *d = NULL;
    *has_choice = false;
    if (qr_json_parse(e->text, e->bytes, QR_JSON_DEPTH_MAX, &d, NULL) != QR_OK) {
        snprintf(f->failure, sizeof f->failure, "an event is not JSON");
        return;
    }
    qr_json *root = qr_json_root(d), *usage = qr_json_get(root, "usage"), *error = qr_json_get(root, "error");
    *has_choice = qr_json_len(qr_json_get(root, "choices")) > 0;
    (void)qr_json_int64(qr_json_get(usage, "completion_tokens"), &f->n_tokens);
    (void)qr_json_int64(qr_json_get(qr_json_get(usage, "prompt_tokens_details"), "cached_tokens"), &f->n_cached);
    if (error) {
        const char *m = qr_json_str(qr_json_get(error, "message"), NULL);
        snprintf(f->failure, sizeof f->failure, "%s", m ? m : "the server reports an error");
    }
    qr_json_free(&d);
}

static void take_event(struct run *u, struct flight *f, const struct qr_client_event *e)
{
    bool has_choice;
    if (strcmp(e->text, "[DONE]") == 0) return;
    read_event(f, e, &has_choice);
    if (!has_choice) return;
    if (f->n_events == 0)
        f->first_ns = e->now_ns;
    else
        bench_list_add(&u->r->itl, (double)(e->now_ns - f->last_ns) * 1e-6);
    f->last_ns = e->now_ns;
    f->n_events++;
    uint64_t second = (e->now_ns - u->start_ns) / 1000000000u;
    if (second < SECONDS_MAX) u->per_second[second]++;
}

// Why a request failed whose answer is not a stream: what its JSON says, or its status.
static void read_refusal(struct flight *f, const struct qr_client_event *e)
{
    struct qr_json_doc *d = NULL;
    const char *m = NULL;
    if (qr_json_parse(e->text, e->bytes, QR_JSON_DEPTH_MAX, &d, NULL) == QR_OK)
        m = qr_json_str(qr_json_get(qr_json_get(qr_json_root(d), "error"), "message"), NULL);
    snprintf(f->failure, sizeof f->failure, "status %d: %s", e->status, m ? m : "no reason given");
    qr_json_free(&d);
}

static bool is_good(const struct bench_goal *g, double ttft, double tpot, double e2e)
{
    return (g->ttft <= 0 || ttft <= g->ttft) && (g->tpot <= 0 || tpot <= g->tpot) && (g->e2e <= 0 || e2e <= g->e2e);
}

static void land(struct run *u, struct flight *f, const struct qr_client_event *e)
{
    struct bench_result *r = u->r;
    const struct bench_item *it = &u->load->items[f - u->flights];
    if (e->kind == QR_CLIENT_FAILED)
        snprintf(f->failure, sizeof f->failure, "%s", e->text);
    else if (e->status != 200)
        read_refusal(f, e);
    else if (!f->failure[0] && f->n_events == 0)
        snprintf(f->failure, sizeof f->failure, "the stream held no token");
    if (f->failure[0]) {
        qr_printable_line(f->failure);
        if (r->n_failed++ == 0) snprintf(r->failure, sizeof r->failure, "%s", f->failure);
        return;
    }
    int64_t n_out = f->n_tokens >= 0 ? f->n_tokens : it->n_out;
    double ttft = (double)(f->first_ns - f->sent_ns) * 1e-6, e2e = (double)(f->last_ns - f->sent_ns) * 1e-6;
    double tpot = n_out > 1 ? (e2e - ttft) / (double)(n_out - 1) : 0;
    r->n_ok++;
    r->n_good += is_good(u->goal, ttft, tpot, e2e);
    r->n_in += (uint64_t)it->n_prompt;
    r->n_out += (uint64_t)n_out;
    r->n_cached += (uint64_t)f->n_cached;
    bench_list_add(&r->ttft, ttft);
    bench_list_add(&r->e2e, e2e);
    if (n_out > 1) bench_list_add(&r->tpot, tpot);
}

/* ==== The run. ==== */

static void show(struct run *u, bool last)
{
    uint64_t now = now_ns();
    if (u->t->quiet || !isatty(STDERR_FILENO) || (now - u->shown_ns < 200000000u && !last)) return;
    u->shown_ns = now;
    double s = (double)(now - u->start_ns) * 1e-9;
    if (last)
        fprintf(stderr, "\r\033[K");
    else
        fprintf(stderr, "\r%zu of %zu requests, %zu failed, %d under way, %.0f output tokens/s \033[K",
                u->r->n_ok + u->r->n_failed, u->load->n, u->r->n_failed, qr_client_n_active(u->client),
                s > 0 ? (double)u->r->n_out / s : 0);
}

static enum qr_status send_due(struct run *u, struct qr_error *err)
{
    int limit = u->t->max_concurrency > 0 ? u->t->max_concurrency : CONNS_MAX;
    while (u->next < u->load->n && qr_client_n_active(u->client) < limit) {
        double due = u->load->items[u->next].arrival_s;
        if (due > 0 && (double)(now_ns() - u->start_ns) * 1e-9 < due) break;
        enum qr_status st = send_item(u, u->next, err);
        if (st == QR_AGAIN) break;
        if (st != QR_OK) return st;
        u->next++;
        if (qr_client_n_active(u->client) > u->r->peak_concurrency)
            u->r->peak_concurrency = qr_client_n_active(u->client);
    }
    return QR_OK;
}

// Until the next request is due; at most a fifth of a second, for the progress line.
static int wait_ms(const struct run *u)
{
    int limit = u->t->max_concurrency > 0 ? u->t->max_concurrency : CONNS_MAX;
    if (u->next == u->load->n || qr_client_n_active(u->client) >= limit) return 200;
    double left = u->load->items[u->next].arrival_s - (double)(now_ns() - u->start_ns) * 1e-9;
    return left < 0 ? 0 : left < 0.2 ? (int)(left * 1000) + 1 : 200;
}

static enum qr_status fly(struct run *u, struct qr_error *err)
{
    struct qr_client_event e;
    u->start_ns = now_ns();
    uint64_t last_ns = u->start_ns;
    while (u->next < u->load->n || qr_client_n_active(u->client) > 0) {
        enum qr_status st = send_due(u, err);
        if (st != QR_OK) return st;
        show(u, false);
        if (!qr_client_next(u->client, &e, wait_ms(u))) continue;
        if (e.kind == QR_CLIENT_EVENT)
            take_event(u, e.user, &e);
        else
            land(u, e.user, &e);
        last_ns = e.now_ns;
    }
    show(u, true);
    u->r->seconds = (double)(last_ns - u->start_ns) * 1e-9;
    return QR_OK;
}

// One short request first: it says what is wrong before a whole load does, and wakes the server up.
static enum qr_status try_one(struct run *u, struct qr_error *err)
{
    struct qr_client_event e;
    struct bench_item it = u->load->items[0];
    if (it.n_prompt > 32) it.n_prompt = 32;
    if (it.n_out > 8) it.n_out = 8;
    write_body(u, &it);
    struct flight f = {.n_tokens = -1};
    bool has_choice;
    enum qr_status st = qr_client_start(u->client, "POST", "/v1/completions", u->body.data, u->body.len, &f, err);
    if (st != QR_OK) return st;
    while (qr_client_next(u->client, &e, -1)) {
        if (e.kind == QR_CLIENT_EVENT) {
            if (strcmp(e.text, "[DONE]") != 0) read_event(&f, &e, &has_choice);
        } else if (e.kind == QR_CLIENT_FAILED)
            snprintf(f.failure, sizeof f.failure, "%s", e.text);
        else if (e.status != 200)
            read_refusal(&f, &e);
    }
    qr_printable_line(f.failure);
    return f.failure[0] ? qr_fail(err, QR_EIO, "%.100s: %.140s", u->t->url, f.failure) : QR_OK;
}

static enum qr_status find_model(struct run *u, struct qr_error *err)
{
    snprintf(u->model, sizeof u->model, "%s", u->t->model);
    if (u->model[0]) return QR_OK;
    struct qr_buf b = {0};
    struct qr_json_doc *d = NULL;
    enum qr_status st = QR_OK;
    int status = qr_client_call(u->client, "GET", "/v1/models", NULL, 0, &b, err);
    if (status == 0)
        st = QR_EIO;
    else if (status != 200 || qr_json_parse(b.data ? b.data : "", b.len, QR_JSON_DEPTH_MAX, &d, NULL) != QR_OK)
        st = qr_fail(err, QR_EIO, "%.100s/v1/models: status %d; name the model by --model", u->t->url, status);
    else {
        qr_json *first = qr_json_at(qr_json_get(qr_json_root(d), "data"), 0);
        const char *id = qr_json_str(qr_json_get(first, "id"), NULL);
        snprintf(u->model, sizeof u->model, "%s", id ? id : "");
    }
    qr_json_free(&d);
    qr_buf_fini(&b);
    return st;
}

static enum qr_status open_run(struct run *u, struct qr_error *err)
{
    int limit = u->t->max_concurrency > 0 && u->t->max_concurrency < CONNS_MAX ? u->t->max_concurrency : CONNS_MAX;
    struct qr_client_conf conf = {
        .url = u->t->url, .api_key = u->t->api_key, .n_conns_max = limit, .timeout_ms = SILENCE_MS};
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    u->flights = qr_calloc(QR_MEM_MISC, u->load->n, sizeof *u->flights);
    u->per_second = qr_calloc(QR_MEM_MISC, SECONDS_MAX, sizeof *u->per_second);
    if (!u->flights || !u->per_second) return qr_fail(err, QR_ENOMEM, "no memory for %zu requests", u->load->n);
    enum qr_status st = qr_client_new(&conf, &u->client, err);
    if (st == QR_OK) st = find_model(u, err);
    return st == QR_OK ? try_one(u, err) : st;
}

enum qr_status bench_run(const struct bench_target *t, const struct bench_load *load, const struct bench_goal *goal,
                         struct bench_result *out, struct qr_error *err)
{
    *out = (struct bench_result){0};
    struct run u = {.t = t, .load = load, .goal = goal, .r = out};
    enum qr_status st = open_run(&u, err);
    double cpu = cpu_seconds();
    if (st == QR_OK) st = fly(&u, err);
    out->client_cpu_s = cpu_seconds() - cpu;
    for (size_t i = 0; u.per_second && i < SECONDS_MAX; i++)
        if (u.per_second[i] > out->peak_out_per_s) out->peak_out_per_s = u.per_second[i];
    if (st == QR_OK && out->n_ok == 0) st = qr_fail(err, QR_EIO, "%.80s: every request failed: %.150s", t->url, out->failure);
    if (st == QR_OK && (out->itl.failed || out->ttft.failed || out->e2e.failed || out->tpot.failed))
        st = qr_fail(err, QR_ENOMEM, "no memory for the measured times");
    qr_client_free(&u.client);
    qr_free(u.flights);
    qr_free(u.per_second);
    qr_buf_fini(&u.body);
    if (st != QR_OK) bench_result_fini(out);
    return st;
}

void bench_result_fini(struct bench_result *r)
{
    bench_list_fini(&r->ttft);
    bench_list_fini(&r->tpot);
    bench_list_fini(&r->itl);
    bench_list_fini(&r->e2e);
}
