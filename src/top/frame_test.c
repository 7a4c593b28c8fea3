/* Frames of `quire top`, as a person sees them. */
#include "top/frame.h"

#include <stdlib.h>
#include <string.h>

#include "base/test.h"

static const char page[] =
    "{\"block_size\":16,\"blocks\":40,\"blocks_used\":7,\"blocks_cached\":2,\"pool_bytes\":14745600,"
    "\"resident_bytes\":4194304,\"waste_now\":0.0234,\"running\":2,\"waiting\":1,\"preemptions\":3,"
    "\"prompt_tokens\":300,\"generated_tokens\":700,\"prefix_query_tokens\":400,\"prefix_hit_tokens\":100,"
    "\"states\":\"2211cc-111\",\"sequences\":["
    "{\"request\":1,\"choice\":0,\"state\":\"running\",\"prompt_tokens\":30,\"tokens\":40,\"computed_tokens\":39,"
    "\"age_s\":1.25,\"blocks\":[0,1,2]},"
    "{\"request\":2,\"choice\":0,\"state\":\"running\",\"prompt_tokens\":60,\"tokens\":90,\"computed_tokens\":89,"
    "\"age_s\":0.5,\"blocks\":[0,1,3,7,8,9]},"
    "{\"request\":3,\"choice\":0,\"state\":\"waiting\",\"prompt_tokens\":5,\"tokens\":5,\"computed_tokens\":0,"
    "\"age_s\":0.1,\"blocks\":[]}]}";
static const char earlier[] = "{\"prompt_tokens\":100,\"generated_tokens\":450}";

static struct qr_json_doc *parse(const char *text)
{
    struct qr_json_doc *d = NULL;
    assert_int_equal(qr_json_parse(text, strlen(text), QR_JSON_DEPTH_MAX, &d, NULL), QR_OK);
    return d;
}

static char *draw(const struct top_view *v, const char *now, struct qr_buf *out)
{
    struct qr_json_doc *a = parse(now), *b = parse(earlier);
    qr_buf_clear(out);
    assert_int_equal(top_draw(v, qr_json_root(a), qr_json_root(b), out), QR_OK);
    qr_json_free(&a);
    qr_json_free(&b);
    return out->data;
}

QR_TEST(top_draws_requests_blocks_and_rates)
{
    struct qr_buf out = {0};
    struct top_view v = {.columns = 90, .lines = 24, .url = "http://x", .model = "m", .seconds = 0.5};
    assert_string_equal(draw(&v, page, &out),
                        "quire top  m at http://x\n"
                        "running 2  waiting 1  out 500 tok/s  in 400 tok/s  prefix hits 25 %  preemptions 3\n"
                        "KV 18 % of 40 blocks (15 MB)  used 7  cached 2  resident 4.2 MB  waste 2.3 %\n"
                        "a cell is 1 block of 16 tokens;  a-z used  # shared  : cached  . free\n"
                        "##bc::.ccc..............................\n"
                        "\n"
                        "   request choice  state      prompt  tokens computed  blocks    age s\n"
                        "b        1      0  running        30      40       39       3      1.2\n"
                        "c        2      0  running        60      90       89       6      0.5\n"
                        "d        3      0  waiting         5       5        0       0      0.1\n");
    qr_buf_fini(&out);
}

// The small page with another number of blocks, and a run of unused ones before what is used.
static const char *large_page(int64_t n_blocks, int n_before, char *out, size_t cap)
{
    char *free_ones = calloc(1, (size_t)n_before + 1);
    memset(free_ones, '-', (size_t)n_before);
    snprintf(out, cap,
             "{\"block_size\":16,\"blocks\":%lld,\"blocks_used\":3,\"states\":\"%s211cc\",\"sequences\":["
             "{\"request\":1,\"choice\":0,\"state\":\"running\",\"blocks\":[%d,%d,%d]}]}",
             (long long)n_blocks, free_ones, n_before, n_before + 1, n_before + 2);
    free(free_ones);
    return out;
}

