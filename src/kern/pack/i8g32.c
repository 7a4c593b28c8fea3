/* I8G32, from Q8_0. A panel is k / 32 records, 544 bytes each:
 *
 *   0        32               96                        544
 *   | d f16  | 16 lanes x 4 B | ...  8 quads in all     |
 *   | [lane] | k 0-3          | k 4-7 ... k 28-31       |
 */
#include "kern/pack/pack_internal.h"

static bool put(uint8_t *panel, int k, int lane, enum qr_qtype type, const void *row)
{
    const uint8_t *p = row;
    struct qr_i8g32 *rec = (struct qr_i8g32 *)panel;
    if (type != QR_Q_Q8_0) return false;
    for (int g = 0; g < k / 32; g++, rec++, p += 34) {
        rec->d[lane] = qr_load_u16(p);
        for (int i = 0; i < 8; i++) memcpy(rec->q[i][lane], p + 2 + 4 * i, 4);
    }
    return true;
}

static void sub(const void *rec, int s, int lane, struct pack_sub *out)
{
    const struct qr_i8g32 *r = rec;
    *out = (struct pack_sub){.d = qr_f32_of_f16(r->d[lane]), .sc = 1};
    for (int i = 0; i < 32; i++) out->q[i] = r->q[i / 4][lane][i % 4];
}

const struct pack_fmt qr_pack_i8g32 = {put, sub, NULL};
