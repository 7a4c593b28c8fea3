/* A simulation: the engine that serves, over an executor without a machine, under a virtual clock.
 *
 * Owns: the clock, the executor, the engine, and what became of every request.
 * Refuses to know: where workloads and costs come from, how results are shown.
 * Threads: one. Lifetime: qr_sim_run fills a result, qr_sim_result_free.
 *
 * The same configuration and seed give the same result, byte for byte. */
#ifndef QR_SIM_RUN_H
#define QR_SIM_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "core/snapshot.h"
#include "engine/engine.h"
#include "sim/cost.h"
#include "sim/workload.h"

struct qr_sim_record;
struct qr_sim_run_conf {
    const struct qr_sim_workload *workload;
    struct qr_sim_cost *cost;
    int32_t block_size, max_num_seqs, max_num_batched_tokens, max_model_len, n_vocab;
    uint32_t n_blocks;
    uint32_t n_ram; // blocks of swap space
    uint64_t block_bytes;
    enum qr_preempt_mode preempt_mode;
    enum qr_kv_layout_kind layout;
    uint32_t page_blocks;
    enum qr_batching batching;
    bool prefix_caching;   // of the paged layout
    uint64_t step_budget_ns; // as the engine's; 0: only the token budget counts
    int32_t n_choices;     // of every request
    int32_t beam_width;    // 0, or n_choices: each request is a beam search (where blocks can be shared)
    int32_t shared_tokens; // prefix of every prompt, as the workload counted it in
    uint64_t seed;
    uint64_t check_every; // steps between walks over every invariant and every block; 0: none
    // Called every so often with requests done and in all; NULL: not.
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *progress_arg;
    // Asked about each request when it is answered; true ends the run there. NULL: nobody asks.
    bool (*stop)(void *arg, const struct qr_sim_record *r);
    void *stop_arg;
};

struct qr_sim_record { // a request, in order of submission; times on the virtual clock, 0: never
    int64_t item;
    uint64_t arrival_ns, scheduled_ns, first_ns, finish_ns;
    uint64_t seen_ns; // by a plan, first; of replays
    int32_t n_prompt, n_output, n_cached, n_preemptions; // output: of all choices together
};

// Times between tokens as a histogram: bucket i holds times up to QR_SIM_ITL_NS(i), each 1 % above the one before.
#define QR_SIM_ITL_BUCKETS 2600
// The upper bound of a bucket; the bucket of a time.
double qr_sim_itl_ns(int i);
int qr_sim_itl_bucket(uint64_t ns);

struct qr_sim_result {
    struct qr_sim_record *records; // (n_records) the finished ones
    uint64_t n_records;
    uint64_t n_refused;    // that could never fit; and turns of sessions behind them
    char refused_why[256]; // the first of them
    uint64_t begin_ns, end_ns;
    uint64_t itl[QR_SIM_ITL_BUCKETS];
    struct qr_snapshot end;
    bool shares; // the layout lets sequences share blocks
    // Of a recorded run: how many requests had not finished when its record ends, and the tokens that they had drawn.
    bool recorded;
    uint64_t n_unfinished, n_unfinished_tokens;
    bool stopped; // before the end: records with finish_ns 0 were under way
};

enum qr_status qr_sim_run(const struct qr_sim_run_conf *conf, struct qr_sim_result *out,
                          struct qr_error *err) QR_MUST_CHECK;
void qr_sim_result_free(struct qr_sim_result *r);

#endif
