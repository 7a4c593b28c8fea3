/* U2G16, from Q2_K. A panel is k / 256 records, 1344 bytes (21 lines) each:
 *
 *   0        32         64                                320
 *   | d f16  | dmin f16 | scm u8                          | 16 subs of 64 bytes: bits 2j, 2j + 1 are of quad j |
 *   | [lane] | [lane]   | [sub][lane]: scale low, min high| [lane][4]                                          |
 */
#include "kern/pack/pack_internal.h"

static bool put(uint8_t *panel, int k, int lane, enum qr_qtype type, const void *row)
{
    const uint8_t *p = row;
    struct qr_u2g16 *rec = (struct qr_u2g16 *)panel;
    if (type != QR_Q_Q2_K) return false;
    for (int g = 0; g < k / 256; g++, p += 84, rec++) {
        rec->d[lane] = qr_load_u16(p + 80);
        rec->dmin[lane] = qr_load_u16(p + 82);
        for (int s = 0; s < 16; s++) { // as drawn in kern/quant/q2_k.c
            uint32_t w[4];
            rec->scm[s][lane] = p[s];
            pack_rows_load(p + 16 + 32 * (s / 8) + s % 2 * 16, s / 2 % 4 * 2, 0x03030303u, w);
            pack_pairs_put(rec->q[s], lane, w);
        }
    }
    return true;
}

static void sub(const void *rec, int s, int lane, struct pack_sub *out)
{
    const struct qr_u2g16 *r = rec;
    *out = (struct pack_sub){qr_f32_of_f16(r->d[lane]), qr_f32_of_f16(r->dmin[lane]), r->scm[s][lane] & 15,
                             r->scm[s][lane] >> 4, {0}};
    for (int i = 0; i < 16; i++) out->q[i] = (int8_t)pack_pair_get(r->q[s], i, lane);
}

const struct pack_fmt qr_pack_u2g16 = {put, sub, NULL};
