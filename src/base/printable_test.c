#include "base/printable.h"

#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "base/test.h"

static void becomes(const char *from, const char *to)
{
    char s[64];
    strcpy(s, from);
    qr_printable_line(s);
    assert_string_equal(s, to);
}

QR_TEST(printable_leaves_text_alone)
{
    becomes("", "");
    becomes("plain ~ text", "plain ~ text");
    becomes("caf\xC3\xA9 \xE4\xBD\xA0 \xF0\x9F\x99\x82 \xD8\xB3",
            "caf\xC3\xA9 \xE4\xBD\xA0 \xF0\x9F\x99\x82 \xD8\xB3");
    becomes("a\xE2\x80\x8D"
            "b",
            "a\xE2\x80\x8D"
            "b"); // the joiner of emoji and of Arabic
}

QR_TEST(printable_replaces_what_drives_a_terminal)
{
    becomes("\x1B[2J", "?[2J");
    becomes("a\rb\nc\td\x7F", "a?b c d?");
    becomes("\xC2\x9B"
            "31m",
            "??31m"); // CSI as one C1 character
    becomes("\xE2\x80\xAE"
            "abc",
            "???abc");              // right-to-left override
    becomes("\xE2\x80\xA8", "???"); // line separator
}

QR_TEST(printable_replaces_what_is_not_utf8)
{
    becomes("\xFF"
            "a\xC3",
            "?a?");
    becomes("\xC0\x80", "??");           // overlong
    becomes("\xED\xA0\x80", "???");      // a surrogate
    becomes("\xF4\x90\x80\x80", "????"); // beyond the last code point
    becomes("\xE2\x82", "??");
}

QR_TEST(printable_errors_are_one_line)
{
    struct qr_error e;
    (void)qr_fail(&e, QR_EFORMAT, "tensor %s", "x\x1B]0;owned\x07\ny\xFF.");
    assert_string_equal(e.msg, "tensor x?]0;owned? y?.");
}
