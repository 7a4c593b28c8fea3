#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/machine.h"
#include "base/test.h"
#include "http/kit_internal.h"

static int ask(const struct kit *k, const char *path)
{
    char text[256];
    int fd = kit_connect(k);
    snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path);
    kit_puts(fd, text);
    return fd;
}

static void write_all(struct http_req *r, const char *s)
{
    assert_int_equal(http_stream_write(r, s, strlen(s)), QR_OK);
}

QR_TEST(http_stream_arrives_in_order_and_the_connection_lives_on)
{
    struct kit k;
    struct kit_reply got;
    struct qr_buf want = {0};
    kit_start(&k, NULL);
    int fd = kit_connect(&k);
    for (int round = 0; round < 3; round++) {
        kit_puts(fd, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
        struct http_req *r = kit_take(&k);
        qr_buf_clear(&want);
        for (int i = 0; i < 2000; i++) {
            char event[64];
            snprintf(event, sizeof event, "data: {\"i\":%d}\n\n", i);
            qr_buf_str(&want, event);
            enum qr_status st = http_stream_write(r, event, strlen(event));
            assert_true(st == QR_OK || st == QR_AGAIN);
        }
        http_stream_end(r);
        http_req_unref(&r);
        kit_read(fd, false, &got);
        assert_int_equal(got.status, 200);
        assert_true(got.chunked && !got.cut);
        assert_string_equal(kit_header(&got, "Content-Type"), "text/event-stream");
        assert_string_equal(got.body, want.data);
        kit_reply_fini(&got);
    }
    // All of a stream within the handler, and HTTP/1.0, which knows no chunks: the end of the connection ends
    // it.
    kit_puts(fd, "GET /events?n=3 HTTP/1.0\r\n\r\n");
    kit_read(fd, true, &got);
    assert_int_equal(got.status, 200);
    char rest[64] = "";
    assert_int_equal(recv(fd, rest, sizeof rest, MSG_WAITALL), 27);
    assert_string_equal(rest, "data: 0\n\ndata: 1\n\ndata: 2\n\n");
    kit_reply_fini(&got);
    close(fd);
    qr_buf_fini(&want);
    kit_stop(&k);
}

QR_TEST(http_gone_is_reported_once_in_every_state)
{
    struct kit k;
    kit_start(&k, NULL);
    uint64_t worst_us = 0;
    for (int round = 0; round < 20; round++) {
        for (int how = 0; how < 4; how++) {
            int before = k.n_gone, fd = ask(&k, how == 0 ? "/hold" : "/stream");
            char c;
            struct http_req *r = kit_take(&k);
            if (how >= 2) write_all(r, "data: 1\n\n");
            if (how >= 2) assert_int_equal(recv(fd, &c, 1, 0), 1); // it is streaming, and then waits for more
            struct linger reset = {.l_onoff = 1, .l_linger = 0};
            if (how == 3) setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset); // closes by RST
            uint64_t from = kit_now_us();
            close(fd);
            kit_wait_gone(&k, before + 1);
            uint64_t us = kit_now_us() - from;
            if (us > worst_us) worst_us = us;
            assert_true(http_req_is_gone(r));
            if (how == 0) http_reply(r, 200, "text/plain", "x", 1); // too late, and harmless
            if (how == 1) http_stream_end(r);
            if (how >= 2) assert_int_equal(http_stream_write(r, "x", 1), QR_ECANCELED);
            http_req_unref(&r);
        }
    }
    printf("  slowest of 80 departures noticed after %llu us\n", (unsigned long long)worst_us);
    // Finished requests report nothing.
    for (int i = 0; i < 20; i++) {
        int before = k.n_gone, fd = ask(&k, "/stream");
        struct http_req *r = kit_take(&k);
        write_all(r, "data: 1\n\n");
        http_stream_end(r);
        http_req_unref(&r);
        close(fd);
        fd = ask(&k, "/hold");
        r = kit_take(&k);
        http_reply(r, 200, "text/plain", "x", 1);
        http_req_unref(&r);
        close(fd);
        assert_int_equal(k.n_gone, before);
    }
    kit_wait_conns(&k, 0);
    struct http_stats st;
    http_server_stats(k.server, &st);
    assert_int_equal(st.n_streams_now, 0);
    assert_int_equal(st.n_requests, 120);
    kit_stop(&k);
    assert_int_equal(k.n_gone, 80);
}

static int by_value(const void *a, const void *b)
{
    return *(const uint32_t *)a < *(const uint32_t *)b ? -1 : 1;
}

