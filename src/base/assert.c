#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

void qr_assert_failed(const char *expr, const char *file, int line, const char *func)
{
    fprintf(stderr, "quire: bug: assertion failed: %s (%s:%d, %s)\n", expr, file, line, func);
    abort();
}
