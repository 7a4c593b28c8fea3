/* Q4_0: blocks of 32 values, 18 bytes; value = d * (q - 8).
 *   | d: f16 | 16 bytes: byte i has q[i] in its low and q[i + 16] in its high nibble |
 */
#include "kern/half.h"
#include "kern/quant/quant_internal.h"

void qr_unpack_Q4_0(const void *src, float *dst, size_t n)
{
    const uint8_t *p = src;
    for (size_t b = 0; b < n / 32; b++, p += 18, dst += 32) {
        float d = qr_f32_of_f16(qr_load_u16(p));
        for (int i = 0; i < 16; i++) {
            dst[i] = d * (float)((p[2 + i] & 15) - 8);
            dst[i + 16] = d * (float)((p[2 + i] >> 4) - 8);
        }
    }
}
