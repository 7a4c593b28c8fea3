#define _GNU_SOURCE // memmem
#include "bench/drive.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/printable.h"
#include "client/client.h"

#define WARMUP_IN 32
#define WARMUP_OUT 8

static uint64_t now_ns(void)
{
    return qr_clock_wall()->now_ns(qr_clock_wall());
}

/* ==== The server. ==== */

static enum qr_status ask_models(struct bench_target *t, const char *model, struct qr_error *err)
{
    struct qr_buf b = {0};
    struct qr_json_doc *d = NULL;
    int status = qr_client_call(t->client, "GET", "/v1/models", NULL, 0, &b, err);
    enum qr_status st = status == 0 ? QR_EIO : QR_OK;
    if (status != 0 && status != 200)
        st = qr_fail(err, QR_EIO, "%.100s: GET /v1/models: status %d; is this an OpenAI-compatible server?", t->url, status);
    if (st == QR_OK && !model) {
        const char *id = NULL;
        if (qr_json_parse(b.data ? b.data : "", b.len, QR_JSON_DEPTH_MAX, &d, NULL) == QR_OK)
            id = qr_json_str(qr_json_get(qr_json_at(qr_json_get(qr_json_root(d), "data"), 0), "id"), NULL);
        snprintf(t->model, sizeof t->model, "%s", id ? id : "");
        if (!id) st = qr_fail(err, QR_EFORMAT, "%.100s: GET /v1/models: no data[0].id; give --model", t->url);
        qr_json_free(&d);
    } else if (model)
        snprintf(t->model, sizeof t->model, "%s", model);
    qr_buf_fini(&b);
    return st;
}

// A socket a stream: as many as we may have.
static void allow_descriptors(int n)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur >= (rlim_t)n + 64) return;
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
}

enum qr_status bench_target_open(const struct qr_conf *c, const char *url, const char *model, int n_conns,
                                 struct bench_target *t, struct qr_error *err)
{
    *t = (struct bench_target){.n_conns = n_conns};
    snprintf(t->url, sizeof t->url, "%s", url);
    qr_printable_line(t->url);
    allow_descriptors(n_conns);
    struct qr_client_conf conf = {.url = url,
                                  .n_conns_max = n_conns,
                                  .timeout_ms = (int)fmin(c->request_timeout_sec * 1000, 1e9),
                                  .api_key = c->api_key.n ? c->api_key.v[0] : NULL};
    enum qr_status st = qr_client_new(&conf, &t->client, err);
    uint64_t end = now_ns() + (uint64_t)(fmax(0, fmin(c->ready_check_timeout_sec, 1e6)) * 1e9);
    while (st == QR_OK && (st = ask_models(t, model, err)) == QR_EIO && now_ns() < end) {
        usleep(100000); // the server is starting: another look every tenth of a second
        st = QR_OK;
    }
    if (st != QR_OK) bench_target_close(t);
    return st;
}

void bench_target_close(struct bench_target *t)
{
    qr_client_free(&t->client);
}

/* ==== A run. ==== */

struct due { // an item of the load and when it is to be sent
    double at_s;
    size_t i;
};

struct drive {
    struct bench_target *t;
    const struct bench_load *l;
    struct bench_run *run;
    const char *endpoint;
    struct qr_json_doc *extra; // NULL: none
    struct qr_buf body;
    struct due *dues; // (l->n) a heap, earliest first, of what was not sent and waits for no turn
    size_t n_dues;
    double *session_s; // (l->n) when the session of an item began
    int n_done;
    uint64_t start_ns;
    enum qr_status st; // of memory for times
};

static double since_start_s(const struct drive *d)
{
    return (double)(now_ns() - d->start_ns) * 1e-9;
}

static bool earlier(const struct due *a, const struct due *b)
{
    return a->at_s < b->at_s || (a->at_s == b->at_s && a->i < b->i);
}

static void push_due(struct drive *d, double at_s, size_t i)
{
    struct due x = {at_s, i};
    size_t k = d->n_dues++;
    for (; k > 0 && earlier(&x, &d->dues[(k - 1) / 2]); k = (k - 1) / 2) d->dues[k] = d->dues[(k - 1) / 2];
    d->dues[k] = x;
}

static size_t pop_due(struct drive *d)
{
    size_t i = d->dues[0].i, k = 0, child;
    struct due x = d->dues[--d->n_dues];
    for (; (child = 2 * k + 1) < d->n_dues; k = child) {
        if (child + 1 < d->n_dues && earlier(&d->dues[child + 1], &d->dues[child])) child++;
        if (!earlier(&d->dues[child], &x)) break;
        d->dues[k] = d->dues[child];
    }
    d->dues[k] = x;
    return i;
}

