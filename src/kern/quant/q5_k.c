/* Q5_K: super-blocks of 256 values in 8 sub-blocks of 32, 176 bytes; value as in Q4_K with five-bit q.
 *   | d: f16 | dmin: f16 | 12 bytes: scales and minima, qr_k_scale_min |
 *   | 32 bytes: bit s of byte i is the fifth bit of q[i] of sub-block s | 128 bytes of low nibbles as in Q4_K
 * |
 */
#include "kern/half.h"
#include "kern/quant/quant_internal.h"

void qr_unpack_Q5_K(const void *src, float *dst, size_t n)
{
    const uint8_t *p = src;
    for (size_t b = 0; b < n / 256; b++, p += 176, dst += 256) {
        float d = qr_f32_of_f16(qr_load_u16(p));
        float dmin = qr_f32_of_f16(qr_load_u16(p + 2));
        for (int sub = 0; sub < 8; sub++) {
            uint8_t scale, min;
            qr_k_scale_min(p + 4, sub, &scale, &min);
            float ds = d * (float)scale, dm = dmin * (float)min;
            const uint8_t *h = p + 16, *q = p + 48 + 32 * (sub / 2);
            for (int i = 0; i < 32; i++) {
                int v = (q[i] >> (sub & 1) * 4 & 15) | (h[i] >> sub & 1) << 4;
                dst[32 * sub + i] = ds * (float)v - dm;
            }
        }
    }
}
