/* The unpackers of kern/quant, one a weight type: qr_unpack_<TYPE>.
 *
 * Owns: nothing. Refuses to know: packed formats. Threads: pure functions. Lifetime: static. */
#ifndef QR_KERN_QUANT_INTERNAL_H
#define QR_KERN_QUANT_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#define QR_QTYPE(name, id, elems, bytes, packed) void qr_unpack_##name(const void *src, float *dst, size_t n);
#include "kern/qtypes.def"
#undef QR_QTYPE

// Scale and minimum (6 bits each) of sub-block i (0..7) in the 12 packed bytes that Q4_K and Q5_K share:
//   bytes 0-3   scale 0-3 in bits 0-5, high two bits of scale 4-7 in bits 6-7
//   bytes 4-7   minimum 0-3 in bits 0-5, high two bits of minimum 4-7 in bits 6-7
//   bytes 8-11  low four bits of scale 4-7 in bits 0-3, of minimum 4-7 in bits 4-7
static inline void qr_k_scale_min(const uint8_t *s, int i, uint8_t *scale, uint8_t *min)
{
    if (i < 4) {
        *scale = s[i] & 63;
        *min = s[i + 4] & 63;
    } else {
        *scale = (s[i + 4] & 15) | ((s[i - 4] >> 6) << 4);
        *min = (s[i + 4] >> 4) | ((s[i] >> 6) << 4);
    }
}

#endif
