#define _GNU_SOURCE
#include "http/kit_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/test.h"

uint64_t kit_now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static size_t error_body(void *arg, int status, const char *message, char *out, size_t cap)
{
    int n = snprintf(out, cap, "{\"error\":{\"message\":\"%s\",\"code\":%d}}", message, status);
    return (size_t)n;
}

static void hold(struct kit *k, struct http_req *r)
{
    pthread_mutex_lock(&k->lock);
    assert_true(k->n_held < KIT_HELD);
    http_req_ref(r);
    k->held[k->n_held++] = r;
    pthread_cond_broadcast(&k->change);
    pthread_mutex_unlock(&k->lock);
}

static size_t number(const struct http_req *r, const char *name)
{
    const char *v = http_req_query(r, name);
    return v ? strtoul(v, NULL, 10) : 0;
}

static void echo(struct http_req *r)
{
    struct qr_buf b = {0};
    size_t n;
    const char *body = http_req_body(r, &n), *q = http_req_query(r, "q");
    qr_buf_printf(&b, "%s %s?%s\n", http_req_method(r), http_req_path(r), q ? q : "");
    qr_buf_add(&b, body, n);
    http_reply(r, 200, "text/plain", b.data, b.len);
    qr_buf_fini(&b);
}

static void events(struct http_req *r, size_t n)
{
    char event[64];
    http_stream_begin(r, 200, "text/event-stream");
    for (size_t i = 0; i < n; i++) {
        int len = snprintf(event, sizeof event, "data: %zu\n\n", i);
        (void)!http_stream_write(r, event, (size_t)len);
    }
    http_stream_end(r);
}

static void handler(void *arg, struct http_req *r)
{
    struct kit *k = arg;
    const char *path = http_req_path(r);
    atomic_fetch_add(&k->n_handled, 1);
    if (strcmp(path, "/hold") == 0) {
        hold(k, r);
    } else if (strcmp(path, "/stream") == 0) {
        http_stream_begin(r, 200, "text/event-stream");
        hold(k, r);
    } else if (strcmp(path, "/events") == 0) {
        events(r, number(r, "n"));
    } else if (strcmp(path, "/big") == 0) {
        size_t n = number(r, "n");
        char *body = malloc(n);
        for (size_t i = 0; i < n; i++) body[i] = (char)('a' + i % 26);
        http_reply(r, 200, "text/plain", body, n);
        free(body);
    } else if (strcmp(path, "/header") == 0) {
        http_add_header(r, "X-Test",
                        http_req_header(r, "X-In") ? http_req_header(r, "X-In") : "a\r\nX-Evil: 1");
        http_add_header(r, "X-Te\nst", "1");
        http_reply(r, 200, "text/plain\r\nX-Evil: 1", "", 0);
    } else if (strcmp(path, "/none") != 0) {
        echo(r);
    }
}

static void gone(void *arg, struct http_req *r, void *user)
{
    struct kit *k = arg;
    assert_true(http_req_is_gone(r));
    pthread_mutex_lock(&k->lock);
    k->n_gone++;
    pthread_cond_broadcast(&k->change);
    pthread_mutex_unlock(&k->lock);
}

struct http_conf kit_conf(void)
{
    return (struct http_conf){.host = "127.0.0.1",
                              .body_bytes_max = 1 << 20,
                              .header_bytes_max = 16384,
                              .n_headers_max = 100,
                              .n_conns_max = 4096,
                              .idle_timeout_s = 60,
                              .request_timeout_s = 60,
                              .stream_bytes_max = 65536,
                              .handler = handler,
                              .gone = gone,
                              .error_body = error_body};
}

void kit_start(struct kit *k, const struct http_conf *conf)
{
    struct http_conf c = conf ? *conf : kit_conf();
    struct qr_error err = {0};
    memset(k, 0, sizeof *k);
    k->live_bytes = qr_mem_live_bytes(QR_MEM_HTTP);
    pthread_mutex_init(&k->lock, NULL);
    pthread_cond_init(&k->change, NULL);
    c.arg = k;
    if (http_server_new(&c, &k->server, &err) != QR_OK) fail_msg("%s", err.msg);
}

void kit_stop(struct kit *k)
{
    http_server_free(&k->server);
    while (k->n_taken < k->n_held) http_req_unref(&k->held[k->n_taken++]);
    pthread_mutex_destroy(&k->lock);
    pthread_cond_destroy(&k->change);
    assert_int_equal(qr_mem_live_bytes(QR_MEM_HTTP), k->live_bytes);
}

static struct timespec kit_deadline(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += KIT_MS / 1000;
    return t;
}

struct http_req *kit_take(struct kit *k)
{
    struct timespec t = kit_deadline();
    pthread_mutex_lock(&k->lock);
    while (k->n_taken == k->n_held)
        if (pthread_cond_timedwait(&k->change, &k->lock, &t) == ETIMEDOUT) fail_msg("no request came");
    struct http_req *r = k->held[k->n_taken++];
    pthread_mutex_unlock(&k->lock);
    return r;
}

void kit_wait_gone(struct kit *k, int n)
{
    struct timespec t = kit_deadline();
    pthread_mutex_lock(&k->lock);
    while (k->n_gone < n)
        if (pthread_cond_timedwait(&k->change, &k->lock, &t) == ETIMEDOUT)
            fail_msg("%d gone, not %d", k->n_gone, n);
    assert_int_equal(k->n_gone, n);
    pthread_mutex_unlock(&k->lock);
}

