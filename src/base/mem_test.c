#include "base/mem.h"

#include <string.h>

#include "base/test.h"

QR_TEST(mem_accounts_by_tag)
{
    size_t before = qr_mem_live_bytes(QR_MEM_HTTP);
    uint64_t calls = qr_mem_calls();
    char *p = qr_malloc(QR_MEM_HTTP, 100);
    assert_int_equal(qr_mem_live_bytes(QR_MEM_HTTP), before + 100);
    memset(p, 7, 100);
    p = qr_realloc(QR_MEM_HTTP, p, 1000);
    assert_int_equal(p[99], 7);
    assert_int_equal(qr_mem_live_bytes(QR_MEM_HTTP), before + 1000);
    char *s = qr_strdup(QR_MEM_HTTP, "page");
    assert_string_equal(s, "page");
    assert_int_equal(qr_mem_live_bytes(QR_MEM_HTTP), before + 1005);
    assert_int_equal(qr_mem_calls(), calls + 3);
    qr_free(p);
    qr_free(s);
    qr_free(NULL);
    assert_int_equal(qr_mem_live_bytes(QR_MEM_HTTP), before);
}

QR_TEST(mem_calloc_zeroes_and_checks_overflow)
{
    char *p = qr_calloc(QR_MEM_MISC, 33, 3);
    for (int i = 0; i < 99; i++) assert_int_equal(p[i], 0);
    qr_free(p);
    volatile size_t huge = SIZE_MAX; // volatile: the compiler would warn of a request it can see to be absurd
    assert_null(qr_calloc(QR_MEM_MISC, huge / 2, 3));
    assert_null(qr_malloc(QR_MEM_MISC, huge));
    assert_null(qr_malloc(QR_MEM_MISC, huge - 8));
    assert_null(qr_pages_alloc(QR_MEM_MISC, huge));
    assert_null(qr_pages_alloc(QR_MEM_MISC, 0));
}

QR_TEST(mem_fails_where_told)
{
    qr_mem_fail_at(2, 3); // the 2nd, 5th, 8th
    for (int i = 1; i <= 9; i++) {
        void *p = qr_malloc(QR_MEM_MISC, 8);
        if (i % 3 == 2)
            assert_null(p);
        else
            assert_non_null(p);
        qr_free(p);
    }
    qr_mem_fail_at(1, 0);
    void *kept = NULL;
    assert_null(qr_realloc(QR_MEM_MISC, kept, 5));
    kept = qr_malloc(QR_MEM_MISC, 5);
    assert_non_null(kept);
    qr_mem_fail_at(1, 0);
    assert_null(qr_realloc(QR_MEM_MISC, kept, 50)); // the old block stays
    memset(kept, 1, 5);
    qr_mem_fail_at(0, 0);
    qr_free(kept);
}

QR_TEST(mem_pages_are_aligned_zero_and_given_back)
{
    size_t bytes = (5 << 20) + 123, before = qr_mem_live_bytes(QR_MEM_KV);
    unsigned char *p = qr_pages_alloc(QR_MEM_KV, bytes);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % (2 << 20), 0);
    assert_int_equal(qr_mem_live_bytes(QR_MEM_KV), before + (6 << 20));
    for (size_t i = 0; i < bytes; i += 4096) assert_int_equal(p[i], 0);
    memset(p, 9, bytes);
    qr_pages_release(p + 4096, 1 << 20);
    assert_int_equal(p[4095], 9);
    assert_int_equal(p[4096], 0);
    assert_int_equal(p[4096 + (1 << 20)], 9);
    qr_pages_free(QR_MEM_KV, p, bytes);
    qr_pages_free(QR_MEM_KV, NULL, bytes);
    assert_int_equal(qr_mem_live_bytes(QR_MEM_KV), before);
}

QR_TEST(mem_tags_have_names)
{
    for (int t = 0; t < QR_MEM_TAGS; t++) assert_string_not_equal(qr_mem_tag_name((enum qr_mem_tag)t), "?");
    assert_string_equal(qr_mem_tag_name(QR_MEM_TAGS), "?");
}
