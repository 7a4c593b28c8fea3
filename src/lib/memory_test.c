#include <string.h>

#include "base/test.h"
#include "lib/lib_internal.h"

#define GIB ((uint64_t)1 << 30)

static struct lib_memory usual(void)
{
    return (struct lib_memory){.max_num_seqs = 64,
                               .block_size = 16,
                               .share = 0.5,
                               .ctx_max = 8192,
                               .block_bytes = 1 << 20,
                               .machine_bytes = 16 * GIB,
                               .used_bytes = GIB,
                               .step_bytes = GIB};
}

QR_TEST(memory_share_leaves_room_for_weights_and_step)
{
    struct lib_memory m = usual();
    struct lib_pool p;
    assert_int_equal(lib_size_pool(&m, &p, NULL), QR_OK);
    assert_int_equal(p.n_blocks, 6 * 1024); // 16 GiB / 2 - 1 - 1
    assert_int_equal(p.max_model_len, 8192);
    m.max_num_seqs = 4; // no more than 4 requests of 512 blocks can fill
    assert_int_equal(lib_size_pool(&m, &p, NULL), QR_OK);
    assert_int_equal(p.n_blocks, 4 * 512);
}

QR_TEST(memory_explicit_bytes_win)
{
    struct lib_memory m = usual();
    struct lib_pool p;
    m.kv_bytes = 3 * GIB + 12345;
    assert_int_equal(lib_size_pool(&m, &p, NULL), QR_OK);
    assert_int_equal(p.n_blocks, 3 * 1024);
    m.n_blocks = 700;
    assert_int_equal(lib_size_pool(&m, &p, NULL), QR_OK);
    assert_int_equal(p.n_blocks, 700);
}

QR_TEST(memory_refuses_with_the_length_that_fits)
{
    struct lib_memory m = usual();
    struct lib_pool p = {0};
    struct qr_error err;
    m.kv_bytes = 100 << 20;
    assert_int_equal(lib_size_pool(&m, &p, &err), QR_ETOOBIG);
    assert_non_null(strstr(err.msg, "estimated maximum model length is 1600"));
    assert_non_null(strstr(err.msg, "8192 needs 512 KV blocks"));
    m.max_model_len = 1600;
    assert_int_equal(lib_size_pool(&m, &p, &err), QR_OK);
    assert_int_equal(p.max_model_len, 1600);
    m.kv_bytes = 1; // not even a block
    assert_int_equal(lib_size_pool(&m, &p, &err), QR_ETOOBIG);
    m = usual();
    m.share = 0.1;
    assert_int_equal(lib_size_pool(&m, &p, &err), QR_ETOOBIG);
    assert_non_null(strstr(err.msg, "1638 MiB of 16384 MiB"));
}

QR_TEST(memory_length_follows_a_count_of_blocks)
{
    struct lib_memory m = usual();
    struct lib_pool p;
    struct qr_error err;
    m.n_blocks = 64;
    assert_int_equal(lib_size_pool(&m, &p, &err), QR_OK);
    assert_int_equal(p.max_model_len, 1024);
    m.max_model_len = 2000; // asked for: not lowered in silence
    assert_int_equal(lib_size_pool(&m, &p, &err), QR_ETOOBIG);
    m.max_model_len = 9000;
    assert_int_equal(lib_size_pool(&m, &p, &err), QR_EINVAL);
    m.max_model_len = 0;
    m.block_size = 24;
    assert_int_equal(lib_size_pool(&m, &p, &err), QR_EINVAL);
}

QR_TEST(memory_weights_are_weighed_before_they_are_read)
{
    struct qr_error err = {0};
    assert_int_equal(lib_check_weights(GIB, 2 * GIB, &err), QR_OK);
    assert_int_equal(lib_check_weights(GIB, GIB + ((uint64_t)20 << 20), &err), QR_OK);
    assert_int_equal(lib_check_weights(GIB, GIB + ((uint64_t)20 << 20) - 1, &err), QR_ETOOBIG);
    assert_non_null(strstr(err.msg, "1024 MiB"));
    assert_int_equal(lib_check_weights(UINT64_MAX, GIB, &err), QR_ETOOBIG);
}

QR_TEST(memory_tiers_are_whole_blocks_and_stage_a_request)
{
    struct lib_memory m = usual();
    struct lib_tiers t;
    struct qr_error err;
    assert_int_equal(lib_size_tiers(&m, &(struct lib_tier_bytes){0}, &t, &err), QR_OK);
    assert_int_equal(t.n_ram + t.n_file + t.n_staging, 0);
    assert_int_equal(lib_size_tiers(&m, &(struct lib_tier_bytes){.swap_ram = GIB + 5, .swap_file = 10 * GIB}, &t, &err), QR_OK);
    assert_int_equal(t.n_ram, 1024);
    assert_int_equal(t.n_file, 10 * 1024);
    assert_int_equal(t.n_staging, 256); // 8,192 tokens would take 512 MiB
    m.max_model_len = 2048;
    assert_int_equal(lib_size_tiers(&m, &(struct lib_tier_bytes){.swap_ram = 0, .swap_file = 10 * GIB}, &t, &err), QR_OK);
    assert_int_equal(t.n_staging, 128);
    assert_int_equal(lib_size_tiers(&m, &(struct lib_tier_bytes){.swap_ram = 0, .swap_file = 3 << 20}, &t, &err), QR_OK);
    assert_int_equal(t.n_staging, 3); // no more than the file
    struct lib_tier_bytes prefix = {.prefix_ram = 9 << 20, .prefix_file = 5 << 20};
    assert_int_equal(lib_size_tiers(&m, &prefix, &t, &err), QR_OK);
    assert_int_equal(t.n_prefix_ram, 9);
    assert_int_equal(t.n_prefix_file, 5);
    assert_int_equal(t.n_staging, 5);
    m.block_bytes = 5000; // a slot of the file is two pages
    assert_int_equal(lib_size_tiers(&m, &(struct lib_tier_bytes){.swap_ram = 5000, .swap_file = 3 * 8192}, &t, &err), QR_OK);
    assert_int_equal(t.n_ram, 1);
    assert_int_equal(t.n_file, 3);
    assert_int_equal(lib_size_tiers(&m, &(struct lib_tier_bytes){.swap_ram = 4999, .swap_file = 0}, &t, &err), QR_EINVAL);
    assert_non_null(strstr(err.msg, "--swap-space of 4999 bytes: expected room for 1 to"));
    assert_int_equal(lib_size_tiers(&m, &(struct lib_tier_bytes){.swap_ram = 0, .swap_file = 4999}, &t, &err), QR_EINVAL);
}
