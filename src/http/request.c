#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/mem.h"
#include "http/http_internal.h"

#define KEEP_BYTES 8192 // an idle stream gives back a larger buffer than this

struct http_req *http_req_new(struct http_server *s, struct http_conn *c, const char *target)
{
    struct http_req *r = qr_calloc(QR_MEM_HTTP, 1, sizeof *r);
    if (!r) return NULL;
    r->target = target ? qr_strdup(QR_MEM_HTTP, target) : NULL;
    if (target && !r->target) {
        qr_free(r);
        return NULL;
    }
    r->server = s;
    http_server_hold(s);
    r->conn = c;
    r->method = r->path = "";
    atomic_init(&r->refs, 1);
    pthread_mutex_init(&r->lock, NULL);
    return r;
}

void http_req_hold(struct http_req *r)
{
    atomic_fetch_add(&r->refs, 1);
}

void http_req_drop(struct http_req *r)
{
    if (atomic_fetch_sub(&r->refs, 1) != 1) return;
    for (int i = 0; i < r->n_extra; i++) {
        qr_free((char *)r->extra[i].name);
        qr_free((char *)r->extra[i].value);
    }
    qr_free(r->extra);
    qr_free((char *)r->content_type);
    qr_free(r->out);
    qr_free(r->block);
    qr_free(r->headers);
    qr_free(r->query);
    qr_free(r->target);
    qr_buf_fini(&r->body);
    pthread_mutex_destroy(&r->lock);
    struct http_server *s = r->server;
    qr_free(r);
    http_server_drop(s);
}

void http_req_ref(struct http_req *r)
{
    pthread_mutex_lock(&r->lock);
    r->n_app++;
    pthread_mutex_unlock(&r->lock);
    http_req_hold(r);
}

void http_req_unref(struct http_req **rp)
{
    struct http_req *r = *rp;
    if (!r) return;
    *rp = NULL;
    pthread_mutex_lock(&r->lock);
    bool last = --r->n_app == 0, unanswered = last && !r->gone && r->answer == ANSWER_NONE;
    // Nobody is left to end the stream: the client must see that it was cut, so its last chunk is not sent.
    bool cut = last && !r->gone && r->answer == ANSWER_STREAM && !r->ended;
    if (cut) r->aborted = true;
    pthread_mutex_unlock(&r->lock);
    if (unanswered)
        http_req_answer_error(r, 500);
    else if (cut)
        http_notify(r);
    http_req_drop(r);
}

const char *http_req_method(const struct http_req *r)
{
    return r->method;
}

const char *http_req_path(const struct http_req *r)
{
    return r->path;
}

const char *http_req_query(const struct http_req *r, const char *name)
{
    for (int i = 0; i < r->n_query; i++)
        if (strcmp(r->query[i].name, name) == 0) return r->query[i].value;
    return NULL;
}

const char *http_req_header(const struct http_req *r, const char *name)
{
    for (int i = 0; i < r->n_headers; i++)
        if (strcasecmp(r->headers[i].name, name) == 0) return r->headers[i].value;
    return NULL;
}

const char *http_req_body(const struct http_req *r, size_t *bytes)
{
    if (bytes) *bytes = r->body.len;
    return r->body.data ? r->body.data : "";
}

bool http_req_is_local(const struct http_req *r)
{
    return r->local;
}

bool http_req_is_gone(const struct http_req *cr)
{
    struct http_req *r = (struct http_req *)cr;
    pthread_mutex_lock(&r->lock);
    bool gone = r->gone;
    pthread_mutex_unlock(&r->lock);
    return gone;
}

void http_req_set_user(struct http_req *r, void *user)
{
    pthread_mutex_lock(&r->lock);
    r->user = user;
    pthread_mutex_unlock(&r->lock);
}

void *http_req_user(const struct http_req *cr)
{
    struct http_req *r = (struct http_req *)cr;
    pthread_mutex_lock(&r->lock);
    void *user = r->user;
    pthread_mutex_unlock(&r->lock);
    return user;
}

// A header value may hold any byte but control characters; a tab is one of those that HTTP allows.
static bool is_field_value(const char *s)
{
    for (; *s; s++)
        if (((unsigned char)*s < 0x20 && *s != '\t') || *s == 0x7F) return false;
    return true;
}

static bool is_field_name(const char *s)
{
    static const char token[] =
        "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    return *s && s[strspn(s, token)] == 0;
}

void http_add_header(struct http_req *r, const char *name, const char *value)
{
    if (!is_field_name(name) || !is_field_value(value)) {
        QR_ERROR("http", "a reply header with control characters was left out: a bug in its handler");
        return;
    }
    pthread_mutex_lock(&r->lock);
    QR_ASSERT(r->answer == ANSWER_NONE);
    struct http_pair *p = qr_realloc(QR_MEM_HTTP, r->extra, (size_t)(r->n_extra + 1) * sizeof *p);
    char *n = qr_strdup(QR_MEM_HTTP, name), *v = qr_strdup(QR_MEM_HTTP, value);
    if (p) r->extra = p;
    if (p && n && v) {
        p[r->n_extra++] = (struct http_pair){n, v};
    } else {
        qr_free(n);
        qr_free(v);
    }
    pthread_mutex_unlock(&r->lock);
}

