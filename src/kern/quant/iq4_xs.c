/* IQ4_XS: super-blocks of 256 values in 8 sub-blocks of 32, 136 bytes;
 * value = (d * (scale[sub] - 32)) * QR_IQ4_VALUES[q].
 *   | d: f16 | u16 and 4 bytes: scales of six bits, qr_iq4_scale |
 *   | 8 runs of 16 bytes: byte i of run s has q[i] of sub-block s low and q[i + 16] high |
 */
#include "kern/half.h"
#include "kern/pack_layout.h"
#include "kern/quant/quant_internal.h"

void qr_unpack_IQ4_XS(const void *src, float *dst, size_t n)
{
    static const int8_t values[] = {QR_IQ4_VALUES};
    const uint8_t *p = src;
    for (size_t b = 0; b < n / 256; b++, p += 136, dst += 256) {
        float d = qr_f32_of_f16(qr_load_u16(p));
        for (int sub = 0; sub < 8; sub++) {
            float ds = d * (float)(qr_iq4_scale(p + 2, sub) - 32);
            const uint8_t *q = p + 8 + 16 * sub;
            for (int i = 0; i < 16; i++) {
                dst[32 * sub + i] = ds * (float)values[q[i] & 15];
                dst[32 * sub + i + 16] = ds * (float)values[q[i] >> 4];
            }
        }
    }
}
