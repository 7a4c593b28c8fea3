/* The engine's record, shared by engine.c (doors and thread), step.c (the loop's body) and publish.c
 * (events).
 *
 * Owns: nothing. Refuses to know: callers. Threads: fields say whose they are. Lifetime: the engine's. */
#ifndef QR_ENGINE_INTERNAL_H
#define QR_ENGINE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "base/ring.h"
#include "engine/engine.h"
#include "sched/sched.h"

#define ENGINE_BUCKETS 4096 // of the table of live requests; chains grow with the queue, one lookup a cancel

// A live request: in the table from submit until its last sequence ends.
struct engine_req {
    struct qr_sched_req *r;
    struct engine_req *chain;       // table_lock
    struct engine_req *cancel_next; // table_lock
    uint64_t cancel, quiet;         // table_lock: bits by choice that others asked for
    bool cancel_listed;             // table_lock
    uint64_t early;                 // engine thread: cancelled before it was drained
    int64_t n_queued_tokens;        // table_lock: counted in the queue; 0: begun, or never counted
    enum qr_status status;          // engine thread: of an error, QR_OK: QR_EIO
    struct engine_beam *beam;       // engine thread; NULL: no beam search
    uint64_t silent;                // engine thread: choices of which nothing more is published
    int32_t keep_to[]; // table_lock: (n_choices) position of the last token that counts; -1: all do
};

#define ENGINE_SAMPLES 31 // a median of so many looks past a few seconds of a stolen core

struct engine_median { // the last samples of a cost, in ns
    uint64_t v[ENGINE_SAMPLES];
    uint64_t n; // ever added
};

struct engine_preempt { // engine thread
    struct qr_preempt_costs costs;
    struct engine_median token, copy, io[2]; // by enum qr_io_kind
    uint64_t io_ns[2];
    uint64_t io_log_ns;
    uint64_t n_io_failed, n_io_logged, n_lost_logged; // of I/O, of those in the log, and tokens in it
    struct qr_io_done io_failed; // the last
    uint64_t log_ns;     // of the last line about preemptions; 0: none
    uint64_t n_unlogged; // preemptions since
};

struct engine_counts { // engine thread; only grow
    uint64_t n_generated_tokens, n_dropped_tokens, n_requests, n_finished[QR_FINISH_ERROR + 1];
    uint64_t step_ns;
    uint64_t n_expired;
};

#define ENGINE_ADMISSIONS 32 // the last ones, from which the wait is estimated

// What waits before its first step, for the limits of admission and the estimate of a wait.
struct engine_queue {
    // table_lock
    int32_t n_reqs;
    int64_t n_tokens;
    int32_t n_free_slots; // that the next step gives away before anybody has to wait
    // snapshot_lock
    uint64_t admitted_ns[ENGINE_ADMISSIONS]; // ring
    uint64_t n_admitted;
    uint64_t busy_since_ns; // when the queue was last seen empty; 0: it is
};

#define ENGINE_VOTES 63 // the last ones of each term

struct engine_votes {
    double v[ENGINE_VOTES]; // ns
    uint64_t n;
};
struct engine_measure { // what steps cost
    struct qr_costs costs; // in force
    double first[QR_COST_TERMS], now[QR_COST_TERMS]; // ns: as guessed, and as known
    struct engine_votes votes[QR_COST_TERMS];
    uint64_t n_steps;
};

struct qr_engine {
    struct qr_engine_conf conf;
    struct qr_exec *exec;
    struct qr_exec_info info;
    struct qr_sched_conf sched_conf;
    struct qr_sched *sched;
    struct qr_ring *inbox;  // struct engine_req *
    struct qr_ring *outbox; // struct qr_event
    int32_t *resume_ids;    // (max_model_len) prompt and generated tokens of a sequence that is opened again
    struct qr_event event;  // being filled
    bool published;         // since the last wake

    pthread_mutex_t table_lock;
    struct engine_req *table[ENGINE_BUCKETS];
    struct engine_req *cancels;
    atomic_bool any_cancels, reset_prefix;
    atomic_uint_fast64_t last_id;
    atomic_uint_fast64_t n_refused, refused_log_ns;
    struct engine_preempt preempt;

    pthread_mutex_t snapshot_lock;
    struct qr_snapshot snapshot;
    struct engine_counts counts;

    struct engine_queue queue;
    struct engine_measure measure;
    struct engine_picture *picture;
    struct qr_buf trace_line; // being written
    uint64_t idle_since_ns; // 0: not known to be idle
    bool trimmed;           // since the last work

    pthread_t thread;
    bool has_thread;
    atomic_bool stop;
};

// ==== trace.c: a line for each thing that the scheduler is told; nothing where conf.trace is NULL ====

void trace_conf(struct qr_engine *e);
void trace_add(struct qr_engine *e, const struct qr_sched_req *r);
void trace_budget(struct qr_engine *e, const struct qr_costs *c, uint64_t step_ns);
void trace_preempt_costs(struct qr_engine *e, const struct qr_preempt_costs *c);
void trace_plan(struct qr_engine *e, uint64_t now_ns, const struct qr_plan *plan);
void trace_batch(struct qr_engine *e, const struct qr_batch *b); // NULL: nothing to compute
void trace_computed(struct qr_engine *e, uint64_t elapsed_ns);
void trace_import(struct qr_engine *e, uint32_t slot, const void *tag);
void trace_beams(struct qr_engine *e, const struct qr_sched_req *r, const struct qr_beam_move *moves, int32_t n);
void trace_scored(struct qr_engine *e, const struct qr_sched_req *r);
void trace_token(struct qr_engine *e, const struct qr_sched_req *r, int32_t choice, int32_t token);
void trace_end(struct qr_engine *e, const struct qr_sched_req *r, const struct qr_seq *q);
void trace_io_started(struct qr_engine *e, int32_t n);
void trace_io_done(struct qr_engine *e, const struct qr_io_done *done);
void trace_word(struct qr_engine *e, char letter);
void trace_flush(struct qr_engine *e, int32_t n_copies);
void trace_trim(struct qr_engine *e, bool trimmed);

