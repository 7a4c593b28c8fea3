#include "base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/test.h"

static enum qr_status parse_n(const char *text, size_t n, struct qr_json_doc **doc, struct qr_error *err)
{
    // An exact heap copy, so that ASan sees a read past the end.
    char *copy = malloc(n ? n : 1);
    memcpy(copy, text, n);
    enum qr_status st = qr_json_parse(copy, n, QR_JSON_DEPTH_MAX, doc, err);
    free(copy);
    return st;
}

static void expect_status(const char *text, size_t n, enum qr_status want)
{
    struct qr_json_doc *doc = NULL;
    struct qr_error err = {0};
    enum qr_status st = parse_n(text, n, &doc, &err);
    if (st != want)
        printf("  text \"%.60s\": %s, wanted %s (%s)\n", text, qr_status_name(st), qr_status_name(want),
               err.msg);
    assert_int_equal(st, want);
    assert_true((doc != NULL) == (want == QR_OK));
    if (want != QR_OK) assert_true(err.msg[0] != 0);
    qr_json_free(&doc);
}

#define GOOD(s) expect_status(s, sizeof(s) - 1, QR_OK)
#define BAD(s) expect_status(s, sizeof(s) - 1, QR_EFORMAT)

QR_TEST(json_accepts_and_refuses_as_rfc8259_says)
{
    GOOD("0");
    GOOD("-0");
    GOOD("1e5");
    GOOD(" [ ] ");
    GOOD("{\"\":1}");
    GOOD("\"\\u0000\"");
    GOOD("\"\x7f\"");
    GOOD("true");
    GOOD("\t\r\n null \n");
    GOOD("[1,2,{\"a\":[]}]");
    GOOD("1e-400");
    GOOD("\"\xF4\x8F\xBF\xBF\"");
    BAD("");
    BAD(" ");
    BAD("{");
    BAD("[1,]");
    BAD("[,1]");
    BAD("{\"a\":1,}");
    BAD("{a:1}");
    BAD("{'a':1}");
    BAD("01");
    BAD("+1");
    BAD(".5");
    BAD("1.");
    BAD("1e");
    BAD("0x10");
    BAD("NaN");
    BAD("-NaN");
    BAD("Infinity");
    BAD("-Infinity");
    BAD("nan");
    BAD("inf");
    BAD("1e400");
    BAD("-1e400");
    BAD("[1 2]");
    BAD("{\"a\" 1}");
    BAD("{\"a\":1 \"b\":2}");
    BAD("\"\t\"");
    BAD("\"\n\"");
    BAD("\"\\x41\"");
    BAD("\"\\u12\"");
    BAD("\"abc");
    BAD("1 2");
    BAD("{} x");
    BAD("[]]");
    BAD("// c\n1");
    BAD("/* c */1");
    BAD("tru");
    BAD("True");
    BAD("\0");
    BAD("1\0");
    BAD("[1]\0");
    BAD("\"a\0b\"");
    BAD("\xEF\xBB\xBF{}");
    BAD("\"\\");
    BAD("\"\\\"");
    BAD("-");
    BAD("[-]");
}

QR_TEST(json_refuses_broken_unicode)
{
    BAD("\"x \\ud83d y\"");
    BAD("\"\\ude00\"");
    BAD("\"\\ud83d\\ud83d\"");
    BAD("\"\\ud83d\\u0041\"");
    BAD("\"\\ud83d\"");
    BAD("\"\\uDE00\\uD83D\"");
    GOOD("\"\\ud83d\\ude00\"");
    GOOD("\"\\uD83D\\uDE00\"");
    BAD("{\"prompt\":\"caf\xC3\"}");
    BAD("\"\xFF\"");
    BAD("\"\xC0\x80\"");
    BAD("\"\xE0\x80\x80\"");
    BAD("\"\xED\xA0\x80\"");
    BAD("\"\xF4\x90\x80\x80\"");
    BAD("\"\xF8\x88\x80\x80\x80\"");
    BAD("\"\x80\"");
    BAD("\"\xE2\x82\"");
    BAD("{\"\xFF\":1}");
    struct qr_json_doc *doc = NULL;
    const char *text = "\"\\ud83d\\ude00 caf\\u00e9\\u0000z\"";
    assert_int_equal(parse_n(text, strlen(text), &doc, NULL), QR_OK);
    size_t n;
    const char *s = qr_json_str(qr_json_root(doc), &n);
    assert_int_equal(n, 12);
    assert_memory_equal(s, "\xF0\x9F\x98\x80 caf\xC3\xA9\0z", 12);
    qr_json_free(&doc);
}

