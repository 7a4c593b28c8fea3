/* quire as a library: one call opens a model file, others submit prompts and read text.
 *
 * Owns: the composition (file -> tokenizer, template, model, executor, engine) and, per request, its
 * detokeniser and stop strings. It alone composes; it hands out this opaque handle, and api never sees kv or
 * sched. Refuses to know: HTTP, JSON. Threads: submit, cancel, snapshot and the accessors from any thread;
 * qr_lib_next from one (the text thread), which does the detokenising and the search for stop strings.
 * Lifetime: open to close. Spans in an event live until the next qr_lib_next. */
#ifndef QR_LIB_LIB_H
#define QR_LIB_LIB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "core/req.h"
#include "core/exec.h"
#include "core/inspect.h"
#include "core/snapshot.h"
#include "kv/layout.h"
#include "model/model.h"
#include "text/text.h"

struct qr_lib;

struct qr_lib_conf {
    const char *model_path;    // a GGUF file
    const char *served_name;   // NULL: from the file's name
    const char *chat_template; // text that replaces the file's template; NULL: the file's
    int32_t max_model_len;     // 0: the model's
    int32_t max_num_seqs, max_num_batched_tokens, block_size;
    uint64_t kv_bytes;   // the pool; 0: from memory_share
    uint32_t n_blocks;   // overrides kv_bytes when > 0
    uint64_t swap_bytes; // memory beside the pool for preempted requests; 0: none
    const char *swap_file; // NULL: none
    uint64_t swap_file_bytes;
    uint64_t prefix_ram_bytes; // memory beside the pool for cached prefixes; 0: none
    const char *prefix_file;   // and a file, kept for the next process; NULL: none
    uint64_t prefix_file_bytes;
    enum qr_preempt_mode preempt_mode;
    uint64_t preempt_every; // tests: every so many steps everything is preempted; 0: never
    double memory_share;    // of the smaller of RAM and the cgroup limit, for everything
    int32_t n_threads;   // 0: the quota
    const int *cpus;
    int n_cpus; // pinning; NULL: none
    enum qr_activations activations;
    enum qr_kvtype kvtype; // AUTO: see model/model.h
    uint64_t kv_idle_release_ns; // 0: never
    const struct qr_policy *policy; // NULL: first come, first served
    // As in engine/engine.h; 0: no limit.
    int32_t max_queued_reqs;
    int64_t max_queued_tokens;
    uint64_t queue_timeout_ns;
    bool prefix_caching;         // of a paged layout
    bool exact;                  // --numerics exact: every row is class D
    uint64_t step_budget_ns; // of a step with generating rows; UINT64_MAX: by what it costs
    void (*trace)(void *arg, const char *line, size_t bytes); // as qr_engine_conf; NULL: none
    void *trace_arg;
    bool check_every_step;
    enum qr_kv_layout_kind layout;
    struct qr_phases *phases; // a measurement's clock for the steps; NULL: none
    qr_progress_fn *progress;
    void *progress_arg;
};

struct qr_lib_info {
    char served_name[128];
    struct qr_model_info model;
    int32_t max_model_len, max_num_seqs, max_num_batched_tokens, block_size, n_threads;
    uint32_t n_blocks;
    uint64_t kv_bytes, block_bytes;
    uint32_t n_swap_blocks; // that fit into the swap space
    uint32_t n_swap_file_blocks, n_staging_blocks;
    uint32_t n_prefix_ram_blocks, n_prefix_file_blocks; // for cached prefixes
    const char *policy;  // its name
    bool takes_priority; // whether a request's priority may be other than 0
    bool prefix_caching, has_template;
    int32_t bos, eos; // -1 where absent
    uint64_t load_ns;
};

// What steps cost before any was measured: of the model's shapes, packed_bytes, n_threads, block_bytes and block_size.
struct qr_costs qr_lib_guess_costs(const struct qr_lib_info *info);

// Loads and starts. Everything that cannot fit is refused with its numbers (QR_ETOOBIG).
enum qr_status qr_lib_open(const struct qr_lib_conf *conf, struct qr_lib **out,
                           struct qr_error *err) QR_MUST_CHECK;
void qr_lib_close(struct qr_lib **lib);
const struct qr_lib_info *qr_lib_info(const struct qr_lib *lib);
const struct qr_tokenizer *qr_lib_tokenizer(const struct qr_lib *lib);
const struct qr_template *qr_lib_template(const struct qr_lib *lib); // NULL when the model has none

// A request with its text side. Arrays and strings are borrowed for the call.
struct qr_gen {
    struct qr_req req; // sampling.eos is filled in by lib from the model
    const struct qr_text_span *stops;
    size_t n_stops;
    bool include_stop;
    bool skip_special;
    bool want_tokens; // events carry every token (ids, logprobs), not only text
    void *user;       // handed back in events
};
// As qr_engine_submit. Text of the prompt is not echoed here.
enum qr_status qr_lib_submit(struct qr_lib *lib, const struct qr_gen *gen, qr_req_id *id,
                             struct qr_error *err) QR_MUST_CHECK;
// Ends it within one step. Its FINISH event (ABORT) still comes, and is the last use of `user`.
void qr_lib_cancel(struct qr_lib *lib, qr_req_id id);

struct qr_gen_token {
    int32_t id, pos;
    float logprob;
    int32_t rank, n_top;
    struct qr_top top[QR_LOGPROBS_MAX];
    bool is_prompt; // a scored prompt token (sampling.n_prompt_logprobs >= 0)
};
struct qr_gen_event {
    qr_req_id id;
    void *user;
    int32_t choice;
    struct qr_text_span text; // whole characters that may go out now; may be empty
    const struct qr_gen_token *tokens;
    size_t n_tokens;                         // since the last event of this choice, when wanted
    enum qr_finish finish;                   // NONE: more to come
    int32_t stop_token;                      // the id that ended it and is not EOS (stop_token_ids); else -1
    int32_t stop_string;                     // index into stops that ended it; else -1
    int32_t n_prompt, n_generated, n_cached; // so far
    uint64_t now_ns, arrival_ns, scheduled_ns, first_token_ns;
    int32_t n_preemptions;
    enum qr_status status; // of an ERROR: QR_AGAIN: it waited too long and was never begun
    char error[128];
};
// The next event, waiting at most timeout_ms (-1: for ever). QR_AGAIN: none in time. QR_ECANCELED: closing.
enum qr_status qr_lib_next(struct qr_lib *lib, struct qr_gen_event *out, int timeout_ms) QR_MUST_CHECK;
void qr_lib_snapshot(struct qr_lib *lib, struct qr_snapshot *out);
// A picture of blocks and sequences (core/inspect.h), freed with qr_free. NULL: no memory.
struct qr_inspect *qr_lib_inspect(struct qr_lib *lib);
// No request that is submitted from now on finds what was computed until now.
void qr_lib_reset_prefix_cache(struct qr_lib *lib);
uint64_t qr_lib_kv_resident_bytes(struct qr_lib *lib);
// For measurements that make their own steps: only while no request lives, from one thread, and with prefix caching and
// kv_idle_release_ns off. Slots are closed and blocks are nobody's again before the next request.
struct qr_exec *qr_lib_exec(struct qr_lib *lib);

#endif
