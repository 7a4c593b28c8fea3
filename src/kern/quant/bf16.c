// BF16: n upper halves of float32.
#include "kern/half.h"
#include "kern/quant/quant_internal.h"

void qr_unpack_BF16(const void *src, float *dst, size_t n)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < n; i++) dst[i] = qr_f32_of_bf16(qr_load_u16(p + 2 * i));
}
