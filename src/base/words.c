#include "base/words.h"

#include <inttypes.h>
#include <stdio.h>

const char *qr_count(char out[QR_COUNT_BYTES], uint64_t n, const char *noun)
{
    snprintf(out, QR_COUNT_BYTES, "%" PRIu64 " %.20s%s", n, noun, n == 1 ? "" : "s");
    return out;
}