// What every request says, unless --extra-body says otherwise.
static void write_fields(struct drive *d, struct qr_json_writer *w, int32_t n_out)
{
    qr_json *extra = d->extra ? qr_json_root(d->extra) : NULL;
    struct qr_json_iter it = qr_json_iter(extra);
    const char *key;
    struct qr_buf value = {0};
    for (qr_json *v; (v = qr_json_next(&it, &key, NULL));) {
        qr_buf_clear(&value);
        qr_json_render(v, &value);
        qr_jw_key(w, key);
        qr_jw_raw(w, value.data, value.len);
    }
    qr_buf_fini(&value);
    if (!qr_json_get(extra, "model")) qr_jw_key(w, "model"), qr_jw_str(w, d->t->model);
    if (!qr_json_get(extra, "max_tokens")) qr_jw_key(w, "max_tokens"), qr_jw_int(w, n_out);
    if (!qr_json_get(extra, "temperature")) qr_jw_key(w, "temperature"), qr_jw_int(w, 0);
    if (!qr_json_get(extra, "ignore_eos")) qr_jw_key(w, "ignore_eos"), qr_jw_bool(w, true);
    if (!qr_json_get(extra, "stream")) qr_jw_key(w, "stream"), qr_jw_bool(w, true);
    if (!qr_json_get(extra, "stream_options")) {
        qr_jw_key(w, "stream_options");
        qr_jw_obj(w);
        qr_jw_key(w, "include_usage");
        qr_jw_bool(w, true);
        qr_jw_obj_end(w);
    }
}

static void write_body(struct drive *d, const int32_t *ids, int32_t n_in, int32_t n_out)
{
    struct qr_json_writer w;
    qr_buf_clear(&d->body);
    qr_jw_init(&w, &d->body);
    qr_jw_obj(&w);
    write_fields(d, &w, n_out);
    qr_jw_key(&w, "prompt");
    qr_jw_arr(&w);
    for (int32_t i = 0; i < n_in; i++) qr_jw_int(&w, ids[i]);
    qr_jw_arr_end(&w);
    qr_jw_obj_end(&w);
}

static void fail_reply(struct drive *d, struct bench_reply *r, const char *why, size_t bytes, int status)
{
    struct bench_run *run = d->run;
    if (r->failed) return;
    r->failed = true;
    run->n_failed++;
    if (run->why[0]) return;
    struct qr_json_doc *doc = NULL; // the server's own words, where it has some
    const char *said = NULL;
    if (qr_json_parse(why, bytes, QR_JSON_DEPTH_MAX, &doc, NULL) == QR_OK)
        said = qr_json_str(qr_json_get(qr_json_get(qr_json_root(doc), "error"), "message"), NULL);
    if (said) why = said, bytes = strlen(said);
    int at = status ? snprintf(run->why, sizeof run->why, "status %d: ", status) : 0;
    snprintf(run->why + at, sizeof run->why - (size_t)at, "%.*s", (int)(bytes < 200 ? bytes : 200), why);
    qr_printable_line(run->why);
    qr_json_free(&doc);
}

// A turn has ended, well or not: the session's next is due when the trace says so, or after what its user thinks.
static void next_turn(struct drive *d, size_t i)
{
    int64_t next = d->l->items[i].next;
    if (next < 0) return;
    const struct bench_item *it = &d->l->items[next];
    double now = since_start_s(d), at = it->arrival_s < 0 ? now + it->think_s : d->session_s[i] + it->arrival_s;
    d->session_s[next] = d->session_s[i];
    push_due(d, fmax(at, now), (size_t)next);
}

static void end_request(struct drive *d, const struct bench_reply *r)
{
    d->n_done++;
    next_turn(d, (size_t)(r - d->run->replies));
}

static void start_one(struct drive *d)
{
    size_t i = pop_due(d);
    const struct bench_item *q = &d->l->items[i];
    struct bench_reply *r = &d->run->replies[i];
    struct qr_error err = {0};
    *r = (struct bench_reply){.n_in = q->n_prompt, .n_out = q->n_out};
    write_body(d, d->l->ids + q->first_id, q->n_prompt, q->n_out);
    r->sent_ns = now_ns();
    if (q->is_first) d->session_s[i] = since_start_s(d);
    if (d->body.failed || qr_client_start(d->t->client, "POST", d->endpoint, d->body.data, d->body.len, r, &err) != QR_OK) {
        fail_reply(d, r, err.msg[0] ? err.msg : "no memory", err.msg[0] ? strlen(err.msg) : 9, 0);
        end_request(d, r);
    }
    int n = qr_client_n_active(d->t->client);
    if (n > d->run->n_active_max) d->run->n_active_max = n;
}

