/* I6G16, from Q6_K. A panel is k / 256 records, 3360 bytes each:
 *
 *   0        32             288
 *   | d f16  | sc i8        | 16 subs of 192 bytes                                                          |
 *   | [lane] | [sub][lane]  | hi: 64 bytes, bits 2j of quad j | lo[0]: quads 0 and 1 | lo[1]: quads 2 and 3 |
 *
 * A sub is 16 k, four quads; quad j has k 4j to 4j + 3 of its sub. q is stored with its offset of 32.
 */
#include "kern/half.h"
#include "kern/pack/pack_internal.h"

static bool put(uint8_t *panel, int k, int lane, enum qr_qtype type, const void *row)
{
    const uint8_t *p = row;
    struct qr_i6g16 *rec = (struct qr_i6g16 *)panel;
    if (type != QR_Q_Q6_K) return false;
    for (int g = 0; g < k / 256; g++, p += 210, rec++) {
        rec->d[lane] = qr_load_u16(p + 208);
        for (int s = 0; s < 16; s++) rec->sc[s][lane] = (int8_t)p[192 + s];
        for (int i = 0; i < 256; i++) {
            int h = i / 128, r = i / 32 % 4, j = i % 32; // as drawn in kern/quant/q6_k.c
            unsigned lo = p[64 * h + 32 * (r & 1) + j] >> (r >> 1) * 4 & 15;
            unsigned hi = p[128 + 32 * h + j] >> 2 * r & 3;
            struct qr_i6sub *sub = &rec->q[i / 16];
            sub->lo[i % 16 / 8][lane][i % 4] |= (uint8_t)(lo << i / 4 % 2 * 4);
            sub->hi[lane][i % 4] |= (uint8_t)(hi << i % 16 / 4 * 2);
        }
    }
    return true;
}

static void get(const uint8_t *panel, int k, int lane, float *out, size_t stride)
{
    const struct qr_i6g16 *rec = (const struct qr_i6g16 *)panel;
    for (int i = 0; i < k; i++, out += stride) {
        const struct qr_i6g16 *r = rec + i / 256;
        int s = i / 16 % 16;
        int hi = r->q[s].hi[lane][i % 4] >> i % 16 / 4 * 2 & 3;
        int q = (int)pack_nibble_get(r->q[s].lo, i % 16, lane) | hi << 4;
        *out = qr_f32_of_f16(r->d[lane]) * (float)r->sc[s][lane] * (float)(q - 32);
    }
}

const struct pack_fmt qr_pack_i6g16 = {256, sizeof(struct qr_i6g16), put, get};
