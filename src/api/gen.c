/* A generation from its body to the engine's door: on a worker thread. */
#include "api/api_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"

void gen_free(struct api_gen **gp)
{
    struct api_gen *g = *gp;
    *gp = NULL;
    if (!g) return;
    for (int i = 0; i < g->n_seqs; i++) {
        if (g->seqs[i].choice == 0) qr_free(g->seqs[i].prompt);
        qr_buf_fini(&g->seqs[i].text);
        pieces_fini(&g->seqs[i].pieces);
    }
    qr_free(g->seqs);
    qr_buf_fini(&g->stops_text);
    api_params_fini(&g->params);
    pthread_mutex_destroy(&g->lock);
    qr_free(g);
}

void gen_abandon(struct call *c)
{
    struct api_gen *g = atomic_load(&c->gen);
    struct qr_lib *lib = atomic_load(&c->api->lib);
    int32_t n = g ? atomic_load(&g->n_seqs) : 0;
    for (int32_t i = 0; i < n; i++) {
        qr_req_id id = atomic_load(&g->seqs[i].id);
        if (id && g->seqs[i].choice == 0) qr_lib_cancel(lib, id); // all its choices
    }
}

void gen_fail(struct call *c, int status, const char *param, const char *message)
{
    struct api_gen *g = atomic_load(&c->gen);
    if (g->answered) return;
    g->answered = true;
    if (!g->streaming) {
        call_error(c, status, param, "%s", message);
        return;
    }
    char event[1280] = "data: ";
    size_t n = strlen(event);
    n += error_render(status, message, param, event + n, 1024);
    static const char end[] = "\n\ndata: [DONE]\n\n";
    memcpy(event + n, end, sizeof end - 1);
    if (http_stream_write(c->req, event, n + sizeof end - 1) == QR_ECANCELED)
        QR_DEBUG_LOG("api", "%s: the client left", g->id);
    http_stream_end(c->req);
}

// --- Names ---

// "chatcmpl-" and the client's own id where it is harmless in a header and in JSON, else a number.
static void name_request(struct call *c, bool chat)
{
    struct api *a = c->api;
    struct api_gen *g = atomic_load(&c->gen);
    const char *given = http_req_header(c->req, "X-Request-Id");
    size_t n = given ? strlen(given) : 0;
    if (!given && g->params.request_id.data)
        given = g->params.request_id.data, n = g->params.request_id.bytes;
    char own[40];
    if (!given || !api_id_ok(given, n)) {
        uint64_t k = atomic_fetch_add(&a->n_ids, 1), salt = qr_mix64((uint64_t)a->started);
        n = (size_t)snprintf(own, sizeof own, "%016llx%016llx",
                             (unsigned long long)qr_rand_u64(a->seed, salt, k),
                             (unsigned long long)qr_rand_u64(~a->seed, salt, k));
        given = own;
    }
    snprintf(g->id, sizeof g->id, "%s-%.*s", chat ? "chatcmpl" : "cmpl", (int)n, given);
    http_add_header(c->req, "X-Request-Id", strchr(g->id, '-') + 1);
}

// Each name is logged once, and only so many names.
static void log_ignored(struct api *a, const char *names)
{
    while (*names) {
        size_t n = strcspn(names, ",");
        uint64_t h = qr_hash_bytes(a->seed, names, n);
        bool known = false;
        pthread_mutex_lock(&a->fields_lock);
        for (int i = 0; i < a->n_logged; i++) known |= a->logged[i] == h;
        if (a->n_logged == API_LOGGED_FIELDS) known = true;
        if (!known) a->logged[a->n_logged++] = h;
        pthread_mutex_unlock(&a->fields_lock);
        if (!known)
            QR_WARN("api", "requests have a field that is not known here and ignored: %.*s", (int)n, names);
        names += n;
        names += strspn(names, ", ");
    }
}

// Stop strings are needed after the document is gone.
static enum qr_status keep_stops(struct api_gen *g, struct qr_error *err)
{
    struct api_params *p = &g->params;
    for (size_t i = 0; i < p->n_stops; i++) qr_buf_add(&g->stops_text, p->stops[i].data, p->stops[i].bytes);
    if (g->stops_text.failed) return qr_fail(err, QR_ENOMEM, "Out of memory.");
    size_t at = 0;
    for (size_t i = 0; i < p->n_stops; i++) {
        p->stops[i].data = g->stops_text.data + at;
        at += p->stops[i].bytes;
    }
    return QR_OK;
}

