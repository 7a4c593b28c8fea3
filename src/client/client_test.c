/* The client against a server of a few lines that plays scripts. */
#include "client/client.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/test.h"

#define OK "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
#define LAST "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
#define STREAM                                                                                                   \
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"                    \
    "9\r\ndata: a\n\n\r\n9\r\ndata: b\n\n\r\n0\r\n\r\n"

struct server {
    int fd, port;
    const char *const *script; // answers; "" hangs up without one, NULL ends
    int n_conns, n_requests;
    pthread_t thread;
};

static bool read_request(int fd)
{
    char b[4096];
    size_t n = 0;
    while (n < sizeof b - 1) {
        ssize_t r = recv(fd, b + n, sizeof b - 1 - n, 0);
        if (r <= 0) return false;
        n += (size_t)r;
        b[n] = 0;
        char *end = strstr(b, "\r\n\r\n"), *length = strstr(b, "Content-Length: ");
        if (end && n >= (size_t)(end + 4 - b) + (length ? strtoul(length + 16, NULL, 10) : 0)) return true;
    }
    return false;
}

static void *play(void *arg)
{
    struct server *s = arg;
    int i = 0;
    while (s->script[i]) {
        int fd = accept(s->fd, NULL, NULL);
        s->n_conns++;
        while (s->script[i] && read_request(fd)) {
            const char *answer = s->script[i++];
            s->n_requests++;
            send(fd, answer, strlen(answer), MSG_NOSIGNAL);
            if (!*answer || answer == (const char *)LAST) break;
        }
        close(fd);
    }
    close(s->fd);
    return NULL;
}

static void open_server(struct server *s, const char *const *script)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    *s = (struct server){.script = script, .fd = socket(AF_INET, SOCK_STREAM, 0)};
    assert_int_equal(bind(s->fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(s->fd, 8), 0);
    assert_int_equal(getsockname(s->fd, (struct sockaddr *)&a, &n), 0);
    s->port = ntohs(a.sin_port);
    assert_int_equal(pthread_create(&s->thread, NULL, play, s), 0);
}

static struct qr_client *open_client(int port, int n_conns)
{
    struct qr_client *c = NULL;
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%d/", port);
    struct qr_client_conf conf = {.url = url, .n_conns_max = n_conns, .timeout_ms = 20000};
    assert_int_equal(qr_client_new(&conf, &c, NULL), QR_OK);
    return c;
}

QR_TEST(client_uses_a_connection_again_and_survives_its_end)
{
    static const char *const script[] = {OK, OK, LAST, OK, "", OK, NULL};
    struct server s;
    struct qr_buf b = {0};
    struct qr_error err = {0};
    open_server(&s, script);
    struct qr_client *c = open_client(s.port, 1);
    for (int i = 0; i < 4; i++) {
        qr_buf_clear(&b);
        assert_int_equal(qr_client_call(c, "POST", "/x", "{}", 2, &b, &err), 200);
        assert_string_equal(b.data, "ok");
    }
    // The fifth is hung up on a connection that had been used: it is asked again on a new one.
    assert_int_equal(qr_client_call(c, "GET", "/x", NULL, 0, NULL, &err), 200);
    qr_client_free(&c);
    pthread_join(s.thread, NULL);
    assert_int_equal(s.n_conns, 3);
    assert_int_equal(s.n_requests, 6);
    qr_buf_fini(&b);
}

QR_TEST(client_streams_events_then_says_done)
{
    static const char *const script[] = {STREAM, NULL};
    struct server s;
    struct qr_client_event e;
    int user;
    open_server(&s, script);
    struct qr_client *c = open_client(s.port, 4);
    assert_int_equal(qr_client_start(c, "POST", "/v1/completions", "{}", 2, &user, NULL), QR_OK);
    assert_int_equal(qr_client_n_active(c), 1);
    for (int i = 0; i < 2; i++) {
        assert_true(qr_client_next(c, &e, -1));
        assert_int_equal(e.kind, QR_CLIENT_EVENT);
        assert_string_equal(e.text, i ? "b" : "a");
        assert_ptr_equal(e.user, &user);
        assert_int_equal(e.status, 200);
    }
    assert_true(qr_client_next(c, &e, -1));
    assert_int_equal(e.kind, QR_CLIENT_DONE);
    assert_false(qr_client_next(c, &e, -1)); // nothing is under way
    qr_client_free(&c);
    pthread_join(s.thread, NULL);
}

QR_TEST(client_says_why_no_answer_came)
{
    static const char *const script[] = {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab", NULL};
    struct server s;
    struct qr_error err = {0};
    open_server(&s, script);
    struct qr_client *c = open_client(s.port, 1);
    assert_int_equal(qr_client_call(c, "GET", "/", NULL, 0, NULL, &err), 0);
    assert_non_null(strstr(err.msg, "ended before"));
    pthread_join(s.thread, NULL); // now nobody listens there
    assert_int_equal(qr_client_call(c, "GET", "/", NULL, 0, NULL, &err), 0);
    assert_non_null(strstr(err.msg, "refused"));
    qr_client_free(&c);
}

QR_TEST(client_refuses_urls_by_what_is_wrong)
{
    static const char *const bad[] = {"", "http://", "http://:80", "http://h:", "http://h:x", "http://h:123456",
                                      "http://[::1", "https://h"};
    struct qr_client *c = NULL;
    struct qr_error err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct qr_client_conf conf = {.url = bad[i], .n_conns_max = 1};
        assert_true(qr_client_new(&conf, &c, &err) < 0);
        assert_null(c);
        assert_string_equal(err.param, "url");
    }
    struct qr_client_conf conf = {.url = "[::1]:9/v/", .n_conns_max = 1};
    assert_int_equal(qr_client_new(&conf, &c, &err), QR_OK);
    qr_client_free(&c);
}
