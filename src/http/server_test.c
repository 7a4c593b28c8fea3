#define _GNU_SOURCE
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/test.h"
#include "http/kit_internal.h"

#define EXPECT(k, text, status) kit_expect(k, text, sizeof(text) - 1, status)

static void expect_body(int fd, int status, const char *body)
{
    struct kit_reply r;
    kit_read(fd, false, &r);
    if (r.status != status || r.cut)
        fail_msg("status %d%s, not %d, for %s", r.status, r.cut ? " cut" : "", status, body);
    assert_string_equal(r.body, body);
    kit_reply_fini(&r);
}

QR_TEST(http_answers_methods_paths_and_bodies)
{
    struct kit k;
    kit_start(&k, NULL);
    int fd = kit_connect(&k);
    kit_puts(fd, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    expect_body(fd, 200, "GET /echo?\n");
    kit_puts(fd, "POST /a%20b/%C3%A9?x=1&q=a+b%26&q=2 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello");
    expect_body(fd, 200, "POST /a b/\xC3\xA9?a b&\nhello");
    kit_puts(fd, "PUT http://example.org/p?q HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                 "3\r\nabc\r\n2;ext=1\r\nde\r\n0\r\nTrailer: t\r\n\r\n");
    expect_body(fd, 200, "PUT /p?\nabcde");
    kit_puts(fd, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n");
    expect_body(fd, 200, "OPTIONS *?\n");
    kit_puts(fd, "PROPFIND / HTTP/1.1\r\nHost: x\r\n\r\n");
    expect_body(fd, 200, "PROPFIND /?\n");
    kit_puts(fd, "POST / HTTP/1.1\r\nHost: x\r\n\r\n"); // curl -X POST sends no length: an empty body
    expect_body(fd, 200, "POST /?\n");
    struct kit_reply r;
    kit_puts(fd, "HEAD /big?n=1000 HTTP/1.1\r\nHost: x\r\n\r\n");
    kit_read(fd, true, &r);
    assert_int_equal(r.status, 200);
    assert_string_equal(kit_header(&r, "Content-Length"), "1000");
    kit_reply_fini(&r);
    kit_puts(fd, "HEAD /events?n=3 HTTP/1.1\r\nHost: x\r\n\r\nGET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    kit_read(fd, true, &r);
    assert_int_equal(r.status, 200);
    kit_reply_fini(&r);
    expect_body(fd, 200, "GET /echo?\n");
    close(fd);
    kit_stop(&k);
}

QR_TEST(http_pipelined_requests_are_answered_in_order)
{
    struct kit k;
    struct qr_buf b = {0};
    char want[64];
    kit_start(&k, NULL);
    int fd = kit_connect(&k);
    for (int i = 0; i < 200; i++)
        qr_buf_printf(&b, "POST /echo?q=%d HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n%03d", i, i);
    kit_send(fd, b.data, b.len);
    for (int i = 0; i < 200; i++) {
        snprintf(want, sizeof want, "POST /echo?%d\n%03d", i, i);
        expect_body(fd, 200, want);
    }
    // Also when the first is answered long after the second came.
    kit_puts(fd, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\nGET /echo?q=2 HTTP/1.1\r\nHost: x\r\n\r\n");
    struct http_req *r = kit_take(&k);
    http_reply(r, 200, "text/plain", "first", 5);
    http_req_unref(&r);
    expect_body(fd, 200, "first");
    expect_body(fd, 200, "GET /echo?2\n");
    close(fd);
    qr_buf_fini(&b);
    kit_stop(&k);
}

QR_TEST(http_malformed_requests_get_json_errors)
{
    struct kit k;
    kit_start(&k, NULL);
    EXPECT(&k, "GET / HTTP/1.1\r\n\r\n", 400); // no Host
    EXPECT(&k, "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400);
    EXPECT(&k, "GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n", 400);
    EXPECT(&k, "GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400);
    EXPECT(&k, "GET /a?b=%0a HTTP/1.1\r\nHost: x\r\n\r\n", 400);
    EXPECT(&k, "GET relative HTTP/1.1\r\nHost: x\r\n\r\n", 400);
    EXPECT(&k, "GET / HTTP/1.1\r\nHost: x\r\nno colon here\r\n\r\n", 400);
    EXPECT(&k, "GET / HTTP/1.1\r\nHost: x\r\nbad name: 1\r\n\r\n", 400);
    EXPECT(&k, "GET / HTTP/1.1\r\nHost: x\r\nA: \x01\r\n\r\n", 400);
    EXPECT(&k, "GARBAGE\r\n\r\n", 400);
    EXPECT(&k, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400); // a TLS hello
    EXPECT(&k, "GET / HTTP/9.9\r\nHost: x\r\n\r\n", 505);
    EXPECT(&k, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400);
    EXPECT(&k, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1x\r\n\r\n1", 400);
    EXPECT(&k, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n12", 400);
    EXPECT(&k,
           "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
           400);
    EXPECT(&k, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501);
    EXPECT(&k, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n", 400);
    EXPECT(&k, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n", 400);
    EXPECT(&k, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n", 200);
    kit_stop(&k);
}

QR_TEST(http_limits_are_held)
{
    struct kit k;
    struct qr_buf b = {0};
    struct kit_reply r;
    char *zeros = calloc(1, 8 << 20);
    kit_start(&k, NULL);
    // A body above the limit is read and dropped; the connection stays usable. At the limit it is taken.
    int fd = kit_connect(&k);
    kit_puts(fd, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 8388608\r\n\r\n");
    kit_send(fd, zeros, 8 << 20);
    kit_read(fd, false, &r);
    assert_int_equal(r.status, 413);
    kit_reply_fini(&r);
    kit_puts(fd, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\n");
    kit_send(fd, zeros, 1 << 20);
    kit_read(fd, false, &r);
    assert_int_equal(r.status, 200);
    assert_int_equal(r.body_bytes, (1 << 20) + 12);
    kit_reply_fini(&r);
    kit_puts(fd, "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n100001\r\n");
    kit_send(fd, zeros, 0x100001);
    kit_puts(fd, "\r\n0\r\n\r\n");
    kit_read(fd, false, &r);
    assert_int_equal(r.status, 413);
    kit_reply_fini(&r);
    close(fd);
    EXPECT(&k, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n", 413);
    EXPECT(&k, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n", 413);
    EXPECT(&k, "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2000000\r\n\r\n", 413);
    // Headers: number, size of one, size of all, and the request line.
    for (int n = 99; n <= 10000; n = n == 99 ? 100 : n == 100 ? 10000 : 10001) {
        qr_buf_clear(&b);
        qr_buf_str(&b, "GET /echo HTTP/1.1\r\nHost: x\r\n");
        for (int i = 0; i < n; i++) qr_buf_printf(&b, "X-%d: %d\r\n", i, i);
        qr_buf_str(&b, "\r\n");
        kit_expect(&k, b.data, b.len, n == 99 ? 200 : 431);
    }
    memset(zeros, 'a', 2 << 20);
    for (int n = 1024; n <= 1 << 20; n *= 4) {
        qr_buf_clear(&b);
        qr_buf_printf(&b, "GET /echo HTTP/1.1\r\nHost: x\r\nX: %.*s\r\n\r\n", n, zeros);
        kit_expect(&k, b.data, b.len, n < 16384 ? 200 : 431);
        qr_buf_clear(&b);
        qr_buf_printf(&b, "GET /%.*s HTTP/1.1\r\nHost: x\r\n\r\n", n, zeros);
        kit_expect(&k, b.data, b.len, n < 16384 ? 200 : 431);
    }
    qr_buf_fini(&b);
    free(zeros);
    kit_stop(&k);
}

QR_TEST(http_expect_100_continue_works)
{
    struct kit k;
    char got[26] = "";
    kit_start(&k, NULL);
    int fd = kit_connect(&k);
    kit_puts(fd, "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    assert_int_equal(recv(fd, got, 25, MSG_WAITALL), 25);
    assert_string_equal(got, "HTTP/1.1 100 Continue\r\n\r\n");
    kit_puts(fd, "ok");
    expect_body(fd, 200, "POST /echo?\nok");
    close(fd);
    kit_stop(&k);
}

QR_TEST(http_keeps_connections_after_errors_and_by_version)
{
    struct kit k;
    struct kit_reply r;
    kit_start(&k, NULL);
    int fd = kit_connect(&k);
    for (int i = 0; i < 20;
         i++) { // a 4xx of the application or of framing with a clear end costs no connection
        kit_puts(fd, "GET /none HTTP/1.1\r\nHost: x\r\n\r\n");
        kit_read(fd, false, &r);
        assert_int_equal(r.status, 500);
        kit_reply_fini(&r);
        kit_puts(fd, "GET /a?b=%00 HTTP/1.1\r\nHost: x\r\n\r\n");
        kit_read(fd, false, &r);
        assert_int_equal(r.status, 400);
        kit_reply_fini(&r);
        kit_puts(fd, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
        expect_body(fd, 200, "GET /echo?\n");
    }
    kit_puts(fd, "GET /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    expect_body(fd, 200, "GET /echo?\n");
    assert_true(kit_at_end(fd));
    close(fd);
    fd = kit_connect(&k);
    kit_puts(fd, "GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    expect_body(fd, 200, "GET /echo?\n");
    kit_puts(fd, "GET /echo HTTP/1.0\r\n\r\n");
    expect_body(fd, 200, "GET /echo?\n");
    assert_true(kit_at_end(fd));
    close(fd);
    kit_stop(&k);
}

QR_TEST(http_reply_headers_cannot_be_injected)
{
    struct kit k;
    struct kit_reply r;
    kit_start(&k, NULL);
    int fd = kit_connect(&k);
    kit_puts(fd, "GET /header HTTP/1.1\r\nHost: x\r\n\r\n");
    kit_read(fd, false, &r);
    assert_int_equal(r.status, 200);
    assert_null(strstr(r.head, "Evil"));
    kit_reply_fini(&r);
    kit_puts(fd, "GET /header HTTP/1.1\r\nHost: x\r\nX-In:   caf\xC3\xA9 \t\r\n\r\n");
    kit_read(fd, false, &r);
    assert_string_equal(kit_header(&r, "X-Test"), "caf\xC3\xA9");
    kit_reply_fini(&r);
    close(fd);
    kit_stop(&k);
}

QR_TEST(http_slow_requests_get_408_and_idle_ones_are_closed)
{
    struct kit k;
    struct http_conf conf = kit_conf();
    struct kit_reply r;
    conf.request_timeout_s = conf.idle_timeout_s = 1;
    kit_start(&k, &conf);
    static const char *const begun[] = {"G", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: x\r\nX: y",
                                        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n123"};
    int fd[5], held = kit_connect(&k);
    kit_puts(held, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n"); // owed an answer: no limit
    for (int i = 0; i < 4; i++) {
        fd[i] = kit_connect(&k);
        kit_puts(fd[i], begun[i]);
    }
    fd[4] = kit_connect(&k); // says nothing
    for (int i = 0; i < 4; i++) {
        kit_read(fd[i], false, &r);
        if (r.status != 408) fail_msg("case %d: %d", i, r.status);
        assert_non_null(strstr(r.body, "\"code\":408"));
        kit_reply_fini(&r);
        assert_true(kit_at_end(fd[i]));
        close(fd[i]);
    }
    assert_true(kit_at_end(fd[4]));
    close(fd[4]);
    struct http_req *q = kit_take(&k);
    http_reply(q, 200, "text/plain", "late", 4);
    http_req_unref(&q);
    expect_body(held, 200, "late");
    assert_true(kit_at_end(held)); // kept alive, then idle too long
    close(held);
    kit_stop(&k);
}

// A first byte that comes between the server's look for it and MHD's read: epoll never tells of it. ioctl stands
// before the C library's: when `early` is EARLY_ARMED, the byte goes out right after a look that found nothing.
enum { EARLY_OFF = -2, EARLY_ARMED = -1 }; // else the client's socket
static _Atomic int early = EARLY_OFF;

int ioctl(int fd, unsigned long request, ...)
{
    va_list args;
    va_start(args, request);
    int *out = va_arg(args, int *);
    va_end(args);
    int st = (int)syscall(SYS_ioctl, fd, request, out), client;
    if (request != FIONREAD || early == EARLY_OFF || *out > 0) return st;
    while ((client = early) == EARLY_ARMED) sched_yield(); // until connect is back
    kit_puts(client, "G");
    early = EARLY_OFF;
    return st;
}

QR_TEST(http_a_first_byte_that_epoll_never_tells_of_begins_a_request)
{
    struct kit k;
    struct kit_reply r;
    struct http_conf conf = kit_conf();
    conf.request_timeout_s = 1, conf.idle_timeout_s = 600;
    kit_start(&k, &conf);
    early = EARLY_ARMED;
    int fd = kit_connect(&k);
    early = fd;
    kit_read(fd, false, &r);
    assert_int_equal(early, EARLY_OFF);
    assert_int_equal(r.status, 408);
    kit_reply_fini(&r);
    assert_true(kit_at_end(fd));
    close(fd);
    kit_stop(&k);
}

QR_TEST(http_more_connections_than_allowed_get_503)
{
    struct kit k;
    struct http_conf conf = kit_conf();
    struct kit_reply r;
    int fd[10];
    conf.n_conns_max = 4;
    kit_start(&k, &conf);
    for (int i = 0; i < 10; i++) {
        fd[i] = kit_connect(&k);
        kit_puts(fd[i], "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
        kit_read(fd[i], false, &r);
        assert_int_equal(r.status, i < 4 ? 200 : 503);
        kit_reply_fini(&r);
    }
    for (int i = 0; i < 10; i++) close(fd[i]);
    for (bool ok = false; !ok;) { // served again once the server has seen them leave
        int again = kit_connect(&k);
        kit_puts(again, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
        kit_read(again, false, &r);
        ok = r.status == 200;
        kit_reply_fini(&r);
        close(again);
    }
    kit_stop(&k);
}

// A handler that keeps the I/O thread until the test has arranged what it finds next.
static struct {
    pthread_mutex_t lock;
    pthread_cond_t change;
    bool inside, open;
    void (*inner)(void *arg, struct http_req *r);
} block = {.lock = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER};

static void block_io(void *arg, struct http_req *r)
{
    if (strcmp(http_req_path(r), "/block") == 0) {
        pthread_mutex_lock(&block.lock);
        block.inside = true;
        pthread_cond_broadcast(&block.change);
        while (!block.open) pthread_cond_wait(&block.change, &block.lock);
        pthread_mutex_unlock(&block.lock);
    }
    block.inner(arg, r);
}

static void set_block(bool open, bool wait_inside)
{
    pthread_mutex_lock(&block.lock);
    block.open = open;
    pthread_cond_broadcast(&block.change);
    while (wait_inside && !block.inside) pthread_cond_wait(&block.change, &block.lock);
    pthread_mutex_unlock(&block.lock);
}

// What follows a request in the same bytes is bad, and is looked at when its answer is out: in the very round in which
// another client comes that has sent nothing yet, or only a part.
QR_TEST(http_an_error_page_is_for_who_earned_it)
{
    static const char *const parts[] = {"", "GET /ec"};
    struct http_conf conf = kit_conf();
    block.inner = conf.handler;
    conf.handler = block_io;
    for (int i = 0; i < 2; i++) {
        struct kit k;
        struct kit_reply got;
        kit_start(&k, &conf);
        block.inside = false;
        int bad = kit_connect(&k);
        kit_puts(bad, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\nPOST / HTTP/1.1\r\nHost: x\r\nContent-Length: 18446744073709551616\r\n\r\n");
        struct http_req *held = kit_take(&k);
        int blocker = kit_connect(&k);
        kit_puts(blocker, "GET /block HTTP/1.1\r\nHost: x\r\n\r\n");
        set_block(false, true);
        int good = kit_connect(&k);
        kit_puts(good, parts[i]);
        http_reply(held, 200, NULL, "x", 1);
        http_req_unref(&held);
        set_block(true, false);
        kit_read(blocker, false, &got);
        assert_int_equal(got.status, 200);
        kit_reply_fini(&got);
        kit_read(bad, false, &got);
        assert_int_equal(got.status, 200);
        kit_reply_fini(&got);
        kit_puts(good, &"GET /echo HTTP/1.1\r\nHost: x\r\n\r\n"[strlen(parts[i])]);
        kit_read(good, false, &got);
        assert_int_equal(got.status, 200);
        kit_reply_fini(&got);
        close(bad), close(blocker), close(good);
        kit_stop(&k);
    }
}

QR_TEST(http_says_why_it_cannot_listen)
{
    struct kit k;
    kit_start(&k, NULL);
    struct http_conf conf = kit_conf();
    struct http_server *s = NULL;
    struct qr_error err;
    char port[16];
    conf.port = http_server_port(k.server);
    snprintf(port, sizeof port, "%d", conf.port);
    assert_int_equal(http_server_new(&conf, &s, &err), QR_EIO);
    assert_non_null(strstr(err.msg, port));
    assert_non_null(strstr(err.msg, "--port"));
    conf.port = 0;
    conf.host = "203.0.113.7";
    assert_int_equal(http_server_new(&conf, &s, &err), QR_EIO);
    assert_non_null(strstr(err.msg, "203.0.113.7"));
    conf.host = "not a host";
    assert_int_equal(http_server_new(&conf, &s, &err), QR_EIO);
    conf.host = "127.0.0.1";
    conf.port = 70000;
    assert_int_equal(http_server_new(&conf, &s, &err), QR_EINVAL);
    assert_null(s);
    kit_stop(&k);
}
