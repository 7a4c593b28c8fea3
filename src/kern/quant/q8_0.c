/* Q8_0: blocks of 32 values, 34 bytes; value = d * q.
 *   | d: f16 | q[32]: i8 |
 */
#include "kern/half.h"
#include "kern/quant/quant_internal.h"

void qr_unpack_Q8_0(const void *src, float *dst, size_t n)
{
    const uint8_t *p = src;
    for (size_t b = 0; b < n / 32; b++, p += 34, dst += 32) {
        float d = qr_f32_of_f16(qr_load_u16(p));
        for (int i = 0; i < 32; i++) dst[i] = (float)(int8_t)p[2 + i] * d;
    }
}
