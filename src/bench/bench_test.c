#include "bench/bench.h"

#include <string.h>

#include "base/test.h"

QR_TEST(bench_entries_are_found_by_name)
{
    size_t n;
    const struct bench_entry *all = qr_bench_list(&n);
    assert_true(n > 0);
    for (size_t i = 0; i < n; i++) {
        assert_ptr_equal(qr_bench_find(all[i].name), &all[i]);
        assert_non_null(strchr(all[i].help, '\n'));
        assert_true((all[i].model == BENCH_WITHOUT) == !strstr(all[i].args, "MODEL"));
    }
    assert_null(qr_bench_find("nothing"));
}
