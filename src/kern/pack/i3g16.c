/* I3G16, from Q3_K. A panel is k / 256 records, 1760 bytes each:
 *
 *   0        32                     160                   224
 *   | d f16  | sc_lo u8             | sc_hi u8            | 8 pairs of subs, 192 bytes                        |
 *   | [lane] | [sub 2i, 2i+1][lane] | [sub 4i..4i+3][lane]| third bits [lane][4] | lower two [sub][lane][4]   |
 *
 * A sub is 16 k, four quads. Of a byte of the third bits, bits 0 to 3 belong to the quads of the first sub of the pair,
 * bits 4 to 7 to those of the second. The scales stay at six bits: as bytes they would cost 3.6 % over the file. q is
 * stored with its offset of 4, a scale with its offset of 32.
 */
#include "kern/pack/pack_internal.h"
#include "kern/quant/quant_internal.h"

static bool put(uint8_t *panel, int k, int lane, enum qr_qtype type, const void *row)
{
    const uint8_t *p = row;
    struct qr_i3g16 *rec = (struct qr_i3g16 *)panel;
    if (type != QR_Q_Q3_K) return false;
    for (int g = 0; g < k / 256; g++, p += 110, rec++) {
        rec->d[lane] = qr_load_u16(p + 108);
        for (int s = 0; s < 16; s++) { // as drawn in kern/quant/q3_k.c
            int r = s / 2 % 4, at = s % 2 * 16, sc = qr_q3_scale(p + 96, s);
            uint32_t lo[4], hi[4];
            rec->sc_lo[s / 2][lane] |= (uint8_t)((sc & 15) << s % 2 * 4);
            rec->sc_hi[s / 4][lane] |= (uint8_t)(sc >> 4 << s % 4 * 2);
            pack_rows_load(p + 32 + 32 * (s / 8) + at, 2 * r, 0x03030303u, lo);
            pack_rows_load(p + at, s / 2, 0x01010101u, hi);
            struct qr_threes *q = &rec->q[s / 2];
            uint32_t bits = hi[0] | hi[1] << 1 | hi[2] << 2 | hi[3] << 3;
            pack_pairs_put(q->lo[s % 2], lane, lo);
            pack_store4(q->hi[lane], pack_load4(q->hi[lane]) | bits << s % 2 * 4);
        }
    }
    return true;
}

static void sub(const void *rec, int s, int lane, struct pack_sub *out)
{
    const struct qr_i3g16 *r = rec;
    int sc = (r->sc_lo[s / 2][lane] >> s % 2 * 4 & 15) | (r->sc_hi[s / 4][lane] >> s % 4 * 2 & 3) << 4;
    *out = (struct pack_sub){.d = qr_f32_of_f16(r->d[lane]), .sc = sc - 32};
    for (int i = 0; i < 16; i++) {
        int hi = pack_bit_get(r->q[s / 2].hi, s % 2 * 16 + i, lane);
        out->q[i] = (int8_t)((pack_pair_get(r->q[s / 2].lo[s % 2], i, lane) | hi << 2) - 4);
    }
}

const struct pack_fmt qr_pack_i3g16 = {put, sub, NULL};
