/* Chat templates against what transformers renders: tests/vectors/mktext.py wrote lengths and hashes. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/test.h"
#include "text/rs_internal.h"

#define NOW 1722000000 // 2024-07-26 13:20 UTC, as in mktext.py
#define CASES_MAX 16

static char *slurp(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("cannot open %s", path);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *p = malloc(*n + 1);
    assert_int_equal(fread(p, 1, *n, f), *n);
    p[*n] = 0;
    fclose(f);
    return p;
}

static uint64_t fnv(const char *p, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ (uint8_t)p[i]) * 0x100000001b3u;
    return h;
}

struct cases {
    char *text;
    int n;
    const char *name[CASES_MAX], *vars[CASES_MAX];
};

static void load_cases(struct cases *c)
{
    size_t n;
    *c = (struct cases){.text = slurp("tests/vectors/template_cases.txt", &n)};
    char *save = NULL;
    for (char *line = strtok_r(c->text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *tab = strchr(line, '\t');
        assert_non_null(tab);
        assert_true(c->n < CASES_MAX);
        *tab = 0;
        c->name[c->n] = line;
        c->vars[c->n++] = tab + 1;
    }
}

static const char *vars_of(const struct cases *c, const char *name)
{
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->name[i], name) == 0) return c->vars[i];
    fail_msg("no case %s", name);
    return NULL;
}

// Where quire may differ, and why. A difference that went away fails as well.
#define NONE_LOOP "loops over tools without asking: Python cannot iterate None, here that is an empty list"
#define LAZY_MAP                                                                                             \
    "tojson of a |map: a generator that Python cannot serialise, here a list, as the author meant"
#define MARKUP                                                                                               \
    "|safe makes Jinja2 HTML-escape what + adds to it, even without autoescape; here text stays as it is"
static const struct {
    const char *file, *name, *why;
} exceptions[] = {
    {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja", "plain", NONE_LOOP},
    {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja", "no_prompt", NONE_LOOP},
    {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja", "system", NONE_LOOP},
    {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja", "multi", NONE_LOOP},
    {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja", "no_think", NONE_LOOP},
    {"llama-cpp-deepseek-r1.jinja", "tools", LAZY_MAP},
    {"llama-cpp-deepseek-r1.jinja", "tool_call", LAZY_MAP},
    {"meetkai-functionary-medium-v3.1.jinja", "tools", MARKUP},
    {"meetkai-functionary-medium-v3.1.jinja", "tool_call", MARKUP},
};

static bool excepted(const char *file, const char *name)
{
    for (size_t i = 0; i < sizeof exceptions / sizeof *exceptions; i++)
        if (strcmp(exceptions[i].file, file) == 0 && strcmp(exceptions[i].name, name) == 0) return true;
    return false;
}

// One cell "name=bytes:hash" or "name=!". Returns 0 as expected, 1 when not; prints what differs.
static int check_cell(const struct qr_template *t, const char *file, char *cell, const struct cases *c)
{
    char *want = strchr(cell, '=');
    assert_non_null(want);
    *want++ = 0;
    const char *vars = vars_of(c, cell), *dir = getenv("QUIRE_TEMPLATE_DUMP");
    struct qr_buf out = {0};
    struct qr_error err;
    enum qr_status st = text_template_render_at(t, vars, strlen(vars), NOW, &out, &err);
    char got[64] = "!";
    if (!st) snprintf(got, sizeof got, "%zu:%016llx", out.len, (unsigned long long)fnv(out.data, out.len));
    if (dir) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s.%s", dir, file, cell);
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        if (st)
            fprintf(f, "ERROR %s", err.msg);
        else
            fwrite(out.data, 1, out.len, f);
        fclose(f);
    }
    bool same = strcmp(got, want) == 0;
    if (same == excepted(file, cell)) {
        print_error("%s, case %s: expected %s, got %s %s\n", file, cell, want, got, st ? err.msg : "");
        qr_buf_fini(&out);
        return 1;
    }
    qr_buf_fini(&out);
    return 0;
}

static int check_file(char *line, const struct cases *c)
{
    char *cells = strchr(line, '|'), *save = NULL, path[4096];
    assert_non_null(cells);
    *cells++ = 0;
    if (line[0] == '@')
        snprintf(path, sizeof path, "tests/vectors/%s", line + 1);
    else if (qr_test_shared())
        snprintf(path, sizeof path, "%s/data/chat-templates/%s", qr_test_shared(), line);
    else
        return 0;
    size_t n;
    char *source = slurp(path, &n);
    struct qr_template *t;
    struct qr_error err;
    enum qr_status st = qr_template_new(source, n, &t, &err);
    free(source);
    if (st) {
        print_error("%s: %s\n", line, err.msg);
        return 1;
    }
    int bad = 0;
    for (char *cell = strtok_r(cells, " ", &save); cell; cell = strtok_r(NULL, " ", &save))
        bad += check_cell(t, line, cell, c);
    qr_template_free(&t);
    return bad;
}

QR_TEST(template_renders_as_transformers)
{
    setenv("TZ", "UTC", 1);
    tzset();
    struct cases c;
    load_cases(&c);
    size_t n;
    char *text = slurp("tests/vectors/templates.txt", &n), *save = NULL;
    int bad = 0, files = 0;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (line[0] == '#') continue;
        bad += check_file(line, &c);
        files++;
    }
    free(text);
    free(c.text);
    assert_true(files >= 49);
    assert_int_equal(bad, 0);
    if (!qr_test_shared()) QR_SKIP("no shared templates: only the default model's was checked");
}

static enum qr_status render(const char *source, size_t n, const char *vars, struct qr_buf *out,
                             struct qr_error *err)
{
    struct qr_template *t;
    enum qr_status st = qr_template_new(source, n, &t, err);
    if (st) return st;
    st = text_template_render_at(t, vars, strlen(vars), NOW, out, err);
    qr_template_free(&t);
    return st;
}

static void renders(const char *source, const char *vars, const char *want)
{
    struct qr_buf out = {0};
    struct qr_error err;
    enum qr_status st = render(source, strlen(source), vars, &out, &err);
    if (st) fail_msg("%s: %s", source, err.msg);
    if (!out.data) out.data = qr_strdup(QR_MEM_MISC, "");
    if (strcmp(out.data, want)) fail_msg("%s: expected \"%s\", got \"%s\"", source, want, out.data);
    qr_buf_fini(&out);
}

// Expected texts are what json.dumps, repr and datetime.strftime of Python 3.11 print.
QR_TEST(template_prints_as_python)
{
    static const char vars[] = "{\"v\":{\"z\":1,\"a\":[1.0,1e20,1e-7,0.1,null,true,\"q\\\"<>&'"
                               "\\u00e9\\u0001\\n\"],\"e\":[],\"m\":{}},"
                               "\"big\":12345678901234567890,\"f\":2.5,\"n\":null,\"s\":\"it's\"}";
    renders("{{ v|tojson }}", vars,
            "{\"z\": 1, \"a\": [1.0, 1e+20, 1e-07, 0.1, null, true, \"q\\\"<>&'\u00e9\\u0001\\n\"], \"e\": "
            "[], \"m\": {}}");
    renders("{{ v.e|tojson }}{{ {'b': 1, 'a': [2]}|tojson(indent=2, sort_keys=true) }}", vars,
            "[]{\n  \"a\": [\n    2\n  ],\n  \"b\": 1\n}");
    renders("{{ ['\u00e9\U0001F600', 1]|tojson(ensure_ascii=True, separators=(',', ':')) }}", vars,
            "[\"\\u00e9\\ud83d\\ude00\",1]");
    renders("{{ v.a }} {{ f }} {{ n }} {{ true }} {{ big }} {{ [s] }}", vars,
            "[1.0, 1e+20, 1e-07, 0.1, None, True, 'q\"<>&\\'\u00e9\\x01\\n'] 2.5 None True "
            "12345678901234567890 [\"it's\"]");
    renders("{{ strftime_now('%Y-%m-%d') }}", vars, "2024-07-26");
    renders(
        "{% for i in [1,2,3] %}\n  {% if i == 2 %}{% continue %}{% endif %}\n{{ i }}\n{% endfor %}\nend\n",
        vars, "1\n3\nend");
    renders("{%- generation -%} x {%- endgeneration %}y{{ undefined_thing }}", vars, "xy");
    renders("{{ tools is none }} {{ tools is iterable }}", vars, "True False");
}

static void refuses(const char *source, enum qr_status want, const char *part)
{
    struct qr_buf out = {0};
    struct qr_error err;
    struct qr_clock *clock = qr_clock_wall();
    uint64_t start = clock->now_ns(clock);
    assert_int_equal(render(source, strlen(source), "{\"s\":\"xxxxxxxxxxxxxxxx\"}", &out, &err), want);
    assert_int_equal(err.code, want);
    if (!strstr(err.msg, part)) fail_msg("%s: \"%s\" is not in \"%s\"", source, part, err.msg);
    assert_int_equal(out.len, 0);
    assert_true(clock->now_ns(clock) - start < 5000000000u);
    qr_buf_fini(&out);
}

QR_TEST(template_refuses_what_has_no_end)
{
    refuses("{{ raise_exception('roles must alternate') }}", QR_EINVAL, "roles must alternate");
    refuses("{% macro m() %}{{ raise_exception('deep') }}{% endmacro %}{{ m() }}", QR_EINVAL, "deep");
    refuses("{% for i in range(999999999) %}{% endfor %}", QR_EINVAL, "range");
    refuses("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", QR_EINVAL,
            "too many steps");
    refuses("{% set n = namespace(s=s) %}{% for i in range(90) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
            QR_EINVAL, "too many steps");
    refuses("{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}", QR_EINVAL, "recursion");
    refuses("{{ 'x' * 99999999999 }}", QR_EINVAL, "chat template");
    refuses("{{ 'x'|center(99999999999) }}", QR_EINVAL, "chat template");
    refuses("{% if %}", QR_EFORMAT, "line 1");
    refuses("{{ messages[0].content }}", QR_EINVAL, "line 1");
    refuses("{% include 'passwd' %}", QR_EINVAL, "chat template");
    refuses("\xff", QR_EFORMAT, "UTF-8");
}

// Nesting and chains of each kind that the grammar has: a megabyte, as much as a source may have, as many as
// a tag may.
QR_TEST(template_nesting_is_bounded)
{
    static const char *const parts[] = {
        "{{(((", "(",    "[",  "{{ {'a':", "{% if x %}", "{% for i in x %}", "-",  "not ",
        "x+",    "x|f(", "x[", "x.y",      "x if ",      "{% raw",           "{#", "{% elif x %}"};
    static const size_t caps[] = {1 << 20, 250000, 4000};
    char *text = malloc(caps[0] + 16);
    for (size_t i = 0; i < 3 * sizeof parts / sizeof *parts; i++) {
        const char *part = parts[i / 3];
        size_t n = 3, m = strlen(part);
        memcpy(text, "{{ ", 3);
        if (part[0] == '{')
            n = (size_t)snprintf(text, 16, "%s", strncmp(part, "{% e", 4) == 0 ? "{% if x %}" : "");
        for (; n + m <= caps[i % 3]; n += m) memcpy(text + n, part, m);
        struct qr_buf out = {0};
        struct qr_error err;
        assert_int_not_equal(render(text, n, "{}", &out, &err), QR_OK);
        qr_buf_fini(&out);
    }
    free(text);
}

// Values nested by a loop: as deep as the steps allow. Printing, comparing and dropping them recurses.
QR_TEST(template_values_may_nest_deeply)
{
    struct qr_buf out = {0};
    struct qr_error err;
    static const char source[] =
        "{% set n = namespace(s=[]) %}{% for i in range(LIMIT) %}{% set n.s = [[[[n.s]]]] %}{% endfor %}"
        "{{ n.s|string|length }}{{ n.s == n.s }}";
    char text[sizeof source + 8];
    for (int limit = 1000; limit < 100000; limit *= 3) {
        const char *at = strstr(source, "LIMIT");
        int n = snprintf(text, sizeof text, "%.*s%d%s", (int)(at - source), source, limit, at + 5);
        enum qr_status st = render(text, (size_t)n, "{}", &out, &err);
        if (st) assert_non_null(strstr(err.msg, "too many steps"));
    }
    qr_buf_fini(&out);
}

QR_TEST(template_vars_are_checked)
{
    struct qr_buf out = {0};
    struct qr_error err;
    assert_int_equal(render("x", 1, "{", &out, &err), QR_EINVAL);
    char deep[4002] = {0};
    memset(deep, '[', 4000);
    assert_int_equal(render("x", 1, deep, &out, &err), QR_EINVAL);
    qr_buf_fini(&out);
}
