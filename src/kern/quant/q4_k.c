/* Q4_K: super-blocks of 256 values in 8 sub-blocks of 32, 144 bytes;
 * value = (d * scale[sub]) * q - (dmin * min[sub]).
 *   | d: f16 | dmin: f16 | 12 bytes: scales and minima, qr_k_scale_min |
 *   | 4 runs of 32 bytes: byte i of run j has q[i] of sub-block 2j low and of sub-block 2j + 1 high |
 */
#include "kern/half.h"
#include "kern/quant/quant_internal.h"

void qr_unpack_Q4_K(const void *src, float *dst, size_t n)
{
    const uint8_t *p = src;
    for (size_t b = 0; b < n / 256; b++, p += 144, dst += 256) {
        float d = qr_f32_of_f16(qr_load_u16(p));
        float dmin = qr_f32_of_f16(qr_load_u16(p + 2));
        for (int sub = 0; sub < 8; sub++) {
            uint8_t scale, min;
            qr_k_scale_min(p + 4, sub, &scale, &min);
            float ds = d * (float)scale, dm = dmin * (float)min;
            const uint8_t *q = p + 16 + 32 * (sub / 2);
            for (int i = 0; i < 32; i++) dst[32 * sub + i] = ds * (float)(q[i] >> (sub & 1) * 4 & 15) - dm;
        }
    }
}
