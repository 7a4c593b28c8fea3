/* The fields of a completion or chat request: their types, ranges and meaning.
 *
 * Owns: the table of every field that is known (params.c), what it becomes, and the text of a refusal.
 * Refuses to know: HTTP, tokenizers, the engine. Pure: JSON in, numbers out.
 * Threads: a value per request. Lifetime: _parse to _fini; `json` members and stop strings live as long as
 * the document.
 *
 * A field is taken, neutral (only values that change nothing pass), or refused. Fields that nobody knows are
 * ignored and listed in `ignored`. Integers may be written as reals without a fraction (16.0); numbers in
 * quotes and booleans for numbers are refused. null always means "absent". */
#ifndef QR_API_PARAMS_H
#define QR_API_PARAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/status.h"
#include "core/req.h"
#include "text/text.h"

#define API_MAX_STOPS QR_STOPS_MAX
#define API_MAX_STOP_IDS 1024
#define API_MAX_BIAS 4096
#define API_MAX_BAD_WORDS 128
#define API_MAX_FIELDS 256   // of a request's top level
#define API_MAX_PROMPTS 1024 // in one completions request
#define API_MAX_CHOICES 4096 // answers to all prompts of one request
// Log-probabilities that one request of several prompts may gather: about 27 bytes each in the answer, 90 on
// the way.
#define API_MAX_ENTRIES (4 << 20)
#define API_MAX_IGNORED_BYTES 512
#define API_MAX_IGNORED_NAME 64 // bytes
#define API_MAX_ID_BYTES 128    // of a client's own id for a request

// What the limits of a request depend on.
struct api_limits {
    int32_t n_vocab, max_model_len;
    int max_logprobs;
    double default_temperature;
    const char *policy;  // the scheduling policy's name
    bool takes_priority; // where not, other priorities than 0 are refused
};

struct api_params {
    bool chat;
    // How the answer looks.
    bool stream, include_usage, continuous_usage;
    bool echo, return_token_ids, skip_special, include_stop;
    qr_json *model, *prompt, *messages, *template_kwargs; // NULL when absent
    struct qr_text_span request_id, cache_salt;
    // How the prompt is made.
    bool add_special, add_generation_prompt, continue_final;
    int64_t truncate;   // -2: no; -1: to fit; else at most so many tokens
    bool truncate_left; // drop the first tokens, not the last
    // How tokens are chosen: eos and bad words are filled in later; arrays belong to this record.
    struct qr_sampling sampling; // max_tokens -1: as many as fit
    int64_t seed;                // -1: draw one
    struct qr_beam beam;         // width 0: none; else n
    int64_t priority;            // lower goes first
    double timeout;              // seconds until it must have begun; 0: none
    struct qr_text_span stops[API_MAX_STOPS];
    size_t n_stops;
    struct qr_text_span bad_words[API_MAX_BAD_WORDS];
    size_t n_bad_words;
    // Raw numbers of the table, before they become `sampling`.
    int64_t n, best_of, max_tokens, max_completion_tokens, min_tokens, top_k, logprobs, top_logprobs, prompt_logprobs;
    bool use_beam_search;
    double length_penalty, temperature, top_p, min_p, presence, frequency, repetition;
    bool want_logprobs;                  // chat's
    // "a, b": other bytes than letters, digits and `_-.` as %XX, a name beyond API_MAX_IGNORED_NAME cut with "...", and
    // "..." for those that find no room.
    char ignored[API_MAX_IGNORED_BYTES];
};

// QR_EINVAL with err->param set; QR_ENOTSUP for a field that is known and not supported; QR_ENOMEM.
enum qr_status api_params_parse(qr_json *root, bool chat, const struct api_limits *lim,
                                struct api_params *out, struct qr_error *err) QR_MUST_CHECK;
// A priority other than 0 needs a policy that knows priorities: QR_EINVAL. (A header may set it, too.)
enum qr_status api_priority_check(int64_t priority, const struct api_limits *lim,
                                  struct qr_error *err) QR_MUST_CHECK;
void api_params_fini(struct api_params *p);

// Whether a client's id is harmless in a header, in JSON and in a log: 1 to API_MAX_ID_BYTES letters, digits and `-_.:`.
bool api_id_ok(const char *id, size_t bytes);

// A list of token ids, each in [0, n_vocab). *out is allocated (QR_MEM_REQ).
enum qr_status api_ids_parse(qr_json *v, const char *param, int32_t n_vocab, size_t n_max, int32_t **out,
                             size_t *n, struct qr_error *err) QR_MUST_CHECK;

// chat_template_kwargs into p->template_kwargs: an object without reserved names.
enum qr_status api_kwargs_read(struct api_params *p, qr_json *v, struct qr_error *err) QR_MUST_CHECK;

#endif
