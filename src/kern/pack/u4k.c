/* U4K, from Q4_K. A panel is k / 256 records, 2368 bytes (37 lines) each. The six-bit scales and minima of
 * the file become bytes, which costs 4 bytes in 144.
 *
 *   0        32         64              192             320
 *   | d f16  | dmin f16 | sc u8         | mn u8         | 8 subs of 256 bytes: nibbles as a record of U4G32 |
 *   | [lane] | [lane]   | [sub 8][lane] | [sub 8][lane] | [sub 8][4][lane][4]                               |
 */
#include "kern/pack/pack_internal.h"
#include "kern/quant/quant_internal.h"

static bool put(uint8_t *panel, int k, int lane, enum qr_qtype type, const void *row)
{
    const uint8_t *p = row;
    struct qr_u4k *rec = (struct qr_u4k *)panel;
    if (type != QR_Q_Q4_K) return false;
    for (int g = 0; g < k / 256; g++, p += 144, rec++) {
        rec->d[lane] = qr_load_u16(p);
        rec->dmin[lane] = qr_load_u16(p + 2);
        for (int sub = 0; sub < 8; sub++) {
            qr_k_scale_min(p + 4, sub, &rec->sc[sub][lane], &rec->mn[sub][lane]);
            pack_nibbles_k(rec->q[sub], lane, p + 16, sub);
        }
    }
    return true;
}

static void sub(const void *rec, int s, int lane, struct pack_sub *out)
{
    const struct qr_u4k *r = rec;
    *out = (struct pack_sub){qr_f32_of_f16(r->d[lane]), qr_f32_of_f16(r->dmin[lane]), r->sc[s][lane],
                             r->mn[s][lane], {0}};
    for (int i = 0; i < 32; i++) out->q[i] = (int8_t)pack_nibble_get(r->q[s], i, lane);
}

const struct pack_fmt qr_pack_u4k = {put, sub, NULL};
