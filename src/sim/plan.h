/* How to serve a load: the smallest number of replicas and the settings with which enough requests are in time.
 *
 * Owns: the search and what it compared. Refuses to know: options, where models and costs come from, words.
 * Threads: one. Lifetime: qr_plan_make fills a plan, qr_plan_free.
 *
 * A replica is the model on the machine that the cost is of, with its share of the load: of a rate its n-th part, of a
 * trace with times each n-th session. A number of replicas will do when some settings of a fixed list keep the limits
 * in a simulation of one of them, and it answers more than comes when pressed: else a queue grows, which keeps loose
 * limits for as long as a simulation lasts. The numbers tried are doubled from what arithmetic alone asks for, then
 * halved between; neither list nor order depends on the limits, so stricter ones never ask for fewer. */
#ifndef QR_SIM_PLAN_H
#define QR_SIM_PLAN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/json.h"
#include "sim/report.h"
#include "sim/run.h"

#define QR_PLAN_CHOICES_MAX 8
#define QR_PLAN_REPLICAS_MAX 65536

struct qr_plan_limits { // a request is in time when it keeps all
    double ttft_s, tpot_s, e2el_s; // INFINITY: none
    double percentile;             // of requests that are to be in time, above 0, up to 100
};

struct qr_plan_conf {
    struct qr_sim_run_conf run;       // but for what a choice sets
    struct qr_sim_workload_conf load; // whole; n_requests 0: five minutes of a replica, 400 to 4,000
    struct qr_plan_limits limits;
    int32_t seqs[QR_PLAN_CHOICES_MAX], n_seqs; // --max-num-seqs to choose from, rising
    struct {
        int32_t n_tokens;  // --max-num-batched-tokens, rising
        uint32_t n_blocks; // that memory holds beside such steps
    } steps[QR_PLAN_CHOICES_MAX];
    int32_t n_steps;
    uint32_t n_ram; // blocks of swap space that are tried where requests are preempted; 0: none
    void (*progress)(void *arg, int n_runs, int32_t n_replicas); // NULL: not
    void *progress_arg;
};

struct qr_plan_use { // what a run made of its settings
    int32_t peak_seqs, peak_tokens; // at most so many at once, and in a step
    int64_t n_blocks_enough;        // for as many of the longest requests as ran at once; all where prompts share
    uint64_t n_preemptions;
};

struct qr_plan_run { // a simulation of one replica
    int32_t n_replicas, max_num_seqs, max_num_batched_tokens;
    uint32_t n_blocks, n_ram;
    double rate;  // requests a second, as they came
    bool kept;    // enough were in time, and would be if it went on
    double answers_most; // where they would not: requests a second that it answers at most, about as many as come; else 0
    double came_per_s, answered_per_s; // in the second half of the time in which requests come
    bool stopped; // too many were late: the rest was not simulated
    uint64_t n_requests, n_answered, n_late;
    double ttft_s, tpot_s, e2el_s; // at the percentile, of what was answered
    double tokens_per_s, requests_per_s; // over all of it
    struct qr_plan_use use, pressed; // pressed: where answers_most was found
};

// NOTHING: a trace so short that all of it at once is no more than a replica takes.
enum qr_plan_bind { QR_PLAN_MEMORY, QR_PLAN_COMPUTE, QR_PLAN_BANDWIDTH, QR_PLAN_LATENCY, QR_PLAN_NOTHING };

struct qr_plan {
    int32_t n_replicas, n_replicas_least; // least: by arithmetic
    struct qr_plan_run chosen; // with all the blocks that there could be
    struct qr_plan_run planned; // with no more than n_blocks_enough, where that changes nothing
    struct qr_sim_summary expected; // of one replica as planned
    double rate;      // of what fits of the whole load
    double rate_most; // of one replica with the chosen settings, within 5 %, or, of a load that ends, what it
                      // answered of it; INFINITY: nothing was too much
    double rate_over; // where it was too much
    double faster_most, faster_over; // both as so many times the load's own rate
    struct qr_plan_run beyond;  // a run at rate_over
    struct qr_sim_summary over; // of it
    enum qr_plan_bind bind;
    bool ends;                // the load does: it is a trace with times, or sessions
    double share_compute;     // of a step's time at rate_over: arithmetic; the rest is weights and KV read
    struct qr_plan_run alone; // one request at a time
    struct qr_plan_run *runs; // (n_runs) all that were compared, in order
    int n_runs, cap_runs;
    char unused[160];   // of the load, as the workload says it
    uint64_t n_unfit, n_load; // requests of the load that can never fit, and are in no figure; and all
    char unfit_why[256];      // the first of them
};

// QR_ETOOBIG: no number of replicas will do, and why. QR_EINVAL: the load has no rate, or too few requests.
enum qr_status qr_plan_make(const struct qr_plan_conf *conf, struct qr_plan *out, struct qr_error *err) QR_MUST_CHECK;
void qr_plan_free(struct qr_plan *p);

// "memory", "compute", "bandwidth", "latency target" or "nothing".
const char *qr_plan_bind_name(enum qr_plan_bind b);
// The reason in a sentence or two. Returns out.
const char *qr_plan_why(const struct qr_plan_conf *c, const struct qr_plan *p, char *out, size_t cap);
void qr_plan_print(const struct qr_plan_conf *c, const struct qr_plan *p, FILE *f);
// "settings": ..., "expected": ..., "runs": ...: members of the object that w is in.
void qr_plan_json(const struct qr_plan_conf *c, const struct qr_plan *p, struct qr_json_writer *w);

#endif
