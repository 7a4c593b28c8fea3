/* U4G32, from Q4_0. A panel is k / 32 records, 288 bytes each:
 *
 *   0        32                 96                160               224               288
 *   | d f16  | 16 lanes x 4 B   | 16 lanes x 4 B  | 16 lanes x 4 B  | 16 lanes x 4 B  |
 *   | [lane] | low: k 0-3       | low: k 8-11     | low: k 16-19    | low: k 24-27    |
 *   |        | high: k 4-7      | high: k 12-15   | high: k 20-23   | high: k 28-31   |
 */
#include "kern/pack/pack_internal.h"

static bool put(uint8_t *panel, int k, int lane, enum qr_qtype type, const void *row)
{
    const uint8_t *p = row;
    struct qr_u4g32 *rec = (struct qr_u4g32 *)panel;
    if (type != QR_Q_Q4_0) return false;
    for (int g = 0; g < k / 32; g++, p += 18, rec++) {
        rec->d[lane] = qr_load_u16(p);
        pack_nibbles_split(rec->q, lane, p + 2);
    }
    return true;
}

static void sub(const void *rec, int s, int lane, struct pack_sub *out)
{
    const struct qr_u4g32 *r = rec;
    *out = (struct pack_sub){.d = qr_f32_of_f16(r->d[lane]), .sc = 1};
    for (int i = 0; i < 32; i++) out->q[i] = (int8_t)(pack_nibble_get(r->q, i, lane) - 8);
}

const struct pack_fmt qr_pack_u4g32 = {put, sub, NULL};
