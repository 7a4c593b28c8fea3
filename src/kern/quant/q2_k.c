/* Q2_K: super-blocks of 256 values in 16 sub-blocks of 16, 84 bytes;
 * value = (d * (s & 15)) * q - dmin * (s >> 4), s of its sub-block.
 *   | s[16]: u8 | 2 halves of 32 bytes: bits 2r, 2r + 1 of byte j of half h are value 128h + 32r + j |
 *   | d: f16 | dmin: f16 |
 */
#include "kern/half.h"
#include "kern/quant/quant_internal.h"

void qr_unpack_Q2_K(const void *src, float *dst, size_t n)
{
    const uint8_t *p = src;
    for (size_t b = 0; b < n / 256; b++, p += 84, dst += 256) {
        float d = qr_f32_of_f16(qr_load_u16(p + 80));
        float dmin = qr_f32_of_f16(qr_load_u16(p + 82));
        for (int i = 0; i < 256; i++) {
            float ds = d * (float)(p[i / 16] & 15), dm = dmin * (float)(p[i / 16] >> 4);
            dst[i] = ds * (float)(p[16 + i / 128 * 32 + i % 32] >> i / 32 % 4 * 2 & 3) - dm;
        }
    }
}