// With the lock held: fixes the head of the answer. False when the client has gone, and nothing is to be
// done.
static bool begin_answer(struct http_req *r, enum http_answer kind, int status, const char *content_type)
{
    QR_ASSERT(r->answer == ANSWER_NONE);
    QR_ASSERT(status >= 200 && status <= 599);
    r->answer = kind;
    r->status = status;
    if (content_type && is_field_value(content_type)) r->content_type = qr_strdup(QR_MEM_HTTP, content_type);
    return !r->gone;
}

void http_reply(struct http_req *r, int status, const char *content_type, const void *body, size_t bytes)
{
    char *copy = bytes ? qr_malloc(QR_MEM_HTTP, bytes) : NULL;
    if (copy) memcpy(copy, body, bytes);
    if (bytes && !copy) status = 500; // no memory even for the body: an empty 500
    pthread_mutex_lock(&r->lock);
    bool alive = begin_answer(r, ANSWER_REPLY, status, content_type);
    r->ended = true;
    r->out = copy;
    r->out_bytes = r->out_cap = copy ? bytes : 0;
    pthread_mutex_unlock(&r->lock);
    if (alive) http_notify(r);
}

void http_stream_begin(struct http_req *r, int status, const char *content_type)
{
    pthread_mutex_lock(&r->lock);
    bool alive = begin_answer(r, ANSWER_STREAM, status, content_type);
    pthread_mutex_unlock(&r->lock);
    atomic_fetch_add(&r->server->n_streams, 1);
    if (alive) http_notify(r);
}

// With the lock held: appends to the unsent bytes.
static bool queue_bytes(struct http_req *r, const void *data, size_t bytes)
{
    if (r->out_from && r->out_bytes + bytes > r->out_cap) {
        memmove(r->out, r->out + r->out_from, r->out_bytes - r->out_from);
        r->out_bytes -= r->out_from;
        r->out_from = 0;
    }
    if (bytes > r->out_cap - r->out_bytes) {
        if (bytes > SIZE_MAX / 4 - r->out_bytes) return false;
        size_t cap = r->out_cap ? r->out_cap : 256;
        while (cap < r->out_bytes + bytes) cap *= 2;
        char *p = qr_realloc(QR_MEM_HTTP, r->out, cap);
        if (!p) return false;
        r->out = p;
        r->out_cap = cap;
    }
    memcpy(r->out + r->out_bytes, data, bytes);
    r->out_bytes += bytes;
    return true;
}

enum qr_status http_stream_write(struct http_req *r, const void *data, size_t bytes)
{
    enum qr_status st = QR_OK;
    pthread_mutex_lock(&r->lock);
    QR_ASSERT(r->answer == ANSWER_STREAM && !r->ended);
    if (r->gone)
        st = QR_ECANCELED;
    else if (bytes && !r->head && !queue_bytes(r, data, bytes))
        st = QR_ENOMEM;
    else if (r->out_bytes - r->out_from > r->server->conf.stream_bytes_max)
        st = QR_AGAIN;
    bool wake = r->waiting && r->out_bytes > r->out_from;
    if (wake) r->waiting = false;
    pthread_mutex_unlock(&r->lock);
    if (wake) http_notify(r);
    return st;
}

void http_stream_end(struct http_req *r)
{
    pthread_mutex_lock(&r->lock);
    QR_ASSERT(r->answer == ANSWER_STREAM && !r->ended);
    r->ended = true;
    bool wake = r->waiting;
    r->waiting = false;
    pthread_mutex_unlock(&r->lock);
    if (wake) http_notify(r);
}

ssize_t http_stream_take(struct http_req *r, char *to, size_t cap)
{
    ssize_t n;
    pthread_mutex_lock(&r->lock);
    size_t left = r->out_bytes - r->out_from;
    if (r->gone || (r->aborted && left == 0)) {
        n = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (left) {
        size_t take = left < cap ? left : cap;
        memcpy(to, r->out + r->out_from, take);
        r->out_from += take;
        n = (ssize_t)take;
        if (take == left) {
            r->out_from = r->out_bytes = 0;
            if (r->out_cap > KEEP_BYTES) {
                qr_free(r->out);
                r->out = NULL;
                r->out_cap = 0;
            }
        }
    } else if (r->ended) {
        n = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        r->waiting = true;
        n = 0;
    }
    pthread_mutex_unlock(&r->lock);
    return n;
}

void http_req_lost(struct http_req *r)
{
    pthread_mutex_lock(&r->lock);
    bool first = !r->gone, working = r->served && !r->ended && r->n_app > 0;
    r->gone = true;
    qr_free(r->out);
    r->out = NULL;
    r->out_bytes = r->out_from = r->out_cap = 0;
    void *user = r->user;
    pthread_mutex_unlock(&r->lock);
    const struct http_conf *conf = &r->server->conf;
    if (first && working && conf->gone) conf->gone(conf->arg, r, user);
}

void http_req_answer_error(struct http_req *r, int status)
{
    char body[1024];
    size_t n = http_error_json(r->server, status, http_error_message(status), body, sizeof body);
    http_reply(r, status, "application/json", body, n);
}
