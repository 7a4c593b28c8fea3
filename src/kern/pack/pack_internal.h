/* One packed format: how its panels are filled and read back.
 *
 * Owns: the table row. Refuses to know: matrices. Threads: pure functions. Lifetime: static. */
#ifndef QR_KERN_PACK_INTERNAL_H
#define QR_KERN_PACK_INTERNAL_H

#include <stdbool.h>

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

// Sets or reads value k of a run of nibble quads (kern/pack_layout.h).
static inline void pack_nibble_put(uint8_t (*q)[16][4], int k, int lane, unsigned v)
{
    q[k / 8][lane][k % 4] |= (uint8_t)(v << (k / 4 % 2) * 4);
}

static inline unsigned pack_nibble_get(const uint8_t (*q)[16][4], int k, int lane)
{
    return q[k / 8][lane][k % 4] >> (k / 4 % 2) * 4 & 15;
}

#endif
