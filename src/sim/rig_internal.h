/* What the tests of this room share: an engine over a watched simulator, and a naive loop that says what is
 * right.
 *
 * Owns: the clock, the executor, the engine of one test. Refuses to know: which property is tested.
 * Threads: the test's. Lifetime: sim_rig_open to sim_rig_close. */
#ifndef QR_SIM_RIG_INTERNAL_H
#define QR_SIM_RIG_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "core/exec.h"
#include "core/req.h"
#include "engine/engine.h"

struct rig_conf {
    int32_t block_size, max_num_seqs, budget, max_model_len, n_vocab, outbox;
    uint32_t n_blocks;
    enum qr_kv_layout_kind layout;
    uint32_t page_blocks;
    enum qr_batching batching;
    bool prefix_caching, exact;
    uint64_t prefix_seed;
    uint32_t n_ram; // blocks of swap space
    uint32_t n_file, n_staging;
    uint32_t n_prefix_ram, n_prefix_file;
    int32_t io_delay, io_fail_every;
    enum qr_preempt_mode preempt_mode;
    uint64_t preempt_every, preempt_at;
    const struct qr_policy *policy;
    int32_t max_queued_reqs;
    int64_t max_queued_tokens;
    uint64_t queue_timeout_ns;
    struct qr_costs costs; // the engine's first guess
    uint64_t step_budget_ns;
    bool wall; // the wall clock, for tests with threads: a virtual one belongs to one thread
};

// An executor that passes everything on to the simulator, remembers it, and fails when told to.
struct rig_spy {
    struct qr_exec face;
    struct qr_exec *inner;
    uint64_t batch_hash; // of every byte of every batch so far
    int64_t n_batches, n_tokens;
    int32_t n_seqs_last; // rows of the last batch
    int32_t fail_waits;  // so many next waits fail
    int32_t fail_reads;  // so many next reads from the file fail
    int32_t n_open;      // slots open now
    int32_t n_opens;     // ever
};

struct rig {
    struct rig_conf conf;
    struct qr_clock_virtual clock;
    struct rig_spy spy;
    struct qr_engine *engine;
};

void sim_rig_open(struct rig *r, const struct rig_conf *conf);
// 64 blocks of 16, a vocabulary of 1,000, and sequences of up to 512.
void sim_rig_open_usual(struct rig *r, int32_t max_num_seqs, int32_t budget);
struct qr_snapshot sim_rig_snap(struct rig *r);
void sim_rig_close(struct rig *r); // asserts that nothing is left: blocks, slots, requests

// A request whose arrays live in the record. Prompt ids are a pure function of the seed.
struct rig_req {
    struct qr_req req;
    int32_t eos[1], stop[1];
    int32_t *prompt;
};
void sim_rig_req_init(struct rig_req *q, uint64_t seed, int32_t n_prompt, int32_t max_tokens,
                      int32_t n_vocab);
void sim_rig_req_fini(struct rig_req *q);
qr_req_id sim_rig_submit(struct rig *r, const struct rig_req *q); // asserts that the engine takes it

struct rig_text { // what one choice of a request says
    int32_t *tokens;
    int32_t n;
    float *scores; // (n_prompt) logprob of prompt position p; 0 where there is none
    enum qr_finish finish;
};
// The right answer, by a loop that knows no scheduler: the whole prompt at once, then token by token, blocks
// in order.
struct rig_text sim_rig_solo(const struct rig_req *q, int32_t choice, int32_t n_vocab);
// The right answers of a beam search, best first: out[width]. A loop over whole histories, as the rules are written
// down, that shares nothing with the engine but the executor.
void sim_rig_beams(const struct rig_req *q, int32_t n_vocab, struct rig_text *out);
void sim_rig_text_fini(struct rig_text *t);

#endif
