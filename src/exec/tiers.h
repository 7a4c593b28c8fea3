/* The bytes of blocks that are not in the pool, and the copies of a step's batch.
 *
 * Owns: the memory of the RAM tier, reserved at once and touched slot by slot, with the staging slots behind it that
 * blocks pass through on their way to the file; the file tier. Refuses to know: whose blocks
 * they are. Threads: the engine thread; tiers_copy from any worker, distinct copies of one phase at once.
 * Lifetime: _init to _fini. */
#ifndef QR_EXEC_TIERS_H
#define QR_EXEC_TIERS_H

#include <stdbool.h>

#include "core/batch.h"
#include "exec/kvmem.h"
#include "exec/tier_file.h"

struct tiers {
    struct kvmem *pool; // borrowed
    struct kvmem ram;
    bool has_ram;
    struct tier_file *file; // NULL: none
};

struct tiers_conf {
    uint32_t n_ram, n_staging, n_file;
    const char *path; // of the file
};
enum qr_status tiers_init(struct tiers *t, struct kvmem *pool, const struct tiers_conf *conf,
                          struct qr_error *err) QR_MUST_CHECK;
void tiers_fini(struct tiers *t);
// Says that these copies are about to be made: their destinations get memory.
void tiers_touch(struct tiers *t, const struct qr_batch *b);
void tiers_copy(const struct tiers *t, const struct qr_batch_copy *copy);
// No slot holds anything that will be read again.
void tiers_trim(struct tiers *t);
// Copies of the batch from `first` on that are of one phase.
int32_t tiers_phase(const struct qr_batch *b, int32_t first);

#endif
