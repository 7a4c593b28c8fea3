/* Q5_1: blocks of 32 values, 24 bytes; value = d * q + m.
 *   | d: f16 | m: f16 | h: u32, bit i is the fifth bit of q[i] | 16 bytes of low nibbles as in Q4_0 |
 */
#include "kern/half.h"
#include "kern/quant/quant_internal.h"

void qr_unpack_Q5_1(const void *src, float *dst, size_t n)
{
    const uint8_t *p = src;
    for (size_t b = 0; b < n / 32; b++, p += 24, dst += 32) {
        float d = qr_f32_of_f16(qr_load_u16(p));
        float m = qr_f32_of_f16(qr_load_u16(p + 2));
        uint32_t h = qr_load_u16(p + 4) | (uint32_t)qr_load_u16(p + 6) << 16;
        for (int i = 0; i < 16; i++) {
            int lo = (p[8 + i] & 15) | (int)((h >> i & 1) << 4);
            int hi = (p[8 + i] >> 4) | (int)((h >> (i + 16) & 1) << 4);
            dst[i] = d * (float)lo + m;
            dst[i + 16] = d * (float)hi + m;
        }
    }
}
