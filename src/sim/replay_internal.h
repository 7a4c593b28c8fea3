/* The record of a replay, shared by replay.c (reading and telling the scheduler) and replay_rules.c (what may come when).
 *
 * Owns: nothing. Refuses to know: callers. Threads: one. Lifetime: that of qr_replay_run. */
#ifndef QR_SIM_REPLAY_INTERNAL_H
#define QR_SIM_REPLAY_INTERNAL_H

#include "engine/trace.h"
#include "sim/lines.h"
#include "sim/replay.h"

#define REPLAY_BUCKETS 4096
#define REPLAY_NUMBERS_MAX (2 + 2 * QR_CHOICES_MAX) // of a line, but for the ids of A

// Where in an engine's loop a line stands.
enum replay_phase {
    REPLAY_START,   // before anything but costs and what the prefix file holds
    REPLAY_BETWEEN, // two steps
    REPLAY_PLANNED,
    REPLAY_ORDERED,
    REPLAY_BATCHED,
    REPLAY_COMPUTED, // its tokens come out
    REPLAY_FAILED,   // its requests end
    REPLAY_OVER,     // the step: I/O may begin
    REPLAY_FLUSHING,
};

struct replay_live {
    struct replay_live *chain;
    struct qr_sched_req *r;
    struct qr_sim_record times;
    uint64_t *last_ns; // (n_choices) of its last token
    uint64_t drained_ns; // the plan that first saw it; 0: not yet
    struct replay_live *next_new; // added since the last plan
    bool owes;       // it has computed all that it knows: a token or its end must come before the next step
    bool must_end;   // its step failed
    uint64_t n_moved; // beams: the step (from 1) behind which they moved
};

struct replay {
    const struct qr_replay_conf *conf;
    struct qr_replay *out;
    struct qr_sched *s;
    struct qr_lines lines;
    enum replay_phase phase;
    struct replay_live *table[REPLAY_BUCKETS];
    struct replay_live *news; // added since the last plan
    int32_t n_owing;          // requests that owe something
    uint64_t now_ns, end_ns; // of the plan, of its step
    uint64_t computed_ns;    // sum of what steps took
    bool paused;             // nothing was left to do since the last step
    const struct qr_plan *plan;
    const struct qr_batch *batch;
    uint64_t v[REPLAY_NUMBERS_MAX];
    int n;
    const char *rest; // of the line, behind the numbers that were read
    bool any_event;   // of the chrome trace
    struct qr_error *err;
};

// "file:line: expected `want`, got the line".
enum qr_status replay_bad(struct replay *p, const char *want);
// Whether a line with this letter may come now; then the phase in which it is read. Whatever it says: a scheduler that is told
// lines that may come never meets an assertion.
enum qr_status replay_enter(struct replay *p, char letter) QR_MUST_CHECK;
// After something happened to the request: whether it owes.
void replay_settle(struct replay *p, struct replay_live *l);
bool replay_conf_is_sane(const uint64_t v[QR_TRACE_CONF_NUMBERS], const struct qr_sched_conf *c);
bool replay_costs_are_sane(const uint64_t *v, int n);
// Whether beams of a running request can move so (sched/sched.h).
bool replay_moves_are_sane(const struct qr_sched_req *r, const struct qr_beam_move *moves, int32_t n);

#endif
