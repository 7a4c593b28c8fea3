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
    struct tier_file *kept; // of cached prefixes; its slots have numbers behind the other's
    uint32_t n_file;
};

struct tiers_conf {
    uint32_t n_ram, n_staging, n_file;
    const char *path; // of the file
    // Cached prefixes: slots of the RAM tier behind those, and of a file of their own behind the other's.
    uint32_t n_prefix_ram, n_prefix_file;
    const char *prefix_path;
    size_t prefix_tag_bytes;
    uint64_t prefix_identity[2]; // what its blocks are good for
};
// Takes the memory and opens the files. QR_ENOMEM, or as tier_file_new, with *err; tiers_fini takes what is half made, too.
enum qr_status tiers_init(struct tiers *t, struct kvmem *pool, const struct tiers_conf *conf,
                          struct qr_error *err) QR_MUST_CHECK;
void tiers_fini(struct tiers *t);
// Says that these copies are about to be made: their destinations get memory.
void tiers_touch(struct tiers *t, const struct qr_batch *b);
void tiers_copy(const struct tiers *t, const struct qr_batch_copy *copy);
// No slot holds anything that will be read again.
void tiers_trim(struct tiers *t);
// As core/exec.h has them.
void tiers_io_submit(struct tiers *t, const struct qr_io *io, int32_t n);
int32_t tiers_io_poll(struct tiers *t, struct qr_io_done *out, int32_t cap, int timeout_ms);
// Copies of the batch from `first` on that are of one phase.
int32_t tiers_phase(const struct qr_batch *b, int32_t first);

#endif