QR_TEST(http_stream_events_are_sent_at_once)
{
    enum { N = 500 };
    static uint32_t us[N];
    struct kit k;
    char block[256];
    kit_start(&k, NULL);
    int fd = ask(&k, "/stream");
    struct http_req *r = kit_take(&k);
    (void)!recv(fd, block, sizeof block, 0); // the head
    for (int i = 0; i < N; i++) {
        uint64_t from = kit_now_us();
        write_all(r, "data: 1\n\n");
        assert_true(recv(fd, block, sizeof block, 0) > 0);
        us[i] = (uint32_t)(kit_now_us() - from);
    }
    qsort(us, N, sizeof *us, by_value);
    printf("  from write to the client: median %u us, 99th of 100 %u us\n", us[N / 2], us[N * 99 / 100]);
    http_stream_end(r);
    http_req_unref(&r);
    close(fd);
    kit_stop(&k);
}

QR_TEST(http_a_slow_reader_is_told_and_delays_nobody)
{
    struct kit k;
    struct kit_reply got;
    char block[4096];
    kit_start(&k, NULL);
    memset(block, 'x', sizeof block);
    int slow = ask(&k, "/stream");
    struct http_req *r = kit_take(&k);
    size_t taken = 0;
    enum qr_status st = QR_OK;
    while (st == QR_OK) { // the kernel's buffers fill, then ours
        st = http_stream_write(r, block, sizeof block);
        taken += sizeof block;
        assert_true(taken < (64u << 20));
        for (uint64_t end = kit_now_us() + 20; kit_now_us() < end;) {
        }
    }
    assert_int_equal(st, QR_AGAIN);
    for (int i = 0; i < 50; i++) {
        int fd = ask(&k, "/echo");
        kit_read(fd, false, &got);
        assert_int_equal(got.status, 200);
        kit_reply_fini(&got);
        close(fd);
    }
    http_stream_end(r);
    http_req_unref(&r);
    kit_read(slow, false, &got); // nothing is lost: what said QR_AGAIN was taken
    assert_int_equal(got.body_bytes, taken);
    assert_false(got.cut);
    kit_reply_fini(&got);
    close(slow);
    // One that never reads, and leaves.
    int before = k.n_gone;
    slow = ask(&k, "/stream");
    r = kit_take(&k);
    do st = http_stream_write(r, block, sizeof block);
    while (st == QR_OK);
    close(slow);
    kit_wait_gone(&k, before + 1);
    http_req_unref(&r);
    kit_stop(&k);
}

QR_TEST(http_a_half_closed_client_still_gets_a_finished_answer)
{
    struct kit k;
    struct kit_reply got;
    kit_start(&k, NULL);
    for (int i = 0; i < 20; i++) {
        int fd = ask(&k, "/big?n=8000000"); // more than the kernel's buffers hold
        char first;
        assert_int_equal(recv(fd, &first, 1, MSG_PEEK), 1);
        shutdown(fd, SHUT_WR);
        kit_read(fd, false, &got);
        assert_int_equal(got.body_bytes, 8000000);
        kit_reply_fini(&got);
        assert_true(kit_at_end(fd));
        close(fd);
    }
    kit_wait_conns(&k, 0);
    assert_int_equal(k.n_gone, 0);
    kit_stop(&k);
}

static uint64_t cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

QR_TEST(http_waiting_costs_no_processor_time)
{
    static const char *const begun[] = {
        "",
        "GET /ec",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n12",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\n12",
        "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /hold HTTP/1.1\r\nHost: x\r\n\r\nGET /echo HTTP/1.1\r\nHo",
        "GET /stream HTTP/1.1\r\nHost: x\r\n\r\nGET /echo HTTP/1.1\r\nHo",
        "JUNK\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n",
        "GET /big?n=90000000 HTTP/1.1\r\nHost: x\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"};
    enum { N = sizeof begun / sizeof *begun };
    struct kit k;
    struct kit_reply got;
    int fd[N];
    kit_start(&k, NULL);
    for (int i = 0; i < N; i++) {
        fd[i] = kit_connect(&k);
        kit_puts(fd[i], begun[i]);
    }
    for (int i = 0; i < 4; i++) { // the streaming ones have sent something and wait for more
        struct http_req *r = kit_take(&k);
        if (strcmp(http_req_path(r), "/stream") == 0) write_all(r, "data: 1\n\n");
    }
    int fresh = ask(&k, "/echo");
    kit_read(fresh, false, &got);
    kit_reply_fini(&got);
    poll(NULL, 0, 50); // what was begun settles
    uint64_t from = cpu_us();
    poll(NULL, 0, 200);
    uint64_t used = cpu_us() - from;
    if (used > 50000) fail_msg("%llu us of processor time in 200 ms of waiting", (unsigned long long)used);
    for (int i = 0; i < N; i++) close(fd[i]);
    close(fresh);
    k.n_taken = 0;
    kit_wait_conns(&k, 0);
    kit_stop(&k);
}

