/* A buddy allocator over block ids: runs of consecutive blocks, their sizes powers of two.
 *
 * Owns: which runs are handed out. Refuses to know: what a run is for, bytes.
 * Threads: the engine thread.
 * Lifetime: all memory is taken at _new; nothing is allocated afterwards.
 *
 * A run of 2^k blocks starts at a multiple of 2^k, and its buddy is the run whose start differs in bit k.
 * Freed buddies join. A pool whose size is not a power of two begins as one run for each bit of its size,
 * largest first, so that as many runs of 2^k can be had as the size divided by 2^k. */
#ifndef QR_KV_BUDDY_H
#define QR_KV_BUDDY_H

#include <stdint.h>

#include "base/status.h"

#define QR_BUDDY_ORDERS 32
#define QR_BUDDY_NONE UINT32_MAX

struct qr_buddy;

// All n_blocks are free. QR_ENOMEM.
enum qr_status qr_buddy_new(uint32_t n_blocks, struct qr_buddy **out) QR_MUST_CHECK;
void qr_buddy_free(struct qr_buddy **b);

// The order of the smallest run of at least n_blocks >= 1.
int qr_buddy_order(uint32_t n_blocks);
// The start of a run of 2^order blocks (the lowest half of the smallest run that is large enough), or
// QR_BUDDY_NONE.
uint32_t qr_buddy_take(struct qr_buddy *b, int order) QR_MUST_CHECK;
// Gives a run back whole.
void qr_buddy_give(struct qr_buddy *b, uint32_t start, int order);
// How many runs of this order could be taken now.
uint32_t qr_buddy_room(const struct qr_buddy *b, int order);
uint32_t qr_buddy_n_free(const struct qr_buddy *b); // blocks

// Runs are disjoint, aligned, inside the pool, and no two free buddies are apart; aborts.
void qr_buddy_check(const struct qr_buddy *b);

#endif
