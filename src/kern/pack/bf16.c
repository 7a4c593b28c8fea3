/* BF16, from BF16. A panel is ceil(k / 2) lines of 64 bytes; an odd k ends with a zero:
 *
 *   | lane 0: k, k + 1 | lane 1: k, k + 1 | ... | lane 15: k, k + 1 |
 */
#include "kern/half.h"
#include "kern/pack/pack_internal.h"

static bool put(uint8_t *panel, int k, int lane, enum qr_qtype type, const void *row)
{
    uint16_t(*line)[16][2] = (uint16_t(*)[16][2])panel;
    if (type != QR_Q_BF16) return false;
    for (int i = 0; i < k; i++) line[i / 2][lane][i % 2] = qr_load_u16((const uint8_t *)row + 2 * (size_t)i);
    return true;
}

static void get(const uint8_t *panel, int k, int lane, float *out, size_t stride)
{
    const uint16_t(*line)[16][2] = (const uint16_t(*)[16][2])panel;
    for (int i = 0; i < k; i++, out += stride) *out = qr_f32_of_bf16(line[i / 2][lane][i % 2]);
}

const struct pack_fmt qr_pack_bf16 = {1, 32, put, get};
