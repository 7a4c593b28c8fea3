#include "base/status.h"

#include <string.h>

#include "base/test.h"

QR_TEST(status_fail_fills_and_returns)
{
    struct qr_error e = {.param = "old"};
    assert_int_equal(qr_fail(&e, QR_EIO, "cannot read %s: %d", "file", 7), QR_EIO);
    assert_int_equal(e.code, QR_EIO);
    assert_string_equal(e.msg, "cannot read file: 7");
    assert_string_equal(e.param, "");
    assert_int_equal(qr_fail_param(&e, QR_EINVAL, "top_p", "expected (0, 1], got %g", 2.0), QR_EINVAL);
    assert_string_equal(e.param, "top_p");
    assert_string_equal(e.msg, "expected (0, 1], got 2");
    assert_int_equal(qr_fail(NULL, QR_ENOMEM, "nobody reads %s", "this"), QR_ENOMEM);
}

static int utf8_whole(const char *s)
{
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        int more = c < 0x80 ? 0 : c >= 0xF0 ? 3 : c >= 0xE0 ? 2 : c >= 0xC0 ? 1 : -1;
        if (more < 0) return 0;
        while (more-- > 0)
            if (((unsigned char)*++s & 0xC0) != 0x80) return 0;
    }
    return 1;
}

QR_TEST(status_long_messages_end_with_a_whole_character)
{
    static const char *const chars[] = {"x", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x99\x82"};
    for (int shift = 0; shift < 8; shift++)
        for (size_t k = 0; k < 4; k++) {
            char text[1024] = {0};
            memset(text, '.', (size_t)shift);
            for (int i = 0; i < 200; i++) strcat(text, chars[k]);
            struct qr_error e;
            assert_int_equal(qr_fail(&e, QR_EINVAL, "%s", text), QR_EINVAL);
            assert_true(strlen(e.msg) < sizeof e.msg &&
                        strlen(e.msg) >= (k == 0 ? 200 + (size_t)shift : 252));
            assert_true(utf8_whole(e.msg));
            assert_memory_equal(e.msg, text, strlen(e.msg));
        }
}

QR_TEST(status_codes_have_names)
{
    for (int c = QR_ETOOBIG; c <= 0; c++)
        assert_string_not_equal(qr_status_name((enum qr_status)c), "unknown");
    assert_string_equal(qr_status_name((enum qr_status) - 99), "unknown");
}

QR_TEST(status_fail_in_puts_a_place_before_what_is_wrong)
{
    struct qr_error e;
    char where[400], what[300];
    (void)qr_fail(&e, QR_EFORMAT, "expected an object");
    assert_int_equal(qr_fail_in(&e, QR_EFORMAT, "/tmp/x.json"), QR_EFORMAT);
    assert_string_equal(e.msg, "/tmp/x.json: expected an object");
    memset(where, 'a', sizeof where - 1);
    memcpy(where + sizeof where - 6, "z.csv", 6);
    (void)qr_fail(&e, QR_EFORMAT, "expected an object");
    (void)qr_fail_in(&e, QR_EFORMAT, where);
    assert_int_equal(strlen(e.msg), sizeof e.msg - 1);
    assert_true(strncmp(e.msg, "...aaa", 6) == 0 && strstr(e.msg, "aaz.csv: expected an object"));
    memset(what, 'b', sizeof what - 1);
    what[sizeof what - 1] = 0;
    (void)qr_fail(&e, QR_EFORMAT, "%s", what);
    (void)qr_fail_in(&e, QR_EFORMAT, where);
    assert_int_equal(e.msg[0], 'b');
    assert_int_equal(qr_fail_in(NULL, QR_EIO, "x"), QR_EIO);
}
