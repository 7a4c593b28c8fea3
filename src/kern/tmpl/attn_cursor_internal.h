/* A sequence's pages as attention walks them: units of 16 tokens, four to a chunk.
 *
 * Owns: where the units of a chunk are. Refuses to know: what they hold. Threads: pure functions. Lifetime: static. */
#ifndef QR_KERN_TMPL_ATTN_CURSOR_INTERNAL_H
#define QR_KERN_TMPL_ATTN_CURSOR_INTERNAL_H

#include "kern/attn.h"

#define CHUNK 64 // tokens of a step of the online softmax
#define CHUNK_UNITS (CHUNK / QR_KV_UNIT)

// Where the units of consecutive chunks are.
struct cursor {
    const struct qr_kv_view *kv;
    size_t unit_bytes;
    int block, unit, units_block; // place in the table, place in that block, units a block has
    int left;                     // units until the end of the call
};

static inline struct cursor cursor_init(const struct qr_kv_view *kv, size_t unit_bytes, int start, int end)
{
    return (struct cursor){.kv = kv,
                           .unit_bytes = unit_bytes,
                           .block = start / kv->block_size,
                           .unit = start % kv->block_size / QR_KV_UNIT,
                           .units_block = kv->block_size / QR_KV_UNIT,
                           .left = (end + QR_KV_UNIT - 1) / QR_KV_UNIT - start / QR_KV_UNIT};
}

// The units of the next chunk, and how many; the last one stands for those beyond.
static inline int cursor_next(struct cursor *c, const uint8_t *unit[CHUNK_UNITS])
{
    int n = c->left < CHUNK_UNITS ? c->left : CHUNK_UNITS;
    c->left -= n;
    for (int i = 0; i < n; i++) {
        unit[i] = c->kv->pool + c->kv->table[c->block] * c->kv->block_bytes + c->kv->head_off +
                  (size_t)c->unit * c->unit_bytes;
        if (++c->unit == c->units_block) {
            c->unit = 0;
            c->block++;
        }
    }
    for (int i = n; n > 0 && i < CHUNK_UNITS; i++) unit[i] = unit[n - 1];
    return n;
}

// The first position that a row whose positions end at `end` sees.
static inline int window_first(const struct qr_attn *a, int end)
{
    return a->window > 0 && a->window < end ? end - a->window : 0;
}

#endif