QR_TEST(json_errors_give_the_offset_and_not_the_input)
{
    struct qr_json_doc *doc = NULL;
    struct qr_error err;
    const char *text = "{\"SECRETKEY\": SECRETVALUE}";
    assert_int_equal(parse_n(text, strlen(text), &doc, &err), QR_EFORMAT);
    assert_non_null(strstr(err.msg, "byte 14"));
    assert_null(strstr(err.msg, "SECRET"));
    text = "{\"SECRET\":1,\"b\":{}, \"SECRET\":2}";
    assert_int_equal(parse_n(text, strlen(text), &doc, &err), QR_EFORMAT);
    assert_non_null(strstr(err.msg, "byte 21"));
    assert_null(strstr(err.msg, "SECRET"));
    assert_null(doc);
}

QR_TEST(json_bounds_nesting)
{
    char text[300];
    struct qr_json_doc *doc = NULL;
    struct qr_error err;
    for (int deep = 63; deep <= 65; deep++) {
        memset(text, '[', (size_t)deep);
        memset(text + deep, ']', (size_t)deep);
        expect_status(text, 2 * (size_t)deep, deep <= 64 ? QR_OK : QR_ETOOBIG);
    }
    // Brackets inside strings are text, also behind escaped quotes.
    char quoted[300] = "[\"\\\"";
    memset(quoted + 4, '[', 200);
    strcpy(quoted + 204, "\\\\\"]");
    expect_status(quoted, strlen(quoted), QR_OK);

    size_t n = 100000;
    char *big = malloc(2 * n);
    memset(big, '[', n);
    assert_int_equal(qr_json_parse(big, n, QR_JSON_DEPTH_MAX, &doc, &err), QR_ETOOBIG);
    assert_non_null(strstr(err.msg, "nested too deeply"));
    for (size_t i = 0; i < n; i++) memcpy(big + 2 * i, i % 2 ? "[1" : "{\"", 2);
    expect_status(big, 2 * n, QR_ETOOBIG);
    memset(big, ']', n);
    expect_status(big, n, QR_EFORMAT);
    free(big);
}

// `n` distinct keys in one object, the last one equal to the first if `dup`.
static void many_keys(size_t n, bool dup, const char *pad, enum qr_status want)
{
    struct qr_buf b = {0};
    qr_buf_char(&b, '{');
    for (size_t i = 0; i < n; i++)
        qr_buf_printf(&b, "%s\"%s%zu\":%zu", i ? "," : "", pad, dup && i == n - 1 ? 0 : i, i);
    qr_buf_char(&b, '}');
    expect_status(b.data, b.len, want);
    qr_buf_fini(&b);
}

QR_TEST(json_refuses_duplicate_keys_of_any_number)
{
    BAD("{\"a\":1,\"a\":2}");
    BAD("[{\"x\":{\"a\":1,\"b\":2,\"a\":3}}]");
    BAD("{\"a\":1,\"\\u0061\":2}");
    BAD("{\"\":1,\"\":2}");
    GOOD("{\"a\":{\"a\":1},\"b\":{\"a\":1}}");
    GOOD("{\"a\":\"a\",\"b\":\"a\"}");
    GOOD("{\"a\\u0000\":1,\"a\":2}");
    GOOD("[{\"a\":1},{\"a\":1}]");
    for (size_t n = 2; n < 40; n++) {
        many_keys(n, false, "k", QR_OK);
        many_keys(n, true, "k", QR_EFORMAT);
    }
    many_keys(100000, false, "", QR_OK);
    many_keys(100000, true, "prefix/", QR_EFORMAT);
}

