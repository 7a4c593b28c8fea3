/* U5K, from Q5_K. A panel is k / 256 records, 2880 bytes (45 lines) each. As in U4K the six-bit scales and
 * minima of the file become bytes, which costs 4 bytes in 176.
 *
 *   0        32         64              192             320
 *   | d f16  | dmin f16 | sc u8         | mn u8         | 8 subs of 320 bytes: fifth bits, nibbles (u5g32.c) |
 *   | [lane] | [lane]   | [sub 8][lane] | [sub 8][lane] | [lane][4], [4][lane][4]                            |
 */
#include "kern/pack/pack_internal.h"
#include "kern/quant/quant_internal.h"

static bool put(uint8_t *panel, int k, int lane, enum qr_qtype type, const void *row)
{
    const uint8_t *p = row;
    struct qr_u5k *rec = (struct qr_u5k *)panel;
    if (type != QR_Q_Q5_K) return false;
    for (int g = 0; g < k / 256; g++, p += 176, rec++) {
        rec->d[lane] = qr_load_u16(p);
        rec->dmin[lane] = qr_load_u16(p + 2);
        for (int sub = 0; sub < 8; sub++) {
            uint32_t hi = 0;
            qr_k_scale_min(p + 4, sub, &rec->sc[sub][lane], &rec->mn[sub][lane]);
            for (int j = 0; j < 8; j++) hi |= (pack_load4(p + 16 + 4 * j) >> sub & 0x01010101u) << j;
            pack_store4(rec->q[sub].hi[lane], hi);
            pack_nibbles_k(rec->q[sub].lo, lane, p + 48, sub);
        }
    }
    return true;
}

static void sub(const void *rec, int s, int lane, struct pack_sub *out)
{
    const struct qr_u5k *r = rec;
    *out = (struct pack_sub){qr_f32_of_f16(r->d[lane]), qr_f32_of_f16(r->dmin[lane]), r->sc[s][lane],
                             r->mn[s][lane], {0}};
    for (int i = 0; i < 32; i++)
        out->q[i] = (int8_t)(pack_nibble_get(r->q[s].lo, i, lane) | pack_bit_get(r->q[s].hi, i, lane) << 4);
}

const struct pack_fmt qr_pack_u5k = {put, sub, NULL};
