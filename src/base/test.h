/* Unit tests. A test file sits beside the code it tests (pool.c, pool_test.c) and uses cmocka's assertions:
 *
 *     #include "base/test.h"
 *     QR_TEST(pool_frees_tail_first) { assert_int_equal(1, 1); }
 *
 * Owns: the list of tests, filled before main by constructors. Refuses to know: what is tested.
 * Threads: main only. Lifetime: the process.
 * Every *_test.c is linked into one program, `quire-test [substring...]`. A test that needs what this
 * machine lacks calls QR_SKIP("why"), which prints the reason. */
#ifndef QR_BASE_TEST_H
#define QR_BASE_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

void qr_test_add(const char *name, void (*fn)(void **state));

#define QR_TEST(name)                                                                                        \
    static void qr_test_##name(void **state);                                                                \
    __attribute__((constructor)) static void qr_test_add_##name(void)                                        \
    {                                                                                                        \
        qr_test_add(#name, qr_test_##name);                                                                  \
    }                                                                                                        \
    static void qr_test_##name(__attribute__((unused)) void **state)

#define QR_SKIP(why) (printf("SKIP %s: %s\n", __func__ + sizeof "qr_test_" - 1, why), skip())

// The shared data folder (QUIRE_SHARED, default ../shared), or NULL where it is absent.
const char *qr_test_shared(void);
// A file that `make` prepared under the build folder (QUIRE_BUILD, default build); static storage.
const char *qr_test_build_path(const char *name);
// The default model's GGUF (QUIRE_TEST_MODEL), or NULL where it is absent.
const char *qr_test_model(void);

#endif
