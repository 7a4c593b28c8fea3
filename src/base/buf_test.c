#include "base/buf.h"

#include <string.h>

#include "base/mem.h"
#include "base/test.h"

QR_TEST(buf_grows_and_stays_terminated)
{
    struct qr_buf b = {0};
    char expected[4001];
    for (int i = 0; i < 1000; i++) {
        qr_buf_char(&b, (char)('a' + i % 26));
        qr_buf_add(&b, "xyz", 3);
        memcpy(expected + 4 * i, "axyz", 5);
        expected[4 * i] = (char)('a' + i % 26);
        assert_int_equal(b.data[b.len], 0);
    }
    assert_int_equal(b.len, 4000);
    assert_memory_equal(b.data, expected, 4001);
    qr_buf_clear(&b);
    assert_int_equal(b.len, 0);
    assert_string_equal(b.data, "");
    qr_buf_str(&b, "again");
    assert_string_equal(b.data, "again");
    qr_buf_fini(&b);
    assert_null(b.data);
}

QR_TEST(buf_holds_any_bytes)
{
    struct qr_buf b = {0};
    qr_buf_add(&b, "a\0b", 3);
    qr_buf_add(&b, NULL, 0);
    assert_int_equal(b.len, 3);
    assert_memory_equal(b.data, "a\0b", 4);
    qr_buf_fini(&b);
}

QR_TEST(buf_prints_at_every_fill)
{
    // The room left is every size around what is printed.
    for (size_t fill = 0; fill < 140; fill++) {
        struct qr_buf b = {0};
        for (size_t i = 0; i < fill; i++) qr_buf_char(&b, '.');
        qr_buf_printf(&b, "%d-%s", 12345, "tail");
        assert_int_equal(b.len, fill + 10);
        assert_string_equal(b.data + fill, "12345-tail");
        qr_buf_fini(&b);
    }
}

QR_TEST(buf_remembers_that_memory_failed)
{
    struct qr_buf b = {0};
    qr_buf_str(&b, "kept");
    qr_mem_fail_at(1, 0);
    assert_false(qr_buf_reserve(&b, 100000));
    qr_mem_fail_at(0, 0);
    qr_buf_str(&b, " lost");
    qr_buf_printf(&b, "%d", 1);
    assert_true(b.failed);
    assert_string_equal(b.data, "kept");
    qr_buf_clear(&b);
    qr_buf_str(&b, "new");
    assert_false(b.failed);
    assert_string_equal(b.data, "new");
    assert_false(qr_buf_reserve(&b, SIZE_MAX - 2));
    qr_buf_fini(&b);
}
