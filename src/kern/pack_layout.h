/* The bytes of a packed panel: records over k ascending, each for all 16 outputs (lanes) of the panel.
 *
 * Owns: the layouts, drawn beside their packers in kern/pack/<format>.c. Refuses to know: who packs or reads.
 * Threads: plain types. Lifetime: none.
 *
 * The common brick is a "quad": 16 lanes of 4 consecutive k, 64 bytes, the operand of a dot-product
 * instruction. Two quads of nibbles share 64 bytes: byte [lane][b] has k = 8i + b in its low and 8i + 4 + b
 * in its high nibble. */
#ifndef QR_KERN_PACK_LAYOUT_H
#define QR_KERN_PACK_LAYOUT_H

#include <stdint.h>

struct qr_u4g32 { // 32 k: value = d * (q - 8)
    uint16_t d[16];
    uint8_t q[4][16][4];
};
struct qr_u4g32m { // 32 k: value = d * q + m
    uint16_t d[16], m[16];
    uint8_t q[4][16][4];
};
struct qr_u4k { // 256 k in 8 subs of 32: value = (d * sc[sub]) * q - dmin * mn[sub]
    uint16_t d[16], dmin[16];
    uint8_t sc[8][16], mn[8][16];
    uint8_t q[8][4][16][4];
};
struct qr_i8g32 { // 32 k: value = d * q
    uint16_t d[16];
    int8_t q[8][16][4];
};
// 16 k of six bits: quad j (0..3) has its low nibbles in lo[j / 2], its high bits at bit 2j of hi.
struct qr_i6sub {
    uint8_t hi[16][4];
    uint8_t lo[2][16][4];
};
struct qr_i6g16 { // 256 k in 16 subs of 16: value = (d * sc[sub]) * (q - 32)
    uint16_t d[16];
    int8_t sc[16][16];
    struct qr_i6sub q[16];
};
// BF16 is uint16_t [ceil(k / 2)][16][2] (an odd k is padded with a zero), F32 is float [k][16].

_Static_assert(sizeof(struct qr_u4g32) == 16 * 18, "no more than Q4_0");
_Static_assert(sizeof(struct qr_u4g32m) == 16 * 20, "no more than Q4_1");
_Static_assert(sizeof(struct qr_u4k) == 16 * 148, "1.028 of Q4_K");
_Static_assert(sizeof(struct qr_i8g32) == 16 * 34, "no more than Q8_0");
_Static_assert(sizeof(struct qr_i6g16) == 16 * 210, "no more than Q6_K");

#endif