QR_TEST(json_numbers_are_exact)
{
    const char *text =
        "[9223372036854775807,-9223372036854775808,9223372036854775808,16.0,1.5,1e18,9.3e18,-0.0,1e30,0.1,"
        "18446744073709551615,18446744073709551616,-9223372036854775809,true,\"1\"]";
    const struct {
        bool is_int;
        int64_t i;
        double d;
    } want[] = {
        {true, INT64_MAX, 0x1p63}, {true, INT64_MIN, -0x1p63},
        {false, 0, 0x1p63},        {true, 16, 16},
        {false, 0, 1.5},           {true, 1000000000000000000, 1e18},
        {false, 0, 9.3e18},        {true, 0, 0},
        {false, 0, 1e30},          {false, 0, 0.1},
        {false, 0, 0x1p64},        {false, 0, 0x1p64},
        {false, 0, -0x1p63},
    };
    struct qr_json_doc *doc = NULL;
    struct qr_error err;
    assert_int_equal(parse_n(text, strlen(text), &doc, &err), QR_OK);
    for (size_t k = 0; k < sizeof want / sizeof *want; k++) {
        int64_t i = 0;
        double d = 0;
        qr_json *v = qr_json_at(qr_json_root(doc), k);
        // -9223372036854775809 is not an int64, but the double next to it is.
        if (k != 12) assert_int_equal(qr_json_int64(v, &i), want[k].is_int);
        if (k != 12) assert_true(i == want[k].i);
        assert_true(qr_json_double(v, &d));
        assert_true(d == want[k].d);
    }
    int64_t i = 7;
    double d = 7;
    assert_false(qr_json_int64(qr_json_at(qr_json_root(doc), 13), &i) ||
                 qr_json_double(qr_json_at(qr_json_root(doc), 14), &d));
    assert_true(i == 7 && d == 7);
    assert_int_equal(qr_json_type(qr_json_at(qr_json_root(doc), 2)), QR_JSON_INT);
    qr_json_free(&doc);
}

QR_TEST(json_absent_values_read_as_absent)
{
    struct qr_json_doc *doc = NULL;
    int64_t i;
    double d;
    size_t n;
    assert_int_equal(parse_n("{\"a\":null,\"l\":[1,2]}", 20, &doc, NULL), QR_OK);
    qr_json *root = qr_json_root(doc), *none = qr_json_get(root, "zzz");
    assert_null(none);
    assert_int_equal(qr_json_type(none), QR_JSON_ABSENT);
    assert_int_equal(qr_json_type(qr_json_get(root, "a")), QR_JSON_NULL);
    assert_null(qr_json_get(none, "a"));
    assert_null(qr_json_get(qr_json_get(root, "l"), "a"));
    assert_null(qr_json_at(root, 0));
    assert_null(qr_json_at(qr_json_get(root, "l"), 2));
    assert_null(qr_json_str(none, &n));
    assert_true(qr_json_bool(none, true) && !qr_json_bool(root, false));
    assert_false(qr_json_int64(none, &i) || qr_json_double(none, &d));
    assert_int_equal(qr_json_len(none), 0);
    assert_int_equal(qr_json_len(root), 2);
    struct qr_json_iter it = qr_json_iter(none);
    assert_null(qr_json_next(&it, NULL, NULL));
    it = qr_json_iter(qr_json_get(root, "a"));
    assert_null(qr_json_next(&it, NULL, NULL));
    assert_null(qr_json_root(NULL));
    assert_string_equal(qr_json_type_name(qr_json_type(root)), "an object");
    qr_json_free(&doc);
    qr_json_free(&doc);
}

/* A random value is written twice: as text in a random dress (spaces, escapes), and again from the parsed
 * document by walking it. The plain form that the generator keeps beside is the oracle for both. */
struct gen {
    uint64_t seed, i;
    struct qr_buf dressed, plain;
};

static uint32_t roll(struct gen *g, uint32_t n)
{
    return (uint32_t)(qr_rand_u64(g->seed, 1, g->i++) % n);
}

static void gen_space(struct gen *g)
{
    for (uint32_t n = roll(g, 3); n; n--) qr_buf_char(&g->dressed, " \t\n\r"[roll(g, 4)]);
}

