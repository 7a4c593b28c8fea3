/* One packed format: how its panels are filled and read back.
 *
 * Owns: the table row. Refuses to know: matrices. Threads: pure functions. Lifetime: static. */
#ifndef QR_KERN_PACK_INTERNAL_H
#define QR_KERN_PACK_INTERNAL_H

#include <stdbool.h>
#include <string.h>

#include "kern/half.h"
#include "kern/pack.h"
#include "kern/pack_layout.h"

// One sub of one lane of an integer format: value i = (d * sc) * q[i], less m * mn where the format has minima.
struct pack_sub {
    float d, m;
    int sc, mn;
    int8_t q[32]; // as many as the format has in a sub
};

struct pack_fmt {
    // Lane `lane` of a zeroed panel = row, which is stored as type. False for a type that the format does not
    // hold.
    bool (*put)(uint8_t *panel, int k, int lane, enum qr_qtype type, const void *row);
    // Reading back: sub s of the record of a group, in an integer format; ...
    void (*sub)(const void *rec, int s, int lane, struct pack_sub *out);
    // ... in a float format out[i * stride] = value i of the lane. Exactly the file's.
    void (*get)(const uint8_t *panel, int k, int lane, float *out, size_t stride);
};

#define QR_WFMT_INT(NAME, name, ...) extern const struct pack_fmt qr_pack_##name;
#define QR_WFMT(NAME, name, ...) extern const struct pack_fmt qr_pack_##name;
#include "kern/wfmts.def"

// The table of them, for who reads panels sub by sub.
const struct pack_fmt *pack_fmt_of(enum qr_wfmt fmt);

// Four bytes at once: packing gigabytes is most of the time to start.
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

// 32 values in the nibbles of 16 bytes: 0 to 15 in the low ones, 16 to 31 in the high ones.
static inline void pack_nibbles_split(uint8_t (*q)[16][4], int lane, const uint8_t *p)
{
    for (int i = 0; i < 4; i++) {
        int shift = i / 2 * 4;
        const uint8_t *from = p + i % 2 * 8;
        pack_nibbles_put(q, i, lane, pack_load4(from) >> shift, pack_load4(from + 4) >> shift);
    }
}

// The 32 nibbles of a sub-block of Q4_K and Q5_K: those of sub-blocks 2j and 2j + 1 share bytes.
static inline void pack_nibbles_k(uint8_t (*q)[16][4], int lane, const uint8_t *p, int sub)
{
    p += sub / 2 * 32;
    for (int i = 0; i < 4; i++, p += 8)
        pack_nibbles_put(q, i, lane, pack_load4(p) >> sub % 2 * 4, pack_load4(p + 4) >> sub % 2 * 4);
}

/* Four quads of a sub of 16 in the K types whose bits lie in rows of 32 values: four bytes of quad i begin at
 * p + 4i, its bits at `shift`. Word i of out has them in the low bits of each byte. */
static inline void pack_rows_load(const uint8_t *p, int shift, uint32_t mask, uint32_t out[4])
{
    for (int i = 0; i < 4; i++) out[i] = pack_load4(p + 4 * i) >> shift & mask;
}

// A plane of two bits from four words of them.
static inline void pack_pairs_put(uint8_t (*plane)[4], int lane, const uint32_t w[4])
{
    pack_store4(plane[lane], w[0] | w[1] << 2 | w[2] << 4 | w[3] << 6);
}

// Value i of a run of nibble quads (kern/pack_layout.h), and of planes of two bits and of one.
static inline int pack_nibble_get(const uint8_t (*q)[16][4], int i, int lane)
{
    return q[i / 8][lane][i % 4] >> (i / 4 % 2) * 4 & 15;
}
static inline int pack_pair_get(const uint8_t (*plane)[4], int i, int lane)
{
    return plane[lane][i % 4] >> i / 4 * 2 & 3;
}
static inline int pack_bit_get(const uint8_t (*plane)[4], int i, int lane)
{
    return plane[lane][i % 4] >> i / 4 & 1;
}

#endif
