/* Answers in every cut, and servers that do not keep to the rules. */
#include "client/parse.h"

#include <string.h>

#include "base/test.h"

static void feed_in(struct client_parser *p, const char *s, size_t piece)
{
    for (size_t n = strlen(s), at = 0; at < n; at += piece)
        client_parser_feed(p, s + at, n - at < piece ? n - at : piece);
}

QR_TEST(client_parses_a_body_of_given_length_in_any_cut)
{
    static const char text[] = "HTTP/1.1 200 OK\r\ncontent-length: 11\r\nConnection: keep-alive\r\n\r\nhello\nworld";
    for (size_t piece = 1; piece < sizeof text; piece++) {
        struct client_parser p = {0};
        client_parser_begin(&p);
        feed_in(&p, text, piece);
        assert_int_equal(p.state, CLIENT_DONE);
        assert_int_equal(p.status, 200);
        assert_true(p.keep_alive);
        assert_string_equal(p.body.data, "hello\nworld");
        client_parser_fini(&p);
    }
}

QR_TEST(client_parses_chunks_trailers_and_continue)
{
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Made\r\nTransfer-Encoding: chunked\r\n\r\n"
                               "5;x=y\r\nhello\r\n1\r\n \r\nA\r\n0123456789\r\n0\r\nX-T: 1\r\n\r\n";
    for (size_t piece = 1; piece < sizeof text; piece++) {
        struct client_parser p = {0};
        client_parser_begin(&p);
        feed_in(&p, text, piece);
        assert_int_equal(p.state, CLIENT_DONE);
        assert_int_equal(p.status, 201);
        assert_string_equal(p.body.data, "hello 0123456789");
        client_parser_fini(&p);
    }
}

QR_TEST(client_hands_out_each_event_once_in_any_cut)
{
    static const char body[] = ": a comment\n\ndata: {\"a\":1}\n\nevent: x\r\nid: 3\r\ndata:no space\r\n\r\n"
                               "data: two\ndata: lines\n\ndata: \xc3\xa9\xf0\x9f\x98\x80\n\ndata: [DONE]\n\n";
    static const char *const want[] = {"{\"a\":1}", "no space", "two\nlines", "\xc3\xa9\xf0\x9f\x98\x80", "[DONE]"};
    char text[512];
    snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
                                "Transfer-Encoding: chunked\r\n\r\n%zx\r\n%s\r\n0\r\n\r\n", sizeof body - 1, body);
    for (size_t piece = 1; piece < strlen(text); piece++) {
        struct client_parser p = {0};
        client_parser_begin(&p);
        size_t n_events = 0, bytes;
        const char *data;
        for (size_t at = 0, n = strlen(text); at < n; at += piece) {
            client_parser_feed(&p, text + at, n - at < piece ? n - at : piece);
            while (client_parser_event(&p, &data, &bytes)) {
                assert_true(n_events < 5);
                assert_string_equal(data, want[n_events]);
                assert_int_equal(bytes, strlen(want[n_events]));
                n_events++;
            }
        }
        assert_int_equal(n_events, 5);
        assert_int_equal(p.state, CLIENT_DONE);
        client_parser_fini(&p);
    }
}

QR_TEST(client_keeps_long_streams_small)
{
    struct client_parser p = {0};
    char event[1000];
    size_t bytes, n_events = 0;
    const char *data;
    memset(event, 'x', sizeof event);
    memcpy(event, "data: ", 6);
    memcpy(event + 998, "\n\n", 2);
    client_parser_begin(&p);
    feed_in(&p, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", 100);
    for (int i = 0; i < 10000; i++) { // an event and a half at a time
        client_parser_feed(&p, event, i % 2 ? 500 : 1000);
        if (i % 2) client_parser_feed(&p, event + 500, 500);
        while (client_parser_event(&p, &data, &bytes)) n_events += bytes == 992;
    }
    assert_int_equal(n_events, 10000);
    assert_true(p.body.cap < 300000);
    assert_int_equal(p.state, CLIENT_CLOSE);
    client_parser_close(&p);
    assert_int_equal(p.state, CLIENT_DONE);
    assert_false(p.keep_alive);
    client_parser_fini(&p);
}

QR_TEST(client_names_what_is_wrong_with_an_answer)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"SSH-2.0-x\r\n", "does not begin with HTTP"},
        {"HTTP/1.1 abc\r\n", "status"},
        {"HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\n", "Content-Length"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabc", "bytes follow"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "hexadecimal"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n", "hexadecimal"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n", "longer than its size"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct client_parser p = {0};
        client_parser_begin(&p);
        feed_in(&p, bad[i].text, 7);
        assert_int_equal(p.state, CLIENT_BAD);
        assert_non_null(strstr(p.why, bad[i].why));
        client_parser_fini(&p);
    }
    struct client_parser p = {0};
    char junk[4096];
    memset(junk, 'a', sizeof junk);
    client_parser_begin(&p);
    feed_in(&p, "HTTP/1.1 200 OK\r\n", 100);
    for (int i = 0; i < 100 && p.state == CLIENT_HEAD; i++) client_parser_feed(&p, junk, sizeof junk);
    assert_int_equal(p.state, CLIENT_BAD);
    client_parser_begin(&p);
    feed_in(&p, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", 100);
    client_parser_close(&p);
    assert_int_equal(p.state, CLIENT_BAD);
    client_parser_fini(&p);
}
