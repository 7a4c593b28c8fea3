/* Where the contents of a block can stand, and what moving them costs.
 *
 * Owns: the names of the tiers and of the ways to preempt. Refuses to know: slots, bytes, files.
 * Threads: values. Lifetime: values. */
#ifndef QR_CORE_TIER_H
#define QR_CORE_TIER_H

#include <stdint.h>

#include "base/status.h"

enum qr_tier {
    QR_TIER_POOL, // the block pool: the only tier that a step computes from
    QR_TIER_RAM,  // other memory: a remote node, or ordinary pages beside the pool
    QR_TIER_FILE, // a file; blocks pass through memory on their way to it
    QR_TIERS
};

enum qr_preempt_mode {
    QR_PREEMPT_AUTO,      // whichever costs less
    QR_PREEMPT_SWAP,      // wherever there is room for it
    QR_PREEMPT_RECOMPUTE, // never swaps
};

// What the ways to preempt cost, in nanoseconds. Data: handed to the scheduler between steps, so that the
// same tables give the same plans.
struct qr_preempt_costs {
    uint64_t token_ns;           // to compute one token again
    uint64_t block_ns[QR_TIERS]; // to copy one block to the tier and back
};

// Background I/O of one block between the file and memory. It runs beside steps; both ends stay as they are
// until it is done.
enum qr_io_kind {
    QR_IO_WRITE, // from a slot of the RAM tier to a slot of the file
    QR_IO_READ,  // from a slot of the file to a block of the pool
};
struct qr_io {
    enum qr_io_kind kind;
    uint32_t file, mem;
    const void *tag; // WRITE to a slot that is kept: what it will hold, for the file; stays until it is done
};
struct qr_io_done {
    struct qr_io io;
    enum qr_status status; // QR_EIO: what stands at the far end is unknown; QR_EFORMAT: not what was written there
    uint64_t elapsed_ns;   // of this I/O alone
};

#endif
