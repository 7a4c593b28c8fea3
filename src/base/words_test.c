#include "base/words.h"

#include "base/test.h"

QR_TEST(words_count_one_and_many)
{
    char out[QR_COUNT_BYTES];
    assert_string_equal(qr_count(out, 0, "request"), "0 requests");
    assert_string_equal(qr_count(out, 1, "request"), "1 request");
    assert_string_equal(qr_count(out, UINT64_MAX, "token"), "18446744073709551615 tokens");
}
