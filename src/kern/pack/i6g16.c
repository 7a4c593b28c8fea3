/* I6G16, from Q6_K. A panel is k / 256 records, 3360 bytes each:
 *
 *   0        32             288
 *   | d f16  | sc i8        | 16 subs of 192 bytes                                                          |
 *   | [lane] | [sub][lane]  | hi: 64 bytes, bits 2j of quad j | lo[0]: quads 0 and 1 | lo[1]: quads 2 and 3 |
 *
 * A sub is 16 k, four quads; quad j has k 4j to 4j + 3 of its sub. q is stored with its offset of 32.
 */
#include "kern/pack/pack_internal.h"

static bool put(uint8_t *panel, int k, int lane, enum qr_qtype type, const void *row)
{
    const uint8_t *p = row;
    struct qr_i6g16 *rec = (struct qr_i6g16 *)panel;
    if (type != QR_Q_Q6_K) return false;
    for (int g = 0; g < k / 256; g++, p += 210, rec++) {
        rec->d[lane] = qr_load_u16(p + 208);
        for (int s = 0; s < 16; s++) rec->sc[s][lane] = (int8_t)p[192 + s];
        for (int s = 0; s < 16; s++) { // as drawn in kern/quant/q6_k.c
            int h = s / 8, r = s / 2 % 4, at = s % 2 * 16;
            uint32_t lo[4], hi[4];
            pack_rows_load(p + 64 * h + 32 * (r & 1) + at, (r >> 1) * 4, 0x0F0F0F0Fu, lo);
            pack_rows_load(p + 128 + 32 * h + at, 2 * r, 0x03030303u, hi);
            for (int i = 0; i < 2; i++) pack_nibbles_put(rec->q[s].lo, i, lane, lo[2 * i], lo[2 * i + 1]);
            pack_pairs_put(rec->q[s].hi, lane, hi);
        }
    }
    return true;
}

static void sub(const void *rec, int s, int lane, struct pack_sub *out)
{
    const struct qr_i6g16 *r = rec;
    *out = (struct pack_sub){.d = qr_f32_of_f16(r->d[lane]), .sc = r->sc[s][lane]};
    for (int i = 0; i < 16; i++) {
        int hi = pack_pair_get(r->q[s].hi, i, lane);
        out->q[i] = (int8_t)((pack_nibble_get(r->q[s].lo, i, lane) | hi << 4) - 32);
    }
}

const struct pack_fmt qr_pack_i6g16 = {put, sub, NULL};
