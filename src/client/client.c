#include "client/client.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "client/parse.h"

#define READ_BYTES (64 << 10)
#define HOST_BYTES 256
#define READY_MAX 64 // connections looked at between two waits

struct conn {
    int fd; // -1: closed
    bool active, fresh; // fresh: this connection has carried no answer yet
    void *user;
    struct qr_buf request;
    size_t sent;
    uint64_t last_ns; // of a byte in either direction
    struct client_parser parser;
    char why[128];
};

struct qr_client {
    struct qr_client_conf conf;
    char host[HOST_BYTES], port[8], base[HOST_BYTES], authority[HOST_BYTES + 16];
    char api_key[512];
    struct sockaddr_storage addr;
    socklen_t addr_bytes;
    int family;
    int epoll;
    struct conn *conns; // (n_conns_max)
    int n_active;
    struct epoll_event ready[READY_MAX];
    int n_ready, i_ready;
    struct conn *current; // whose bytes are being handed out
    uint64_t now_ns;
    char *input; // (READ_BYTES)
};

/* ==== The address. ==== */

static enum qr_status bad_url(const char *url, struct qr_error *err)
{
    return qr_fail_param(err, QR_EINVAL, "url", "expected a URL such as http://127.0.0.1:8000, got \"%.80s\"", url);
}

static enum qr_status split_url(struct qr_client *c, const char *url, struct qr_error *err)
{
    if (strncmp(url, "https://", 8) == 0)
        return qr_fail_param(err, QR_ENOTSUP, "url", "%.80s: TLS is not supported; give an http:// address", url);
    const char *s = strncmp(url, "http://", 7) == 0 ? url + 7 : url;
    size_t n = strcspn(s, "/"), n_path = strlen(s + n);
    const char *host = s, *host_end = s + n, *port = NULL;
    if (*s == '[') { // [::1]:8000
        host++;
        host_end = memchr(s, ']', n);
        if (!host_end) return bad_url(url, err);
        port = host_end[1] == ':' ? host_end + 2 : NULL;
    } else if ((port = memchr(s, ':', n)) != NULL)
        host_end = port++;
    size_t n_host = (size_t)(host_end - host), n_port = port ? (size_t)(s + n - port) : 0;
    if (n_host == 0 || n_host >= HOST_BYTES || n_path >= HOST_BYTES || n_port > 5 || (port && n_port == 0) ||
        strspn(port ? port : "", "0123456789") < n_port)
        return bad_url(url, err);
    snprintf(c->host, sizeof c->host, "%.*s", (int)n_host, host);
    snprintf(c->port, sizeof c->port, "%.*s", port ? (int)n_port : 2, port ? port : "80");
    snprintf(c->base, sizeof c->base, "%s", s + n);
    for (size_t k = strlen(c->base); k > 0 && c->base[k - 1] == '/'; k--) c->base[k - 1] = 0;
    snprintf(c->authority, sizeof c->authority, *s == '[' ? "[%s]:%s" : "%s:%s", c->host, c->port);
    return QR_OK;
}

static enum qr_status resolve(struct qr_client *c, struct qr_error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    int rc = getaddrinfo(c->host, c->port, &hints, &list);
    if (rc != 0 || !list)
        return qr_fail(err, QR_ENOTFOUND, "%.100s: %s", c->host, gai_strerror(rc));
    memcpy(&c->addr, list->ai_addr, list->ai_addrlen);
    c->addr_bytes = list->ai_addrlen;
    c->family = list->ai_family;
    freeaddrinfo(list);
    return QR_OK;
}

enum qr_status qr_client_new(const struct qr_client_conf *conf, struct qr_client **out, struct qr_error *err)
{
    struct qr_client *c = qr_calloc(QR_MEM_HTTP, 1, sizeof *c);
    if (!c) return qr_fail(err, QR_ENOMEM, "client: no memory");
    c->conf = *conf;
    c->epoll = -1;
    enum qr_status st = split_url(c, conf->url, err);
    if (st == QR_OK) st = resolve(c, err);
    if (conf->api_key) snprintf(c->api_key, sizeof c->api_key, "%s", conf->api_key);
    if (st == QR_OK) {
        c->conns = qr_calloc(QR_MEM_HTTP, (size_t)conf->n_conns_max, sizeof *c->conns);
        c->input = qr_malloc(QR_MEM_HTTP, READ_BYTES);
        c->epoll = epoll_create1(EPOLL_CLOEXEC);
        if (!c->conns || !c->input || c->epoll < 0)
            st = qr_fail(err, QR_ENOMEM, "client: no memory for %d connections", conf->n_conns_max);
    }
    if (st == QR_OK) {
        for (int i = 0; i < conf->n_conns_max; i++) c->conns[i].fd = -1;
        *out = c;
        return QR_OK;
    }
    qr_client_free(&c);
    return st;
}

