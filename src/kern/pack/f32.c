/* F32, from any type: float32 holds every type's values exactly. A panel is k lines of 64 bytes:
 *
 *   | lane 0 | lane 1 | ... | lane 15 |
 */
#include "kern/pack/pack_internal.h"

#define CHUNK 256 // values unpacked at once: the largest block of any type

static bool put(uint8_t *panel, int k, int lane, enum qr_qtype type, const void *row)
{
    const struct qr_qtype_traits *t = qr_qtype(type);
    const uint8_t *src = row;
    float(*line)[16] = (float(*)[16])panel;
    float chunk[CHUNK];
    if (!t || k % t->block_elems) return false;
    for (int at = 0; at < k; at += CHUNK) {
        int n = k - at < CHUNK ? k - at : CHUNK;
        t->unpack(src + (size_t)(at / t->block_elems) * t->block_bytes, chunk, n);
        for (int i = 0; i < n; i++) line[at + i][lane] = chunk[i];
    }
    return true;
}

static void get(const uint8_t *panel, int k, int lane, float *out, size_t stride)
{
    const float(*line)[16] = (const float(*)[16])panel;
    for (int i = 0; i < k; i++, out += stride) *out = line[i][lane];
}

const struct pack_fmt qr_pack_f32 = {put, NULL, get};
