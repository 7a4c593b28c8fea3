/* Q4_1: blocks of 32 values, 20 bytes; value = d * q + m.
 *   | d: f16 | m: f16 | 16 bytes: byte i has q[i] in its low and q[i + 16] in its high nibble |
 */
#include "kern/half.h"
#include "kern/quant/quant_internal.h"

void qr_unpack_Q4_1(const void *src, float *dst, size_t n)
{
    const uint8_t *p = src;
    for (size_t b = 0; b < n / 32; b++, p += 20, dst += 32) {
        float d = qr_f32_of_f16(qr_load_u16(p));
        float m = qr_f32_of_f16(qr_load_u16(p + 2));
        for (int i = 0; i < 16; i++) {
            dst[i] = d * (float)(p[4 + i] & 15) + m;
            dst[i + 16] = d * (float)(p[4 + i] >> 4) + m;
        }
    }
}
