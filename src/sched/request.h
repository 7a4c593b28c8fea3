/* A request as the scheduler holds it: its sequences, how far each is, and where it queues.
 *
 * Owns: the records, a copy of the request, the tokens generated so far.
 * Refuses to know: text, executors, whose connection it is.
 * Threads: made by whoever submits; afterwards the engine thread's.
 * Lifetime: _new to _free. All memory it will ever need is taken at _new: max_tokens for each choice, touched
 * as tokens arrive.
 *
 * A request owns one sequence a choice. Choices share the prompt: the first live one (the leader) computes
 * all of it but the last token; then the others fork, and every one computes the last prompt token itself, so
 * that each draws its own first token. Beams part when they have chosen theirs (sched/beam.c). */
#ifndef QR_SCHED_REQUEST_H
#define QR_SCHED_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "core/req.h"
#include "core/tier.h"
#include "kv/layout.h"
#include "kv/prefix.h"

enum qr_batching {
    QR_BATCHING_CONTINUOUS, // whoever finds room joins at the next step
    QR_BATCHING_WORST_CASE, // the same, but room is for prompt and max_tokens: nobody is ever preempted
    QR_BATCHING_STATIC,     // a batch runs until all of it is done, then the next one is made up
};

struct qr_policy;

struct qr_sched_conf {
    int32_t max_num_seqs;           // sequences with a slot at once
    int32_t max_num_batched_tokens; // a step's token budget
    int32_t max_model_len;          // prompt and answer together
    int32_t block_size;             // tokens
    uint32_t n_blocks;
    enum qr_kv_layout_kind layout;
    uint32_t page_blocks; // of QR_KV_VIRTUAL; 0 is 1
    enum qr_batching batching;
    bool prefix_caching;  // of paged layouts
    uint64_t prefix_seed; // of the index's hashes
    bool exact;           // every row is class D
    uint32_t n_prefix[QR_TIERS]; // slots for cached prefixes in each tier, behind those for preempted requests
    uint64_t prefix_key[2];      // of the hash that their tags hold
    uint32_t n_slots[QR_TIERS]; // of the tiers that preempted blocks may go to; 0: none
    uint32_t n_staging; // slots of the RAM tier behind those: blocks on their way to the file
    enum qr_preempt_mode preempt_mode;
    struct qr_preempt_costs preempt_costs; // until better ones come (qr_sched_set_costs)
    // Tests: every so many plans all running requests are preempted that moved on since they were admitted; and
    // at this plan (from 1) all of them, once. 0: never.
    uint64_t preempt_every, preempt_at;
    const struct qr_policy *policy; // NULL: fcfs
    int32_t starve_steps;           // 0: 512
};

struct qr_seq {
    int32_t choice;
    int32_t slot;       // the executor's, -1 while it waits
    int32_t n_ids;      // tokens known: the prompt and what was generated
    int32_t n_computed; // of them, with KV in blocks
    int32_t n_seen;     // most that were ever computed; below it is recomputing
    int32_t n_granted;  // tokens in the present plan, 0: none
    int32_t n_kept;     // ids that count when a stop string cut off the rest; 0: all
    int32_t n_indexed;  // full blocks that can be found, they or equal ones; `place` is behind them
    struct qr_kv_place place;
    bool done;
    bool open;          // the executor knows the slot; kept by the engine
    int32_t *generated; // (max_tokens)
    int32_t n_saved;    // blocks that wait in the request's tier
    uint32_t *saved;    // (their most) the tier's slots, in the table's order
};

enum qr_sched_state { QR_SCHED_NEW, QR_SCHED_WAITING, QR_SCHED_RUNNING, QR_SCHED_ENDED };

// What an admission took over of the cache; it counts as found when all of it is in the pool.
struct qr_sched_found {
    int32_t n_tokens, n_generated; // the latter: those that are class D for it
    int32_t n_of[QR_TIERS];        // prompt tokens that were never there before
};

