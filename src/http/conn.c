#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "http/http_internal.h"

#define LINGER_MS 2000 // a client that was refused has this long to read why
#define LINGER_MAX 256 // more refused clients than this at once are cut off

// --- Lists ---

static void list_remove(struct conn_list *l, struct http_conn *c)
{
    if (c->prev)
        c->prev->next = c->next;
    else
        l->first = c->next;
    if (c->next)
        c->next->prev = c->prev;
    else
        l->last = c->prev;
    c->prev = c->next = NULL;
}

static void list_append(struct conn_list *l, struct http_conn *c)
{
    c->prev = l->last;
    c->next = NULL;
    if (l->last)
        l->last->next = c;
    else
        l->first = c;
    l->last = c;
}

static uint64_t limit_ms(const struct http_server *s, enum conn_phase phase)
{
    int seconds = phase == CONN_IDLE        ? s->conf.idle_timeout_s
                  : phase == CONN_RECEIVING ? s->conf.request_timeout_s
                                            : 0;
    return phase == CONN_REFUSED ? LINGER_MS : (uint64_t)(seconds > 0 ? seconds : 0) * 1000;
}

void http_conn_phase(struct http_server *s, struct http_conn *c, enum conn_phase phase)
{
    uint64_t limit = limit_ms(s, phase);
    list_remove(&s->conns[c->phase], c);
    c->deadline_ms = limit ? s->now_ms + limit : UINT64_MAX;
    c->phase = phase;
    list_append(&s->conns[phase], c);
}

// --- What the kernel tells ---

// Bytes that came of a connection since its start, read or not; `untold` from a kernel that does not say.
static uint64_t received(const struct http_conn *c, uint64_t untold)
{
    struct tcp_info info = {.tcpi_bytes_received = untold};
    socklen_t n = sizeof info;
    return getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &n) == 0 ? info.tcpi_bytes_received : untold;
}

static uint64_t unread(const struct http_conn *c)
{
    int n = 0;
    return ioctl(c->fd, FIONREAD, &n) == 0 && n > 0 ? (uint64_t)n : 0;
}

void http_conn_request_whole(struct http_conn *c)
{
    uint64_t n = unread(c), all = received(c, 0);
    c->bytes_done = all > n ? all - n : 0;
}

// Whether bytes of a next request came. MHD may read them before epoll tells of them, which then it never does: the
// connection counts as idle.
static bool has_begun(const struct http_conn *c)
{
    return received(c, 0) > c->bytes_done;
}

void http_conn_fresh(struct http_server *s, struct http_conn *c)
{
    if (c->fresh) return;
    c->fresh = s->n_fresh < FRESH_MAX;
    if (c->fresh) s->fresh[s->n_fresh] = c;
    s->n_fresh++;
}

void http_conn_stale(struct http_server *s)
{
    for (int i = 0; i < s->n_fresh && i < FRESH_MAX; i++) {
        struct http_conn *c = s->fresh[i];
        if (!c) continue;
        c->fresh = false;
        if (c->phase == CONN_IDLE && has_begun(c)) http_conn_phase(s, c, CONN_RECEIVING);
    }
    s->n_fresh = 0;
}

void http_conn_resume(struct http_conn *c)
{
    if (!c->suspended) return;
    c->suspended = false;
    MHD_resume_connection(c->mhd);
}

bool http_conn_nudge_all(struct http_server *s)
{
    bool any = s->nudge != NULL;
    while (s->nudge) {
        struct http_conn *c = s->nudge;
        s->nudge = c->next_nudge;
        MHD_suspend_connection(c->mhd);
        MHD_resume_connection(c->mhd);
    }
    return any;
}

void http_conn_event(struct http_server *s, struct http_conn *c, uint32_t events)
{
    if (events & EPOLLIN) {
        http_conn_fresh(s, c);
        if (c->phase == CONN_IDLE && !c->closing)
            http_conn_phase(s, c, CONN_RECEIVING);
        else if (c->phase == CONN_OWED)
            c->early = true;
    }
    if (!(events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))) return;
    c->peer_closed = true;
    if (c->req) {
        pthread_mutex_lock(&c->req->lock);
        bool whole = c->req->ended;
        pthread_mutex_unlock(&c->req->lock);
        if (whole) return; // the answer is complete: whoever closed only one side still gets it
        http_req_lost(c->req);
    }
    // Wakes MHD from whatever it waits for; it then finds the end, and closes. Left alone it may wait for
    // ever: when the last bytes and the end come together it reads the bytes, and no second edge tells it of
    // the end.
    shutdown(c->fd, SHUT_RDWR);
    http_conn_resume(c);
}

