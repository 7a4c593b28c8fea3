#include "kern/isa.h"

#include <string.h>

#include "base/test.h"

QR_TEST(isa_set_implies_weaker_ones)
{
    uint32_t mask = qr_isa_detected();
    assert_int_equal(mask & (mask + 1), 0);
    assert_true(mask < 1u << QR_ISA_COUNT);
    assert_int_equal(mask, qr_isa_detected());
}

#if defined(__x86_64__)
// gcc has its own detector.
QR_TEST(isa_agrees_with_the_compiler)
{
    uint32_t mask = qr_isa_detected();
    __builtin_cpu_init();
    int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    int avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    int vnni = avx512 && __builtin_cpu_supports("avx512vnni");
    assert_int_equal(qr_isa_has(mask, QR_ISA_avx2), avx2 != 0);
    assert_int_equal(qr_isa_has(mask, QR_ISA_avx512), avx512 != 0);
    assert_int_equal(qr_isa_has(mask, QR_ISA_avx512vnni), vnni != 0);
    // Tiles need the system's permission too, of which the compiler does not ask.
    if (qr_isa_has(mask, QR_ISA_amx))
        assert_true(__builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-int8") &&
                    __builtin_cpu_supports("amx-bf16"));
}
#endif

QR_TEST(isa_limit_lowers_and_auto_restores)
{
    struct qr_error err;
    assert_int_equal(qr_isa_limit("ref", &err), QR_OK);
    assert_int_equal(qr_isa_active(), 0);
    for (int i = 0; i < QR_ISA_COUNT; i++) {
        enum qr_status st = qr_isa_limit(qr_isa_name((enum qr_isa)i), &err);
        if (qr_isa_has(qr_isa_detected(), (enum qr_isa)i)) {
            assert_int_equal(st, QR_OK);
            assert_int_equal(qr_isa_active(), (2u << i) - 1);
        } else {
            assert_int_equal(st, QR_ENOTSUP);
            assert_non_null(strstr(err.msg, qr_isa_name((enum qr_isa)i)));
        }
    }
    assert_int_equal(qr_isa_limit("auto", &err), QR_OK);
    assert_int_equal(qr_isa_active(), qr_isa_detected());
}

QR_TEST(isa_limit_names_the_choices)
{
    struct qr_error err;
    assert_int_equal(qr_isa_limit("sse9", &err), QR_EINVAL);
    assert_non_null(strstr(err.msg, "sse9"));
#if defined(__x86_64__)
    assert_non_null(strstr(err.msg, "auto, ref, avx2, avx512, avx512vnni, avx512bf16, amx"));
#elif defined(__aarch64__)
    assert_non_null(strstr(err.msg, "auto, ref, neon, dotprod, i8mm, bf16"));
#endif
    assert_int_equal(qr_isa_active(), qr_isa_detected());
}
