/* T4G32, from IQ4_NL: records of U4G32 (u4g32.c) whose nibbles stand for QR_IQ4_VALUES. T4K, from IQ4_XS: a panel is
 * k / 256 records, 2208 bytes each. Its six-bit scales become bytes, less their offset, which costs 2 bytes in 136.
 *
 *   0        32              160
 *   | d f16  | sc i8         | 8 subs of 256 bytes: nibbles as a record of U4G32 |
 *   | [lane] | [sub 8][lane] | [sub 8][4][lane][4]                               |
 */
#include "kern/pack/pack_internal.h"
#include "kern/quant/quant_internal.h"

static const int8_t values[] = {QR_IQ4_VALUES};

static bool put_g32(uint8_t *panel, int k, int lane, enum qr_qtype type, const void *row)
{
    const uint8_t *p = row;
    struct qr_t4g32 *rec = (struct qr_t4g32 *)panel;
    if (type != QR_Q_IQ4_NL) return false;
    for (int g = 0; g < k / 32; g++, p += 18, rec++) {
        rec->d[lane] = qr_load_u16(p);
        pack_nibbles_split(rec->q, lane, p + 2);
    }
    return true;
}

static void sub_g32(const void *rec, int s, int lane, struct pack_sub *out)
{
    const struct qr_t4g32 *r = rec;
    *out = (struct pack_sub){.d = qr_f32_of_f16(r->d[lane]), .sc = 1};
    for (int i = 0; i < 32; i++) out->q[i] = values[pack_nibble_get(r->q, i, lane)];
}

static bool put_k(uint8_t *panel, int k, int lane, enum qr_qtype type, const void *row)
{
    const uint8_t *p = row;
    struct qr_t4k *rec = (struct qr_t4k *)panel;
    if (type != QR_Q_IQ4_XS) return false;
    for (int g = 0; g < k / 256; g++, p += 136, rec++) {
        rec->d[lane] = qr_load_u16(p);
        for (int s = 0; s < 8; s++) {
            rec->sc[s][lane] = (int8_t)(qr_iq4_scale(p + 2, s) - 32);
            pack_nibbles_split(rec->q[s], lane, p + 8 + 16 * s);
        }
    }
    return true;
}

static void sub_k(const void *rec, int s, int lane, struct pack_sub *out)
{
    const struct qr_t4k *r = rec;
    *out = (struct pack_sub){.d = qr_f32_of_f16(r->d[lane]), .sc = r->sc[s][lane]};
    for (int i = 0; i < 32; i++) out->q[i] = values[pack_nibble_get(r->q[s], i, lane)];
}

const struct pack_fmt qr_pack_t4g32 = {put_g32, sub_g32, NULL};
const struct pack_fmt qr_pack_t4k = {put_k, sub_k, NULL};
