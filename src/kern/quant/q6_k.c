/* Q6_K: super-blocks of 256 values in 16 sub-blocks of 16, 210 bytes; value = (d * scale[sub]) * (q - 32).
 * Each half h (128 values) is four runs of 32:
 *   | 2 x 64 bytes: byte 32 * (r & 1) + i of half h has the low nibble of run r, in its low bits for r < 2 |
 *   | 2 x 32 bytes: bits 2r, 2r + 1 of byte i of half h are the upper bits of value i of run r |
 *   | scale[16]: i8 | d: f16 |
 */
#include "kern/half.h"
#include "kern/quant/quant_internal.h"

void qr_unpack_Q6_K(const void *src, float *dst, size_t n)
{
    const uint8_t *p = src;
    for (size_t b = 0; b < n / 256; b++, p += 210, dst += 256) {
        float d = qr_f32_of_f16(qr_load_u16(p + 208));
        for (int i = 0; i < 256; i++) {
            int h = i / 128, r = i / 32 % 4, j = i % 32;
            int lo = p[64 * h + 32 * (r & 1) + j] >> (r >> 1) * 4 & 15;
            int hi = p[128 + 32 * h + j] >> 2 * r & 3;
            dst[i] = d * (float)(int8_t)p[192 + i / 16] * (float)((lo | hi << 4) - 32);
        }
    }
}
