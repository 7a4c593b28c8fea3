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
