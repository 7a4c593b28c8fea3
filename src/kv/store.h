/* A tier's index of cached prefixes: full blocks that are not in the pool any more, found by what they hold.
 *
 * Owns: for each slot of the tier its tag (what it holds), and the order in which slots are used again.
 * Refuses to know: bytes, requests, which tier it is. Threads: the engine thread.
 * Lifetime: all memory is reserved at _new (touched as slots are used); nothing is allocated afterwards.
 *
 *   free -> coming (put; pinned, not found yet) -> ready (found) -> free (used again, longest idle first)
 *
 * A place in front of a block is a key: a keyed hash of 128 bits over the tenant and all tokens before, with
 * their classes. Who does not know the key of the hash cannot make two prefixes meet, so equal keys are equal
 * prefixes; the block's own tokens are compared (K4). */
#ifndef QR_KV_STORE_H
#define QR_KV_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kv/prefix.h"
#include "kv/tier.h"

struct qr_kv_key {
    uint64_t a, b;
};

struct qr_kv_tag { // what a slot holds; also what a file keeps of it
    struct qr_kv_key before, behind;
    uint32_t tokens[]; // (block_size) ids with their classes
};
static inline size_t qr_kv_tag_bytes(int32_t block_size)
{
    return sizeof(struct qr_kv_tag) + (size_t)block_size * sizeof(uint32_t);
}

struct qr_kv_store;

// QR_ENOMEM. An index of no slots is fine: nothing is found and nothing put.
enum qr_status qr_kv_store_new(uint32_t n_slots, int32_t block_size, struct qr_kv_store **out) QR_MUST_CHECK;
void qr_kv_store_free(struct qr_kv_store **st);
uint32_t qr_kv_store_n_slots(const struct qr_kv_store *st);
uint32_t qr_kv_store_n_ready(const struct qr_kv_store *st);

// A ready slot that holds these tokens behind that place, or QR_SLOT_NONE. A token that is wanted as class P is
// found as P if possible, else as D unless `strict`.
qr_slot_id qr_kv_store_find(const struct qr_kv_store *st, const struct qr_kv_key *before, const uint32_t *want,
                            bool strict);
// Whether a slot holds just these, classes and all, or will.
bool qr_kv_store_has(const struct qr_kv_store *st, const struct qr_kv_key *before, const uint32_t *tokens);
// A slot for a block that is to come, pinned once: a free one, or the one that was idle longest. QR_SLOT_NONE when
// all are pinned.
qr_slot_id qr_kv_store_put(struct qr_kv_store *st, const struct qr_kv_key *before, const struct qr_kv_key *behind,
                           const uint32_t *tokens) QR_MUST_CHECK;
// The block has arrived, and can be found. Its pins stay.
void qr_kv_store_ready(struct qr_kv_store *st, qr_slot_id slot);
// It did not arrive, or does not read back: it is not found any more, and free with its last pin.
void qr_kv_store_drop(struct qr_kv_store *st, qr_slot_id slot);
// A pinned slot is not used for another block. The last unpin makes a ready one the latest to be used again.
void qr_kv_store_pin(struct qr_kv_store *st, qr_slot_id slot);
void qr_kv_store_unpin(struct qr_kv_store *st, qr_slot_id slot);
// What the slot holds, or is to hold; valid until the slot is used for another block.
const struct qr_kv_tag *qr_kv_store_tag(const struct qr_kv_store *st, qr_slot_id slot);
// At the start: a slot that holds what its tag says. False: the slot, or what it holds, is there already.
bool qr_kv_store_import(struct qr_kv_store *st, qr_slot_id slot, const struct qr_kv_tag *tag);
// Forgets all that nobody has pinned, and what is pinned with its last pin.
void qr_kv_store_reset(struct qr_kv_store *st);
uint64_t qr_kv_store_pin_sum(const struct qr_kv_store *st);
void qr_kv_store_check(const struct qr_kv_store *st); // aborts

#endif