static void hang_up(struct conn *k)
{
    if (k->fd >= 0) close(k->fd); // which takes it out of epoll
    k->fd = -1;
}

void qr_client_free(struct qr_client **client)
{
    struct qr_client *c = *client;
    if (!c) return;
    for (int i = 0; c->conns && i < c->conf.n_conns_max; i++) {
        hang_up(&c->conns[i]);
        qr_buf_fini(&c->conns[i].request);
        client_parser_fini(&c->conns[i].parser);
    }
    if (c->epoll >= 0) close(c->epoll);
    qr_free(c->conns);
    qr_free(c->input);
    qr_free(c);
    *client = NULL;
}

/* ==== Sending. ==== */

static bool watch(struct qr_client *c, struct conn *k, uint32_t events, int op)
{
    struct epoll_event e = {.events = events, .data.ptr = k};
    return epoll_ctl(c->epoll, op, k->fd, &e) == 0;
}

static bool dial(struct qr_client *c, struct conn *k)
{
    k->fd = socket(c->family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (k->fd < 0) return false;
    int on = 1;
    setsockopt(k->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    k->fresh = true;
    if (connect(k->fd, (struct sockaddr *)&c->addr, c->addr_bytes) != 0 && errno != EINPROGRESS) return false;
    return watch(c, k, EPOLLIN | EPOLLOUT, EPOLL_CTL_ADD);
}

// Sends what the socket takes. False: the connection is lost, errno says why.
static bool send_some(struct qr_client *c, struct conn *k)
{
    while (k->sent < k->request.len) {
        ssize_t n = send(k->fd, k->request.data + k->sent, k->request.len - k->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN || errno == ENOTCONN;
        k->sent += (size_t)n;
    }
    return watch(c, k, EPOLLIN, EPOLL_CTL_MOD);
}

static struct conn *free_conn(struct qr_client *c)
{
    struct conn *closed = NULL;
    for (int i = 0; i < c->conf.n_conns_max; i++) {
        struct conn *k = &c->conns[i];
        if (k->active) continue;
        if (k->fd >= 0) return k; // one that is kept alive, first
        if (!closed) closed = k;
    }
    return closed;
}

static enum qr_status begin(struct qr_client *c, struct conn *k, struct qr_error *err)
{
    k->sent = 0;
    k->last_ns = qr_clock_wall()->now_ns(qr_clock_wall());
    client_parser_begin(&k->parser);
    if (k->fd < 0 && !dial(c, k)) {
        int e = errno;
        hang_up(k);
        return qr_fail(err, QR_EIO, "%.100s: %s", c->authority, strerror(e));
    }
    if (!k->fresh) watch(c, k, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
    return QR_OK;
}

enum qr_status qr_client_start(struct qr_client *c, const char *method, const char *path, const void *body,
                               size_t bytes, void *user, struct qr_error *err)
{
    struct conn *k = free_conn(c);
    if (!k) return QR_AGAIN;
    struct qr_buf *r = &k->request;
    qr_buf_clear(r);
    qr_buf_printf(r, "%s %s%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: quire\r\n", method, c->base, path, c->authority);
    if (c->api_key[0]) qr_buf_printf(r, "Authorization: Bearer %s\r\n", c->api_key);
    if (body) qr_buf_printf(r, "Content-Type: application/json\r\nContent-Length: %zu\r\n", bytes);
    qr_buf_str(r, "\r\n");
    if (body) qr_buf_add(r, body, bytes);
    if (r->failed) return qr_fail(err, QR_ENOMEM, "client: no memory for a request of %zu bytes", bytes);
    enum qr_status st = begin(c, k, err);
    if (st != QR_OK) return st;
    k->user = user;
    k->active = true;
    c->n_active++;
    return QR_OK;
}

int qr_client_n_active(const struct qr_client *c)
{
    return c->n_active;
}

/* ==== Receiving. ==== */

static void finish(struct qr_client *c, struct conn *k)
{
    k->active = false;
    c->n_active--;
    k->fresh = false;
    if (k->parser.state != CLIENT_DONE || !k->parser.keep_alive || k->sent < k->request.len) hang_up(k);
}

static void lose(struct conn *k, const char *why)
{
    snprintf(k->why, sizeof k->why, "%s", why);
    k->parser.state = CLIENT_BAD;
    k->parser.why = k->why;
}

// A connection that was kept alive may have been closed by the server before it saw the request: once more, on a new
// one.
static bool try_again(struct qr_client *c, struct conn *k)
{
    if (k->fresh || k->parser.status != 0 || k->parser.head_bytes > 0) return false;
    hang_up(k);
    return begin(c, k, NULL) == QR_OK;
}

static void receive(struct qr_client *c, struct conn *k)
{
    ssize_t n = recv(k->fd, c->input, READ_BYTES, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    k->last_ns = c->now_ns;
    if (n > 0) {
        client_parser_feed(&k->parser, c->input, (size_t)n);
        return;
    }
    int e = n < 0 ? errno : 0;
    if (try_again(c, k)) return;
    if (e)
        lose(k, strerror(e));
    else
        client_parser_close(&k->parser);
}

static void serve_ready(struct qr_client *c, const struct epoll_event *e)
{
    struct conn *k = e->data.ptr;
    if (k->fd < 0) return;
    if (!k->active) { // closed by the server while it was idle
        hang_up(k);
        return;
    }
    if (e->events & EPOLLOUT && !send_some(c, k)) {
        int why = errno;
        if (!try_again(c, k)) lose(k, strerror(why));
    }
    if (k->fd >= 0 && k->parser.state != CLIENT_BAD && e->events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(c, k);
}

// What connection k has to say now.
static bool take_event(struct qr_client *c, struct conn *k, struct qr_client_event *out)
{
    struct client_parser *p = &k->parser;
    *out = (struct qr_client_event){.user = k->user, .status = p->status, .now_ns = c->now_ns};
    if (client_parser_event(p, &out->text, &out->bytes)) {
        out->kind = QR_CLIENT_EVENT;
        return true;
    }
    if (p->state == CLIENT_DONE) {
        out->kind = QR_CLIENT_DONE;
        out->text = p->is_stream || !p->body.len ? "" : p->body.data;
        out->bytes = p->is_stream ? 0 : p->body.len;
    } else if (p->state == CLIENT_BAD) {
        out->kind = QR_CLIENT_FAILED;
        out->text = p->why;
        out->bytes = strlen(p->why);
    } else
        return false;
    finish(c, k);
    return true;
}

static struct conn *timed_out(struct qr_client *c)
{
    if (c->conf.timeout_ms <= 0) return NULL;
    uint64_t limit = (uint64_t)c->conf.timeout_ms * 1000000u;
    for (int i = 0; i < c->conf.n_conns_max; i++) {
        struct conn *k = &c->conns[i];
        if (k->active && c->now_ns > k->last_ns && c->now_ns - k->last_ns > limit) return k;
    }
    return NULL;
}

// How long to wait: no longer than the caller, nor than until the next look for silent servers.
static int wait_ms(const struct qr_client *c, int left_ms)
{
    int look = c->conf.timeout_ms > 0 ? c->conf.timeout_ms / 4 + 1 : -1;
    return left_ms < 0 || (look >= 0 && look < left_ms) ? look : left_ms;
}

bool qr_client_next(struct qr_client *c, struct qr_client_event *out, int timeout_ms)
{
    struct qr_clock *clock = qr_clock_wall();
    uint64_t start = clock->now_ns(clock);
    for (;;) {
        if (c->current && c->current->active && take_event(c, c->current, out)) return true;
        c->current = NULL;
        if (c->i_ready < c->n_ready) {
            const struct epoll_event *e = &c->ready[c->i_ready++];
            serve_ready(c, e);
            c->current = e->data.ptr;
            continue;
        }
        if (timeout_ms < 0 && c->n_active == 0) return false;
        c->now_ns = clock->now_ns(clock);
        int64_t left = timeout_ms < 0 ? -1 : timeout_ms - (int64_t)((c->now_ns - start) / 1000000u);
        if (timeout_ms >= 0 && left < 0) return false;
        int n = epoll_wait(c->epoll, c->ready, READY_MAX, wait_ms(c, (int)left));
        c->now_ns = clock->now_ns(clock);
        c->n_ready = n > 0 ? n : 0;
        c->i_ready = 0;
        if (n == 0 && timeout_ms == 0) return false;
        if (c->n_ready == 0 && (c->current = timed_out(c)) != NULL)
            lose(c->current, "no answer in time");
    }
}

int qr_client_call(struct qr_client *c, const char *method, const char *path, const void *body, size_t bytes,
                   struct qr_buf *out, struct qr_error *err)
{
    struct qr_client_event e;
    int mine;
    if (qr_client_start(c, method, path, body, bytes, &mine, err) != QR_OK) return 0;
    while (qr_client_next(c, &e, -1)) {
        if (e.user != &mine || e.kind == QR_CLIENT_EVENT) continue;
        if (e.kind == QR_CLIENT_FAILED) {
            (void)qr_fail(err, QR_EIO, "%.100s: %.100s", c->authority, e.text);
            return 0;
        }
        if (out) qr_buf_add(out, e.text, e.bytes);
        return e.status;
    }
    return 0;
}
