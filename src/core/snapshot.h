/* What the engine shows of itself between steps, for metrics and pages.
 *
 * Owns: the record. Refuses to know: how it is rendered. Threads: the engine fills it under its own lock,
 * readers copy. Lifetime: a value. Counters only grow. */
#ifndef QR_CORE_SNAPSHOT_H
#define QR_CORE_SNAPSHOT_H

#include <stdint.h>

#include "core/costs.h"
#include "core/tier.h"

#define QR_STEP_SIZES 16

// Where the pool's slots are, by what becomes of them (Kwon et al., 2023, 3.1). They sum up to the pool.
struct qr_kv_slots {
    uint64_t used;     // hold a token; one that several sequences share counts once
    uint64_t reserved; // will hold one, if the sequence becomes as long as it may (max_tokens)
    uint64_t internal; // never will: behind the end of any sequence
    uint64_t external; // between or behind reservations, of no use to who waits
    uint64_t free;
};

struct qr_snapshot {
    // gauges
    int32_t n_running, n_waiting;    // requests
    int32_t n_running_seqs;
    int32_t retry_after_s;           // an estimate of how long it takes until all that wait now were begun, >= 1
    uint64_t now_ns;                 // the engine's clock
    int32_t n_waiting_begun;         // of the waiting: preempted ones
    int64_t n_waiting_tokens;        // prompt tokens of those that never ran
    uint64_t oldest_arrival_ns;      // of those that wait; 0: nobody does
    uint32_t n_blocks, n_blocks_free, n_blocks_used, n_blocks_cached;
    int32_t block_size;
    uint64_t block_bytes;
    uint32_t n_spilled[QR_TIERS]; // blocks of cached prefixes in the tiers beside the pool
    uint32_t n_slots[QR_TIERS], n_slots_used[QR_TIERS]; // of the tiers beside the pool, in blocks
    uint64_t slots_allocated, slots_filled; // of live sequences now, in tokens
    struct qr_kv_slots kv_slots;            // now
    struct qr_costs costs;   // in force; epoch 0: none
    uint64_t step_budget_ns; // 0: none; UINT64_MAX: by the costs
    // counters
    uint64_t n_steps, n_step_tokens, step_ns;
    uint64_t n_steps_of[QR_STEP_SIZES];   // steps of at most 2^i tokens, and more than 2^(i-1); the last: all
                                          // larger ones
    uint64_t n_step_seqs;                   // sum over steps: sequences in the batch
    struct qr_kv_slots kv_slots_sum;        // sums over steps
    uint64_t n_entries_sum;                 // sum over steps: blocks that tables would hold if none were shared
    uint64_t n_unshared_sum;                // and blocks in use (paged layout)
    uint64_t waste_slots, waste_of_slots; // sums over steps: allocated - filled, and allocated (DESIGN 3)
    uint64_t n_preemptions, n_preempted_tokens;
    uint64_t n_swaps;                                       // preemptions that swapped; the others recompute
    uint64_t n_blocks_out[QR_TIERS], n_blocks_in[QR_TIERS]; // copied to a tier, and back
    uint64_t n_yields;        // preemptions for a better class of request
    uint64_t n_aged;          // requests brought forward because they were passed over too often
    uint64_t n_prompt_tokens; // computed for the first time
    uint64_t n_recomputed_tokens;
    uint64_t n_cache_queries;   // prompt tokens of requests that looked into the prefix cache
    uint64_t n_cache_hits;      // of them, found and not computed
    uint64_t n_cache_hits_of[QR_TIERS]; // of those, in other tiers than the pool
    uint64_t n_cache_generated; // of them, computed as class D: another turn's answer (DESIGN N7)
    uint64_t n_generated_tokens;
    uint64_t n_requests, n_finished_stop, n_finished_length, n_finished_abort, n_finished_error;
    uint64_t n_refused; // could never fit
    uint64_t n_expired; // not begun in time
};

#endif