struct qr_sched_req {
    qr_req_id id;
    struct qr_req *req;
    void *user; // the engine's record
    enum qr_sched_state state;
    uint64_t order;                    // of arrival at the scheduler, from 1
    uint64_t arrival_ns, scheduled_ns; // first time in a plan, 0 before
    int32_t n_live;                    // sequences not done
    int32_t n_preemptions;
    int32_t n_squeezed;               // preemptions by a shortage of blocks
    enum qr_tier tier;                // where its blocks wait while it is preempted; POOL: nowhere
    uint64_t saved_in;                // the plan that moved them there
    uint32_t *saved;                  // memory of the sequences' slots; NULL: it is never swapped
    int32_t n_io;                     // of its blocks, on their way to or from the file
    bool io_failed;                   // one of them did not arrive
    bool loading;                     // it runs, but its blocks are still on their way
    bool moved, drew;                 // since it was admitted: computed anything, drew a token
    int32_t n_scored;                 // prompt positions whose score went out
    int32_t n_prompt_seen;            // prompt tokens that were ever computed or found
    int32_t n_cached;                 // prompt tokens that were found, never computed
    uint8_t *prompt_d;                // (n_prompt bits) those that are class D: another turn's answer, found
    struct qr_sched_found found;      // on its way; zero otherwise
    bool forked;                      // every live sequence goes its own way
    // The queue's (sched/queue.h).
    uint64_t turn;          // of its first admission, from 1; 0: it never ran
    int64_t class, rank;    // the policy's
    int32_t lane, n_passed; // steps that passed it over while it was its lane's oldest
    bool aged;              // it was passed over too often, and goes first
    int8_t n_yields;        // times that it made way for a better class
    struct qr_sched_req *lane_prev, *lane_next; // in serving order
    struct qr_sched_req *older, *newer;         // by arrival
    struct qr_seq seqs[];             // (n_choices)
};

// Whether the request can ever run under conf: QR_ETOOBIG with the arithmetic, QR_EINVAL for a malformed one.
enum qr_status qr_sched_req_fits(const struct qr_sched_conf *conf, const struct qr_req *req,
                                 struct qr_error *err) QR_MUST_CHECK;
enum qr_status qr_sched_req_new(const struct qr_req *req, qr_req_id id,
                                struct qr_sched_req **out) QR_MUST_CHECK;
void qr_sched_req_free(struct qr_sched_req **r);
// Takes the memory that swapping a new request needs: a slot's id for each block that it may ever own, where conf
// has tiers at all.
enum qr_status qr_sched_req_reserve(struct qr_sched_req *r, const struct qr_sched_conf *conf) QR_MUST_CHECK;

// The first sequence that is not done; there is one while n_live > 0.
struct qr_seq *qr_sched_req_leader(struct qr_sched_req *r);
// Tokens that may be computed of this sequence now: all known ones once forked, else the leader's part of the
// prompt.
int32_t qr_seq_wanted(const struct qr_sched_req *r, const struct qr_seq *q);
// Tokens of the prompt that the leader computes for all: all but the last, which each choice computes itself to draw
// from; beams first choose among one row's candidates, so there it is all of them.
int32_t qr_sched_req_shared(const struct qr_sched_req *r);
// The id at position pos < n_ids.
int32_t qr_seq_id(const struct qr_sched_req *r, const struct qr_seq *q, int32_t pos);
// One of its sequences as kv/layout.h asks for it.
struct qr_kv_want qr_sched_req_want(const struct qr_sched_req *r);
// Blocks that hold the tokens known so far, when each choice has tokens of its own behind the shared prompt.
uint32_t qr_sched_req_blocks(const struct qr_sched_req *r, int32_t block_size);
// The same once every live choice has drawn its last token.
uint32_t qr_sched_req_blocks_max(const struct qr_sched_req *r, int32_t block_size);

#endif
