/* The bytes of blocks that are not in the pool, and the copies of a step's batch.
 *
 * Owns: the memory of the RAM tier, reserved at once and touched slot by slot. Refuses to know: whose blocks
 * they are. Threads: the engine thread; tiers_copy from any worker, distinct copies of one phase at once.
 * Lifetime: _init to _fini. */
#ifndef QR_EXEC_TIERS_H
#define QR_EXEC_TIERS_H

#include <stdbool.h>

#include "core/batch.h"
#include "exec/kvmem.h"

struct tiers {
    struct kvmem *pool; // borrowed
    struct kvmem ram;
    bool has_ram;
};

enum qr_status tiers_init(struct tiers *t, struct kvmem *pool, uint32_t n_ram) QR_MUST_CHECK;
void tiers_fini(struct tiers *t);
// Says that these copies are about to be made: their destinations get memory.
void tiers_touch(struct tiers *t, const struct qr_batch *b);
void tiers_copy(const struct tiers *t, const struct qr_batch_copy *copy);
// No slot holds anything that will be read again.
void tiers_trim(struct tiers *t);
// Copies of the batch from `first` on that are of one phase.
int32_t tiers_phase(const struct qr_batch *b, int32_t first);

#endif
