/* U5G32, from Q5_0, and U5G32M, from Q5_1. A panel is k / 32 records of 352 and 384 bytes:
 *
 *   0        32            96 (64 and 128 with minima)
 *   | d f16  | fifth bits  | 256 bytes: nibbles as a record of U4G32 |
 *   | [lane] | [lane][4]   | [4][lane][4]                            |
 *
 * U5G32M has m f16 [lane] behind d. Bit j of a byte of the fifth bits belongs to quad j.
 */
#include "kern/pack/pack_internal.h"

// 32 values: the fifth bits are those of a word in order, the nibbles split as in Q4_0.
static void fives_put(struct qr_fives *q, int lane, const uint8_t *bits, const uint8_t *nibbles)
{
    uint32_t all = pack_load4(bits);
    for (int b = 0; b < 4; b++) { // bits b, b + 4, ... b + 28 close up to a byte
        uint32_t x = all >> b & 0x11111111u;
        x = (x | x >> 3) & 0x03030303u;
        x = (x | x >> 6) & 0x000F000Fu;
        q->hi[lane][b] = (uint8_t)(x | x >> 12);
    }
    pack_nibbles_split(q->lo, lane, nibbles);
}

static int five_get(const struct qr_fives *q, int i, int lane)
{
    return pack_nibble_get(q->lo, i, lane) | pack_bit_get(q->hi, i, lane) << 4;
}

static bool put(uint8_t *panel, int k, int lane, enum qr_qtype type, const void *row)
{
    const uint8_t *p = row;
    struct qr_u5g32 *rec = (struct qr_u5g32 *)panel;
    if (type != QR_Q_Q5_0) return false;
    for (int g = 0; g < k / 32; g++, p += 22, rec++) {
        rec->d[lane] = qr_load_u16(p);
        fives_put(&rec->q, lane, p + 2, p + 6);
    }
    return true;
}

static void sub(const void *rec, int s, int lane, struct pack_sub *out)
{
    const struct qr_u5g32 *r = rec;
    *out = (struct pack_sub){.d = qr_f32_of_f16(r->d[lane]), .sc = 1};
    for (int i = 0; i < 32; i++) out->q[i] = (int8_t)(five_get(&r->q, i, lane) - 16);
}

static bool put_m(uint8_t *panel, int k, int lane, enum qr_qtype type, const void *row)
{
    const uint8_t *p = row;
    struct qr_u5g32m *rec = (struct qr_u5g32m *)panel;
    if (type != QR_Q_Q5_1) return false;
    for (int g = 0; g < k / 32; g++, p += 24, rec++) {
        rec->d[lane] = qr_load_u16(p);
        rec->m[lane] = qr_load_u16(p + 2);
        fives_put(&rec->q, lane, p + 4, p + 8);
    }
    return true;
}

static void sub_m(const void *rec, int s, int lane, struct pack_sub *out)
{
    const struct qr_u5g32m *r = rec;
    *out = (struct pack_sub){qr_f32_of_f16(r->d[lane]), qr_f32_of_f16(r->m[lane]), 1, -1, {0}};
    for (int i = 0; i < 32; i++) out->q[i] = (int8_t)five_get(&r->q, i, lane);
}

const struct pack_fmt qr_pack_u5g32 = {put, sub, NULL};
const struct pack_fmt qr_pack_u5g32m = {put_m, sub_m, NULL};
