/* How often a sequence holds each token: what the penalties need.
 *
 * Owns: a list of the distinct tokens seen and a hash index over it, sized once for all that can come.
 * Refuses to know: logits. Threads: one owner at a time. Lifetime: _new to _free.
 *
 * A vocabulary is ten to a hundred times larger than the distinct tokens of a sequence, so nothing here has
 * its size. */
#ifndef QR_SAMPLE_COUNTS_H
#define QR_SAMPLE_COUNTS_H

#include <stdint.h>

#include "base/status.h"

struct qr_count {
    int32_t id, n_generated;
}; // 0 generated: only the prompt has it

struct qr_counts;

// Room for `capacity` distinct ids.
enum qr_status qr_counts_new(int32_t capacity, struct qr_counts **out) QR_MUST_CHECK;
void qr_counts_free(struct qr_counts **c);
// Sees an id `generated` times more (0 for a prompt token).
void qr_counts_add(struct qr_counts *c, int32_t id, int32_t generated);
// The distinct ids, in the order they came.
const struct qr_count *qr_counts_list(const struct qr_counts *c, int32_t *n);

#endif