static void gen_char(struct gen *g)
{
    static const struct {
        const char *utf8, *escaped, *plain;
    } chars[] = {
        {"a", "\\u0061", "a"},
        {"\"", "\\\"", "\\\""},
        {"/", "\\/", "/"},
        {"\\", "\\u005C", "\\\\"},
        {NULL, "\\u0001", "\\u0001"},
        {NULL, "\\n", "\\n"},
        {"\xC3\xA9", "\\u00e9", "\xC3\xA9"},
        {"\xE2\x82\xAC", "\\u20aC", "\xE2\x82\xAC"},
        {"\xF0\x9F\x98\x80", "\\ud83d\\uDE00", "\xF0\x9F\x98\x80"},
        {NULL, "\\u0000", "\\u0000"},
        {"{", "\\u007B", "{"},
    };
    uint32_t k = roll(g, 11);
    bool raw = chars[k].utf8 && k != 1 && k != 3 && roll(g, 2);
    qr_buf_str(&g->dressed, raw ? chars[k].utf8 : chars[k].escaped);
    qr_buf_str(&g->plain, chars[k].plain);
}

static void gen_both(struct gen *g, const char *s)
{
    qr_buf_str(&g->dressed, s);
    qr_buf_str(&g->plain, s);
}

static void gen_string(struct gen *g, int unique)
{
    char tag[16];
    snprintf(tag, sizeof tag, unique >= 0 ? "\"%d" : "\"", unique);
    gen_both(g, tag);
    if (unique >= 0) gen_both(g, ".");
    for (uint32_t n = roll(g, 8); n; n--) gen_char(g);
    gen_both(g, "\"");
}

static void gen_value(struct gen *g, int depth)
{
    static const char *const atoms[] = {"null", "true",  "false",  "0", "-1", "9223372036854775807",
                                        "0.5",  "-1e30", "1.25e-7"};
    uint32_t kind = roll(g, depth ? 6 : 3);
    gen_space(g);
    if (kind < 2)
        gen_both(g, atoms[roll(g, 9)]);
    else if (kind == 2)
        gen_string(g, -1);
    else {
        bool obj = kind == 3;
        gen_both(g, obj ? "{" : "[");
        int n = (int)roll(g, 20);
        for (int i = 0; i < n; i++) {
            if (i) gen_both(g, ",");
            if (obj) {
                gen_space(g);
                gen_string(g, i);
                gen_space(g);
                gen_both(g, ":");
            }
            gen_value(g, depth - 1);
        }
        gen_space(g);
        gen_both(g, obj ? "}" : "]");
    }
    gen_space(g);
}

static void rewrite(qr_json *v, struct qr_json_writer *w)
{
    int64_t i;
    double d;
    size_t n;
    const char *s = qr_json_str(v, &n), *key;
    enum qr_json_type t = qr_json_type(v);
    if (t == QR_JSON_NULL)
        qr_jw_null(w);
    else if (t == QR_JSON_BOOL)
        qr_jw_bool(w, qr_json_bool(v, false));
    else if (t == QR_JSON_INT && qr_json_int64(v, &i))
        qr_jw_int(w, i);
    else if (t == QR_JSON_REAL && qr_json_double(v, &d))
        qr_jw_double(w, d);
    else if (t == QR_JSON_STR)
        qr_jw_strn(w, s, n);
    else {
        bool obj = t == QR_JSON_OBJ;
        struct qr_json_iter it = qr_json_iter(v);
        if (obj)
            qr_jw_obj(w);
        else
            qr_jw_arr(w);
        for (qr_json *e; (e = qr_json_next(&it, &key, &n)) != NULL;) {
            if (obj) {
                // Keys of this test may hold NUL, which qr_jw_key's C string cannot: written as a value, then
                // ':'.
                qr_jw_strn(w, key, n);
                qr_buf_char(w->buf, ':');
                w->after_key = true;
            }
            rewrite(e, w);
        }
        if (obj)
            qr_jw_obj_end(w);
        else
            qr_jw_arr_end(w);
    }
}

QR_TEST(json_random_values_round_trip)
{
    for (uint64_t seed = 0; seed < 1500; seed++) {
        struct gen g = {.seed = seed};
        struct qr_json_doc *doc = NULL;
        struct qr_error err = {0};
        struct qr_json_writer w;
        struct qr_buf out = {0}, rendered = {0};
        gen_value(&g, 3);
        if (parse_n(g.dressed.data, g.dressed.len, &doc, &err) != QR_OK)
            fail_msg("seed %llu: %s", (unsigned long long)seed, err.msg);
        qr_jw_init(&w, &out);
        rewrite(qr_json_root(doc), &w);
        qr_json_render(qr_json_root(doc), &rendered);
        if (strcmp(out.data, g.plain.data) || out.len != g.plain.len)
            fail_msg("seed %llu", (unsigned long long)seed);
        assert_string_equal(rendered.data, g.plain.data);
        // Every proper prefix of a container or string is refused.
        if (strchr("[{\"", g.plain.data[0]))
            for (size_t n = 0; n < g.plain.len && n < 64; n++) expect_status(g.plain.data, n, QR_EFORMAT);
        qr_json_free(&doc);
        qr_buf_fini(&out);
        qr_buf_fini(&rendered);
        qr_buf_fini(&g.dressed);
        qr_buf_fini(&g.plain);
    }
}

