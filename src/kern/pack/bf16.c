/* BF16 and F16, each from its own type. A panel is ceil(k / 2) lines of 64 bytes; an odd k ends with a zero:
 *
 *   | lane 0: k, k + 1 | lane 1: k, k + 1 | ... | lane 15: k, k + 1 |
 */
#include "kern/pack/pack_internal.h"

static bool put(uint8_t *panel, int k, int lane, enum qr_qtype type, const void *row)
{
    uint16_t(*line)[16][2] = (uint16_t(*)[16][2])panel;
    for (int i = 0; i < k; i++) line[i / 2][lane][i % 2] = qr_load_u16((const uint8_t *)row + 2 * (size_t)i);
    return true;
}

static bool put_bf16(uint8_t *panel, int k, int lane, enum qr_qtype type, const void *row)
{
    return type == QR_Q_BF16 && put(panel, k, lane, type, row);
}

static bool put_f16(uint8_t *panel, int k, int lane, enum qr_qtype type, const void *row)
{
    return type == QR_Q_F16 && put(panel, k, lane, type, row);
}

static void get_bf16(const uint8_t *panel, int k, int lane, float *out, size_t stride)
{
    const uint16_t(*line)[16][2] = (const uint16_t(*)[16][2])panel;
    for (int i = 0; i < k; i++, out += stride) *out = qr_f32_of_bf16(line[i / 2][lane][i % 2]);
}

static void get_f16(const uint8_t *panel, int k, int lane, float *out, size_t stride)
{
    const uint16_t(*line)[16][2] = (const uint16_t(*)[16][2])panel;
    for (int i = 0; i < k; i++, out += stride) *out = qr_f32_of_f16(line[i / 2][lane][i % 2]);
}

const struct pack_fmt qr_pack_bf16 = {put_bf16, NULL, get_bf16};
const struct pack_fmt qr_pack_f16 = {put_f16, NULL, get_f16};
