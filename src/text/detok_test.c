#include <stdlib.h>
#include <string.h>

#include "base/test.h"
#include "text/text.h"

// A vocabulary of the 256 bytes alone: id b is byte b, so that every split of a text is a sequence of ids.
static struct qr_tokenizer *bytes_only(bool space_prefix)
{
    static char names[258][8];
    static struct qr_text_span tokens[258];
    static int32_t types[258];
    static float scores[258];
    for (int i = 0; i < 258; i++) {
        snprintf(names[i], sizeof names[i], i < 256 ? "<0x%02X>" : i == 256 ? "<s>" : "\xe2\x96\x81", i);
        tokens[i] = (struct qr_text_span){names[i], strlen(names[i])};
        types[i] = i < 256 ? 6 : i == 256 ? 3 : 1;
    }
    struct qr_vocab v = {.model = "llama",
                         .n_tokens = 258,
                         .tokens = tokens,
                         .types = types,
                         .scores = scores,
                         .bos = 256,
                         .eos = -1,
                         .unk = -1,
                         .add_space_prefix = space_prefix};
    struct qr_tokenizer *t;
    struct qr_error err;
    if (qr_tokenizer_from_vocab(&v, &t, &err)) fail_msg("%s", err.msg);
    return t;
}

/* Independent decoder: Unicode's table 3-7 as (lead range, second range), maximal subparts become U+FFFD. */
static void oracle(const uint8_t *s, size_t n, struct qr_buf *out)
{
    static const uint8_t rows[][5] = {{0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
                                      {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3},
                                      {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4},
                                      {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};
    for (size_t i = 0; i < n;) {
        size_t got = 1, need = s[i] < 0x80 ? 1 : 0;
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            if (s[i] < rows[r][0] || s[i] > rows[r][1]) continue;
            need = rows[r][4];
            if (i + 1 < n && s[i + 1] >= rows[r][2] && s[i + 1] <= rows[r][3]) got = 2;
            while (got >= 2 && got < need && i + got < n && s[i + got] >> 6 == 2) got++;
        }
        if (got == need)
            qr_buf_add(out, s + i, need);
        else
            qr_buf_str(out, "\xef\xbf\xbd");
        i += got;
    }
}

static bool is_utf8(const char *p, size_t n)
{
    struct qr_buf again = {0};
    oracle((const uint8_t *)p, n, &again);
    bool same = again.len == n && (n == 0 || memcmp(again.data, p, n) == 0);
    qr_buf_fini(&again);
    return same;
}

// Pushes ids one by one: what is out is always whole characters, and in the end equals the oracle's text.
static void check(const struct qr_tokenizer *t, const uint8_t *s, size_t n)
{
    struct qr_buf want = {0}, out = {0};
    struct qr_detok d;
    oracle(s, n, &want);
    qr_detok_init(&d, t, false, true);
    for (size_t i = 0; i < n; i++) {
        qr_detok_push(&d, s[i], &out);
        assert_true(is_utf8(out.data, out.len));
        assert_true(d.n_held < 4);
        if (s[i] < 0x80) assert_int_equal(d.n_held, 0);
    }
    qr_detok_flush(&d, &out);
    qr_detok_flush(&d, &out);
    assert_int_equal(out.len, want.len);
    if (want.len) assert_memory_equal(out.data, want.data, want.len);
    qr_buf_fini(&out);
    qr_buf_fini(&want);
}

QR_TEST(detok_never_emits_half_a_character)
{
    struct qr_tokenizer *t = bytes_only(false);
    static const char *const texts[] = {
        "plain",
        "\xd9\x85\xd8\xb1\xd8\xad\xd8\xa8\xd8\xa7",
        "\xe4\xb8\xad\xe6\x96\x87",
        "\xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9",
        "\x80\x80",
        "\xe4\xb8",
        "\xe4\xb8z",
        "\xf0\x9f\x98",
        "\xf0\x9f\x98\xf0\x9f\x98\x80",
        "\xc0\xaf",
        "\xed\xa0\x80",
        "\xf4\x90\x80\x80",
        "\xf5\x80",
        "\xe0\x80\x80",
        "\xef\xbf\xbd",
        "\xc3\xc3\xa9",
        "\xff\xfe\xfd",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        check(t, (const uint8_t *)texts[i], strlen(texts[i]));
    qr_tokenizer_free(&t);
}

QR_TEST(detok_equals_the_whole_on_random_bytes)
{
    struct qr_tokenizer *t = bytes_only(false);
    static const uint8_t likely[] = {0x00, 'a',  0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc1, 0xc2,
                                     0xdf, 0xe0, 0xe1, 0xed, 0xef, 0xf0, 0xf1, 0xf4, 0xf5, 0xff};
    uint32_t seed = 99;
    for (int round = 0; round < 20000; round++) {
        uint8_t s[12];
        seed = seed * 1664525 + 1013904223;
        size_t n = (seed >> 16) % sizeof s;
        for (size_t i = 0; i < n; i++) {
            seed = seed * 1664525 + 1013904223;
            s[i] = likely[(seed >> 16) % sizeof likely];
        }
        check(t, s, n);
    }
    qr_tokenizer_free(&t);
}

static void pushes(const struct qr_tokenizer *t, bool skip, bool at_start, const int32_t *ids, int n,
                   const char *want)
{
    struct qr_buf out = {0};
    struct qr_detok d;
    qr_buf_str(&out, "");
    qr_detok_init(&d, t, skip, at_start);
    for (int i = 0; i < n; i++) qr_detok_push(&d, ids[i], &out);
    qr_detok_flush(&d, &out);
    assert_string_equal(out.data, want);
    qr_buf_fini(&out);
}

QR_TEST(detok_leading_space_and_special_tokens)
{
    struct qr_tokenizer *t = bytes_only(true);
    pushes(t, true, true, (int32_t[]){256, 257, 'a', 257}, 4, "a ");
    pushes(t, true, false, (int32_t[]){257, 'a'}, 2, " a");
    pushes(t, false, true, (int32_t[]){256, 257, 'a'}, 3, "<s> a");
    pushes(t, true, true, (int32_t[]){257, 257, 'a'}, 3, " a");
    pushes(t, true, true, (int32_t[]){'a', 257}, 2, "a ");
    pushes(t, true, true, (int32_t[]){0xc3, 256, 0xa9}, 3,
           "\xc3\xa9"); // a token that says nothing parts nothing
    pushes(t, false, true, (int32_t[]){0xc3, 256, 'b'}, 3, "\xef\xbf\xbd<s>b");
    pushes(t, true, true, (int32_t[]){-1, 9999, 'a'}, 3, "a"); // ids that do not exist have no text
    qr_tokenizer_free(&t);
    t = bytes_only(false);
    pushes(t, true, true, (int32_t[]){257, 'a'}, 2, " a");
    qr_tokenizer_free(&t);
}
