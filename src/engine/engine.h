/* The engine: the loop that drains its inbox, schedules, executes and publishes.
 *
 * Owns: one thread, the scheduler and the block bookkeeping, every live request. Moves ids only: no bytes, no
 * I/O, no clock but the one it is given. Refuses to know: text, weights, HTTP. Threads: submit, cancel,
 * snapshot and inspect from any thread; poll and wait from one consumer; step only where no thread was started (tests,
 * simulation). Lifetime: _new, then _start or repeated _step, then _free. The executor must outlive it.
 *
 * A step is: drain inbox -> schedule -> execute -> publish. Cancelling takes effect within one step, in every
 * state. */
#ifndef QR_ENGINE_ENGINE_H
#define QR_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/status.h"
#include "core/costs.h"
#include "core/exec.h"
#include "core/inspect.h"
#include "core/req.h"
#include "core/snapshot.h"
#include "sched/request.h"

struct qr_engine;

struct qr_engine_conf {
    int32_t max_num_seqs;           // sequences running at once, <= executor's n_slots
    int32_t max_num_batched_tokens; // a step's token budget, <= executor's n_tokens_max
    int32_t max_model_len;          // prompt and answer together, <= executor's ctx_max
    int32_t inbox_capacity;         // requests not yet drained; full = QR_AGAIN
    int32_t outbox_capacity;        // events not yet read
    struct qr_clock *clock;
    uint64_t kv_idle_release_ns; // idle for so long, the pool's memory is given back; 0: never
    const struct qr_policy *policy; // who is served before whom; NULL: first come, first served
    // What may wait at most, in requests that were not begun and in their prompt tokens; 0: no limit. Requests
    // that free slots take at the next step do not count, and an empty queue takes any one call.
    int32_t max_queued_reqs;
    int64_t max_queued_tokens;
    struct qr_costs costs;   // a first guess of what steps cost, refined while they run; epoch 0: none
    uint64_t step_budget_ns; // as qr_sched_set_budget: 0, a time, or QR_STEP_AUTO; needs costs
    uint64_t queue_timeout_ns; // a request that was not begun by then ends with an error; 0: it waits for ever
    bool prefix_caching;
    uint64_t prefix_seed; // of the index's hashes; what is found does not depend on it
    bool exact;           // every row is class D (DESIGN N7)
    // Called with each line of a record of the run (engine/trace.h), on the engine's thread; NULL: none.
    void (*trace)(void *arg, const char *line, size_t bytes);
    void *trace_arg;
    bool check_every_step; // invariants K and S after each step (tests, --check=step)
    enum qr_kv_layout_kind layout;
    uint32_t page_blocks; // of QR_KV_VIRTUAL; 0 is 1
    enum qr_batching batching;
    enum qr_preempt_mode preempt_mode;
    // Tests: all running requests are preempted every so many steps, and once at a step of this number (from 1),
    // with blocks to spare. 0: never.
    uint64_t preempt_every, preempt_at;
};

enum qr_event_kind { QR_EVENT_TOKEN, QR_EVENT_PROMPT, QR_EVENT_FINISH };

// What happened to one sequence. Events of a request come in order; FINISH of a choice is its last.
struct qr_event {
    qr_req_id id;
    int32_t choice;
    enum qr_event_kind kind;
    int32_t token; // TOKEN: generated (an end token too); PROMPT: the prompt's id at position pos, from 1 on
    int32_t pos;   // of the token, from 0 at the prompt's start
    float logprob;
    int32_t rank, n_top;
    struct qr_top top[QR_LOGPROBS_MAX];
    enum qr_finish finish;             // FINISH only
    int32_t stop_token;                // FINISH with STOP: the end token, else -1
    int32_t n_cached;                  // prompt tokens that were not computed
    int32_t n_preemptions;             // FINISH only
    uint64_t now_ns;                   // when the step ended
    uint64_t arrival_ns, scheduled_ns; // scheduled: first time in a batch; 0 before
    enum qr_status status; // FINISH with ERROR: QR_AGAIN: it waited too long and was never begun
    char error[128];       // FINISH with ERROR
};

enum qr_status qr_engine_new(const struct qr_engine_conf *conf, struct qr_exec *exec, struct qr_engine **out,
                             struct qr_error *err) QR_MUST_CHECK;
void qr_engine_free(struct qr_engine **e); // stops the thread; live requests end without events

enum qr_status qr_engine_start(struct qr_engine *e) QR_MUST_CHECK; // the thread
// One step on the calling thread, which also polls between steps: an outbox that fills up within one is its
// bug, and aborts. (A thread waits for its reader instead.) QR_OK: something was done; QR_AGAIN: nothing to
// do.
enum qr_status qr_engine_step(struct qr_engine *e) QR_MUST_CHECK;

// Copies the request. QR_ETOOBIG: it could never fit, and *err says the arithmetic; QR_AGAIN: a limit of the
// queue, which err->param names, or the inbox is full; QR_ENOMEM. On success *id is set before any event of the request can be read.
enum qr_status qr_engine_submit(struct qr_engine *e, const struct qr_req *req, qr_req_id *id,
                                struct qr_error *err) QR_MUST_CHECK;
// Ends a request (choice -1: all its choices) before its next step. Unknown or finished ids are ignored. A
// FINISH event with ABORT follows, unless `quiet`: then nothing more of it is published. Tokens after
// at_token (-1: none) were never sent.
void qr_engine_cancel(struct qr_engine *e, qr_req_id id, int32_t choice, int32_t at_token, bool quiet);

bool qr_engine_poll(struct qr_engine *e, struct qr_event *out) QR_MUST_CHECK; // false: no event now
void qr_engine_wait(struct qr_engine *e, int timeout_ms);                     // until there may be events
void qr_engine_check(const struct qr_engine *e); // every invariant, between two steps by hand; aborts
void qr_engine_snapshot(struct qr_engine *e, struct qr_snapshot *out);        // cheap; as of the last step

// What blocks hold now is not found any more, by no request that is submitted from now on.
void qr_engine_reset_prefix_cache(struct qr_engine *e);

// A picture of the pool and of every live sequence, freed with qr_free. It is of the last step, or of now when
// the engine is idle; the first one waits for the step that runs. NULL: no memory.
struct qr_inspect *qr_engine_inspect(struct qr_engine *e);

#endif