QR_TEST(http_a_dropped_stream_is_cut_not_ended)
{
    struct kit k;
    struct kit_reply got;
    kit_start(&k, NULL);
    int fd = ask(&k, "/stream");
    struct http_req *r = kit_take(&k);
    write_all(r, "data: 1\n\n");
    http_req_unref(&r); // without http_stream_end
    kit_read(fd, false, &got);
    assert_int_equal(got.status, 200);
    assert_true(got.cut);
    assert_string_equal(got.body, "data: 1\n\n");
    kit_reply_fini(&got);
    close(fd);
    fd = ask(&k, "/hold");
    r = kit_take(&k);
    http_req_unref(&r); // without any answer
    kit_read(fd, false, &got);
    assert_int_equal(got.status, 500);
    kit_reply_fini(&got);
    close(fd);
    kit_wait_conns(&k, 0);
    kit_stop(&k);
}

QR_TEST(http_stop_sends_finished_answers_and_reports_the_rest)
{
    for (int round = 0; round < 10; round++) {
        struct kit k;
        struct kit_reply got;
        kit_start(&k, NULL);
        int held = ask(&k, "/hold");
        struct http_req *r0 = kit_take(&k);
        int streaming = ask(&k, "/stream");
        struct http_req *r1 = kit_take(&k);
        int done = ask(&k, "/stream");
        struct http_req *r2 = kit_take(&k);
        int idle = kit_connect(&k), half = kit_connect(&k);
        kit_puts(half, "GET / HT");
        write_all(r1, "data: 1\n\n");
        write_all(r2, "data: 2\n\n");
        http_stream_end(r2);
        http_server_free(&k.server);
        assert_int_equal(k.n_gone, 2);
        assert_true(http_req_is_gone(r0) && http_req_is_gone(r1));
        assert_int_equal(http_stream_write(r1, "x", 1), QR_ECANCELED);
        http_reply(r0, 200, NULL, "x", 1);
        assert_string_equal(http_req_path(r0), "/hold"); // a reference outlives the server
        kit_read(done, false, &got);
        assert_string_equal(got.body, "data: 2\n\n");
        assert_false(got.cut);
        kit_reply_fini(&got);
        assert_true(kit_at_end(held) && kit_at_end(idle) && kit_at_end(half));
        http_req_unref(&r0);
        http_req_unref(&r1);
        http_req_unref(&r2);
        kit_stop(&k);
        close(held), close(streaming), close(done), close(idle), close(half);
    }
}

// Streams that several threads write while their clients come, read and leave at random: for the race
// detectors.
struct writers {
    struct kit *k;
    atomic_bool stop;
};

static void *write_some(void *arg)
{
    struct writers *w = arg;
    struct http_req *r[8] = {0};
    unsigned turn = 0;
    while (!atomic_load(&w->stop)) {
        struct http_req **slot = &r[turn++ % 8];
        if (*slot) {
            enum qr_status st = QR_OK;
            for (int i = 0; i < 5 && st != QR_ECANCELED; i++) st = http_stream_write(*slot, "data: x\n\n", 9);
            if (st == QR_ECANCELED || turn % 3 == 0) {
                if (turn % 7) http_stream_end(*slot);
                http_req_unref(slot);
            }
        }
        pthread_mutex_lock(&w->k->lock);
        if (!*slot && w->k->n_taken < w->k->n_held) *slot = w->k->held[w->k->n_taken++];
        pthread_mutex_unlock(&w->k->lock);
    }
    for (int i = 0; i < 8; i++) http_req_unref(&r[i]);
    return NULL;
}