QR_TEST(json_mutated_text_never_hurts)
{
    static const char base[] =
        "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x \\ud83d\\ude00 \xC3\xA9\"}],"
        "\"temperature\":0.7,\"stop\":[\"a\",\"b\"],\"n\":1e2,\"stream\":true}";
    char text[sizeof base];
    for (uint64_t seed = 0; seed < 20000; seed++) {
        struct qr_json_doc *doc = NULL;
        struct qr_error err = {0};
        memcpy(text, base, sizeof base);
        for (uint64_t k = 0; k < 1 + seed % 4; k++)
            text[qr_rand_u64(seed, 2, k) % (sizeof base - 1)] = (char)qr_rand_u64(seed, 3, k);
        size_t n = qr_rand_u64(seed, 4, 0) % sizeof base;
        if (parse_n(text, seed % 2 ? n : sizeof base - 1, &doc, &err) == QR_OK) {
            struct qr_buf out = {0};
            qr_json_render(qr_json_root(doc), &out);
            assert_false(out.failed);
            qr_buf_fini(&out);
        }
        for (const char *p = err.msg; *p; p++)
            assert_true((unsigned char)*p >= 0x20 && (unsigned char)*p < 0x7F);
        qr_json_free(&doc);
    }
}

static const char *write_double(double v)
{
    static char text[64];
    struct qr_buf b = {0};
    struct qr_json_writer w;
    qr_jw_init(&w, &b);
    qr_jw_double(&w, v);
    snprintf(text, sizeof text, "%s", b.data);
    qr_buf_fini(&b);
    return text;
}

static int
digits_of(const char *s) // significant digits: leading and trailing zeros and the exponent do not count
{
    char d[64];
    int n = 0;
    for (; *s && *s != 'e' && *s != 'E'; s++)
        if (*s >= '0' && *s <= '9' && (n || *s != '0')) d[n++] = *s;
    while (n && d[n - 1] == '0') n--;
    return n;
}

QR_TEST(json_doubles_are_shortest_and_read_back)
{
    assert_string_equal(write_double(0.1), "0.1");
    assert_string_equal(write_double(1), "1.0");
    assert_string_equal(write_double(-INFINITY), "-9999.0");
    assert_string_equal(write_double(NAN), "null");
    assert_string_equal(write_double(INFINITY), "null");
    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t bits = qr_rand_u64(7, 0, i);
        double v, back;
        if (i % 4 == 0) bits &= 0x000FFFFFFFFFFFFFu; // denormals
        memcpy(&v, &bits, 8);
        if (i % 4 == 1) v = (double)(float)log(qr_rand_unit(8, 0, i)); // logprobs
        if (!isfinite(v)) continue;
        const char *text = write_double(v);
        char shortest[64];
        back = strtod(text, NULL);
        assert_memory_equal(&back, &v, 8);
        for (int p = 1; p <= 17; p++) {
            snprintf(shortest, sizeof shortest, "%.*g", p, v);
            if (strtod(shortest, NULL) == v) break;
        }
        assert_int_equal(digits_of(text), digits_of(shortest));
    }
}

static void expect_written(const char *s, size_t n, const char *want)
{
    struct qr_buf b = {0};
    struct qr_json_writer w;
    qr_jw_init(&w, &b);
    qr_jw_strn(&w, s, n);
    assert_string_equal(b.data, want);
    expect_status(b.data, b.len, QR_OK);
    qr_buf_fini(&b);
}