static bool contains(const struct qr_client_event *e, const char *what)
{
    return memmem(e->text, e->bytes, what, strlen(what)) != NULL;
}

// The counts of the server. Only chunks that hold them are parsed: the others cost a search.
static bool take_usage(struct bench_reply *r, const struct qr_client_event *e)
{
    struct qr_json_doc *doc = NULL;
    int64_t n;
    if (!contains(e, "\"usage\":{") && !contains(e, "\"usage\": {")) return true;
    if (qr_json_parse(e->text, e->bytes, QR_JSON_DEPTH_MAX, &doc, NULL) != QR_OK) return true;
    qr_json *root = qr_json_root(doc), *u = qr_json_get(root, "usage");
    if (qr_json_int64(qr_json_get(u, "prompt_tokens"), &n)) r->n_in = (int32_t)n;
    if (qr_json_int64(qr_json_get(u, "completion_tokens"), &n)) r->n_out = (int32_t)n;
    if (qr_json_int64(qr_json_get(qr_json_get(u, "prompt_tokens_details"), "cached_tokens"), &n)) r->n_cached = (int32_t)n;
    bool has_choice = qr_json_len(qr_json_get(root, "choices")) > 0;
    qr_json_free(&doc);
    return has_choice;
}

static void *grow(void *p, int64_t n, int64_t *cap, size_t bytes)
{
    if (n < *cap) return p;
    int64_t more = n < 4096 ? 4096 : 2 * n;
    void *q = qr_realloc(QR_MEM_MISC, p, (size_t)more * bytes);
    if (q) *cap = more;
    return q;
}

static void take_chunk(struct drive *d, struct bench_reply *r, const struct qr_client_event *e)
{
    struct bench_run *run = d->run;
    if (e->bytes == 6 && memcmp(e->text, "[DONE]", 6) == 0) return;
    if (e->bytes > 8 && memcmp(e->text, "{\"error\"", 8) == 0) {
        fail_reply(d, r, e->text, e->bytes, 0);
        return;
    }
    if (!take_usage(r, e)) return;
    void *itl = grow(run->itl_ms, run->n_itl, &run->itl_cap, sizeof *run->itl_ms);
    if (itl) run->itl_ms = itl;
    void *at = grow(run->chunk_ns, run->n_chunks, &run->chunks_cap, sizeof *run->chunk_ns);
    if (at) run->chunk_ns = at;
    if (!itl || !at) {
        d->st = QR_ENOMEM;
        return;
    }
    if (r->n_chunks++ == 0)
        r->first_ns = e->now_ns;
    else
        run->itl_ms[run->n_itl++] = (double)(e->now_ns - r->last_ns) * 1e-6;
    run->chunk_ns[run->n_chunks++] = e->now_ns;
    r->last_ns = e->now_ns;
}

static void take_event(struct drive *d, const struct qr_client_event *e)
{
    static const char none[] = "the answer is no event stream with a token in it";
    struct bench_reply *r = e->user;
    if (e->kind == QR_CLIENT_EVENT) {
        take_chunk(d, r, e);
        return;
    }
    end_request(d, r);
    if (e->kind == QR_CLIENT_FAILED || e->status != 200)
        fail_reply(d, r, e->text, e->bytes, e->kind == QR_CLIENT_FAILED ? 0 : e->status);
    else if (r->n_chunks == 0)
        fail_reply(d, r, none, sizeof none - 1, 0);
    r->ok = !r->failed;
    d->run->n_ok += r->ok;
}

static void progress(const struct drive *d, bool quiet)
{
    static uint64_t last_ns;
    uint64_t now = now_ns();
    bool end = d->n_done == d->run->n;
    if (quiet || !isatty(STDERR_FILENO) || (now - last_ns < 100000000u && !end)) return;
    last_ns = now;
    double s = (double)(now - d->start_ns) * 1e-9;
    if (end)
        fprintf(stderr, "\r\033[K");
    else
        fprintf(stderr, "\r%d of %d requests done, %d under way, %.0f tokens/s\033[K", d->n_done, d->run->n,
                qr_client_n_active(d->t->client), (double)d->run->n_chunks / s);
}

// How long to wait for events: until the next request is due. -1: until something comes.
static int wait_ms(const struct drive *d)
{
    if (d->n_dues == 0 || qr_client_n_active(d->t->client) >= d->t->n_conns) return -1;
    double left = d->dues[0].at_s - since_start_s(d);
    return left <= 0 ? 0 : (int)fmin(left * 1000, 1e6);
}

