/* Tokenizers over a small vocabulary made here: 256 bytes, a few words, special tokens. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/test.h"
#include "text/text.h"

enum { BYTES = 256, WORDS = 8, SPECIALS = 3, SIZE = BYTES + WORDS + SPECIALS };
enum { BOS = BYTES + WORDS, EOS, USER };

static char names[SIZE][16];
static struct qr_text_span tokens[SIZE];
static int32_t types[SIZE];
static float scores[SIZE];

static void put_utf8(char *s, unsigned c)
{
    if (c < 0x80)
        snprintf(s, 16, "%c", c);
    else
        snprintf(s, 16, "%c%c", 0xc0 | c >> 6, 0x80 | (c & 63));
}

// GPT-2's alphabet, from its own definition: printable bytes stand for themselves, the others follow from
// U+0100.
static void byte_names(void)
{
    unsigned next = 0x100;
    for (unsigned b = 0; b < 256; b++) {
        bool printable = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        put_utf8(names[b], printable ? b : next++);
    }
}

static void fill(int i, const char *name, int type)
{
    snprintf(names[i], sizeof names[i], "%s", name);
    types[i] = type;
}

static void finish_tokens(void)
{
    for (int i = 0; i < SIZE; i++) tokens[i] = (struct qr_text_span){names[i], strlen(names[i])};
}

static const char *const merge_text[WORDS] = {"h e",        "l l", "he ll",        "hell o",
                                              "\xc4\xa0 w", "o r", "\xc4\xa0w or", "\xc3\xb0 \xc5\x81"};

static struct qr_vocab bpe_vocab(struct qr_text_span *merges)
{
    static const char *const words[WORDS] = {"he",        "ll", "hell",        "hello",
                                             "\xc4\xa0w", "or", "\xc4\xa0wor", "\xc3\xb0\xc5\x81"};
    byte_names();
    for (int i = 0; i < BYTES; i++) types[i] = 1;
    for (int i = 0; i < WORDS; i++) {
        fill(BYTES + i, words[i], 1);
        merges[i] = (struct qr_text_span){merge_text[i], strlen(merge_text[i])};
    }
    fill(BOS, "<s>", 3);
    fill(EOS, "</s>", 3);
    fill(USER, "<u>", 4);
    finish_tokens();
    return (struct qr_vocab){.model = "gpt2",
                             .pre = "gpt-2",
                             .n_tokens = SIZE,
                             .tokens = tokens,
                             .types = types,
                             .n_merges = WORDS,
                             .merges = merges,
                             .bos = BOS,
                             .eos = EOS,
                             .unk = -1,
                             .add_bos = true};
}

static struct qr_tokenizer *bpe(void)
{
    struct qr_text_span merges[WORDS];
    struct qr_vocab v = bpe_vocab(merges);
    struct qr_tokenizer *t = NULL;
    struct qr_error err;
    if (qr_tokenizer_from_vocab(&v, &t, &err)) fail_msg("%s", err.msg);
    return t;
}

// SPM: bytes 0..255 as <0xNN>, then pieces with scores, then the specials.
static struct qr_tokenizer *spm(void)
{
    static const char *const words[WORDS] = {"\xe2\x96\x81",
                                             "a",
                                             "b",
                                             "\xe2\x96\x81"
                                             "a",
                                             "ab",
                                             "aa",
                                             "\xe2\x96\x81\xe2\x96\x81",
                                             "\xc3\xa9"};
    for (int i = 0; i < BYTES; i++) {
        snprintf(names[i], sizeof names[i], "<0x%02X>", i);
        types[i] = 6;
    }
    for (int i = 0; i < WORDS; i++) {
        fill(BYTES + i, words[i], 1);
        scores[BYTES + i] = (float)-i;
    }
    fill(BOS, "<s>", 3);
    fill(EOS, "</s>", 3);
    fill(USER, "<u>", 4);
    finish_tokens();
    struct qr_vocab v = {.model = "llama",
                         .n_tokens = SIZE,
                         .tokens = tokens,
                         .types = types,
                         .scores = scores,
                         .bos = BOS,
                         .eos = EOS,
                         .unk = -1,
                         .add_bos = true,
                         .add_eos = true,
                         .add_space_prefix = true};
    struct qr_tokenizer *t = NULL;
    struct qr_error err;
    if (qr_tokenizer_from_vocab(&v, &t, &err)) fail_msg("%s", err.msg);
    return t;
}

static void encodes(const struct qr_tokenizer *t, const char *text, unsigned flags, const int32_t *want,
                    size_t n_want)
{
    int32_t *ids;
    size_t n;
    struct qr_error err;
    assert_int_equal(qr_tokenizer_encode(t, text, strlen(text), flags, &ids, &n, &err), QR_OK);
    assert_int_equal(n, n_want);
    if (n) assert_memory_equal(ids, want, n * sizeof *ids);
    qr_free(ids);
}
#define ENCODES(t, text, flags, ...)                                                                         \
    encodes(t, text, flags, (int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

enum { W = BYTES };

QR_TEST(tokenizer_bpe_merges_by_rank)
{
    struct qr_tokenizer *t = bpe();
    ENCODES(t, "hello wor", 0, W + 3, W + 6);
    ENCODES(t, "hell he", 0, W + 2, ' ', W + 0);
    ENCODES(t, "lll", 0, W + 1, 'l');
    ENCODES(t, "  wor", 0, ' ', W + 6);
    encodes(t, "", 0, NULL, 0);
    ENCODES(t, "", QR_ENCODE_ADD_SPECIAL, BOS);
    qr_tokenizer_free(&t);
    qr_tokenizer_free(&t);
}

QR_TEST(tokenizer_special_tokens_only_when_asked)
{
    struct qr_tokenizer *t = bpe();
    ENCODES(t, "he<s>he", QR_ENCODE_PARSE_SPECIAL, W, BOS, W);
    ENCODES(t, "he<s>", QR_ENCODE_ADD_SPECIAL, BOS, W, '<', 's', '>');
    ENCODES(t, "<u></s>", 0, USER, '<', '/', 's', '>'); // user-defined tokens are always found
    ENCODES(t, "<u></s>", QR_ENCODE_PARSE_SPECIAL, USER, EOS);
    assert_true(qr_tokenizer_is_special(t, BOS));
    assert_false(qr_tokenizer_is_special(t, USER));
    assert_false(qr_tokenizer_is_special(t, -1));
    assert_false(qr_tokenizer_is_special(t, SIZE));
    qr_tokenizer_free(&t);
}

QR_TEST(tokenizer_tables)
{
    struct qr_tokenizer *t = bpe();
    assert_int_equal(qr_tokenizer_size(t), SIZE);
    for (int b = 0; b < BYTES; b++) {
        struct qr_text_span s = qr_tokenizer_bytes(t, b);
        assert_int_equal(s.bytes, 1);
        assert_int_equal((uint8_t)s.data[0], b);
        assert_int_equal(qr_tokenizer_find(t, names[b]), b);
    }
    struct qr_text_span s = qr_tokenizer_bytes(t, W + 6), p = qr_tokenizer_piece(t, W + 6);
    assert_true(s.bytes == 4 && memcmp(s.data, " wor", 4) == 0);
    assert_true(p.bytes == 5 && memcmp(p.data, "\xc4\xa0wor", 5) == 0);
    assert_int_equal(qr_tokenizer_find(t, "nothing"), -1);
    assert_int_equal(qr_tokenizer_bytes(t, SIZE).bytes, 0);
    qr_tokenizer_free(&t);
}

QR_TEST(tokenizer_spm_merges_by_score_and_falls_back_to_bytes)
{
    struct qr_tokenizer *t = spm();
    ENCODES(t, "ab", QR_ENCODE_ADD_SPECIAL, BOS, W + 3, W + 2, EOS); // "_a" (-3) before "ab" (-4)
    ENCODES(t, "aab", 0, W + 3, W + 4);
    ENCODES(t, " a", 0, W + 0, W + 3); // "_" "_a": the pair of score -3 first, "__" is -6
    ENCODES(t, "\xc3\xa9\xe4\xb8\xad", 0, W + 0, W + 7, 0xe4, 0xb8, 0xad);
    ENCODES(t, "a<s>b", QR_ENCODE_PARSE_SPECIAL, W + 3, BOS, W + 0, W + 2);
    ENCODES(t, "<0x41>", 0, W + 0, '<', '0', 'x', '4', '1', '>'); // the name of a byte is only text
    qr_tokenizer_free(&t);
}

static void decodes(const struct qr_tokenizer *t, const int32_t *ids, size_t n, bool skip, const char *want)
{
    struct qr_buf out = {0};
    struct qr_error err;
    qr_buf_str(&out, "");
    assert_int_equal(qr_tokenizer_decode(t, ids, n, skip, &out, &err), QR_OK);
    assert_string_equal(out.data, want);
    qr_buf_fini(&out);
}

QR_TEST(tokenizer_decodes)
{
    struct qr_tokenizer *t = spm();
    decodes(t, (int32_t[]){BOS, W + 3, W + 3, 0xe4, 0xb8, 0xad}, 6, true, "a a\xe4\xb8\xad");
    decodes(t, (int32_t[]){BOS, W + 3}, 2, false, "<s> a");
    decodes(t, (int32_t[]){W + 3, 0xe4, 0xb8, W + 1}, 4, false,
            "a\xef\xbf\xbd"
            "a");
    struct qr_buf out = {0};
    struct qr_error err;
    assert_int_equal(qr_tokenizer_decode(t, (int32_t[]){1, SIZE}, 2, false, &out, &err), QR_EINVAL);
    assert_non_null(strstr(err.msg, "token 1"));
    assert_int_equal(qr_tokenizer_decode(t, (int32_t[]){-1}, 1, false, &out, &err), QR_EINVAL);
    assert_int_equal(out.len, 0);
    qr_tokenizer_free(&t);
}

QR_TEST(tokenizer_refuses_broken_input)
{
    struct qr_tokenizer *t = bpe();
    int32_t *ids = NULL;
    size_t n = 7;
    struct qr_error err;
    static const char *const broken[] = {"\xff",         "ab\xc3",           "\xc0\x80",
                                         "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x80"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        assert_int_equal(qr_tokenizer_encode(t, broken[i], strlen(broken[i]), 0, &ids, &n, &err), QR_EFORMAT);
        assert_int_equal(qr_tokenizer_encode(t, broken[i], strlen(broken[i]), 0, &ids, &n, NULL), QR_EFORMAT);
    }
    assert_null(ids);
    assert_int_equal(n, 7);
    qr_tokenizer_free(&t);
}

static void refuses(const struct qr_vocab *v, enum qr_status want, const char *part)
{
    struct qr_tokenizer *t = NULL;
    struct qr_error err;
    assert_int_equal(qr_tokenizer_from_vocab(v, &t, &err), want);
    assert_int_equal(err.code, want);
    if (!strstr(err.msg, part)) fail_msg("\"%s\" is not in \"%s\"", part, err.msg);
    assert_null(t);
}

QR_TEST(tokenizer_refuses_contradicting_vocabularies)
{
    struct qr_text_span merges[WORDS];
    struct qr_vocab good = bpe_vocab(merges), v = good;
    v.model = "bert";
    refuses(&v, QR_ENOTSUP, "bert");
    v = good;
    v.pre = "no-such";
    refuses(&v, QR_ENOTSUP, "no-such");
    v = good;
    v.n_tokens = 0;
    refuses(&v, QR_EFORMAT, "tokens");
    v = good;
    v.bos = SIZE;
    refuses(&v, QR_EFORMAT, "bos");
    static const char *const bad[] = {"",         "x", " ", "a", "he ", "qq rr", "h h", "\xc4\xa0\xc4\xa0",
                                      "\xff \xfe"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        v = good;
        merges[2] = (struct qr_text_span){bad[i], strlen(bad[i])};
        refuses(&v, QR_EFORMAT, "merge 2");
    }
    v = good;
    v.model = "llama";
    refuses(&v, QR_EFORMAT, "scores");
    struct qr_tokenizer *t = NULL;
    struct qr_error err;
    assert_int_equal(qr_tokenizer_from_json("{", 1, &t, &err), QR_EFORMAT);
    assert_int_equal(qr_tokenizer_from_json("{\"model\":{}}", 12, &t, &err), QR_EFORMAT);
    assert_null(t);
}

QR_TEST(tokenizer_survives_failing_memory)
{
    struct qr_text_span merges[WORDS];
    struct qr_vocab v = bpe_vocab(merges);
    struct qr_tokenizer *t = NULL;
    struct qr_error err;
    qr_mem_fail_at(1, 0);
    assert_int_equal(qr_tokenizer_from_vocab(&v, &t, &err), QR_ENOMEM);
    assert_null(t);
    qr_mem_fail_at(0, 0);
    t = bpe();
    int32_t *ids = NULL;
    size_t n;
    qr_mem_fail_at(1, 0);
    assert_int_equal(qr_tokenizer_encode(t, "hello", 5, 0, &ids, &n, &err), QR_ENOMEM);
    assert_null(ids);
    qr_mem_fail_at(0, 0);
    qr_tokenizer_free(&t);
}

// A quarter of a megabyte of one letter, of spaces, of one emoji, of almost-special text: well below a second
// each unless some step costs the square of its input (that would be minutes).
QR_TEST(tokenizer_long_runs_are_not_quadratic)
{
    struct qr_tokenizer *t[2] = {bpe(), NULL};
    static const char *const parts[] = {"a", " ", "\xf0\x9f\x98\x80", "<s", "\n", "l", "ab \n"};
    size_t cap = 1 << 18;
    char *text = malloc(cap);
    struct qr_clock *clock = qr_clock_wall();
    t[1] = spm();
    for (size_t i = 0; i < 2 * sizeof parts / sizeof *parts; i++) {
        const char *part = parts[i / 2];
        size_t m = strlen(part), bytes = cap / m * m, n;
        for (size_t at = 0; at < bytes; at += m) memcpy(text + at, part, m);
        uint64_t start = clock->now_ns(clock);
        int32_t *ids;
        struct qr_error err;
        assert_int_equal(qr_tokenizer_encode(t[i % 2], text, bytes, 0, &ids, &n, &err), QR_OK);
        assert_true(clock->now_ns(clock) - start < 5000000000u);
        struct qr_buf out = {0};
        assert_int_equal(qr_tokenizer_decode(t[i % 2], ids, n, false, &out, &err), QR_OK);
        assert_int_equal(out.len, bytes);
        assert_memory_equal(out.data, text, bytes);
        qr_buf_fini(&out);
        qr_free(ids);
    }
    free(text);
    qr_tokenizer_free(&t[0]);
    qr_tokenizer_free(&t[1]);
}
