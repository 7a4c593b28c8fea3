/* One packed format: how its panels are filled and read back.
 *
 * Owns: the table row. Refuses to know: matrices. Threads: pure functions. Lifetime: static. */
#ifndef QR_KERN_PACK_INTERNAL_H
#define QR_KERN_PACK_INTERNAL_H

#include <stdbool.h>
#include <string.h>

#include "kern/pack.h"
#include "kern/pack_layout.h"

struct pack_fmt {
    int group;          // k is a multiple of it
    size_t group_bytes; // of one panel
    // Lane `lane` of a zeroed panel = row, which is stored as type. False for a type that the format does not
    // hold.
    bool (*put)(uint8_t *panel, int k, int lane, enum qr_qtype type, const void *row);
    // out[i * stride] = value i of the lane, exactly the file's.
    void (*get)(const uint8_t *panel, int k, int lane, float *out, size_t stride);
};

extern const struct pack_fmt qr_pack_u4g32, qr_pack_u4g32m, qr_pack_u4k, qr_pack_i8g32, qr_pack_i6g16,
    qr_pack_bf16, qr_pack_f32;

// Four bytes at once: packing 100 MB is part of the time to start.
static inline uint32_t pack_load4(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void pack_store4(uint8_t *p, uint32_t v)
{
    memcpy(p, &v, sizeof v);
}

// Quads 2i and 2i + 1 of a lane from two times four bytes that have a nibble each, in their low half.
static inline void pack_nibbles_put(uint8_t (*q)[16][4], int i, int lane, uint32_t low, uint32_t high)
{
    pack_store4(q[i][lane], (low & 0x0F0F0F0Fu) | (high & 0x0F0F0F0Fu) << 4);
}

// The 32 values of Q4_0 and Q4_1: 0 to 15 in the low nibbles of 16 bytes, 16 to 31 in the high ones.
static inline void pack_nibbles_split(uint8_t (*q)[16][4], int lane, const uint8_t *p)
{
    for (int i = 0; i < 4; i++) {
        int shift = i / 2 * 4;
        const uint8_t *from = p + i % 2 * 8;
        pack_nibbles_put(q, i, lane, pack_load4(from) >> shift, pack_load4(from + 4) >> shift);
    }
}

// Value k of a run of nibble quads (kern/pack_layout.h).
static inline unsigned pack_nibble_get(const uint8_t (*q)[16][4], int k, int lane)
{
    return q[k / 8][lane][k % 4] >> (k / 4 % 2) * 4 & 15;
}

#endif
