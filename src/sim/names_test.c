#include "sim/names.h"

#include <stdio.h>

#include "base/test.h"

QR_TEST(names_are_numbers_in_the_order_in_which_they_come)
{
    struct qr_names x = {0};
    bool is_new;
    char name[16];
    for (int64_t i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "s%lld", (long long)(i * 7919 % 1000));
        assert_int_equal(qr_names_put(&x, name, &is_new), i);
        assert_true(is_new);
    }
    for (int64_t i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "s%lld", (long long)(i * 7919 % 1000));
        assert_int_equal(qr_names_put(&x, name, &is_new), i);
        assert_false(is_new);
    }
    assert_int_equal(qr_names_put(&x, "", &is_new), 1000);
    qr_names_fini(&x);
}
