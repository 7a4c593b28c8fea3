/* A bounded queue of fixed-size records, many producers, one consumer, with an eventfd to wait on.
 *
 * Owns: its records and its eventfd. Refuses to know: what a record means.
 * Threads: any number push; one pops. A push is lock-free (Vyukov's bounded queue).
 * Lifetime: _new to _free; nobody may be inside push or pop at _free. */
#ifndef QR_BASE_RING_H
#define QR_BASE_RING_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct qr_ring;

// `capacity` is rounded up to a power of two.
enum qr_status qr_ring_new(size_t capacity, size_t record_bytes, struct qr_ring **out) QR_MUST_CHECK;
void qr_ring_free(struct qr_ring **ring);

// Copies *record in. False when full. Does not signal: the producer calls qr_ring_wake once per batch.
bool qr_ring_push(struct qr_ring *ring, const void *record) QR_MUST_CHECK;
// Copies the oldest record out. False when empty.
bool qr_ring_pop(struct qr_ring *ring, void *record) QR_MUST_CHECK;
void qr_ring_wake(struct qr_ring *ring);
// Waits for a wake, at most timeout_ms (-1: for ever). Returns at once when records are queued. One consumer.
void qr_ring_wait(struct qr_ring *ring, int timeout_ms);
size_t qr_ring_len(const struct qr_ring *ring); // a snapshot

#endif
