/* What becomes of cached prefixes that leave the pool: which full blocks are to be copied to which other tier.
 *
 * Owns: the key of each cached block's place, the two tiers' indices (kv/store.h), the copies that are to be made in
 * the present step. Refuses to know: bytes, requests, when I/O is done. Threads: the engine thread.
 * Lifetime: all memory is reserved at _new; nothing is allocated afterwards.
 *
 * A block is offered when the pool is about to use it for something else: until the step writes into it, it holds
 * what it held, so the copy is one of the step's first. */
#ifndef QR_KV_SPILL_H
#define QR_KV_SPILL_H

#include "kv/store.h"

struct qr_kv_spill;

struct qr_kv_spill_conf {
    uint32_t n_blocks; // of the pool
    int32_t block_size;
    uint32_t n_ram, n_file; // slots
    uint64_t key[2];        // of the hash; a file that outlives us must come with its own
};

struct qr_kv_spilled { // where a block goes; QR_SLOT_NONE: not there, or it is there already
    qr_block_id block;
    qr_slot_id ram, file;
};

// QR_ENOMEM. A tier of no slots is one that is not there.
enum qr_status qr_kv_spill_new(const struct qr_kv_spill_conf *conf, struct qr_kv_spill **out) QR_MUST_CHECK;
void qr_kv_spill_free(struct qr_kv_spill **sp);
// The indices of the two tiers; they live as long as this.
struct qr_kv_store *qr_kv_spill_ram(const struct qr_kv_spill *sp);
struct qr_kv_store *qr_kv_spill_file(const struct qr_kv_spill *sp);

// The place before all of a tenant's tokens, and the one behind a full block.
struct qr_kv_key qr_kv_spill_root(const struct qr_kv_spill *sp, uint64_t tenant);
struct qr_kv_key qr_kv_spill_behind(const struct qr_kv_spill *sp, const struct qr_kv_key *before,
                                    const uint32_t *tokens);
// A full block was registered behind that place; and the place behind it.
void qr_kv_spill_register(struct qr_kv_spill *sp, qr_block_id id, const struct qr_kv_key *before,
                          const uint32_t *tokens);
struct qr_kv_key qr_kv_spill_key(const struct qr_kv_spill *sp, qr_block_id id);
// The pool is about to use a registered full block for something else: orders copies to the tiers that have it not.
void qr_kv_spill_evict(struct qr_kv_spill *sp, qr_block_id id, const uint32_t *tokens);
// Orders a copy to the file only, for a block that stays. False: it is there, or there is no room.
bool qr_kv_spill_save(struct qr_kv_spill *sp, qr_block_id id, const uint32_t *tokens);

// The orders since the last clear. Their slots are pinned once for each; whoever clears sees to that.
const struct qr_kv_spilled *qr_kv_spill_orders(const struct qr_kv_spill *sp, uint32_t *n);
void qr_kv_spill_clear(struct qr_kv_spill *sp);
void qr_kv_spill_check(const struct qr_kv_spill *sp); // aborts

#endif
