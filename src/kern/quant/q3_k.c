/* Q3_K: super-blocks of 256 values in 16 sub-blocks of 16, 110 bytes; value = (d * (scale[sub] - 32)) * (q - 4).
 *   | 32 bytes: bit r of byte j is the third bit of value 32r + j |
 *   | 2 halves of 32 bytes: bits 2r, 2r + 1 of byte j of half h are the lower bits of value 128h + 32r + j |
 *   | 12 bytes: scales of six bits, qr_q3_scale | d: f16 |
 */
#include "kern/half.h"
#include "kern/quant/quant_internal.h"

void qr_unpack_Q3_K(const void *src, float *dst, size_t n)
{
    const uint8_t *p = src;
    for (size_t b = 0; b < n / 256; b++, p += 110, dst += 256) {
        float d = qr_f32_of_f16(qr_load_u16(p + 108));
        for (int i = 0; i < 256; i++) {
            int lo = p[32 + i / 128 * 32 + i % 32] >> i / 32 % 4 * 2 & 3;
            int hi = p[i % 32] >> i / 32 & 1;
            dst[i] = d * (float)(qr_q3_scale(p + 96, i / 16) - 32) * (float)((lo | hi << 2) - 4);
        }
    }
}
