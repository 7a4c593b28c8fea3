/* How to serve a load: the smallest number of replicas and the settings with which enough requests are in time.
 *
 * Owns: the search and what it compared. Refuses to know: options, where models and costs come from, words.
 * Threads: one. Lifetime: qr_plan_make fills a plan, qr_plan_free.
 *
 * A replica is the model on the machine that the cost is of, with its share of the load: of a rate its n-th part, of a
 * trace with times each n-th session. A number of replicas will do when some settings of a fixed list keep the limits
 * in a simulation of one of them. The numbers tried are doubled from what arithmetic alone asks for, then halved
 * between; neither list nor order depends on the limits, so stricter ones never ask for fewer. */
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

struct qr_plan_run { // a simulation of one replica
    int32_t n_replicas, max_num_seqs, max_num_batched_tokens;
    uint32_t n_blocks, n_ram;
    double rate;  // requests a second, as they came
    bool kept;    // enough were in time
    bool stopped; // too many were late: the rest was not simulated
    uint64_t n_requests, n_answered, n_late;
    double ttft_s, tpot_s, e2el_s; // at the percentile, of what was answered
    double tokens_per_s;
    uint64_t n_preemptions;
    int32_t peak_seqs, peak_tokens; // at most so many at once, and in a step
};

enum qr_plan_bind { QR_PLAN_MEMORY, QR_PLAN_COMPUTE, QR_PLAN_BANDWIDTH, QR_PLAN_LATENCY };

struct qr_plan {
    int32_t n_replicas, n_replicas_least; // least: by arithmetic
    struct qr_plan_run chosen;
    uint32_t n_blocks_enough; // for as many of the longest requests as ran at once; all where prompts share
    struct qr_sim_summary expected; // of one replica
    double rate;      // of the whole load
    double rate_most; // of one replica with these settings, within 5 %
    double rate_over; // where it was too much
    struct qr_sim_summary over; // a run at rate_over
    enum qr_plan_bind bind;
    bool over_keeps_up;       // at rate_over answers still end as fast as requests come
    double share_compute;     // of a step's time at rate_over: arithmetic; the rest is weights and KV read
    struct qr_plan_run alone; // one request at a time
    struct qr_plan_run *runs; // (n_runs) all that were compared, in order
    int n_runs, cap_runs;
    char unused[160];   // of the load, as the workload says it
    uint64_t n_refused; // of n_requests of the chosen run: can never fit
    char refused_why[256];
};

// QR_ETOOBIG: no number of replicas will do, and why. QR_EINVAL: the load has no rate.
enum qr_status qr_plan_make(const struct qr_plan_conf *conf, struct qr_plan *out, struct qr_error *err) QR_MUST_CHECK;
void qr_plan_free(struct qr_plan *p);

// "memory", "compute", "bandwidth" or "latency target".
const char *qr_plan_bind_name(enum qr_plan_bind b);
// The reason in a sentence or two. Returns out.
const char *qr_plan_why(const struct qr_plan_conf *c, const struct qr_plan *p, char *out, size_t cap);
void qr_plan_print(const struct qr_plan_conf *c, const struct qr_plan *p, FILE *f);
// "settings": ..., "expected": ..., "runs": ...: members of the object that w is in.
void qr_plan_json(const struct qr_plan_conf *c, const struct qr_plan *p, struct qr_json_writer *w);

#endif
