/* The pool of KV blocks, as ids.
 *
 * Owns: which blocks are in use, by how many, and in which order the others are reused.
 * Refuses to know: bytes, tokens, sequences. A block's contents live in the executor.
 * Threads: the engine thread.
 * Lifetime: all memory is taken at _new; nothing is allocated afterwards.
 *
 *   in use (refs >= 1)
 *   free list:   [ plain, newest first ] -> [ cached, oldest first ]       refs == 0, linked
 *   fresh:       ids n_touched .. n_blocks - 1, never used                 refs == 0, not linked
 *
 * A take prefers a plain block (its memory is committed and perhaps still in a CPU cache), then the lowest
 * fresh one (memory is committed as late as possible), then evicts the cached block that has been idle
 * longest. A cached block is free and yet findable: qr_kv_pool_ref brings it back with its contents. */
#ifndef QR_KV_POOL_H
#define QR_KV_POOL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

typedef uint32_t qr_block_id;
#define QR_BLOCK_NONE UINT32_MAX

struct qr_kv_pool;

enum qr_status qr_kv_pool_new(uint32_t n_blocks, struct qr_kv_pool **out) QR_MUST_CHECK;
void qr_kv_pool_free(struct qr_kv_pool **pool);

// A block with one reference, or QR_BLOCK_NONE when none is free. *evicted says that the block was cached: it
// is not any more, and whoever could find it must forget it.
qr_block_id qr_kv_pool_take(struct qr_kv_pool *pool, bool *evicted) QR_MUST_CHECK;
// This very block, free and plain, with one reference: for layouts that choose ids themselves.
void qr_kv_pool_take_id(struct qr_kv_pool *pool, qr_block_id id);
// One more reference; a cached free block leaves the free list.
void qr_kv_pool_ref(struct qr_kv_pool *pool, qr_block_id id);
// One reference fewer; the last one puts the block on the free list.
void qr_kv_pool_unref(struct qr_kv_pool *pool, qr_block_id id);
uint32_t qr_kv_pool_refs(const struct qr_kv_pool *pool, qr_block_id id);
// Marks a block in use as findable by its contents: decides where it waits when it is free. A block that is
// not any more may be free: it becomes a plain one.
void qr_kv_pool_set_cached(struct qr_kv_pool *pool, qr_block_id id, bool cached);
bool qr_kv_pool_is_cached(const struct qr_kv_pool *pool, qr_block_id id); // in use or free

// Makes every block as if it was never used. None has a reference.
void qr_kv_pool_reset(struct qr_kv_pool *pool);

uint32_t qr_kv_pool_n_blocks(const struct qr_kv_pool *pool);
uint32_t qr_kv_pool_n_free(const struct qr_kv_pool *pool);   // cached and fresh ones included
uint32_t qr_kv_pool_n_cached(const struct qr_kv_pool *pool); // free and findable

uint32_t qr_kv_pool_n_touched(const struct qr_kv_pool *pool); // blocks from here on were never used
// What a touched block is, as core/inspect.h spells it.
char qr_kv_pool_state(const struct qr_kv_pool *pool, qr_block_id id);

void qr_kv_pool_check(const struct qr_kv_pool *pool);       // K1, K2; aborts
uint64_t qr_kv_pool_ref_sum(const struct qr_kv_pool *pool); // over all blocks, for K3
void qr_kv_pool_dump(const struct qr_kv_pool *pool, FILE *f);

#endif
