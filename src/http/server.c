#define _GNU_SOURCE
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/mem.h"
#include "http/http_internal.h"

#define EVENTS_PER_TURN 256
#define FLUSH_MS 500 // how long http_server_free waits for finished answers to leave

uint64_t http_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void http_server_hold(struct http_server *s)
{
    atomic_fetch_add(&s->refs, 1);
}

void http_server_drop(struct http_server *s)
{
    if (atomic_fetch_sub(&s->refs, 1) != 1) return;
    if (s->epoll_fd >= 0) close(s->epoll_fd);
    if (s->wake_fd >= 0) close(s->wake_fd);
    pthread_mutex_destroy(&s->lock);
    qr_free(s->host);
    qr_free(s);
}

static void wake(struct http_server *s)
{
    uint64_t one = 1;
    ssize_t n = write(s->wake_fd, &one, sizeof one);
    (void)n; // it fails only when the counter is full, and then the thread is awake anyway
}

// The server whose I/O thread this is.
static _Thread_local const struct http_server *io_of;

void http_notify(struct http_req *r)
{
    struct http_server *s = r->server;
    if (io_of == s) { // a handler that answers at once: nothing to wake, and seldom anything to resume
        if (r->conn) http_conn_resume(r->conn);
        return;
    }
    pthread_mutex_lock(&s->lock);
    bool add = !r->ready && !s->over, ring = add && !s->woken;
    if (add) {
        r->ready = true;
        http_req_hold(r);
        r->next_ready = s->ready;
        s->ready = r;
        s->woken = true;
    }
    pthread_mutex_unlock(&s->lock);
    if (ring) wake(s);
}

static void serve_ready(struct http_server *s)
{
    pthread_mutex_lock(&s->lock);
    for (struct http_req *r; (r = s->ready) != NULL;) {
        s->ready = r->next_ready;
        r->ready = false;
        pthread_mutex_unlock(&s->lock);
        if (r->conn) http_conn_resume(r->conn);
        http_req_drop(r);
        pthread_mutex_lock(&s->lock);
    }
    s->woken = false;
    pthread_mutex_unlock(&s->lock);
}

// One turn: waits for sockets, answers or deadlines, at most wait_max_ms (-1: for ever), and serves them.
static void turn(struct http_server *s, int wait_max_ms)
{
    struct epoll_event ev[EVENTS_PER_TURN];
    MHD_UNSIGNED_LONG_LONG mhd_ms;
    int wait_ms = http_conn_expire(s);
    if (wait_max_ms >= 0 && (wait_ms < 0 || wait_ms > wait_max_ms)) wait_ms = wait_max_ms;
    if (MHD_get_timeout(s->mhd, &mhd_ms) == MHD_YES && (wait_ms < 0 || mhd_ms < (unsigned)wait_ms))
        wait_ms = (int)mhd_ms;
    int n = epoll_wait(s->epoll_fd, ev, EVENTS_PER_TURN, wait_ms);
    s->now_ms = http_now_ms();
    for (int i = 0; i < n; i++) {
        enum watch_kind *kind = ev[i].data.ptr;
        uint64_t count;
        if (*kind == WATCH_CONN)
            http_conn_event(s, (struct http_conn *)(void *)kind, ev[i].events);
        else if (*kind == WATCH_LINGER)
            http_linger_event(s, (struct http_linger *)(void *)kind);
        else if (*kind == WATCH_WAKE && read(s->wake_fd, &count, sizeof count) < 0)
            continue;
    }
    serve_ready(s);
    http_conn_expire(s);
    do MHD_run(s->mhd);
    while (http_conn_nudge_all(s));
    if (MHD_get_timeout(s->mhd, &mhd_ms) != MHD_YES) http_conn_stale(s); // else it has bytes left to read
}

static bool any_unsent(const struct http_server *s)
{
    for (struct http_conn *c = s->conns[CONN_OWED].first; c; c = c->next)
        if (c->req && !http_req_is_gone(c->req)) return true;
    return false;
}

// Stops accepting, tells who was not answered, lets finished answers leave, closes everything.
static void wind_down(struct http_server *s)
{
    MHD_quiesce_daemon(s->mhd);
    for (struct http_conn *c = s->conns[CONN_OWED].first; c; c = c->next) {
        if (!c->req) continue;
        pthread_mutex_lock(&c->req->lock);
        bool whole = c->req->ended;
        pthread_mutex_unlock(&c->req->lock);
        if (whole) continue;
        http_req_lost(c->req);
        shutdown(c->fd, SHUT_RDWR);
        http_conn_resume(c);
    }
    for (uint64_t until = s->now_ms + FLUSH_MS; any_unsent(s) && s->now_ms < until;) turn(s, 20);
    for (int phase = 0; phase < CONN_PHASES; phase++)
        for (struct http_conn *c = s->conns[phase].first; c; c = c->next) http_conn_resume(c);
    MHD_stop_daemon(s->mhd); // every connection reports its end
    s->mhd = NULL;
    while (s->linger_first) http_linger_close(s, s->linger_first);
    pthread_mutex_lock(&s->lock);
    s->over = true;
    pthread_mutex_unlock(&s->lock);
    serve_ready(s); // lets go of requests that were answered too late
}

static void *io_main(void *arg)
{
    struct http_server *s = arg;
    io_of = s;
    pthread_setname_np(pthread_self(), "quire-http");
    s->now_ms = http_now_ms();
    while (!atomic_load(&s->stopping)) turn(s, -1);
    wind_down(s);
    return NULL;
}