// Thousands of prompts times thousands of tokens times twenty candidates are gigabytes of answer for one
// small request.
static enum qr_status check_answer(const struct api_gen *g, int32_t max_model_len, struct qr_error *err)
{
    const struct qr_sampling *sp = &g->params.sampling;
    int64_t n = 0;
    for (int i = 0; i < g->n_seqs; i++) {
        int64_t n_prompt = (int64_t)g->seqs[i].n_prompt, room = max_model_len - n_prompt;
        if (sp->max_tokens >= 0 && sp->max_tokens < room) room = sp->max_tokens;
        if (!g->params.stream) n += room * (sp->n_logprobs + 1);
        n += n_prompt * (sp->n_prompt_logprobs + 1);
    }
    if (g->n_seqs == 1 || n <= API_MAX_ENTRIES) return QR_OK; // n counts a prompt's for each of its choices
    return qr_fail_param(
        err, QR_EINVAL, sp->n_logprobs < 0 ? "prompt_logprobs" : "logprobs",
        "The answer could hold %lld log-probabilities; at most %d are allowed in a request of several "
        "prompts or choices. Send fewer at once.",
        (long long)n, API_MAX_ENTRIES);
}

// --- Submitting ---

static struct qr_gen engine_request(struct call *c, struct api_seq *s, uint64_t seed)
{
    const struct api_gen *g = atomic_load(&c->gen);
    const struct api_params *p = &g->params;
    const struct qr_lib_info *info = qr_lib_info(atomic_load(&c->api->lib));
    struct qr_gen r = {.req = {.prompt = s->prompt,
                               .n_prompt = (int32_t)s->n_prompt,
                               .n_choices = g->n_choices,
                               .beam = p->beam,
                               .sampling = p->sampling},
                       .stops = p->stops,
                       .n_stops = p->n_stops,
                       .include_stop = p->include_stop,
                       .skip_special = p->skip_special,
                       .want_tokens = wants_tokens(p),
                       .user = s};
    struct qr_sampling *sp = &r.req.sampling;
    int32_t room = info->max_model_len - (int32_t)s->n_prompt;
    if (sp->max_tokens < 0 || sp->max_tokens > room) sp->max_tokens = room;
    if (sp->min_tokens > sp->max_tokens) sp->min_tokens = sp->max_tokens;
    sp->seed = seed;
    r.req.priority = (int32_t)p->priority;
    r.req.fair_key = c->client;
    if (p->timeout > 0) r.req.deadline_ns = c->arrival_ns + (uint64_t)(p->timeout * 1e9);
    r.req.follows = s->index > 0;
    for (int i = g->n_choices; s->index == 0 && i < g->n_seqs; i += g->n_choices) {
        r.req.n_followers++;
        r.req.n_follower_tokens += (int64_t)g->seqs[i].n_prompt;
    }
    // Who has another key never finds this request's blocks; a salt narrows that further.
    if (c->client > 0) {
        const char *key = c->api->conf.keys[c->client - 1];
        r.req.tenant = qr_hash_bytes(0, key, strlen(key)) | 1;
    }
    if (p->cache_salt.data)
        r.req.tenant = qr_hash_bytes(r.req.tenant + 1, p->cache_salt.data, p->cache_salt.bytes) | 1;
    return r;
}

static enum qr_status submit_one(struct call *c, struct api_seq *s, uint64_t seed, struct qr_error *err)
{
    struct qr_gen r = engine_request(c, s, seed);
    qr_req_id id = 0;
    enum qr_status rc = qr_lib_submit(atomic_load(&c->api->lib), &r, &id, err);
    if (rc != QR_OK) return rc;
    atomic_store(&s->id, id);
    // Either `gone` saw the id, or we see `gone`.
    if (atomic_load(&c->gone)) qr_lib_cancel(atomic_load(&c->api->lib), id);
    return QR_OK;
}

// A full queue: counted by the limit that was reached. No field of the request is at fault.
static void count_rejection(struct api *a, struct qr_error *err)
{
    bool tokens = strcmp(err->param, "max_num_queued_tokens") == 0;
    qr_metric_add(a->metrics, tokens ? QR_METRIC_REJECT_TOKENS : QR_METRIC_REJECT_REQS, 1);
    err->param[0] = 0;
}

static void submit_all(struct call *c)
{
    struct api *a = c->api;
    struct api_gen *g = atomic_load(&c->gen);
    struct qr_error err = {0};
    enum qr_status rc = QR_OK;
    uint64_t seed = g->params.seed != -1 ? (uint64_t)g->params.seed
                                         : qr_rand_u64(a->seed, 0x5eed, atomic_fetch_add(&a->n_seeds, 1));
    pthread_mutex_lock(&g->lock);
    g->n_open = g->n_seqs;
    for (int i = 0; rc == QR_OK && i < g->n_seqs; i += g->n_choices) {
        g->seqs[i].n_left = g->n_choices;
        for (int k = i; k < i + g->n_choices; k++) {
            if (wants_tokens(&g->params)) pieces_begin(&g->seqs[k]);
            call_ref(c); // given back at its last event
        }
        rc = submit_one(c, &g->seqs[i], seed, &err);
        if (rc == QR_OK) continue;
        for (int k = 0; k < g->n_choices; k++) {
            struct call *mine = c;
            call_unref(&mine); // not the last: the worker has one
        }
        g->n_open -= g->n_seqs - i;
    }
    if (rc != QR_OK) {
        err.code = rc;
        if (rc == QR_AGAIN) count_rejection(a, &err);
        const char *message = err.msg[0]       ? err.msg
                              : rc == QR_AGAIN ? "The engine's queue is full; try again."
                                               : "The request failed.";
        gen_fail(c, error_status(rc), err.param, message);
    }
    pthread_mutex_unlock(&g->lock);
    if (rc != QR_OK) gen_abandon(c);
}

