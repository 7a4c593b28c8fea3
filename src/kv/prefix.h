/* The prefix index: which tokens a block holds, and behind which others, so that a prompt finds what was
 * computed before.
 *
 * Owns: for each cached block its token ids and its place in a tree; the pool's marks of what is cached.
 * Refuses to know: requests, bytes, what a tenant is.
 * Threads: the engine thread.
 * Lifetime: all memory is reserved at _new (touched as blocks are registered); nothing is allocated
 * afterwards.
 *
 *   root of a tenant --- [a b c d] ---+--- [e f g h] --- [i j k l]   full: found by a hash of all tokens so far
 *                                     +--- [e f x]                   partly filled: found in its parent's list
 *
 * Rules:
 *   1. A hash only says where to look. A hit has the same parent (thus, by induction, the same tokens before),
 *      the same tenant and the same token ids (K4).
 *   2. A full block is immutable. A partly filled one is registered when its sequence leaves, and only ever
 *      copied from.
 *   3. The parent of a cached block is cached: forgetting one forgets all behind it.
 *   4. Of equal blocks the first one registered is found; the others stay their owners' own. */
#ifndef QR_KV_PREFIX_H
#define QR_KV_PREFIX_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"
#include "kv/pool.h"

// A token as the index keeps it: its id, and this bit when its row was (or must be) computed as class D.
#define QR_KV_CLASS_D 0x80000000u

struct qr_kv_prefix;
struct qr_kv_spill;

// A place in the tree: behind a full block, or a tenant's root. It goes stale when its block is forgotten, or
// by a reset.
struct qr_kv_place {
    uint64_t tenant, hash, stamp;
    qr_block_id block; // QR_BLOCK_NONE: the root
    uint32_t epoch;
};

// The pool is borrowed and outlives the index. The seed makes hashes unforeseeable; what is found does not
// depend on it.
enum qr_status qr_kv_prefix_new(struct qr_kv_pool *pool, int32_t block_size, uint64_t seed,
                                struct qr_kv_prefix **out) QR_MUST_CHECK;
void qr_kv_prefix_free(struct qr_kv_prefix **x);

struct qr_kv_place qr_kv_prefix_root(const struct qr_kv_prefix *x, uint64_t tenant);
struct qr_kv_place qr_kv_prefix_behind(const struct qr_kv_prefix *x, qr_block_id full); // a cached, full block
// Whether the place is still there; a stale one must not be used.
bool qr_kv_prefix_holds(const struct qr_kv_prefix *x, const struct qr_kv_place *at);
// Whether the place is from before the last reset: who stands there registers nothing any more.
bool qr_kv_prefix_is_old(const struct qr_kv_prefix *x, const struct qr_kv_place *at);

// The full block at this place with the block_size tokens wanted, and moves behind it; QR_BLOCK_NONE, and
// *at stays. A token wanted as class D is found as D only. One wanted as P is found as P if possible, else as
// D unless `strict`.
qr_block_id qr_kv_prefix_next(const struct qr_kv_prefix *x, struct qr_kv_place *at, const uint32_t *want,
                              bool strict);
// The block at this place that begins with most of the n (<= block_size) tokens wanted, and how many; it may
// be full or not. QR_BLOCK_NONE: not one.
qr_block_id qr_kv_prefix_part(const struct qr_kv_prefix *x, const struct qr_kv_place *at, const uint32_t *want,
                              int32_t n, bool strict, int32_t *n_match);
// Registers a block in use as holding these n tokens behind *at. False: an equal one is registered already,
// or for a partly filled one, one that begins so. Moves behind the registered block when n is block_size.
bool qr_kv_prefix_add(struct qr_kv_prefix *x, struct qr_kv_place *at, const uint32_t *tokens, int32_t n,
                      qr_block_id block);
// Forgets a cached block and all behind it.
void qr_kv_prefix_forget(struct qr_kv_prefix *x, qr_block_id block);
// What is evicted from here on is offered to `spill` first, which is borrowed (kv/spill.h).
void qr_kv_prefix_attach(struct qr_kv_prefix *x, struct qr_kv_spill *spill);
// qr_kv_pool_take; what it evicts is forgotten.
qr_block_id qr_kv_prefix_take(struct qr_kv_prefix *x) QR_MUST_CHECK;
// Forgets everything.
void qr_kv_prefix_reset(struct qr_kv_prefix *x);

// The tokens of a cached block, *n of them.
const uint32_t *qr_kv_prefix_tokens(const struct qr_kv_prefix *x, qr_block_id block, int32_t *n);
uint32_t qr_kv_prefix_n_blocks(const struct qr_kv_prefix *x); // cached ones, in use or free

void qr_kv_prefix_check(const struct qr_kv_prefix *x); // K4 and the rules above; aborts
void qr_kv_prefix_dump(const struct qr_kv_prefix *x, FILE *f);

#endif
