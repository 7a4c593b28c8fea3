// F32: n little-endian float32.
#include <string.h>

#include "kern/quant/quant_internal.h"

void qr_unpack_F32(const void *src, float *dst, size_t n)
{
    memcpy(dst, src, n * sizeof *dst);
}