// --- The whole way ---

// A header that stands for a field: used where the body does not have the field. False: no such header.
static bool header_number(struct call *c, const char *name, double lo, double hi, double *out,
                          enum qr_status *rc, struct qr_error *err)
{
    const char *text = http_req_header(c->req, name);
    if (!text) return false;
    char *end;
    *out = strtod(text, &end);
    if (end == text || *end || !(*out >= lo && *out <= hi))
        *rc = qr_fail_param(err, QR_EINVAL, name, "The header `%s` must be a number between %.0f and %.0f.", name, lo,
                            hi);
    return true;
}

// vLLM's X-Vllm-Priority, and X-Request-Timeout in seconds.
static enum qr_status read_headers(struct call *c, const struct api_limits *lim, struct qr_error *err)
{
    struct api_params *p = &atomic_load(&c->gen)->params;
    enum qr_status rc = QR_OK;
    double x;
    if (p->timeout == 0 && header_number(c, "X-Request-Timeout", 0, 1e6, &x, &rc, err) && rc == QR_OK) p->timeout = x;
    if (rc != QR_OK || p->priority != 0) return rc;
    if (!header_number(c, "X-Vllm-Priority", INT32_MIN, INT32_MAX, &x, &rc, err) || rc != QR_OK) return rc;
    if (x != floor(x))
        return qr_fail_param(err, QR_EINVAL, "X-Vllm-Priority", "The header `X-Vllm-Priority` must be an integer.");
    p->priority = (int64_t)x;
    return api_priority_check(p->priority, lim, err);
}

static enum qr_status read_request(struct call *c, struct qr_json_doc *doc, bool chat, struct qr_error *err)
{
    struct api *a = c->api;
    struct api_gen *g = atomic_load(&c->gen);
    const struct qr_lib_info *info = qr_lib_info(atomic_load(&a->lib));
    struct api_limits lim = {info->model.n_vocab,         info->max_model_len, a->conf.max_logprobs,
                             a->conf.default_temperature, info->policy,        info->takes_priority};
    enum qr_status rc = api_params_parse(qr_json_root(doc), chat, &lim, &g->params, err);
    if (rc == QR_OK) rc = read_headers(c, &lim, err);
    if (rc != QR_OK) return rc;
    if (g->params.ignored[0]) {
        http_add_header(c->req, "X-Quire-Ignored", g->params.ignored);
        log_ignored(a, g->params.ignored);
    }
    name_request(c, chat);
    return QR_OK;
}

void gen_run(struct call *c, bool chat)
{
    struct api_gen *g = qr_calloc(QR_MEM_REQ, 1, sizeof *g);
    struct qr_json_doc *doc = NULL;
    struct qr_error err = {0};
    if (!g) {
        call_error(c, 503, NULL, "The server is out of memory.");
        return;
    }
    pthread_mutex_init(&g->lock, NULL);
    g->created = (int64_t)time(NULL);
    atomic_store(&c->gen, g);
    if (!call_json(c, &doc)) return;
    enum qr_status rc = read_request(c, doc, chat, &err);
    bool model_ok = rc != QR_OK || call_model_ok(c, g->params.model);
    if (rc == QR_OK && model_ok) rc = chat ? chat_prompt_read(c, &err) : prompts_read(c, &err);
    if (rc == QR_OK && model_ok) rc = bad_words_encode(c->api->tok, &g->params, &err);
    if (rc == QR_OK && model_ok)
        rc = check_answer(g, qr_lib_info(atomic_load(&c->api->lib))->max_model_len, &err);
    if (rc == QR_OK && model_ok) rc = keep_stops(g, &err);
    if (rc == QR_OK && model_ok && !atomic_load(&c->gone)) {
        submit_all(c);
    } else if (rc != QR_OK) {
        err.code = rc;
        call_fail(c, &err);
    }
    qr_json_free(&doc);
}

void api_completions(struct call *c)
{
    gen_run(c, false);
}

void api_chat(struct call *c)
{
    gen_run(c, true);
}
