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

// Scale (0..63, meant less 32) of sub-block i (0..15) in the 12 packed bytes of Q3_K: its lower four bits are a nibble
// of bytes 0-7, the low one for i < 8; its upper two are bits 2 * (i / 4) of byte 8 + i % 4.
static inline int qr_q3_scale(const uint8_t *s, int i)
{
    return (s[i % 8] >> i / 8 * 4 & 15) | (s[8 + i % 4] >> i / 4 * 2 & 3) << 4;
}

// Scale (0..63, meant less 32) of sub-block i (0..7) in the 6 packed bytes of IQ4_XS: its upper two bits are bits 2i of
// the first two bytes, its lower four a nibble of the others, the low one for even i.
static inline int qr_iq4_scale(const uint8_t *s, int i)
{
    return (s[2 + i / 2] >> i % 2 * 4 & 15) | (s[i / 4] >> i % 4 * 2 & 3) << 4;
}

#endif
