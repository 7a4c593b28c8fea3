/* The unit-test program: every *_test.c of the tree, or those whose name holds one of the arguments. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/test.h"

#define TESTS_MAX 4096

static struct CMUnitTest tests[TESTS_MAX];
static size_t n_tests;

void qr_test_add(const char *name, void (*fn)(void **state))
{
    if (n_tests == TESTS_MAX) abort();
    tests[n_tests++] = (struct CMUnitTest){.name = name, .test_func = fn};
}

const char *qr_test_shared(void)
{
    const char *dir = getenv("QUIRE_SHARED");
    if (!dir) dir = "../shared";
    return access(dir, R_OK) == 0 ? dir : NULL;
}

const char *qr_test_build_path(const char *name)
{
    static char path[4][4096];
    static int i;
    const char *dir = getenv("QUIRE_BUILD");
    i = (i + 1) % 4;
    snprintf(path[i], sizeof path[i], "%s/%s", dir ? dir : "build", name);
    return path[i];
}

const char *qr_test_model(void)
{
    const char *path = getenv("QUIRE_TEST_MODEL");
    return path && access(path, R_OK) == 0 ? path : NULL;
}

static int wanted(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strstr(name, argv[i])) return 1;
    return argc < 2;
}

int main(int argc, char **argv)
{
    size_t n = 0;
    for (size_t i = 0; i < n_tests; i++)
        if (wanted(tests[i].name, argc, argv)) tests[n++] = tests[i];
    if (n == 0) {
        fprintf(stderr, "quire-test: no test matches\n");
        return 2;
    }
    return _cmocka_run_group_tests("quire", tests, n, NULL, NULL);
}
