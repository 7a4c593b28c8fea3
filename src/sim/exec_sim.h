/* An executor without a machine: a cost model, a virtual clock, and made-up tokens.
 *
 * Owns: per-slot token generators (a pure function of the seed and of every id before, so that recomputing
 * gives the same text), and a shadow of every block's contents, in every tier, that catches a read of what was never
 * written there.
 * Refuses to know: weights. Threads: the engine thread. Lifetime: _new to ops->close. */
#ifndef QR_SIM_EXEC_SIM_H
#define QR_SIM_EXEC_SIM_H

#include <stdbool.h>

#include "base/clock.h"
#include "core/exec.h"
#include "sim/cost.h"

struct qr_exec_sim_conf {
    int32_t n_slots, n_tokens_max, block_size, n_vocab, ctx_max;
    uint32_t n_blocks;
    uint32_t n_ram; // blocks of the RAM tier
    uint32_t n_file, n_staging;
    uint32_t n_prefix_ram, n_prefix_file; // slots for cached prefixes
    int32_t io_delay;      // polls that I/O takes at most; each draws its own
    int32_t io_fail_every; // every so manieth I/O fails; 0: none
    uint64_t block_bytes; // said of a block; 0: one a token
    struct qr_clock *clock; // advanced by each step's cost when it is virtual
    struct qr_costs costs;
    uint64_t copy_ns; // of a block
    struct qr_sim_cost *cost; // instead of both, when not NULL; outlives the executor
    bool shadow; // check every block read against what was written there
};
enum qr_status qr_exec_sim_new(const struct qr_exec_sim_conf *conf, struct qr_exec **out,
                               struct qr_error *err) QR_MUST_CHECK;

#endif