QR_TEST(top_shows_the_part_of_a_large_pool_that_requests_hold)
{
    static char text[200000];
    struct qr_buf out = {0};
    struct top_view v = {.columns = 90, .lines = 24, .url = "u", .model = "m"};
    const char *s = draw(&v, large_page(66000, 0, text, sizeof text), &out);
    assert_null(strstr(s, "blocks of 16")); // one block a cell
    assert_non_null(strstr(s, "a cell is 1 block of 16 tokens"));
    assert_non_null(strstr(s, "\nblocks 0 to 1169; no request holds another (--whole: the whole pool)\n#bb::...."));
    s = draw(&v, large_page(66000, 40000, text, sizeof text), &out);
    assert_non_null(strstr(s, "\nblocks 39960 to 41129; no request"));
    assert_non_null(strstr(s, "........#bb::......."));
    s = draw(&v, large_page(40005, 40000, text, sizeof text), &out); // the pool ends within the first line
    assert_non_null(strstr(s, "\nblocks 39960 to 40004; no request"));
    v.whole = true;
    s = draw(&v, large_page(66000, 40000, text, sizeof text), &out);
    assert_non_null(strstr(s, "a cell is 57 blocks of 16 tokens"));
    assert_null(strstr(s, "no request holds"));
    v.whole = false;
    s = draw(&v, "{\"block_size\":16,\"blocks\":66000,\"states\":\"\",\"sequences\":[]}", &out);
    assert_non_null(strstr(s, "\nblocks 0 to 1169; no request"));
    for (int lines = 8; lines < 40; lines++) { // the note does not cost a line too many
        int n = 0;
        v.lines = lines;
        for (s = draw(&v, large_page(66000, 40000, text, sizeof text), &out); *s; s++) n += *s == '\n';
        assert_true(n <= lines);
    }
    qr_buf_fini(&out);
}

QR_TEST(top_fits_any_terminal)
{
    struct qr_buf out = {0};
    for (int columns = 20; columns < 120; columns += 7)
        for (int lines = 8; lines < 40; lines += 3) {
            struct top_view v = {.columns = columns, .lines = lines, .url = "http://x", .model = "m"};
            const char *s = draw(&v, page, &out);
            int n_lines = 0;
            for (const char *end; *s; s = end + 1, n_lines++) {
                end = strchr(s, '\n');
                assert_non_null(end);
                assert_true(end - s <= columns);
            }
            assert_true(n_lines <= lines);
        }
    qr_buf_fini(&out);
}

QR_TEST(top_colours_are_undone_at_each_line)
{
    struct qr_buf out = {0};
    struct top_view v = {.columns = 30, .lines = 24, .colour = true, .url = "http://x", .model = "m"};
    const char *s = draw(&v, page, &out);
    assert_non_null(strstr(s, "\033[38;5;"));
    assert_non_null(strstr(s, "\u259a")); // two shared blocks
    for (const char *end; *s; s = end + 1) {
        end = strchr(s, '\n');
        const char *last = NULL;
        for (const char *e = s; (e = strstr(e, "\033[")) && e < end; e += 2) last = e;
        assert_true(!last || strncmp(last, "\033[0m", 4) == 0);
    }
    qr_buf_fini(&out);
}

QR_TEST(top_refuses_what_is_no_page)
{
    static const char *const bad[] = {"{}", "[]", "{\"blocks\":4,\"states\":\"11111\",\"sequences\":[]}",
                                      "{\"blocks\":4,\"states\":\"1\",\"sequences\":7}"};
    struct qr_buf out = {0};
    struct top_view v = {.columns = 80, .lines = 24, .url = "u", .model = "m"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct qr_json_doc *d = parse(bad[i]);
        assert_int_equal(top_draw(&v, qr_json_root(d), NULL, &out), QR_EFORMAT);
        assert_int_equal(out.len, 0);
        qr_json_free(&d);
    }
}
