/* What a simulation says: for people, as JSON, and a line a request.
 *
 * Owns: the list of figures. Refuses to know: how a run was made.
 * Threads: pure functions over a result. Lifetime: values. */
#ifndef QR_SIM_REPORT_H
#define QR_SIM_REPORT_H

#include <stdio.h>

#include "base/json.h"
#include "sim/run.h"

// Percentiles and means of one kind of time, in seconds.
struct qr_sim_times {
    double mean, p50, p90, p99, max;
};

struct qr_sim_summary {
    uint64_t n_finished, n_refused;
    bool recorded;                   // a run that happened
    uint64_t n_unfinished, n_unfinished_tokens; // of such a one: requests under way at its end; their tokens count in throughput
    double duration_s;               // from the first arrival to the last token
    double requests_per_s, tokens_per_s, total_tokens_per_s; // tokens: generated; total: prompts too
    double normalized_latency_s;     // mean over requests of end-to-end latency / output tokens (of one choice)
    struct qr_sim_times latency, normalized, queue, ttft, tpot, itl;
    double batch_mean;               // sequences a step
    double step_tokens_mean;
    uint64_t n_steps, step_ns;
    double kv_used, kv_reserved, kv_internal, kv_external; // shares of the pool but its free slots, over steps
    double kv_shared;                // blocks that sharing saved, of those that there would be without it
    double kv_fill;                  // share of the pool that holds tokens, over steps
    uint64_t n_preemptions, n_recomputed_tokens, n_prompt_tokens, n_cached_tokens, n_output_tokens;
    double hit_rate;                 // prompt tokens that were not computed
    uint64_t n_preempted_requests;
};
enum qr_status qr_sim_summarize(const struct qr_sim_result *r, int32_t n_choices, struct qr_sim_summary *out) QR_MUST_CHECK;

// The figures as text for people.
void qr_sim_print(const struct qr_sim_summary *s, FILE *f);
// "requests": ..., "duration_s": ...: members of the object that w is in, times as objects {mean, p50, p90, p99, max}.
void qr_sim_json(const struct qr_sim_summary *s, struct qr_json_writer *w);
// request,arrival_s,prompt_tokens,output_tokens,cached_tokens,scheduled_s,first_token_s,finish_s,preemptions
void qr_sim_csv(const struct qr_sim_result *r, FILE *f);

#endif
