/* The executor: runs a step. One of the six vtables; the scheduler above cannot tell a machine from a
 * simulator.
 *
 * Owns: the meaning of each call. Refuses to know: queues, policies, requests.
 * Threads: every call comes from the engine thread.
 * Lifetime: made by its own constructor (exec_local, exec_sim), ended by close. */
#ifndef QR_CORE_EXEC_H
#define QR_CORE_EXEC_H

#include <stdint.h>

#include "base/status.h"
#include "core/batch.h"
#include "core/req.h"

struct qr_exec_info {
    int32_t n_slots;      // sequences open at once
    int32_t n_tokens_max; // a step
    int32_t block_size;
    uint32_t n_blocks;
    uint32_t tier_slots[QR_TIERS]; // blocks that fit into each tier beside the pool
    uint32_t n_staging; // slots of the RAM tier behind those: blocks on their way to the file
    uint32_t prefix_slots[QR_TIERS]; // behind all those, and behind the file's: for cached prefixes
    uint64_t prefix_key[2];          // of the hash in their tags
    int32_t n_groups; // KV groups: 1
    uint64_t block_bytes[QR_KV_GROUPS_MAX];
    int32_t n_vocab;
    int32_t ctx_max; // positions that the model can take
};

struct qr_top {
    int32_t id;
    float logprob;
};

// One row of answers. Rows come in the order of the batch's sequences; within one, scored positions
// ascending, then the sample.
struct qr_out_row {
    int32_t i_seq;     // in the batch
    int32_t pos;       // of the row that was computed; the token stands at pos + 1
    int32_t token;     // chosen (sample) or given (score); -1 where candidates were asked for
    float logprob;     // of it, in the raw distribution
    int32_t rank;      // 1 = the most likely; 0 when no logprobs were asked for
    int32_t n_top;     // largest first; at most QR_LOGPROBS_MAX, or n_candidates
    int32_t first_top; // into tops[]
    int32_t is_score;  // 1: a prompt position (QR_BATCH_SCORE); 0: the sampled token
};

struct qr_exec_result {
    uint64_t elapsed_ns; // what the step took; the simulator's clock advances by it
    uint64_t copy_ns;    // of that, the batch's copies
    int32_t n_rows;
    const struct qr_out_row *rows; // valid until the next submit
    const struct qr_top *tops;
};

typedef uint64_t qr_ticket;
struct qr_exec;

struct qr_exec_ops {
    void (*info)(struct qr_exec *x, struct qr_exec_info *out);
    // Takes a slot for a sequence: ids[0..n_ids) are its prompt (n_prompt of them) and, after a preemption,
    // the tokens it generated before; penalty counts are rebuilt from them. sampling and its arrays live
    // until seq_close. choice counts the sequences of one request from 0. QR_ENOMEM leaves the slot closed.
    enum qr_status (*seq_open)(struct qr_exec *x, int32_t slot, const struct qr_sampling *sampling,
                               int32_t choice, const int32_t *ids, int32_t n_prompt, int32_t n_ids);
    void (*seq_close)(struct qr_exec *x, int32_t slot);
    // Where sampling.n_candidates > 0 the caller chooses tokens. Both slots are open for sequences of one request:
    // `to` has the tokens of `from` now. Then each gets its next token. Neither takes memory.
    void (*seq_fork)(struct qr_exec *x, int32_t from, int32_t to);
    void (*seq_append)(struct qr_exec *x, int32_t slot, int32_t token);
    // Starts a step. The batch stays untouched until wait. One ticket at a time for now.
    enum qr_status (*submit)(struct qr_exec *x, const struct qr_batch *batch, qr_ticket *out);
    enum qr_status (*wait)(struct qr_exec *x, qr_ticket t, struct qr_exec_result *out);
    // Only where there is a file tier: starts background I/O, at most one a slot of the file at a time. Never
    // waits. It begins after what was submitted before, and may touch its blocks until io_poll says it is done.
    void (*io_submit)(struct qr_exec *x, const struct qr_io *io, int32_t n);
    // I/O that is done, at most cap of it; waits at most timeout_ms for the first while any is under way.
    int32_t (*io_poll)(struct qr_exec *x, struct qr_io_done *out, int32_t cap, int timeout_ms);
    // What the file had in the i-th of its slots for cached prefixes when it was opened; NULL: nothing.
    const void *(*tier_tag)(struct qr_exec *x, uint32_t i);
    // No block, in no tier, holds anything any more: their memory goes back to the system, until they are written again.
    void (*trim)(struct qr_exec *x);
    void (*close)(struct qr_exec *x); // frees it
};

struct qr_exec {
    const struct qr_exec_ops *ops;
}; // first member of every executor

#endif
