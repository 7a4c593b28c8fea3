/* I8G32, from Q8_0 and, exactly, from Q5_0 (q - 16 fits a byte). A panel is k / 32 records, 544 bytes each:
 *
 *   0        32               96                        544
 *   | d f16  | 16 lanes x 4 B | ...  8 quads in all     |
 *   | [lane] | k 0-3          | k 4-7 ... k 28-31       |
 */
#include "kern/half.h"
#include "kern/pack/pack_internal.h"

// Value i of a block of Q5_0 (kern/quant/q5_0.c).
static int fives(const uint8_t *p, int i)
{
    return ((p[6 + i % 16] >> i / 16 * 4 & 15) | (p[2 + i / 8] >> i % 8 & 1) << 4) - 16;
}

static bool put(uint8_t *panel, int k, int lane, enum qr_qtype type, const void *row)
{
    const uint8_t *p = row;
    struct qr_i8g32 *rec = (struct qr_i8g32 *)panel;
    if (type != QR_Q_Q8_0 && type != QR_Q_Q5_0) return false;
    for (int g = 0; g < k / 32; g++, rec++, p += type == QR_Q_Q8_0 ? 34 : 22) {
        rec->d[lane] = qr_load_u16(p);
        if (type == QR_Q_Q8_0) {
            for (int i = 0; i < 8; i++) memcpy(rec->q[i][lane], p + 2 + 4 * i, 4);
            continue;
        }
        for (int i = 0; i < 32; i++) rec->q[i / 4][lane][i % 4] = (int8_t)fives(p, i);
    }
    return true;
}

static void get(const uint8_t *panel, int k, int lane, float *out, size_t stride)
{
    const struct qr_i8g32 *rec = (const struct qr_i8g32 *)panel;
    for (int i = 0; i < k; i++, out += stride)
        *out = (float)rec[i / 32].q[i % 32 / 4][lane][i % 4] * qr_f32_of_f16(rec[i / 32].d[lane]);
}

const struct pack_fmt qr_pack_i8g32 = {32, sizeof(struct qr_i8g32), put, get};
