/* The text side of live requests: tokens in, characters out. */
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "lib/lib_internal.h"

#define WAIT_SLICE_MS 100 // how soon a reader that waits for ever notices that lib is closing

static struct lib_req **bucket_of(struct qr_lib *lib, qr_req_id id)
{
    return &lib->table[id % LIB_BUCKETS];
}

static void free_req(struct lib_req *r)
{
    if (!r) return;
    for (int32_t i = 0; i < r->n_choices; i++) qr_stops_free(&r->choices[i].stops);
    qr_free(r);
}

void lib_free_requests(struct qr_lib *lib)
{
    for (size_t i = 0; i < LIB_BUCKETS; i++)
        for (struct lib_req *r = lib->table[i], *next; r; r = next) {
            next = r->chain;
            free_req(r);
        }
}

static struct lib_req *find(struct qr_lib *lib, qr_req_id id)
{
    pthread_mutex_lock(&lib->table_lock);
    struct lib_req *r = *bucket_of(lib, id);
    while (r && r->id != id) r = r->chain;
    pthread_mutex_unlock(&lib->table_lock);
    return r;
}

static void drop(struct qr_lib *lib, struct lib_req *r)
{
    pthread_mutex_lock(&lib->table_lock);
    struct lib_req **p = bucket_of(lib, r->id);
    while (*p != r) p = &(*p)->chain;
    *p = r->chain;
    lib->n_reqs--;
    pthread_mutex_unlock(&lib->table_lock);
    free_req(r);
}

// The answer begins a text when nothing but special tokens stands before it.
static bool begins_text(const struct qr_tokenizer *t, const struct qr_req *req)
{
    for (int32_t i = req->n_prompt - 1; i >= 0; i--) {
        int32_t id = req->prompt[i];
        if (id < 0 || id >= qr_tokenizer_size(t) || !qr_tokenizer_is_special(t, id)) return false;
    }
    return true;
}

static enum qr_status make_req(const struct qr_lib *lib, const struct qr_gen *gen, struct lib_req **out)
{
    const struct qr_req *req = &gen->req;
    size_t n_choices = (size_t)req->n_choices, n_ids = req->sampling.n_stop_ids;
    size_t bytes = sizeof(struct lib_req) + n_choices * sizeof(struct lib_choice);
    struct lib_req *r = qr_calloc(QR_MEM_REQ, 1, bytes + n_ids * sizeof(int32_t));
    if (!r) return QR_ENOMEM;
    r->user = gen->user;
    r->include_stop = gen->include_stop;
    r->ignore_eos = req->sampling.ignore_eos;
    r->want_tokens = gen->want_tokens;
    r->n_prompt = req->n_prompt;
    r->min_tokens = req->sampling.min_tokens;
    r->n_choices = r->n_live = req->n_choices;
    r->n_stop_ids = n_ids;
    r->stop_ids = (int32_t *)((char *)r + bytes);
    if (n_ids > 0) memcpy(r->stop_ids, req->sampling.stop_ids, n_ids * sizeof(int32_t));
    bool at_start = begins_text(lib->tok, req);
    for (size_t i = 0; i < n_choices; i++) {
        qr_detok_init(&r->choices[i].detok, lib->tok, gen->skip_special, at_start);
        if (gen->n_stops == 0) continue;
        enum qr_status st = qr_stops_new(gen->stops, gen->n_stops, gen->include_stop, &r->choices[i].stops);
        if (st == QR_OK) continue;
        free_req(r);
        return st;
    }
    *out = r;
    return QR_OK;
}

/* The lock is held while the engine takes the request: the reader, who takes it to look a request up, cannot
 * see an event of one that is not in the table yet. */
static enum qr_status enter(struct qr_lib *lib, struct lib_req *r, const struct qr_req *req, qr_req_id *id,
                            struct qr_error *err)
{
    enum qr_status st;
    pthread_mutex_lock(&lib->table_lock);
    if (lib->n_reqs >= LIB_REQS_MAX) {
        st = qr_fail(err, QR_AGAIN, "%d requests are live, the most that are kept", lib->n_reqs);
    } else if ((st = qr_engine_submit(lib->engine, req, id, err)) == QR_OK) {
        r->id = *id;
        r->chain = *bucket_of(lib, r->id);
        *bucket_of(lib, r->id) = r;
        lib->n_reqs++;
    }
    pthread_mutex_unlock(&lib->table_lock);
    return st;
}

enum qr_status qr_lib_submit(struct qr_lib *lib, const struct qr_gen *gen, qr_req_id *id,
                             struct qr_error *err)
{
    struct lib_req *r = NULL;
    struct qr_req req = gen->req;
    if (req.n_choices < 1 || req.n_choices > QR_CHOICES_MAX)
        return qr_fail_param(err, QR_EINVAL, "n", "n must be 1 to %d, got %d", QR_CHOICES_MAX, req.n_choices);
    req.sampling.eos = lib->eos;
    req.sampling.n_eos = lib->n_eos;
    enum qr_status st = make_req(lib, gen, &r);
    if (st != QR_OK) return qr_fail(err, st, "lib: cannot take the request: %s", qr_status_name(st));
    if ((st = enter(lib, r, &req, id, err)) != QR_OK) free_req(r);
    return st;
}

void qr_lib_cancel(struct qr_lib *lib, qr_req_id id)
{
    qr_engine_cancel(lib->engine, id, -1, -1, false);
}

static bool in_list(const int32_t *list, size_t n, int32_t id)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == id) return true;
    return false;
}

static bool ends_by_eos(const struct qr_lib *lib, const struct lib_req *r, int32_t id)
{
    return !r->ignore_eos && in_list(lib->eos, lib->n_eos, id);
}

