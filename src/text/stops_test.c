#include <stdlib.h>
#include <string.h>

#include "base/test.h"
#include "text/text.h"

// The definition, byte by byte: the first byte at which some stop string ends, the longest of those that end
// there.
static int oracle(const struct qr_text_span *s, size_t n, bool include, const char *text, size_t bytes,
                  size_t *cut)
{
    for (size_t end = 1; end <= bytes; end++) {
        int best = -1;
        for (size_t i = 0; i < n; i++)
            if (s[i].bytes <= end && memcmp(text + end - s[i].bytes, s[i].data, s[i].bytes) == 0 &&
                (best < 0 || s[i].bytes > s[best].bytes))
                best = (int)i;
        if (best < 0) continue;
        *cut = end - (include ? 0 : s[best].bytes);
        return best;
    }
    *cut = bytes;
    return -1;
}

// Bytes at the end of text that begin some stop string: what may be held back, no more and no less.
static size_t oracle_held(const struct qr_text_span *s, size_t n, const char *text, size_t bytes)
{
    size_t most = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 1; k < s[i].bytes && k <= bytes; k++)
            if (k > most && memcmp(text + bytes - k, s[i].data, k) == 0) most = k;
    return most;
}

static void check(const struct qr_text_span *s, size_t n, bool include, const char *text, size_t bytes,
                  size_t step)
{
    struct qr_stops *stops;
    struct qr_buf out = {0};
    assert_int_equal(qr_stops_new(s, n, include, &stops), QR_OK);
    size_t cut, at = 0;
    int want = oracle(s, n, include, text, bytes, &cut), got = -1;
    while (at < bytes && got < 0) {
        size_t k = bytes - at < step ? bytes - at : step;
        got = qr_stops_push(stops, text + at, k, &out);
        at += k;
        if (got < 0) {
            assert_int_equal(qr_stops_held(stops), oracle_held(s, n, text, at));
            assert_int_equal(out.len + qr_stops_held(stops), at);
        }
    }
    if (got < 0) qr_stops_flush(stops, &out);
    assert_int_equal(qr_stops_held(stops), 0);
    if (want >= 0) { // equal strings may be told apart by nobody
        assert_true(got >= 0);
        assert_int_equal(s[got].bytes, s[want].bytes);
    } else {
        assert_int_equal(got, -1);
    }
    assert_int_equal(out.len, cut);
    if (cut) assert_memory_equal(out.data, text, cut);
    qr_buf_fini(&out);
    qr_stops_free(&stops);
}

#define SPAN(x)                                                                                              \
    {                                                                                                        \
        x, sizeof x - 1                                                                                      \
    }

QR_TEST(stops_known_cases)
{
    static const struct {
        struct qr_text_span stop[3];
        size_t n;
        const char *text;
    } cases[] = {
        {{SPAN("END")}, 1, "and EN then END now"},
        {{SPAN("aab")}, 1, "aaaaab"},
        {{SPAN("abcX"), SPAN("bc")}, 2, "zabc"},
        {{SPAN("ab"), SPAN("abc")}, 2, "xxabc"},
        {{SPAN("abc"), SPAN("c"), SPAN("bc")}, 3, "abc"},
        {{SPAN("abab"), SPAN("bac")}, 2, "ababac"},
        {{SPAN("\n\n"), SPAN("\nUser:")}, 2, "hi\nUse\nUser: x"},
        {{SPAN("never")}, 1, "nevenevneve"},
        {{SPAN("\xf0\x9f\x98\x80")}, 1, "a\xf0\x9f\x98\x81\xf0\x9f\x98\x80"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t step = 1; step < 8; step++)
            for (int include = 0; include < 2; include++)
                check(cases[i].stop, cases[i].n, include, cases[i].text, strlen(cases[i].text), step);
}

QR_TEST(stops_equal_the_definition_on_random_text)
{
    uint32_t seed = 12345;
    for (int round = 0; round < 20000; round++) {
        char text[64], words[QR_STOPS_MAX][9];
        struct qr_text_span s[QR_STOPS_MAX];
        seed = seed * 1664525 + 1013904223;
        size_t n = seed >> 30, bytes = (seed >> 20) % sizeof text, letters = 2 + (seed >> 10) % 2;
        for (size_t i = 0; i < bytes; i++) {
            seed = seed * 1664525 + 1013904223;
            text[i] = (char)('a' + (seed >> 16) % letters);
        }
        for (size_t i = 0; i <= n && i < QR_STOPS_MAX; i++) {
            seed = seed * 1664525 + 1013904223;
            size_t len = 1 + (seed >> 24) % 8;
            for (size_t k = 0; k < len; k++) {
                seed = seed * 1664525 + 1013904223;
                words[i][k] = (char)('a' + (seed >> 16) % letters);
            }
            s[i] = (struct qr_text_span){words[i], len};
        }
        check(s, n + 1 > QR_STOPS_MAX ? QR_STOPS_MAX : n + 1, seed & 1, text, bytes, 1 + seed % 7);
    }
}

QR_TEST(stops_limits)
{
    static char big[QR_STOP_BYTES_MAX + 1];
    memset(big, 'a', sizeof big);
    struct qr_text_span s[QR_STOPS_MAX + 1] = {SPAN("a"), SPAN("b"), SPAN("c"), SPAN("d"), SPAN("e")};
    struct qr_stops *stops = NULL;
    assert_int_equal(qr_stops_new(s, QR_STOPS_MAX + 1, false, &stops), QR_EINVAL);
    assert_int_equal(qr_stops_new(&(struct qr_text_span){"", 0}, 1, false, &stops), QR_EINVAL);
    assert_int_equal(qr_stops_new(&(struct qr_text_span){big, sizeof big}, 1, false, &stops), QR_EINVAL);
    assert_null(stops);
    assert_int_equal(qr_stops_new(NULL, 0, false, &stops), QR_OK);
    struct qr_buf out = {0};
    assert_int_equal(qr_stops_push(stops, "text", 4, &out), -1);
    assert_int_equal(out.len, 4);
    qr_stops_free(&stops);
    assert_int_equal(qr_stops_new(&(struct qr_text_span){big, QR_STOP_BYTES_MAX}, 1, false, &stops), QR_OK);
    assert_int_equal(qr_stops_push(stops, big, QR_STOP_BYTES_MAX, &out), 0);
    assert_int_equal(out.len, 4);
    qr_stops_free(&stops);
    qr_buf_fini(&out);
}