// ==== picture.c ====

enum qr_status engine_picture_new(const struct qr_engine *e, struct engine_picture **out) QR_MUST_CHECK;
void engine_picture_free(struct engine_picture **p);
// Takes a picture if somebody wanted one lately.
void engine_picture_take(struct qr_engine *e);

// ==== preempt.c ====

void engine_costs_init(struct qr_engine *e);
// Learns from a step what tokens and copies cost, and tells the scheduler.
void engine_costs_take(struct qr_engine *e, const struct qr_batch *b, const struct qr_exec_result *res);
// Learns from background I/O what it costs; one line a second at most says that it failed.
void engine_io_done(struct qr_engine *e, const struct qr_io_done *done);
// Says what failed since, when it is known how much is computed again for it.
void engine_log_io(struct qr_engine *e);
// At most one line a second says who was preempted, for whom, how, what it costs and what would avoid it.
void engine_log_preemptions(struct qr_engine *e, const struct qr_plan *plan);
// ==== measure.c ====

void engine_measure_init(struct engine_measure *m, const struct qr_costs *costs);
// Learns from a step of this work that took so long. True: m->costs is a new table.
bool engine_measure_take(struct engine_measure *m, const struct qr_work *w, uint64_t ns);
// The same for a batch; a new table goes to the scheduler.
void engine_measure_step(struct qr_engine *e, const struct qr_batch *b, const struct qr_exec_result *res);

// ==== limits.c ====

// Whether the queue takes the request, or QR_AGAIN and which limit it would pass. Under table_lock.
enum qr_status engine_queue_room(const struct qr_engine *e, const struct qr_req *req,
                                 struct qr_error *err) QR_MUST_CHECK;
void engine_queue_add(struct qr_engine *e, struct engine_req *er); // under table_lock
void engine_queue_drop(struct qr_engine *e, struct engine_req *er); // under table_lock; a second time: nothing
// What the plan admitted has left the queue.
void engine_queue_take(struct qr_engine *e, const struct qr_plan *plan, uint64_t now_ns);
// Ends what waited too long.
void engine_queue_expire(struct qr_engine *e, uint64_t now_ns);
// After a step: free slots, and since when somebody waits.
void engine_queue_publish(struct qr_engine *e, const struct qr_snapshot *s, uint64_t now_ns);
// How long what waits now will take, in seconds. Under snapshot_lock.
int32_t engine_queue_wait_s(const struct qr_engine *e, int32_t n_waiting, uint64_t now_ns);

// ==== beam.c ====

// Whether a beam search can be carried out here; QR_EINVAL names the field.
enum qr_status engine_beam_check(const struct qr_engine *e, const struct qr_req *req,
                                 struct qr_error *err) QR_MUST_CHECK;
// How many candidates a row reports.
int32_t engine_beam_candidates(const struct qr_req *req);
// All memory that the search will need.
enum qr_status engine_beam_new(const struct qr_req *req, struct engine_beam **out) QR_MUST_CHECK;
void engine_beam_free(struct engine_beam **b);
// A row of this choice is in the batch that ran: what is known of it is replaced.
void engine_beam_expect(struct engine_beam *b, int32_t choice);
// A row's candidates. With the last beam's, all of them take a step: the request may be gone afterwards.
void engine_beam_take(struct qr_engine *e, struct engine_req *er, const struct qr_seq *q, const struct qr_out_row *row,
                      const struct qr_top *tops);

// ==== flush.c ====

// At the end: saves cached prefixes to the file, as far as a few seconds reach.
void engine_flush(struct qr_engine *e);
// The same while idle, until somebody wants something. True: nothing is left to save.
bool engine_flush_idle(struct qr_engine *e);

// ==== rest.c ====

// Nothing to do: gives memory back once it is time.
void engine_rest(struct qr_engine *e);
// How long to sleep until the next look, in ms; -1: until somebody wakes us.
int engine_rest_ms(const struct qr_engine *e);

void engine_req_free(struct engine_req *er);
// Takes a request out of the table; nobody can cancel it any more.
void engine_forget(struct qr_engine *e, struct engine_req *er);
// Ends one sequence in any state: closes its slot, publishes FINISH unless it is silent, frees the request
// with its last. Returns false when the request is gone.
bool engine_finish(struct qr_engine *e, struct engine_req *er, int32_t choice, enum qr_finish finish,
                   int32_t stop_token, const char *error);
void engine_finish_all(struct qr_engine *e, struct engine_req *er, uint64_t choices, enum qr_finish finish,
                       const char *error);
// What an executor's row says about a sequence.
void engine_publish_row(struct qr_engine *e, struct engine_req *er, const struct qr_seq *q,
                        const struct qr_out_row *row, const struct qr_top *tops);
void engine_update_snapshot(struct qr_engine *e);

#endif