QR_TEST(http_streams_survive_random_departures)
{
    struct kit k;
    struct writers w = {.k = &k};
    pthread_t threads[2];
    int fd[16] = {0};
    char block[512];
    kit_start(&k, NULL);
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, write_some, &w), 0);
    srand(7);
    for (int i = 0; i < 3000 && atomic_load(&k.n_handled) < KIT_HELD - 32; i++) {
        int *f = &fd[rand() % 16];
        if (!*f)
            *f = ask(&k, "/stream");
        else if (rand() % 3 == 0)
            close(*f), *f = 0;
        else
            (void)!recv(*f, block, sizeof block, MSG_DONTWAIT);
    }
    for (int i = 0; i < 16; i++)
        if (fd[i]) close(fd[i]);
    atomic_store(&w.stop, true);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    int alive = ask(&k, "/echo");
    struct kit_reply got;
    kit_read(alive, false, &got);
    assert_int_equal(got.status, 200);
    kit_reply_fini(&got);
    close(alive);
    kit_wait_conns(&k, 0);
    kit_stop(&k);
}

#define STREAMS 2000
#define EVENTS 20

static void *write_events(void *arg)
{
    struct kit *k = arg;
    char event[64];
    for (int e = 0; e < EVENTS; e++)
        for (int i = 0; i < STREAMS; i++) {
            int n = snprintf(event, sizeof event, "data: {\"i\":%d}\n\n", e);
            if (http_stream_write(k->held[i], event, (size_t)n) != QR_OK) return arg;
            if (e == EVENTS - 1) http_stream_end(k->held[i]);
        }
    return NULL;
}

// How far the bytes so far match the end of an event and the end of the chunks.
struct tail {
    int fd, n_events, event_at, last_at;
    bool ended;
};

static int step(const char *text, int at, char c)
{
    return c == text[at] ? at + 1 : c == text[0];
}

static void read_events(struct tail *t)
{
    static const char event[] = "}\n\n", last[] = "\n0\r\n\r\n";
    char block[4096];
    ssize_t n = recv(t->fd, block, sizeof block, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return;
    assert_true(n > 0);
    for (ssize_t i = 0; i < n; i++) {
        t->event_at = step(event, t->event_at, block[i]);
        t->last_at = step(last, t->last_at, block[i]);
        if (t->event_at == 3) t->n_events++, t->event_at = 0;
        if (t->last_at == 6) t->ended = true, t->last_at = 0;
    }
}

QR_TEST(http_2000_streams_on_one_thread)
{
    struct rlimit lim;
    getrlimit(RLIMIT_NOFILE, &lim);
    if (lim.rlim_max < 2 * STREAMS + 200) QR_SKIP("fewer than 4,200 open files allowed");
    lim.rlim_cur = 2 * STREAMS + 200 > lim.rlim_cur ? 2 * STREAMS + 200 : lim.rlim_cur;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &lim), 0);
    struct kit k;
    struct tail *t = calloc(STREAMS, sizeof *t);
    kit_start(&k, NULL);
    int ep = epoll_create1(0), n_ended = 0;
    uint64_t rss = qr_machine_rss_bytes(), t0 = kit_now_us();
    for (int i = 0; i < STREAMS; i++) {
        t[i].fd = ask(&k, "/stream");
        struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &t[i]};
        assert_int_equal(epoll_ctl(ep, EPOLL_CTL_ADD, t[i].fd, &ev), 0);
    }
    for (int i = 0; i < STREAMS; i++) kit_take(&k);
    uint64_t t1 = kit_now_us(), grown = qr_machine_rss_bytes() - rss;
    pthread_t writer;
    assert_int_equal(pthread_create(&writer, NULL, write_events, &k), 0);
    while (n_ended < STREAMS) {
        struct epoll_event ev[256];
        int n = epoll_wait(ep, ev, 256, KIT_MS);
        assert_true(n > 0);
        for (int i = 0; i < n; i++) {
            struct tail *x = ev[i].data.ptr;
            bool was = x->ended;
            read_events(x);
            n_ended += x->ended && !was;
        }
    }
    uint64_t t2 = kit_now_us();
    void *bad;
    pthread_join(writer, &bad);
    assert_null(bad);
    for (int i = 0; i < STREAMS; i++) {
        assert_int_equal(t[i].n_events, EVENTS);
        close(t[i].fd);
    }
    kit_wait_conns(&k, 0);
    struct http_stats st;
    http_server_stats(k.server, &st);
    printf("  %d streams: opened in %.2f s (%.1f kB resident each), %d events in %.2f s = %.0f events/s\n",
           STREAMS, (double)(t1 - t0) / 1e6, (double)grown / STREAMS / 1e3, STREAMS * EVENTS,
           (double)(t2 - t1) / 1e6, STREAMS * EVENTS / ((double)(t2 - t1) / 1e6));
    close(ep);
    k.n_taken = 0; // kit_stop drops them
    kit_stop(&k);
    free(t);
}
