/* IQ4_NL: blocks of 32 values, 18 bytes, laid out as Q4_0; value = d * QR_IQ4_VALUES[q]. */
#include "kern/half.h"
#include "kern/pack_layout.h"
#include "kern/quant/quant_internal.h"

void qr_unpack_IQ4_NL(const void *src, float *dst, size_t n)
{
    static const int8_t values[] = {QR_IQ4_VALUES};
    const uint8_t *p = src;
    for (size_t b = 0; b < n / 32; b++, p += 18, dst += 32) {
        float d = qr_f32_of_f16(qr_load_u16(p));
        for (int i = 0; i < 16; i++) {
            dst[i] = d * (float)values[p[2 + i] & 15];
            dst[i + 16] = d * (float)values[p[2 + i] >> 4];
        }
    }
}