static enum qr_status bind_failed(const struct http_conf *conf, int why, struct qr_error *err)
{
    if (why == EADDRINUSE)
        return qr_fail(err, QR_EIO, "%s port %d is taken by another program: choose one with --port",
                       conf->host, conf->port);
    if (why == EACCES)
        return qr_fail(err, QR_EIO, "port %d on %s needs more rights: choose one above 1023 with --port",
                       conf->port, conf->host);
    return qr_fail(err, QR_EIO, "cannot listen on %s port %d: %s", conf->host, conf->port, strerror(why));
}

static enum qr_status listen_on(struct http_server *s, struct qr_error *err)
{
    const struct http_conf *conf = &s->conf;
    struct addrinfo want = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *found;
    char port[16];
    snprintf(port, sizeof port, "%d", conf->port);
    if (conf->port < 0 || conf->port > 65535)
        return qr_fail(err, QR_EINVAL, "port %d: expected 0 to 65535", conf->port);
    int rc = getaddrinfo(conf->host, port, &want, &found);
    if (rc != 0)
        return qr_fail(err, QR_EIO, "cannot listen on host %.100s: %s", conf->host, gai_strerror(rc));
    int yes = 1, why = 0;
    s->listen_fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s->listen_fd >= 0) setsockopt(s->listen_fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (s->listen_fd < 0 || bind(s->listen_fd, found->ai_addr, found->ai_addrlen) != 0 ||
        listen(s->listen_fd, SOMAXCONN) != 0)
        why = errno;
    freeaddrinfo(found);
    if (why) return bind_failed(conf, why, err);
    struct sockaddr_storage at;
    char bound[16] = "0";
    socklen_t n = sizeof at;
    getsockname(s->listen_fd, (struct sockaddr *)&at, &n);
    getnameinfo((struct sockaddr *)&at, n, NULL, 0, bound, sizeof bound, NI_NUMERICSERV);
    s->port = (int)strtol(bound, NULL, 10);
    return QR_OK;
}

static bool watch(struct http_server *s, int fd, enum watch_kind *kind)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = kind};
    return fd >= 0 && epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &ev) == 0;
}

// Debian gives a process 1,024 files unless it asks; every connection is one, and files of others are counted
// too.
static void raise_file_limit(const struct http_conf *conf)
{
    struct rlimit r;
    rlim_t want = (rlim_t)conf->n_conns_max + 512;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur >= want) return;
    r.rlim_cur = want < r.rlim_max ? want : r.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur < want)
        QR_WARN("http", "only %llu files may be open (ulimit -n): fewer than %d connections will be served",
                (unsigned long long)r.rlim_cur, conf->n_conns_max);
}

enum qr_status http_server_new(const struct http_conf *conf, struct http_server **out, struct qr_error *err)
{
    QR_ASSERT(conf->handler && conf->n_conns_max > 0 && conf->n_headers_max > 0 &&
              conf->header_bytes_max > 0);
    struct http_server *s = qr_calloc(QR_MEM_HTTP, 1, sizeof *s);
    if (!s) return qr_fail(err, QR_ENOMEM, "out of memory for the HTTP server");
    atomic_init(&s->refs, 1);
    pthread_mutex_init(&s->lock, NULL);
    s->conf = *conf;
    s->listen_fd = -1;
    s->watch_wake = WATCH_WAKE;
    s->watch_mhd = WATCH_MHD;
    s->host = qr_strdup(QR_MEM_HTTP, conf->host);
    s->conf.host = s->host;
    s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    raise_file_limit(conf);
    enum qr_status st =
        s->host ? listen_on(s, err) : qr_fail(err, QR_ENOMEM, "out of memory for the HTTP server");
    if (st != QR_OK) goto fail;
    st = qr_fail(err, QR_EIO, "cannot start the HTTP server: %s", strerror(errno));
    s->mhd = http_mhd_start(s);
    if (!s->mhd) goto fail;
    int mhd_fd = MHD_get_daemon_info(s->mhd, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    if (!watch(s, s->wake_fd, &s->watch_wake) || !watch(s, mhd_fd, &s->watch_mhd)) goto fail;
    if (pthread_create(&s->thread, NULL, io_main, s) != 0) goto fail;
    s->thread_started = true;
    if (err) *err = (struct qr_error){0};
    *out = s;
    return QR_OK;
fail:
    http_server_free(&s);
    return st;
}

void http_server_free(struct http_server **sp)
{
    struct http_server *s = *sp;
    if (!s) return;
    *sp = NULL;
    atomic_store(&s->stopping, true);
    if (s->thread_started) {
        wake(s);
        pthread_join(s->thread, NULL);
    } else if (s->mhd) {
        MHD_stop_daemon(s->mhd);
        s->listen_fd = -1; // closed by MHD, which was not told to give it back
    }
    if (s->listen_fd >= 0) close(s->listen_fd);
    s->listen_fd = -1;
    http_server_drop(s);
}

int http_server_port(const struct http_server *s)
{
    return s->port;
}

void http_server_stats(const struct http_server *s, struct http_stats *out)
{
    *out = (struct http_stats){
        .n_requests = atomic_load(&s->n_requests),
        .n_conns_now = atomic_load(&s->n_conns),
        .n_streams_now = atomic_load(&s->n_streams),
        .bytes_in = atomic_load(&s->bytes_in),
        .bytes_out = atomic_load(&s->bytes_out),
    };
}
