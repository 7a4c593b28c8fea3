// F16: n IEEE half-precision floats.
#include "kern/half.h"
#include "kern/quant/quant_internal.h"

void qr_unpack_F16(const void *src, float *dst, size_t n)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < n; i++) dst[i] = qr_f32_of_f16(qr_load_u16(p + 2 * i));
}