void kit_wait_conns(struct kit *k, uint64_t n)
{
    struct http_stats st;
    uint64_t until = kit_now_us() + KIT_MS * 1000;
    do {
        http_server_stats(k->server, &st);
        if (kit_now_us() > until)
            fail_msg("%llu connections, not %llu", (unsigned long long)st.n_conns_now, (unsigned long long)n);
        sched_yield();
    } while (st.n_conns_now != n);
}

int kit_connect(const struct kit *k)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)http_server_port(k->server))};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0) fail_msg("connect: %s", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

void kit_send(int fd, const void *data, size_t n)
{
    const char *p = data;
    while (n) {
        struct pollfd pfd = {.fd = fd, .events = POLLOUT};
        if (poll(&pfd, 1, KIT_MS) <= 0) fail_msg("the server takes no bytes");
        ssize_t put = send(fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put < 0 && errno == EAGAIN) continue;
        if (put < 0) return; // the server has closed: what it said before is for the reader to judge
        p += put;
        n -= (size_t)put;
    }
}

void kit_puts(int fd, const char *s)
{
    kit_send(fd, s, strlen(s));
}

// Reads up to n bytes; 0 at the end of the connection, also when it was reset.
static size_t some(int fd, char *to, size_t n)
{
    struct pollfd pfd = {.fd = fd, .events = POLLIN};
    if (poll(&pfd, 1, KIT_MS) <= 0) fail_msg("the server says nothing");
    ssize_t got = recv(fd, to, n, 0);
    return got > 0 ? (size_t)got : 0;
}

static bool line(int fd, struct qr_buf *b)
{
    for (char c; some(fd, &c, 1) == 1;) {
        qr_buf_char(b, c);
        if (c == '\n') return true;
    }
    return false;
}

static bool exactly(int fd, struct qr_buf *b, size_t n)
{
    char block[16384];
    while (n) {
        size_t got = some(fd, block, n < sizeof block ? n : sizeof block);
        if (!got) return false;
        qr_buf_add(b, block, got);
        n -= got;
    }
    return true;
}

static bool chunks(int fd, struct qr_buf *body)
{
    for (;;) {
        struct qr_buf size = {0}, rest = {0};
        bool ok = line(fd, &size);
        size_t n = ok ? strtoul(size.data, NULL, 16) : 0;
        ok = ok && exactly(fd, body, n) && line(fd, &rest);
        qr_buf_fini(&size);
        qr_buf_fini(&rest);
        if (!ok || n == 0) return ok;
    }
}

const char *kit_header(const struct kit_reply *r, const char *name)
{
    static char value[512];
    char want[128];
    snprintf(want, sizeof want, "\r\n%s:", name);
    const char *p = strcasestr(r->head, want);
    if (!p) return NULL;
    p += strlen(want);
    p += strspn(p, " ");
    snprintf(value, sizeof value, "%.*s", (int)strcspn(p, "\r"), p);
    return value;
}

void kit_read(int fd, bool head_only, struct kit_reply *out)
{
    struct qr_buf head = {0}, body = {0};
    memset(out, 0, sizeof *out);
    bool ok;
    do {
        qr_buf_clear(&head);
        while ((ok = line(fd, &head)) &&
               !(head.len >= 4 && memcmp(head.data + head.len - 4, "\r\n\r\n", 4) == 0)) {
        }
        out->status = ok ? (int)strtol(head.data + 9, NULL, 10) : 0;
    } while (ok && out->status >= 100 && out->status < 200);
    snprintf(out->head, sizeof out->head, "%s", head.data ? head.data : "");
    const char *length = kit_header(out, "Content-Length");
    size_t n = length ? strtoul(length, NULL, 10) : 0;
    const char *coding = kit_header(out, "Transfer-Encoding");
    out->chunked = coding && strcmp(coding, "chunked") == 0;
    qr_buf_add(&body, "", 0);
    if (ok && !head_only && out->chunked)
        ok = chunks(fd, &body);
    else if (ok && !head_only)
        ok = exactly(fd, &body, n);
    out->cut = !ok;
    out->body = body.data;
    out->body_bytes = body.len;
    qr_buf_fini(&head);
}

void kit_reply_fini(struct kit_reply *r)
{
    struct qr_buf b = {.data = r->body};
    qr_buf_fini(&b);
    r->body = NULL;
}

bool kit_at_end(int fd)
{
    char c;
    return some(fd, &c, 1) == 0;
}

void kit_expect(const struct kit *k, const char *text, size_t n, int status)
{
    int fd = kit_connect(k);
    struct kit_reply r;
    struct qr_json_doc *doc = NULL;
    kit_send(fd, text, n);
    kit_read(fd, strncmp(text, "HEAD ", 5) == 0, &r);
    if (r.status != status || r.cut)
        fail_msg("\"%.60s\": status %d%s, not %d", text, r.status, r.cut ? " cut" : "", status);
    if (status >= 400) {
        if (qr_json_parse(r.body, r.body_bytes, 8, &doc, NULL) != QR_OK)
            fail_msg("\"%.60s\" (%zu bytes): not JSON: %.200s", text, n, r.body);
        int64_t code = 0;
        assert_true(qr_json_int64(qr_json_get(qr_json_get(qr_json_root(doc), "error"), "code"), &code));
        assert_int_equal(code, status);
        assert_true(r.body_bytes <= 1024);
        assert_non_null(strstr(kit_header(&r, "Content-Type"), "application/json"));
        qr_json_free(&doc);
    }
    kit_reply_fini(&r);
    close(fd);
}