static void drive_all(struct drive *d, bool quiet)
{
    struct qr_client_event e;
    d->start_ns = now_ns();
    for (size_t i = 0; i < d->l->n; i++)
        if (d->l->items[i].is_first) push_due(d, d->l->items[i].arrival_s, i);
    while (d->n_done < d->run->n && d->st == QR_OK) {
        while (d->n_dues > 0 && qr_client_n_active(d->t->client) < d->t->n_conns && d->dues[0].at_s <= since_start_s(d))
            start_one(d);
        if (qr_client_next(d->t->client, &e, wait_ms(d))) take_event(d, &e);
        progress(d, quiet);
    }
    d->run->duration_s = since_start_s(d);
}

// Short requests, one and then four at a time, that no result counts: the server's first steps are slower than the others.
// The first says what is wrong before a whole load does.
static enum qr_status warm_up(struct drive *d, int64_t n, struct qr_error *err)
{
    const struct bench_load *l = d->l;
    struct qr_client_event e;
    struct bench_run outcome = {0}, *real = d->run;
    d->run = &outcome;
    for (int64_t i = 0; (i < n || qr_client_n_active(d->t->client) > 0) && outcome.n_failed == 0;) {
        struct bench_reply unused = {0};
        int32_t ids[WARMUP_IN];
        for (int k = 0; k < WARMUP_IN; k++) ids[k] = l->ids[(uint64_t)(i * 37 + k * 11) % l->n_in];
        if (i < n && qr_client_n_active(d->t->client) < (i == 1 ? 1 : d->t->n_conns < 4 ? d->t->n_conns : 4)) {
            write_body(d, ids, WARMUP_IN, WARMUP_OUT);
            if (qr_client_start(d->t->client, "POST", d->endpoint, d->body.data, d->body.len, NULL, err) != QR_OK) break;
            i++;
        } else if (qr_client_next(d->t->client, &e, -1) && (e.kind == QR_CLIENT_FAILED || (e.kind == QR_CLIENT_DONE && e.status != 200)))
            fail_reply(d, &unused, e.text, e.bytes, e.kind == QR_CLIENT_FAILED ? 0 : e.status);
    }
    d->run = real;
    return outcome.n_failed ? qr_fail(err, QR_EIO, "%.80s: %.160s", d->t->url, outcome.why) : QR_OK;
}

static double cpu_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static enum qr_status parse_extra(const struct qr_conf *c, struct qr_json_doc **out, struct qr_error *err)
{
    *out = NULL;
    if (!c->extra_body[0]) return QR_OK;
    struct qr_error why = {0};
    enum qr_status st = qr_json_parse(c->extra_body, strlen(c->extra_body), QR_JSON_DEPTH_MAX, out, &why);
    if (st == QR_OK && qr_json_type(qr_json_root(*out)) == QR_JSON_OBJ) return QR_OK;
    qr_json_free(out);
    return qr_fail_param(err, QR_EINVAL, "extra-body", "--extra-body: expected a JSON object%s%.150s", st ? ": " : "",
                         st ? why.msg : "");
}

static enum qr_status run_load(struct drive *d, const struct qr_conf *c, bool quiet, struct qr_error *err)
{
    size_t n = d->l->n;
    d->run->replies = qr_calloc(QR_MEM_MISC, n, sizeof *d->run->replies);
    d->dues = qr_malloc(QR_MEM_MISC, n * sizeof *d->dues);
    d->session_s = qr_calloc(QR_MEM_MISC, n, sizeof *d->session_s);
    if (!d->run->replies || !d->dues || !d->session_s) return qr_fail(err, QR_ENOMEM, "no memory for %zu requests", n);
    enum qr_status st = warm_up(d, c->num_warmups, err);
    if (st != QR_OK) return st;
    double cpu0 = cpu_s();
    drive_all(d, quiet);
    d->run->cpu_s = cpu_s() - cpu0;
    return d->st == QR_OK ? QR_OK : qr_fail(err, d->st, "no memory for the times of %zu requests", n);
}

enum qr_status bench_drive(const struct qr_conf *c, struct bench_target *t, const struct bench_load *l, bool quiet,
                           struct bench_run *run, struct qr_error *err)
{
    *run = (struct bench_run){.n = (int)l->n};
    struct drive d = {.t = t, .l = l, .run = run, .endpoint = c->endpoint};
    enum qr_status st = parse_extra(c, &d.extra, err);
    if (st == QR_OK) st = run_load(&d, c, quiet, err);
    qr_json_free(&d.extra);
    qr_buf_fini(&d.body);
    qr_free(d.dues);
    qr_free(d.session_s);
    if (st != QR_OK) bench_run_free(run);
    return st;
}

void bench_run_free(struct bench_run *r)
{
    qr_free(r->replies);
    qr_free(r->itl_ms);
    qr_free(r->chunk_ns);
    *r = (struct bench_run){0};
}
