/* A step's plan: which tokens of which sequences are computed, which blocks they read and write, which blocks
 * are copied first. Where bookkeeping (kv, sched) and bytes (model, exec) meet.
 *
 * Owns: the layout of one flat buffer of offsets, so that a batch can be broadcast or stored as it is.
 * Refuses to know: requests, weights.
 * Threads: built by the engine thread, read by workers until its ticket is waited for.
 * Lifetime: the maker's buffer.
 *
 *   +--------+----------+---------+-----------+-----------+
 *   | header | seqs[]   | ids[]   | table[]   | copies[]  |
 *   +--------+----------+---------+-----------+-----------+
 * Sequence i computes tokens at positions pos0 .. pos0 + n_tokens - 1; its ids are ids[first_id ..]; its
 * block table, one run per KV group, begins at table[first_block]. Positions below n_prompt are class P, the
 * others class D (DESIGN 5): fixed by the request, never by the batch. */
#ifndef QR_CORE_BATCH_H
#define QR_CORE_BATCH_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "core/tier.h"

#define QR_KV_GROUPS_MAX 4

enum qr_batch_flags {
    QR_BATCH_SAMPLE = 1, // the last row's logits choose the next token
    QR_BATCH_SCORE = 2,  // every row reports the log-probability of the id that follows it in the prompt
    QR_BATCH_EXACT = 4,  // every row is class D, those of the prompt too
};

struct qr_batch_seq {
    int32_t slot;     // the executor's slot, from seq_open
    int32_t n_tokens; // computed in this step, >= 1
    int32_t pos0;     // computed before
    int32_t n_prompt;
    int32_t first_id;    // into ids[]
    int32_t first_block; // into table[]
    int32_t n_blocks;    // in the table; n_blocks * block_size >= pos0 + n_tokens
    uint32_t flags;      // enum qr_batch_flags
};

// A whole block, before anything of the step is computed. Copies stand in the order of their phases, and a
// phase begins when the one before has ended: what leaves the pool does so before its block is written again,
// and what comes back is there before it is copied on write. Within a phase they run in any order.
struct qr_batch_copy {
    uint32_t src, dst;           // blocks of the pool, or slots of another tier
    uint16_t src_tier, dst_tier; // enum qr_tier
};
#define QR_COPY_PHASES 3
static inline int qr_batch_copy_phase(const struct qr_batch_copy *c)
{
    return c->dst_tier != QR_TIER_POOL ? 0 : c->src_tier != QR_TIER_POOL ? 1 : 2;
}

struct qr_batch {
    uint64_t step;
    uint32_t bytes; // of the whole buffer
    int32_t n_seqs, n_tokens, n_table, n_copies;
    uint32_t seqs_at, ids_at, table_at, copies_at; // byte offsets from the header
};

static inline struct qr_batch_seq *qr_batch_seqs(const struct qr_batch *b)
{
    return (struct qr_batch_seq *)((char *)b + b->seqs_at);
}
static inline int32_t *qr_batch_ids(const struct qr_batch *b)
{
    return (int32_t *)((char *)b + b->ids_at);
}
static inline uint32_t *qr_batch_table(const struct qr_batch *b)
{
    return (uint32_t *)((char *)b + b->table_at);
}
static inline struct qr_batch_copy *qr_batch_copies(const struct qr_batch *b)
{
    return (struct qr_batch_copy *)((char *)b + b->copies_at);
}

struct qr_batch_caps {
    int32_t n_seqs, n_tokens, n_table, n_copies;
};
// Bytes of a buffer for these capacities, and the laying out of an empty batch with them in such a buffer
// (8-byte aligned).
size_t qr_batch_bytes(const struct qr_batch_caps *caps);
struct qr_batch *qr_batch_init(void *mem, const struct qr_batch_caps *caps);
// Aborts on a batch that contradicts itself or leaves its buffer; for debug builds, tests and traces.
void qr_batch_check(const struct qr_batch *b, int block_size, uint32_t n_blocks);

#endif
