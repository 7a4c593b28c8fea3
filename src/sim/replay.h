/* A recorded run gone through again: the same scheduler, told the same things, must decide the same.
 *
 * Owns: the scheduler it makes, what it reads of the trace (engine/trace.h). Refuses to know: executors, costs.
 * Threads: one. Lifetime: qr_replay_run to qr_replay_free. */
#ifndef QR_SIM_REPLAY_H
#define QR_SIM_REPLAY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"
#include "sched/request.h"
#include "sim/run.h"
#include "sim/workload.h"

struct qr_replay_conf {
    const char *path;     // of the trace, also .gz
    FILE *chrome;         // NULL, or where a trace for Chrome's and Perfetto's viewers goes
    uint64_t check_every; // steps between walks over every invariant; 0: none
    // What steps took until the next was planned (an earlier replay's step_ns): a token counts as drawn at the end of
    // that, as in a simulation fed with those times. NULL: when its step was computed.
    const uint64_t *cycle_ns;
    size_t n_cycles;
};

struct qr_replay {
    uint64_t n_lines, n_steps, n_tokens, n_plans;
    bool differs;  // a decision was another one
    char why[256]; // the first such: line, what was recorded, what came
    struct qr_sched_conf conf;
    struct qr_sim_result recorded; // when things happened, as the trace says
    struct qr_sim_workload workload; // the finished requests, arriving when the scheduler first saw them
    uint64_t *step_ns;               // (n_step_ns) what each step took, until the next was planned where work went on
    size_t n_step_ns;
    int32_t n_choices_max; // of any request
    bool has_budget;       // steps had a budget in time
    uint64_t cut_line;     // the record ends within this line, which does not count; 0: with a whole one
    // of the reader
    size_t records_cap, items_cap, steps_cap;
};

// QR_OK also where a decision differs: out->differs. QR_EFORMAT: "file:line: expected ..., got ...".
enum qr_status qr_replay_run(const struct qr_replay_conf *conf, struct qr_replay *out,
                             struct qr_error *err) QR_MUST_CHECK;
void qr_replay_free(struct qr_replay *r);

#endif
