/* Slots of a tier: where blocks wait that are not in the pool, as ids.
 *
 * Owns: which slots are taken, by how many, and, during one save or load, which block went to which slot: a
 * block that several sequences share is copied once and stays shared.
 * Refuses to know: bytes, sequences, when to move what. The contents live in the executor.
 * Threads: the engine thread.
 * Lifetime: all memory is taken at _new (touched as slots are used); nothing is allocated afterwards.
 *
 * A save or a load of a request begins with qr_kv_tier_begin, and then goes block by block through its
 * tables:
 *   save: qr_kv_tier_save(block)    -> a slot with one more reference; the first of a block orders a copy
 *   load: qr_kv_tier_block_of(slot) -> the block that an earlier table of this load took for the slot, or none:
 *         then one is taken from the pool, copied to, and noted with qr_kv_tier_note */
#ifndef QR_KV_TIER_H
#define QR_KV_TIER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "kv/pool.h"

typedef uint32_t qr_slot_id;
#define QR_SLOT_NONE UINT32_MAX

struct qr_kv_tier;

// n_blocks is the pool's. A tier of no slots is fine: everything says "no room".
enum qr_status qr_kv_tier_new(uint32_t n_slots, uint32_t n_blocks, struct qr_kv_tier **out) QR_MUST_CHECK;
void qr_kv_tier_free(struct qr_kv_tier **t);

uint32_t qr_kv_tier_n_slots(const struct qr_kv_tier *t);
uint32_t qr_kv_tier_n_free(const struct qr_kv_tier *t);

// A slot with one reference, or QR_SLOT_NONE when none is free; one more; one fewer (the last frees it).
qr_slot_id qr_kv_tier_take(struct qr_kv_tier *t) QR_MUST_CHECK;
void qr_kv_tier_ref(struct qr_kv_tier *t, qr_slot_id slot);
void qr_kv_tier_unref(struct qr_kv_tier *t, qr_slot_id slot);

// Forgets which block went where.
void qr_kv_tier_begin(struct qr_kv_tier *t);
// How many of these blocks were not counted since the begin.
uint32_t qr_kv_tier_count(struct qr_kv_tier *t, const qr_block_id *ids, int32_t n);
// The slot for a block: an earlier one of this save with one more reference, or a fresh one, and *first. There
// must be room.
qr_slot_id qr_kv_tier_save(struct qr_kv_tier *t, qr_block_id id, bool *first);
// The block that this load noted for the slot, else QR_BLOCK_NONE.
qr_block_id qr_kv_tier_block_of(const struct qr_kv_tier *t, qr_slot_id slot);
void qr_kv_tier_note(struct qr_kv_tier *t, qr_slot_id slot, qr_block_id id);

void qr_kv_tier_check(const struct qr_kv_tier *t);       // free + used == total; aborts
uint64_t qr_kv_tier_ref_sum(const struct qr_kv_tier *t); // over all slots

#endif
