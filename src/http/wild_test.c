#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/test.h"
#include "http/kit_internal.h"

/* Raw bytes that no good client sends. What is asked of the server: it lives, it serves the next client,
 * every reply it gives is a whole HTTP reply, and nothing is left behind. */

static const char *const seeds[] = {
    "GET /echo?q=1 HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n",
    "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\nContent-Type: "
    "application/json\r\n\r\n{\"a\":[1,2]}",
    "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
    "chunked\r\n\r\n4\r\nabcd\r\nA;x=y\r\n0123456789\r\n0\r\nT: u\r\n\r\n",
    "HEAD /big?n=10 HTTP/1.1\r\nHost: x\r\n\r\nOPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
    "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
    "GET /events?n=4 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "GET /events?n=5 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "GET /none HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n\r\nGET /echo HTTP/1.1\r\nHost: x\r\n\r\n",
};

static const char *const words[] = {
    "\r\n",
    "\n",
    "\r\n\r\n",
    "\0",
    ":",
    " ",
    "%00",
    "%",
    "HTTP/1.1",
    "HTTP/0.9",
    "Content-Length: 18446744073709551616\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: identity\r\n",
    "Content-Length: 0\r\n",
    "Host: y\r\n",
    "\xFF\xFE",
    "ffffffffffffffff\r\n",
    "-1",
    "Connection: close\r\n",
    "Expect: 100-continue\r\n",
    "Connection: upgrade\r\nUpgrade: h2c\r\n",
    "Cookie: a=\"b; c\r\n",
    "?",
    "&=&",
    "\t",
    "0\r\n\r\n",
};

static uint64_t roll(uint64_t seed, uint64_t *i, uint64_t n)
{
    return qr_rand_u64(seed, 11, (*i)++) % n;
}

static void mutate(uint64_t seed, struct qr_buf *b)
{
    uint64_t i = 0, n = 1 + roll(seed, &i, 5);
    qr_buf_str(b, seeds[roll(seed, &i, sizeof seeds / sizeof *seeds)]);
    while (n-- && b->len) {
        size_t at = roll(seed, &i, b->len);
        const char *w = words[roll(seed, &i, sizeof words / sizeof *words)];
        size_t cut = roll(seed, &i, 6), w_bytes = *w ? strlen(w) : 1;
        struct qr_buf out = {0};
        switch (roll(seed, &i, 4)) {
        case 0: b->data[at] = (char)roll(seed, &i, 256); continue;
        case 1: b->len = at; continue;
        case 2: w_bytes = 0; break; // only cuts
        default: break;
        }
        if (cut > b->len - at) cut = b->len - at;
        qr_buf_add(&out, b->data, at);
        qr_buf_add(&out, w, w_bytes);
        qr_buf_add(&out, b->data + at + cut, b->len - at - cut);
        qr_buf_fini(b);
        *b = out;
    }
}

// Is what came a sequence of replies, the last perhaps unfinished? HTML and JSON bodies are opaque here.
static void check_replies(const struct qr_buf *got, uint64_t seed)
{
    if (got->len < 12) return;
    int status = memcmp(got->data, "HTTP/1.", 7) == 0 ? (int)strtol(got->data + 9, NULL, 10) : 0;
    if (status < 100 || status > 599) fail_msg("seed %llu: \"%.80s\"", (unsigned long long)seed, got->data);
}

QR_TEST(http_lives_through_wild_bytes)
{
    struct kit k;
    kit_start(&k, NULL);
    for (uint64_t seed = 0; seed < 4000; seed++) {
        struct qr_buf b = {0}, got = {0};
        struct kit_reply r;
        char block[4096];
        mutate(seed, &b);
        int fd = kit_connect(&k);
        size_t first = seed % 3 && b.len ? qr_rand_u64(seed, 12, 0) % b.len : 0;
        if (first) kit_send(fd, b.data, first);
        if (b.len > first) kit_send(fd, b.data + first, b.len - first);
        if (seed % 4 == 0) { // another client's reply comes after this one's bytes were read
            int other = kit_connect(&k);
            kit_puts(other, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
            kit_read(other, false, &r);
            if (r.status != 200) fail_msg("seed %llu: %d", (unsigned long long)seed, r.status);
            kit_reply_fini(&r);
            close(other);
            for (ssize_t n; (n = recv(fd, block, sizeof block, MSG_DONTWAIT)) > 0;)
                qr_buf_add(&got, block, (size_t)n);
            check_replies(&got, seed);
        }
        close(fd);
        qr_buf_fini(&b);
        qr_buf_fini(&got);
    }
    kit_wait_conns(&k, 0);
    kit_stop(&k);
}

QR_TEST(http_requests_may_come_in_any_two_pieces)
{
    static const char text[] = "POST /echo?q=%41 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                               "4\r\nabcd\r\nA;x=y\r\n0123456789\r\n0\r\nT: u\r\n\r\n"
                               "POST /echo?q=2 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nxyz";
    struct kit k;
    struct kit_reply r;
    kit_start(&k, NULL);
    int fd = kit_connect(&k);
    for (size_t cut = 1; cut < sizeof text - 1; cut++) {
        kit_send(fd, text, cut);
        int other = kit_connect(&k); // its reply shows that the first piece was read
        kit_puts(other, "GET /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        kit_read(other, false, &r);
        kit_reply_fini(&r);
        close(other);
        kit_send(fd, text + cut, sizeof text - 1 - cut);
        kit_read(fd, false, &r);
        if (strcmp(r.body, "POST /echo?A\nabcd0123456789")) fail_msg("cut %zu: %d %s", cut, r.status, r.body);
        kit_reply_fini(&r);
        kit_read(fd, false, &r);
        if (strcmp(r.body, "POST /echo?2\nxyz")) fail_msg("cut %zu: %d %s", cut, r.status, r.body);
        kit_reply_fini(&r);
    }
    close(fd);
    kit_stop(&k);
}

QR_TEST(http_refuses_when_memory_fails_and_goes_on)
{
    struct kit k;
    struct kit_reply r;
    kit_start(&k, NULL);
    for (uint64_t n = 1; n < 40; n++) {
        int fd = kit_connect(&k);
        qr_mem_fail_at(n, 0);
        kit_puts(fd, "POST /events?n=3 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc");
        char c;
        (void)!recv(fd, &c, 1, 0); // a reply or an end: not silence
        qr_mem_fail_at(0, 0);
        close(fd);
        fd = kit_connect(&k);
        kit_puts(fd, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
        kit_read(fd, false, &r);
        assert_int_equal(r.status, 200);
        kit_reply_fini(&r);
        close(fd);
    }
    kit_wait_conns(&k, 0);
    kit_stop(&k);
}
