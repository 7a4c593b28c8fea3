/* A request as the engine understands it: token ids and numbers, no text.
 *
 * Owns: the record and its deep copy. Refuses to know: text, HTTP, blocks.
 * Threads: a value; immutable once submitted.
 * Lifetime: qr_engine_submit copies it; the caller's memory is free afterwards. */
#ifndef QR_CORE_REQ_H
#define QR_CORE_REQ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef uint64_t qr_req_id; // never reused, never 0

#define QR_CHOICES_MAX 64  // sequences a request may own (DESIGN 6)
#define QR_LOGPROBS_MAX 20 // --max-logprobs may lower it

struct qr_bias {
    int32_t id;
    float value;
};

// How tokens are chosen. Ranges are checked where requests are read (api/params.h); these are the values in
// force.
struct qr_sampling {
    float temperature;         // 0: greedy
    float top_p;               // (0, 1]
    float min_p;               // [0, 1]
    int32_t top_k;             // 0: off
    float presence, frequency; // over generated tokens
    float repetition;          // over prompt and generated tokens; 1: off
    uint64_t seed;             // always set: drawn by whoever made the request when the user gave none
    int32_t max_tokens;        // >= 1, or 0 to score the prompt only
    int32_t min_tokens;        // EOS and stop ids are masked before
    bool ignore_eos;
    int32_t n_candidates;      // 0: a token is drawn; n: none is, and the n likeliest are reported (beam search)
    int32_t n_logprobs;        // -1: none; n: the chosen token's and the n largest
    int32_t n_prompt_logprobs; // -1: none
    size_t n_eos;              // the model's end tokens
    const int32_t *eos;
    size_t n_stop_ids; // end tokens of this request
    const int32_t *stop_ids;
    size_t n_bias;
    const struct qr_bias *bias; // ids are distinct
    size_t n_allowed;
    const int32_t *allowed;  // when n_allowed > 0, nothing else may be chosen
    size_t n_bad;            // token sequences that must not appear
    const int32_t *bad_ids;  // flat
    const int32_t *bad_lens; // n_bad lengths, each >= 1
};

#define QR_BEAM_ENDS_MAX 64 // end tokens, the model's and the request's, that a beam search may have
#define QR_CANDIDATES_MAX (2 * QR_CHOICES_MAX + QR_BEAM_ENDS_MAX)

// Whose beam search it is. They differ in what ends up among the finished ones, and in the length that a score
// is divided by.
enum qr_beam_rules {
    QR_BEAM_VLLM, // every end token among a beam's 2 * width likeliest finishes it; length: prompt and answer
                  // without the end token
    QR_BEAM_TRANSFORMERS, // only one among the width best of a step does; length: the answer with the end token
};
enum qr_beam_early {
    QR_BEAM_NEVER,     // ends when no beam can become better than the finished ones, or at max_tokens
    QR_BEAM_HEURISTIC, // the same, judged by the present length (transformers' early_stopping = False)
    QR_BEAM_FULL,      // ends as soon as `width` beams are finished
};

// Beam search; sampling.max_tokens and the end tokens apply to every beam.
struct qr_beam {
    int32_t width;        // beams kept, 1 .. QR_CHOICES_MAX, and n_choices; 0: no beam search
    float length_penalty; // a finished beam scores sum(logprob) / length^length_penalty
    enum qr_beam_early early_stopping;
    enum qr_beam_rules rules;
};

struct qr_req {
    const int32_t *prompt;
    int32_t n_prompt;    // >= 1
    int32_t n_choices;   // 1 .. QR_CHOICES_MAX
    int32_t priority;    // lower goes first
    uint64_t arrival_ns; // clock of the engine; 0: now
    uint64_t deadline_ns; // on the engine's clock: it ends with an error if it was not begun by then; 0: none
    uint64_t tenant;      // salt of cached blocks: who has another salt never finds them
    uint64_t fair_key;    // who shares the machine with whom (the API key); 0: nobody's in particular
    // Prompts of one call come as requests of their own. The first says how many follow, so that the queue takes
    // the call as a whole or not at all; the others are not asked again.
    int32_t n_followers;
    int64_t n_follower_tokens;
    bool follows;
    bool no_cache_read;   // computes its whole prompt, whatever is cached
    struct qr_beam beam;
    struct qr_sampling sampling;
};

// Copies a request and every array it points to into one allocation (QR_MEM_REQ), freed with qr_free.
enum qr_status qr_req_copy(const struct qr_req *src, struct qr_req **out) QR_MUST_CHECK;

enum qr_finish { QR_FINISH_NONE, QR_FINISH_STOP, QR_FINISH_LENGTH, QR_FINISH_ABORT, QR_FINISH_ERROR };
const char *qr_finish_name(enum qr_finish f); // "stop", "length", "abort", "error"; NULL for none

#endif
