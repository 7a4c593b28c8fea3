/* The scheduler: at every step, who computes how many tokens.
 *
 * Owns: the waiting and running requests, the executor's slots, the block tables.
 * Refuses to know: executors, clocks (time comes in as a number), threads, text. Allocates nothing after
 * _new. Threads: the engine thread. Lifetime: _new to _free; requests belong to the engine and are only
 * linked here.
 *
 * There is no prefill phase and no decode phase: every sequence has tokens known and tokens computed, and a
 * plan grants some of the difference under one token budget. The life of a step:
 *
 *   plan = qr_sched_plan(s, now, budget)   decides, takes blocks, preempts, admits
 *   plan->orders: the caller opens and closes slots, in this order; on a failure qr_sched_end drops the
 * request qr_sched_batch(s)                      what is left of the plan, as one flat buffer; NULL: nothing
 *   (execute; if that fails: qr_sched_failed(s), and end the requests of the batch)
 *   qr_sched_computed(s)                   the batch's tokens now have KV
 *   qr_sched_append / qr_sched_end         for every sampled token
 */
#ifndef QR_SCHED_SCHED_H
#define QR_SCHED_SCHED_H

#include <stdint.h>
#include <stdio.h>

#include "base/status.h"
#include "core/batch.h"
#include "core/costs.h"
#include "core/inspect.h"
#include "core/snapshot.h"
#include "sched/request.h"

struct qr_sched;

enum qr_status qr_sched_new(const struct qr_sched_conf *conf, struct qr_sched **out) QR_MUST_CHECK;
void qr_sched_free(struct qr_sched **s);

// Queues a new request.
void qr_sched_add(struct qr_sched *s, struct qr_sched_req *r);
bool qr_sched_idle(const struct qr_sched *s); // nothing waits and nothing runs

// Forgets what every block holds; false, and nothing is done, unless the scheduler is idle and no block is in
// use. The caller may then trim the executor.
bool qr_sched_trim(struct qr_sched *s);
// No block that was written until now is found any more, nor those of live sequences later.
void qr_sched_reset_prefix(struct qr_sched *s);

enum qr_order_kind { QR_ORDER_CLOSE, QR_ORDER_OPEN };
struct qr_order { // about a slot of the executor
    enum qr_order_kind kind;
    int32_t slot;
    struct qr_sched_req *r;
    int32_t choice;
};
struct qr_grant { // tokens for a sequence: row i of the batch is grant i
    struct qr_sched_req *r;
    struct qr_seq *seq;
    struct qr_batch_copy copy; // valid when n_copies is 1
    int32_t n_copies;
    int32_t n_tokens; // 0: dropped again
    uint32_t flags;   // enum qr_batch_flags
};
struct qr_preemption { // for the log
    struct qr_sched_req *victim;
    struct qr_sched_req *for_whom; // NULL: a test asked for it
    enum qr_tier tier;             // where its blocks wait; POOL: they were dropped
    enum qr_tier best;             // the tier that would have cost least; POOL: there is none
    bool had_room;                 // there
    int32_t n_tokens;              // computed ones, those that sequences share once
    uint32_t n_blocks;             // that hold them
    bool made_way;                 // for_whom waited, and the policy has it go first; else it ran and needed a block
    uint64_t swap_ns, compute_ns;  // what either way costs; swap: to `best` and back
};
struct qr_plan {
    const struct qr_order *orders;
    const struct qr_preemption *preemptions;
    const struct qr_grant *grants;
    int32_t n_orders, n_preemptions, n_grants;
};

// Plans a step of at most budget tokens. While anything waits or runs, at least one token is granted, or I/O is in
// flight that somebody waits for.
const struct qr_plan *qr_sched_plan(struct qr_sched *s, uint64_t now_ns, int32_t budget);
// The plan as a batch, once; the buffer is the scheduler's, valid until the next plan. Row i belongs to grant
// i of the plan as it is now (dropped grants are squeezed out). It may hold copies alone; they must be made.
const struct qr_batch *qr_sched_batch(struct qr_sched *s);
// The plan's grants stay readable (with n_grants 0) until the next plan.
void qr_sched_computed(struct qr_sched *s);
// Instead of computed: whether the batch's copies were made is unknown. What they took out of the pool counts
// as lost, and is recomputed.
void qr_sched_failed(struct qr_sched *s);
// I/O of blocks that is to be started now that the batch's copies were made; the list is handed out once.
int32_t qr_sched_io(struct qr_sched *s, const struct qr_io **out);
// I/O came to its end, well or not. Between steps.
void qr_sched_io_done(struct qr_sched *s, const struct qr_io_done *done);
// Tokens that did not come back so, ever; a request's when all its I/O has ended.
uint64_t qr_sched_lost_tokens(const struct qr_sched *s);
// A slot of the file of cached prefixes holds what its tag says (struct qr_kv_tag), from an earlier process. Before
// the first step. False: it is of no use.
bool qr_sched_import(struct qr_sched *s, uint32_t slot, const void *tag);
// At the end, or idle: orders copies of cached blocks that the file has not, as many as there is staging memory for; then
// qr_sched_batch, execute, qr_sched_flushed (or qr_sched_failed), and the I/O. False: there are none left.
bool qr_sched_flush(struct qr_sched *s);
void qr_sched_flushed(struct qr_sched *s);
int32_t qr_sched_io_in_flight(const struct qr_sched *s);
bool qr_sched_io_is_in_flight(const struct qr_sched *s, const struct qr_io *io); // just this one
// What preempting costs from now on. Between steps.
void qr_sched_set_costs(struct qr_sched *s, const struct qr_preempt_costs *costs);
// A token that was sampled for a sequence.
void qr_sched_append(struct qr_sched_req *r, struct qr_seq *q, int32_t token);
// Beams: sequence `to` of a running request becomes what `from` is: its tokens, and the blocks of all of them. `to`
// may be any that does not go on itself.
struct qr_beam_move {
    int32_t from, to; // choices
};
// Carries out the moves of a step, in which every live sequence has computed all it knows, or the first one has and
// the others nothing yet. Then each gets its token (qr_sched_append).
void qr_sched_move_beams(struct qr_sched *s, struct qr_sched_req *r, const struct qr_beam_move *moves, int32_t n);
// Ends a queued sequence and frees its blocks, tail first. Returns the slot that it held, -1 for none: the
// caller closes it if it had opened it. The request leaves its queue with its last sequence.
int32_t qr_sched_end(struct qr_sched *s, struct qr_sched_req *r, int32_t choice);

#define QR_STEP_AUTO UINT64_MAX // as long as its generating rows and 256 prompt rows without context take

// From the next plan on, a step that has generating rows takes no prompt rows beyond step_ns by this table; 0: only
// the token budget counts. Some progress of prompts is guaranteed all the same (budget.c).
void qr_sched_set_budget(struct qr_sched *s, const struct qr_costs *costs, uint64_t step_ns);
// A waiting request that never ran and whose deadline has come; NULL: none. The caller ends it and asks again.
struct qr_sched_req *qr_sched_expired(struct qr_sched *s, uint64_t now_ns);

// Fills what the scheduler knows of a snapshot: gauges and block counters.
void qr_sched_snapshot(const struct qr_sched *s, struct qr_snapshot *out);
// Fills a picture as far as its arrays reach: running sequences in serving order, then waiting ones.
void qr_sched_inspect(const struct qr_sched *s, struct qr_inspect *out);
void qr_sched_check(const struct qr_sched *s); // K1-K4, S1-S4; aborts
void qr_sched_dump(const struct qr_sched *s, FILE *f);

#endif
