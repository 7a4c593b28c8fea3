/* The bytes of a packed panel: records over k ascending, each for all 16 outputs (lanes) of the panel.
 *
 * Owns: the layouts, drawn beside their packers in kern/pack/<format>.c. Refuses to know: who packs or reads.
 * Threads: plain types. Lifetime: none.
 *
 * The common brick is a "quad": 16 lanes of 4 consecutive k, 64 bytes, the operand of a dot-product
 * instruction. Two quads of nibbles share 64 bytes: byte [lane][b] has k = 8i + b in its low and 8i + 4 + b
 * in its high nibble. A plane of single bits or of pairs of bits serves several quads: quad j has bit j, or
 * bits 2j and 2j + 1, of every byte. */
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
struct qr_fives { // 32 k of five bits: a plane of the fifth, then nibbles
    uint8_t hi[16][4];
    uint8_t lo[4][16][4];
};
struct qr_u5g32 { // 32 k: value = d * (q - 16)
    uint16_t d[16];
    struct qr_fives q;
};
struct qr_u5g32m { // 32 k: value = d * q + m
    uint16_t d[16], m[16];
    struct qr_fives q;
};
struct qr_u5k { // as U4K
    uint16_t d[16], dmin[16];
    uint8_t sc[8][16], mn[8][16];
    struct qr_fives q[8];
};
struct qr_i8g32 { // 32 k: value = d * q
    uint16_t d[16];
    int8_t q[8][16][4];
};
struct qr_i6sub { // 16 k of six bits: a plane of the upper two, then nibbles
    uint8_t hi[16][4];
    uint8_t lo[2][16][4];
};
struct qr_i6g16 { // 256 k in 16 subs of 16: value = (d * sc[sub]) * (q - 32)
    uint16_t d[16];
    int8_t sc[16][16];
    struct qr_i6sub q[16];
};
struct qr_threes { // two subs of 16 k of three bits: a plane of the third for both, then a plane of two a sub
    uint8_t hi[16][4];
    uint8_t lo[2][16][4];
};
// 256 k in 16 subs of 16: value = (d * (sc[sub] - 32)) * (q - 4). A scale of six bits: its lower four in sc_lo,
// two subs a byte, its upper two in sc_hi, four subs a byte.
struct qr_i3g16 {
    uint16_t d[16];
    uint8_t sc_lo[8][16], sc_hi[4][16];
    struct qr_threes q[8];
};
struct qr_u2g16 { // 256 k in 16 subs of 16: value = (d * (scm[sub] & 15)) * q - dmin * (scm[sub] >> 4)
    uint16_t d[16], dmin[16];
    uint8_t scm[16][16];
    uint8_t q[16][16][4]; // a plane of two bits a sub
};
struct qr_t4g32 { // 32 k: value = d * QR_IQ4_VALUES[q]
    uint16_t d[16];
    uint8_t q[4][16][4];
};
struct qr_t4k { // 256 k in 8 subs of 32: value = (d * sc[sub]) * QR_IQ4_VALUES[q]
    uint16_t d[16];
    int8_t sc[8][16];
    uint8_t q[8][4][16][4];
};
// F16 and BF16 are uint16_t [ceil(k / 2)][16][2] (an odd k is padded with a zero), F32 is float [k][16].

// What a nibble of IQ4_NL and IQ4_XS stands for.
#define QR_IQ4_VALUES -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113

_Static_assert(sizeof(struct qr_u4g32) == 16 * 18, "no more than Q4_0");
_Static_assert(sizeof(struct qr_u4g32m) == 16 * 20, "no more than Q4_1");
_Static_assert(sizeof(struct qr_u4k) == 16 * 148, "1.028 of Q4_K");
_Static_assert(sizeof(struct qr_u5g32) == 16 * 22, "no more than Q5_0");
_Static_assert(sizeof(struct qr_u5g32m) == 16 * 24, "no more than Q5_1");
_Static_assert(sizeof(struct qr_u5k) == 16 * 180, "1.023 of Q5_K");
_Static_assert(sizeof(struct qr_i8g32) == 16 * 34, "no more than Q8_0");
_Static_assert(sizeof(struct qr_i6g16) == 16 * 210, "no more than Q6_K");
_Static_assert(sizeof(struct qr_i3g16) == 16 * 110, "no more than Q3_K");
_Static_assert(sizeof(struct qr_u2g16) == 16 * 84, "no more than Q2_K");
_Static_assert(sizeof(struct qr_t4g32) == 16 * 18, "no more than IQ4_NL");
_Static_assert(sizeof(struct qr_t4k) == 16 * 138, "1.015 of IQ4_XS");

#endif