static bool is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24 == 127;
    if (a->sa_family != AF_INET6) return false;
    const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(six) || (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == 127);
}

void http_conn_started(struct http_server *s, struct MHD_Connection *m, void **context)
{
    struct http_conn *c = qr_calloc(QR_MEM_HTTP, 1, sizeof *c);
    *context = c;
    if (!c) return;
    c->kind = WATCH_CONN;
    c->mhd = m;
    c->fd = MHD_get_connection_info(m, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    const struct sockaddr *from = MHD_get_connection_info(m, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr;
    c->local = from && is_loopback(from);
    list_append(&s->conns[CONN_IDLE], c);
    // MHD reads what is already there before the watcher below can tell of it.
    http_conn_phase(s, c, unread(c) > 0 ? CONN_RECEIVING : CONN_IDLE);
    http_conn_fresh(s, c);
    // Edge-triggered: MHD reads the bytes, so a level would ring until it has. While MHD has the connection
    // suspended this is the only place where a client that leaves is noticed.
    struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.ptr = c};
    if (epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, c->fd, &ev) != 0) shutdown(c->fd, SHUT_RDWR);
    uint64_t n = atomic_fetch_add(&s->n_conns, 1) + 1;
    if (n > (uint64_t)s->conf.n_conns_max) http_conn_refuse(s, c, 503, http_error_message(503));
}

// --- Errors that MHD cannot send for us ---

const char *http_error_message(int status)
{
    switch (status) {
    case 400: return "The request does not follow HTTP.";
    case 408: return "The request took too long to arrive.";
    case 413: return "The request body is larger than this server accepts.";
    case 414:
    case 431: return "The request line and headers are larger, or more, than this server accepts.";
    case 501: return "The request uses a transfer coding that this server does not know.";
    case 503: return "The server has as many connections as it can serve. Try again later.";
    case 505: return "The request uses an HTTP version that this server does not speak.";
    default: return "The server failed to answer the request.";
    }
}

size_t http_error_json(const struct http_server *s, int status, const char *message, char *out, size_t cap)
{
    if (s->conf.error_body) {
        size_t n = s->conf.error_body(s->conf.arg, status, message, out, cap);
        return n < cap ? n : cap;
    }
    int n = snprintf(out, cap, "{\"error\":{\"message\":\"%s\",\"code\":%d}}", message, status);
    return n < (int)cap ? (size_t)n : cap;
}

void http_conn_refuse(struct http_server *s, struct http_conn *c, int status, const char *message)
{
    char body[1024], head[256];
    if (c->phase >= CONN_REFUSED && c->phase != CONN_OWED) return;
    c->linger = true;
    size_t n_body = http_error_json(s, status, message, body, sizeof body);
    int n_head = snprintf(head, sizeof head,
                          "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
                          "Connection: close\r\n\r\n",
                          status, MHD_get_reason_phrase_for((unsigned)status), n_body);
    struct iovec parts[2] = {{head, (size_t)n_head}, {body, n_body}};
    struct msghdr msg = {.msg_iov = parts, .msg_iovlen = 2};
    // Nothing of this connection is unsent, so an empty send buffer takes these few bytes whole.
    ssize_t sent = sendmsg(c->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) atomic_fetch_add(&s->bytes_out, (uint64_t)sent);
    shutdown(c->fd, SHUT_WR); // what MHD would send after this fails, and MHD closes
    http_conn_phase(s, c, CONN_REFUSED);
}