// Text of lib->piece goes out through the stop strings, if it is their turn. Returns the stop that it
// completed, or -1.
static int emit_piece(struct qr_lib *lib, struct lib_choice *c, bool search)
{
    if (!c->stops || !search) {
        qr_buf_add(&lib->text, lib->piece.data, lib->piece.len);
        return -1;
    }
    return qr_stops_push(c->stops, lib->piece.data, lib->piece.len, &lib->text);
}

static void report_token(struct qr_lib *lib, const struct lib_req *r, const struct qr_event *ev,
                         struct qr_gen_event *out)
{
    if (!r->want_tokens) return;
    struct qr_gen_token *t = &lib->token;
    t->id = ev->token;
    t->pos = ev->pos;
    t->logprob = ev->logprob;
    t->rank = ev->rank;
    t->n_top = ev->n_top;
    t->is_prompt = ev->kind == QR_EVENT_PROMPT;
    if (ev->n_top > 0) memcpy(t->top, ev->top, (size_t)ev->n_top * sizeof t->top[0]);
    out->tokens = t;
    out->n_tokens = 1;
}

static void take_token(struct qr_lib *lib, struct lib_req *r, struct lib_choice *c, const struct qr_event *ev,
                       struct qr_gen_event *out)
{
    if (c->n_generated++ == 0) c->first_token_ns = ev->now_ns;
    report_token(lib, r, ev, out);
    // An end token is counted and reported; its text belongs to the answer only when the request wants to see
    // its stop.
    bool ends = ends_by_eos(lib, r, ev->token) || in_list(r->stop_ids, r->n_stop_ids, ev->token);
    if (ends && !r->include_stop) return;
    if (ev->token < qr_tokenizer_size(lib->tok)) qr_detok_push(&c->detok, ev->token, &lib->piece);
    int stop = emit_piece(lib, c, c->n_generated > r->min_tokens);
    if (stop < 0) return;
    out->finish = QR_FINISH_STOP;
    out->stop_string = stop;
    qr_engine_cancel(lib->engine, r->id, ev->choice, ev->pos, true);
}

static void take_finish(struct qr_lib *lib, struct lib_req *r, struct lib_choice *c,
                        const struct qr_event *ev, struct qr_gen_event *out)
{
    // A character that the end cuts is no part of the answer, as in vLLM: its text stays the beginning of what a longer
    // answer would have been.
    out->finish = ev->finish;
    out->n_preemptions = ev->n_preemptions;
    memcpy(out->error, ev->error, sizeof out->error);
    out->status = ev->status;
    if (c->stops) qr_stops_flush(c->stops, &lib->text);
    if (ev->finish == QR_FINISH_STOP && ev->stop_token >= 0 && !ends_by_eos(lib, r, ev->stop_token))
        out->stop_token = ev->stop_token;
}

// False when the event says nothing to anyone: its request or choice ended before, by a stop string.
static bool take_event(struct qr_lib *lib, const struct qr_event *ev, struct qr_gen_event *out)
{
    struct lib_req *r = find(lib, ev->id);
    if (!r) return false;
    QR_ASSERT(ev->choice >= 0 && ev->choice < r->n_choices);
    struct lib_choice *c = &r->choices[ev->choice];
    if (c->done) return false;
    qr_buf_clear(&lib->piece);
    qr_buf_clear(&lib->text);
    *out = (struct qr_gen_event){.id = ev->id,
                                 .user = r->user,
                                 .choice = ev->choice,
                                 .stop_token = -1,
                                 .stop_string = -1,
                                 .n_prompt = r->n_prompt,
                                 .now_ns = ev->now_ns,
                                 .arrival_ns = ev->arrival_ns,
                                 .scheduled_ns = ev->scheduled_ns};
    if (ev->n_cached > r->n_cached) r->n_cached = ev->n_cached;
    if (ev->kind == QR_EVENT_TOKEN)
        take_token(lib, r, c, ev, out);
    else if (ev->kind == QR_EVENT_PROMPT)
        report_token(lib, r, ev, out);
    else
        take_finish(lib, r, c, ev, out);
    out->n_generated = c->n_generated;
    out->n_cached = r->n_cached;
    out->first_token_ns = c->first_token_ns;
    out->text = (struct qr_text_span){lib->text.data, lib->text.len};
    if (out->finish == QR_FINISH_NONE) return true;
    c->done = true;
    if (--r->n_live == 0) drop(lib, r);
    return true;
}

enum qr_status qr_lib_next(struct qr_lib *lib, struct qr_gen_event *out, int timeout_ms)
{
    struct qr_clock *clock = qr_clock_wall();
    struct qr_event ev;
    enum qr_status st = QR_AGAIN;
    uint64_t end = 0;
    atomic_fetch_add(&lib->n_reading, 1);
    for (;;) {
        if (atomic_load(&lib->closing)) {
            st = QR_ECANCELED;
            break;
        }
        if (qr_engine_poll(lib->engine, &ev)) {
            if (!take_event(lib, &ev, out)) continue;
            st = QR_OK;
            break;
        }
        if (timeout_ms == 0) break;
        uint64_t now = clock->now_ns(clock);
        if (end == 0) end = now + (uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * 1000000;
        if (timeout_ms > 0 && now >= end) break;
        int left = timeout_ms > 0 ? (int)((end - now + 999999) / 1000000) : WAIT_SLICE_MS;
        qr_engine_wait(lib->engine, left < WAIT_SLICE_MS ? left : WAIT_SLICE_MS);
    }
    atomic_fetch_sub(&lib->n_reading, 1);
    return st;
}
