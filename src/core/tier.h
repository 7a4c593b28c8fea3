/* Where the contents of a block can stand, and what moving them costs.
 *
 * Owns: the names of the tiers and of the ways to preempt. Refuses to know: slots, bytes, files.
 * Threads: values. Lifetime: values. */
#ifndef QR_CORE_TIER_H
#define QR_CORE_TIER_H

#include <stdint.h>

enum qr_tier {
    QR_TIER_POOL, // the block pool: the only tier that a step computes from
    QR_TIER_RAM,  // other memory: a remote node, or ordinary pages beside the pool
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

#endif