QR_TEST(json_writer_escapes_and_repairs)
{
#define FFFD "\xEF\xBF\xBD"
    expect_written("a\"b\\c/\b\f\n\r\t\x01\x1f\x7f", 14,
                   "\"a\\\"b\\\\c/\\b\\f\\n\\r\\t\\u0001\\u001f\\u007f\"");
    expect_written("a\0b", 3, "\"a\\u0000b\"");
    expect_written("", 0, "\"\"");
    expect_written("caf\xC3", 4, "\"caf" FFFD "\"");
    expect_written("\xFFx\xC0\x80", 4, "\"" FFFD "x" FFFD FFFD "\"");
    expect_written("\xED\xA0\x80", 3, "\"" FFFD FFFD FFFD "\"");
    expect_written("\xF0\x9F\x98\x80\xF0\x9F\x98", 7, "\"\xF0\x9F\x98\x80" FFFD FFFD FFFD "\"");
    for (uint64_t seed = 0; seed < 5000; seed++) { // any bytes give valid JSON
        char raw[24];
        struct qr_buf b = {0};
        struct qr_json_writer w;
        for (uint64_t i = 0; i < sizeof raw; i++)
            raw[i] = (char)(qr_rand_u64(seed, 5, i) >> (seed % 3 ? 0 : 2));
        qr_jw_init(&w, &b);
        qr_jw_strn(&w, raw, seed % (sizeof raw + 1));
        expect_status(b.data, b.len, QR_OK);
        qr_buf_fini(&b);
    }
}

QR_TEST(json_writer_places_commas)
{
    struct qr_buf b = {0};
    struct qr_json_writer w;
    qr_jw_init(&w, &b);
    qr_jw_obj(&w);
    qr_jw_key(&w, "a");
    qr_jw_arr(&w);
    qr_jw_int(&w, INT64_MIN);
    qr_jw_obj(&w);
    qr_jw_obj_end(&w);
    qr_jw_arr(&w);
    qr_jw_arr_end(&w);
    qr_jw_raw(&w, "{\"r\":1}", 7);
    qr_jw_arr_end(&w);
    qr_jw_key(&w, "b");
    qr_jw_null(&w);
    qr_jw_key(&w, "c");
    qr_jw_obj(&w);
    qr_jw_key(&w, "d");
    qr_jw_bool(&w, true);
    qr_jw_obj_end(&w);
    qr_jw_obj_end(&w);
    assert_string_equal(b.data,
                        "{\"a\":[-9223372036854775808,{},[],{\"r\":1}],\"b\":null,\"c\":{\"d\":true}}");
    qr_buf_fini(&b);
}

QR_TEST(json_survives_failing_memory)
{
    static const char text[] =
        "{\"a\":[1,2,3],\"b\":1,\"c\":1,\"d\":1,\"e\":1,\"f\":1,\"g\":1,\"h\":1,\"i\":1,\"j\":1,\"k\":1,"
        "\"l\":1,\"m\":1,\"n\":1}";
    size_t before = qr_mem_live_bytes(QR_MEM_REQ);
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        struct qr_json_doc *doc = NULL;
        struct qr_error err;
        struct qr_buf out = {0};
        qr_mem_fail_at(n, 0);
        enum qr_status st = qr_json_parse(text, sizeof text - 1, QR_JSON_DEPTH_MAX, &doc, &err);
        if (st == QR_OK) qr_json_render(qr_json_root(doc), &out);
        qr_mem_fail_at(0, 0);
        assert_true(st == QR_OK || st == QR_ENOMEM);
        done = st == QR_OK && !out.failed;
        if (done) assert_string_equal(out.data, text);
        qr_json_free(&doc);
        qr_buf_fini(&out);
        assert_true(n < 50);
    }
    assert_int_equal(qr_mem_live_bytes(QR_MEM_REQ), before);
}

QR_TEST(json_shows_numbers_as_they_are_and_else_what_kind)
{
    static const struct {
        const char *text, *shown;
    } rows[] = {{"-1", "-1"}, {"5.5", "5.5"}, {"1e300", "1e300"}, {"\"secret\"", "a string"}, {"[1]", "an array"}, {"null", "null"}};
    char shown[32];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct qr_json_doc *doc;
        assert_int_equal(qr_json_parse(rows[i].text, strlen(rows[i].text), 8, &doc, NULL), QR_OK);
        qr_json_shown(qr_json_root(doc), shown, sizeof shown);
        assert_string_equal(shown, rows[i].shown);
        qr_json_free(&doc);
    }
    qr_json_shown(NULL, shown, sizeof shown);
    assert_string_equal(shown, "nothing");
}