void http_conn_mhd_error(struct http_server *s, int status)
{
    struct http_conn *who[FRESH_MAX];
    int n = 0;
    for (int i = 0; i < s->n_fresh && i < FRESH_MAX; i++) {
        struct http_conn *c = s->fresh[i];
        // What MHD has not read yet it cannot complain about; of a request that fills its memory it leaves a
        // rest.
        bool full = status == 431 || status == 414;
        if (!c || c->peer_closed || c->phase > CONN_RECEIVING || received(c, 1) == 0) continue;
        if (!full && unread(c) > 0) continue;
        who[n++] = c;
    }
    if (n == 1 && s->n_fresh <= FRESH_MAX)
        http_conn_refuse(s, who[0], status == 414 ? 431 : status, http_error_message(status));
    else
        for (int k = 0; k < n; k++) who[k]->unnamed = true;
}

// --- The end of a connection ---

void http_linger_close(struct http_server *s, struct http_linger *l)
{
    if (l->prev)
        l->prev->next = l->next;
    else
        s->linger_first = l->next;
    if (l->next)
        l->next->prev = l->prev;
    else
        s->linger_last = l->prev;
    s->n_linger--;
    epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, l->fd, NULL);
    close(l->fd);
    qr_free(l);
}

void http_linger_event(struct http_server *s, struct http_linger *l)
{
    char waste[16384];
    ssize_t n = recv(l->fd, waste, sizeof waste, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) http_linger_close(s, l);
}

static void linger(struct http_server *s, int fd)
{
    if (s->n_linger >= LINGER_MAX || atomic_load(&s->stopping)) return;
    struct http_linger *l = qr_calloc(QR_MEM_HTTP, 1, sizeof *l);
    int own = l ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (own < 0) {
        qr_free(l);
        return;
    }
    *l = (struct http_linger){.kind = WATCH_LINGER, .fd = own, .deadline_ms = s->now_ms + LINGER_MS};
    l->prev = s->linger_last;
    if (s->linger_last)
        s->linger_last->next = l;
    else
        s->linger_first = l;
    s->linger_last = l;
    s->n_linger++;
    shutdown(own, SHUT_WR);
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = l};
    if (epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, own, &ev) != 0) http_linger_close(s, l);
}

void http_conn_closed(struct http_server *s, struct http_conn *c)
{
    if (!c) return;
    // MHD drops a request line that it cannot read without a word; the client deserves one.
    bool silent = c->phase == CONN_RECEIVING || (c->phase == CONN_IDLE && !c->answered);
    if (silent && !c->peer_closed && !c->closing && !c->unnamed && !atomic_load(&s->stopping))
        http_conn_refuse(s, c, 400, http_error_message(400));
    epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
    if (c->linger && !c->peer_closed) linger(s, c->fd);
    for (int i = 0; i < s->n_fresh && i < FRESH_MAX; i++)
        if (s->fresh[i] == c) s->fresh[i] = NULL;
    for (struct http_conn **p = &s->nudge; *p; p = &(*p)->next_nudge)
        if (*p == c) {
            *p = c->next_nudge;
            break;
        }
    list_remove(&s->conns[c->phase], c);
    atomic_fetch_sub(&s->n_conns, 1);
    qr_free(c);
}

// A connection whose time is up. Shutting it down lets MHD see its end and close it.
static void expire(struct http_server *s, struct http_conn *c)
{
    if (c->phase == CONN_RECEIVING || (c->phase == CONN_IDLE && has_begun(c))) {
        http_conn_refuse(s, c, 408, http_error_message(408));
        return;
    }
    http_conn_phase(s, c, CONN_SHUT);
    shutdown(c->fd, SHUT_RDWR);
}

int http_conn_expire(struct http_server *s)
{
    uint64_t next = UINT64_MAX;
    for (int phase = CONN_IDLE; phase <= CONN_REFUSED; phase++) {
        struct http_conn *c;
        while ((c = s->conns[phase].first) != NULL && c->deadline_ms <= s->now_ms) expire(s, c);
        if (c && c->deadline_ms < next) next = c->deadline_ms;
    }
    while (s->linger_first && s->linger_first->deadline_ms <= s->now_ms)
        http_linger_close(s, s->linger_first);
    if (s->linger_first && s->linger_first->deadline_ms < next) next = s->linger_first->deadline_ms;
    if (next == UINT64_MAX) return -1;
    uint64_t wait = next - s->now_ms;
    return wait > 60000 ? 60000 : (int)wait + 1;
}
