/* What the parts of a plan's search share: loads (plan_load.c), one simulation (plan_run.c), the search (plan.c).
 *
 * Owns: the state of a search. Refuses to know: words. Threads: one. Lifetime: of one qr_plan_make. */
#ifndef QR_SIM_PLAN_INTERNAL_H
#define QR_SIM_PLAN_INTERNAL_H

#include "sim/plan.h"

#define PLAN_PRESSED_MAX 256

struct plan_pressed { // what a replica with these settings answered when requests came faster than `came`
    int32_t max_num_seqs, max_num_batched_tokens;
    uint32_t n_blocks, n_ram;
    double came, answered; // requests a second
    struct qr_plan_use use;
};

struct planner {
    const struct qr_plan_conf *conf;
    struct qr_plan *plan;
    struct qr_sim_workload share; // of one of n_share replicas
    int32_t n_share;              // 0: none is there; -1: requests come alone
    int64_t n_sessions;           // of the source, where it has sessions; else 0
    int64_t n_arrivals;           // of a trace with times: requests, or sessions, that can be shared out; else 0
    double rate;                  // requests a second of the whole load that fit
    bool shares; // prompts may have parts in common: what the pool keeps of them matters
    struct plan_pressed pressed[PLAN_PRESSED_MAX]; // the latest, in a ring
    int n_pressed;
    struct qr_error *err;
};

// Looks at the whole load: its rate, the least number of replicas, what can never fit. Refuses what is no load to
// plan for.
enum qr_status plan_load_look(struct planner *p) QR_MUST_CHECK;
// Sets p->share to the load of one of n replicas; n -1: the same requests one at a time.
enum qr_status plan_load_share(struct planner *p, int32_t n) QR_MUST_CHECK;
// A load of n requests (sessions, where there are any) at this rate of them, whatever --num-prompts says. The caller
// frees it.
enum qr_status plan_load_at(struct planner *p, double rate, int64_t n, struct qr_sim_workload *out) QR_MUST_CHECK;
// So many requests (sessions) are a load of this rate where nobody says how many.
int64_t plan_load_size(double rate);
// Times at which the first and the last request, or session, comes. Of none: INFINITY and 0.
void plan_load_span(const struct qr_sim_workload *w, double *first_s, double *last_s);
double plan_load_rate(const struct qr_sim_workload *w);
// How long the longest session is, or a request, when a turn takes so long.
double plan_load_longest_s(const struct qr_sim_workload *w, double turn_s);

// Simulates one of n replicas whose requests come `faster` times as fast. With `whole`, to the end and summed up.
enum qr_status plan_run(struct planner *p, int32_t n, double faster, struct qr_plan_run *run,
                        struct qr_sim_summary *whole) QR_MUST_CHECK;
// A queue that grows may keep its limits for as long as a simulation lasts. Where a replica answers no more than comes,
// the run is none that kept them, and says how much it answers. A trace with times is all that comes.
enum qr_status plan_sustains(struct planner *p, double faster, struct qr_plan_run *run) QR_MUST_CHECK;

#endif
