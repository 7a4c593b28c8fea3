#include "api/params.h"
#include "api/params_internal.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

// --- The table ---

enum field_kind {
    F_BOOL, // into a member; numbers within [lo, hi]
    F_INT,
    F_TOKENS, // how many to generate: 0 only where that is allowed (check_tokens)
    F_REAL,
    F_REAL_OPEN, // within (lo, hi]
    F_JSON,      // kept as it is
    F_FN,        // a reader of its own
    F_NEUTRAL,   // only values of `neutral` pass
    F_ANY,       // accepted whatever it is: it never changes an answer
};
enum { COMP = 1, CHAT = 2, BOTH = 3 };
// Values that change nothing; null always is one.
enum { N_FALSE = 1, N_TRUE = 2, N_0 = 4, N_1 = 8, N_EMPTY = 16, N_MINUS1 = 32, N_STR = 64 };

struct field {
    const char *name;
    int where, kind;
    unsigned neutral;
    double lo, hi;
    size_t at;
    field_fn *fn;
};

#define INT64_LO -9223372036854775808.0
#define INT64_HI 9223372036854775807.0
#define IN(m) offsetof(struct api_params, m)
// clang-format off
#define BOOL(name, where, m) {name, where, F_BOOL, 0, 0, 0, IN(m), NULL}
#define INT(name, where, m, lo, hi) {name, where, F_INT, 0, lo, hi, IN(m), NULL}
#define TOKENS(name, where, m) {name, where, F_TOKENS, 0, INT64_LO, INT64_HI, IN(m), NULL}
#define REAL(name, where, m, lo, hi) {name, where, F_REAL, 0, lo, hi, IN(m), NULL}
#define OPEN(name, where, m, lo, hi) {name, where, F_REAL_OPEN, 0, lo, hi, IN(m), NULL}
#define JSON(name, where, m) {name, where, F_JSON, 0, 0, 0, IN(m), NULL}
#define FN(name, where, fn) {name, where, F_FN, 0, 0, 0, 0, fn}
#define NEUTRAL(name, where, values) {name, where, F_NEUTRAL, values, 0, 0, 0, NULL}
#define ANY(name, where) {name, where, F_ANY, 0, 0, 0, 0, NULL}

static const struct field fields[] = {
    JSON("model", BOTH, model),
    JSON("prompt", COMP, prompt),
    JSON("messages", CHAT, messages),
    BOOL("stream", BOTH, stream),
    FN("stream_options", BOTH, field_stream_options),
    INT("n", BOTH, n, 1, QR_CHOICES_MAX),
    INT("best_of", BOTH, best_of, 1, QR_CHOICES_MAX),
    TOKENS("max_tokens", BOTH, max_tokens),
    TOKENS("max_completion_tokens", CHAT, max_completion_tokens),
    INT("min_tokens", BOTH, min_tokens, 0, INT64_HI),
    BOOL("use_beam_search", BOTH, use_beam_search),
    REAL("length_penalty", BOTH, length_penalty, -100, 100),
    FN("early_stopping", BOTH, field_early_stopping),
    REAL("temperature", BOTH, temperature, 0, 2),
    OPEN("top_p", BOTH, top_p, 0, 1),
    INT("top_k", BOTH, top_k, -1, INT64_HI),
    REAL("min_p", BOTH, min_p, 0, 1),
    REAL("presence_penalty", BOTH, presence, -2, 2),
    REAL("frequency_penalty", BOTH, frequency, -2, 2),
    OPEN("repetition_penalty", BOTH, repetition, 0, 1e6),
    INT("seed", BOTH, seed, INT64_LO, INT64_HI),
    FN("stop", BOTH, field_stop),
    FN("stop_token_ids", BOTH, field_stop_ids),
    BOOL("include_stop_str_in_output", BOTH, include_stop),
    BOOL("ignore_eos", BOTH, sampling.ignore_eos),
    FN("logit_bias", BOTH, field_logit_bias),
    FN("allowed_token_ids", BOTH, field_allowed),
    FN("bad_words", BOTH, field_bad_words),
    FN("logprobs", BOTH, field_logprobs),
    INT("top_logprobs", CHAT, top_logprobs, 0, INT64_HI),
    INT("prompt_logprobs", BOTH, prompt_logprobs, 0, INT64_HI),
    BOOL("echo", BOTH, echo),
    BOOL("skip_special_tokens", BOTH, skip_special),
    BOOL("return_token_ids", BOTH, return_token_ids),
    INT("truncate_prompt_tokens", BOTH, truncate, -1, INT64_HI),
    FN("truncation_side", BOTH, field_truncation_side),
    BOOL("add_special_tokens", BOTH, add_special),
    BOOL("add_generation_prompt", CHAT, add_generation_prompt),
    BOOL("continue_final_message", CHAT, continue_final),
    FN("chat_template", CHAT, field_chat_template),
    FN("chat_template_kwargs", CHAT, field_kwargs),
    FN("response_format", BOTH, field_response_format),
    INT("priority", BOTH, priority, INT32_MIN, INT32_MAX),
    OPEN("timeout", BOTH, timeout, 0, 1e6),
    FN("cache_salt", BOTH, field_cache_salt),
    FN("request_id", BOTH, field_request_id),
    FN("user", BOTH, field_user),
    ANY("session_id", BOTH),
    NEUTRAL("parallel_tool_calls", CHAT, N_FALSE | N_TRUE), // without tools it changes nothing
    NEUTRAL("include_reasoning", CHAT, N_FALSE | N_TRUE),
    // Known, and not supported (yet): passes only where it changes nothing.
    NEUTRAL("suffix", BOTH, 0),
    NEUTRAL("prompt_embeds", BOTH, 0),
    NEUTRAL("stream_interval", BOTH, N_1),
    NEUTRAL("spaces_between_special_tokens", BOTH, N_TRUE),
    NEUTRAL("logprob_token_ids", BOTH, N_EMPTY),
    NEUTRAL("structured_outputs", BOTH, 0),
    NEUTRAL("kv_transfer_params", BOTH, 0), NEUTRAL("ec_transfer_params", BOTH, 0),
    NEUTRAL("vllm_xargs", BOTH, N_EMPTY),
    NEUTRAL("watermarking", BOTH, N_FALSE),
    NEUTRAL("routed_experts_prompt_start", BOTH, N_0),
    NEUTRAL("mm_payload", BOTH, 0),
    NEUTRAL("return_tokens_as_token_ids", BOTH, N_FALSE),
    NEUTRAL("repetition_detection", BOTH, 0),
    NEUTRAL("thinking_token_budget", BOTH, N_MINUS1),
    NEUTRAL("tools", CHAT, 0), NEUTRAL("tool_choice", CHAT, 0),
    NEUTRAL("functions", CHAT, 0), NEUTRAL("function_call", CHAT, 0),
    NEUTRAL("reasoning_effort", CHAT, 0),
    NEUTRAL("documents", CHAT, N_EMPTY),
    NEUTRAL("mm_processor_kwargs", CHAT, N_EMPTY), NEUTRAL("media_io_kwargs", CHAT, N_EMPTY),
    NEUTRAL("return_prompt_text", CHAT, N_FALSE),
    NEUTRAL("audio", CHAT, 0), NEUTRAL("web_search_options", CHAT, 0),
    // Constraints under the names of earlier and other servers: silence would answer without the constraint.
    NEUTRAL("guided_json", BOTH, 0), NEUTRAL("guided_regex", BOTH, 0), NEUTRAL("guided_choice", BOTH, 0),
    NEUTRAL("guided_grammar", BOTH, 0), NEUTRAL("guided_decoding_backend", BOTH, 0),
    NEUTRAL("guided_whitespace_pattern", BOTH, 0), NEUTRAL("grammar", BOTH, N_STR), NEUTRAL("json_schema", BOTH, N_EMPTY),
};
// clang-format on

static const struct field *find(const char *name, size_t bytes, int where)
{
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if ((fields[i].where & where) && strlen(fields[i].name) == bytes &&
            memcmp(fields[i].name, name, bytes) == 0)
            return &fields[i];
    return NULL;
}

// --- One field ---

enum qr_status field_type_error(struct qr_error *err, const char *name, const char *expected, qr_json *v)
{
    return qr_fail_param(err, QR_EINVAL, name, "`%s` must be %s, not %s.", name, expected,
                         qr_json_type_name(qr_json_type(v)));
}

static enum qr_status read_int(const struct field *f, qr_json *v, int64_t *out, struct qr_error *err)
{
    int64_t x;
    enum qr_json_type t = qr_json_type(v);
    if (t != QR_JSON_INT && t != QR_JSON_REAL) return field_type_error(err, f->name, "an integer", v);
    if (!qr_json_int64(v, &x)) {
        double given = NAN;
        (void)qr_json_double(v, &given);
        bool whole = !isfinite(given) || given == floor(given);
        return qr_fail_param(err, QR_EINVAL, f->name, "`%s` must be an integer%s, got %.17g.", f->name,
                             whole ? " of 64 bits" : "", given);
    }
    if ((double)x < f->lo || (double)x > f->hi) {
        if (f->hi >= INT64_HI)
            return qr_fail_param(err, QR_EINVAL, f->name, "`%s` must be at least %.0f.", f->name, f->lo);
        return qr_fail_param(err, QR_EINVAL, f->name, "`%s` must be between %.0f and %.0f.", f->name, f->lo,
                             f->hi);
    }
    *out = x;
    return QR_OK;
}

static enum qr_status too_few(const char *name, const struct api_params *p, struct qr_error *err)
{
    return qr_fail_param(err, QR_EINVAL, name, "`%s` must be at least 1%s.", name,
                         p->chat ? "" : ", or 0 with `echo`");
}

static enum qr_status read_tokens(const struct field *f, const struct api_params *p, qr_json *v, int64_t *out,
                                  struct qr_error *err)
{
    int64_t x;
    enum qr_status rc = read_int(f, v, &x, err);
    if (rc != QR_OK) return rc;
    if (x < 0) return too_few(f->name, p, err);
    *out = x;
    return QR_OK;
}

static enum qr_status read_real(const struct field *f, qr_json *v, double *out, struct qr_error *err)
{
    double x;
    enum qr_json_type t = qr_json_type(v);
    if (t != QR_JSON_INT && t != QR_JSON_REAL) return field_type_error(err, f->name, "a number", v);
    bool open = f->kind == F_REAL_OPEN;
    if (!qr_json_double(v, &x) || !isfinite(x) || x < f->lo || x > f->hi || (open && x <= f->lo))
        return qr_fail_param(err, QR_EINVAL, f->name, "`%s` must be in %s%g, %g].", f->name, open ? "(" : "[",
                             f->lo, f->hi);
    *out = x;
    return QR_OK;
}

static bool is_neutral(unsigned neutral, qr_json *v)
{
    double x;
    size_t n;
    switch (qr_json_type(v)) {
    case QR_JSON_BOOL: return neutral & (qr_json_bool(v, false) ? N_TRUE : N_FALSE);
    case QR_JSON_ARR:
    case QR_JSON_OBJ: return (neutral & N_EMPTY) && qr_json_len(v) == 0;
    case QR_JSON_STR: return (neutral & N_STR) && qr_json_str(v, &n) && n == 0;
    case QR_JSON_INT:
    case QR_JSON_REAL:
        return qr_json_double(v, &x) && ((x == 0 && (neutral & N_0)) || (x == 1 && (neutral & N_1)) ||
                                         (x == -1 && (neutral & N_MINUS1)));
    default: return false;
    }
}

static enum qr_status read_field(struct api_params *p, const struct field *f, qr_json *v,
                                 const struct api_limits *lim, struct qr_error *err)
{
    void *at = (char *)p + f->at;
    if (f->kind == F_ANY) return QR_OK;
    if (qr_json_type(v) == QR_JSON_NULL) return QR_OK;
    switch (f->kind) {
    case F_BOOL:
        if (qr_json_type(v) != QR_JSON_BOOL) return field_type_error(err, f->name, "a boolean", v);
        *(bool *)at = qr_json_bool(v, false);
        return QR_OK;
    case F_INT: return read_int(f, v, at, err);
    case F_TOKENS: return read_tokens(f, p, v, at, err);
    case F_REAL:
    case F_REAL_OPEN: return read_real(f, v, at, err);
    case F_JSON: *(qr_json **)at = v; return QR_OK;
    case F_FN: return f->fn(p, f->name, v, lim, err);
    default:
        if (is_neutral(f->neutral, v)) return QR_OK;
        return qr_fail_param(err, QR_ENOTSUP, f->name,
                             "`%s` is not supported by this server with this value.", f->name);
    }
}

#define MORE "..." // stands for what is not listed

// A name as it may stand in a header; "" as two quotes.
static void escape(const char *name, size_t bytes, char out[3 * API_MAX_IGNORED_NAME + sizeof MORE])
{
    size_t n = 0;
    if (bytes == 0) n = (size_t)sprintf(out, "\"\"");
    for (size_t i = 0; i < bytes && i < API_MAX_IGNORED_NAME; i++) {
        unsigned char c = (unsigned char)name[i];
        bool plain = isalnum(c) || (c && strchr("_-.", c));
        n += (size_t)sprintf(out + n, plain ? "%c" : "%%%02X", c);
    }
    if (bytes > API_MAX_IGNORED_NAME) n += (size_t)sprintf(out + n, MORE);
    out[n] = 0;
}

// Lists a name for the X-Quire-Ignored header. The list ends in MORE once there was no room for one.
static void ignore(struct api_params *p, const char *name, size_t bytes)
{
    char text[3 * API_MAX_IGNORED_NAME + sizeof MORE];
    size_t used = strlen(p->ignored), room = sizeof p->ignored - used;
    const char *gap = used ? ", " : "";
    if (used >= strlen(MORE) + 2 && strcmp(p->ignored + used - strlen(MORE) - 2, ", " MORE) == 0) return;
    escape(name, bytes, text);
    bool fits = strlen(gap) + strlen(text) + strlen(", " MORE) < room;
    snprintf(p->ignored + used, room, "%s%s", gap, fits ? text : MORE);
}

// --- The whole request ---

static enum qr_status check_tokens(struct api_params *p, struct qr_error *err)
{
    const char *name = "max_tokens";
    int64_t max = p->max_tokens;
    if (p->max_completion_tokens >= 0) max = p->max_completion_tokens, name = "max_completion_tokens";
    if (max < 0 && !p->chat) max = 16; // OpenAI's default of completions
    if (max == 0 && (p->chat || !p->echo)) return too_few(name, p, err);
    if (max >= 0 && p->min_tokens > max)
        return qr_fail_param(err, QR_EINVAL, "min_tokens", "`min_tokens` must be at most `%s`.", name);
    if (p->min_tokens > INT32_MAX)
        return qr_fail_param(err, QR_EINVAL, "min_tokens", "`min_tokens` is larger than any context.");
    p->sampling.max_tokens = max > INT32_MAX ? INT32_MAX : (int32_t)max;
    p->sampling.min_tokens = (int32_t)p->min_tokens;
    return QR_OK;
}

static enum qr_status check_logprobs(struct api_params *p, const struct api_limits *lim, struct qr_error *err)
{
    struct {
        const char *name;
        int64_t v;
    } all[] = {{p->chat ? "top_logprobs" : "logprobs", p->chat ? p->top_logprobs : p->logprobs},
               {"prompt_logprobs", p->prompt_logprobs}};
    int max = lim->max_logprobs < QR_LOGPROBS_MAX ? lim->max_logprobs : QR_LOGPROBS_MAX;
    for (int i = 0; i < 2; i++)
        if (all[i].v > max)
            return qr_fail_param(err, QR_EINVAL, all[i].name,
                                 "`%s` is greater than the most that is allowed: %d.", all[i].name, max);
    if (p->chat && p->top_logprobs > 0 && !p->want_logprobs)
        return qr_fail_param(err, QR_EINVAL, "top_logprobs", "`top_logprobs` needs `logprobs` to be true.");
    if (p->prompt_logprobs > 0 && p->stream)
        return qr_fail_param(err, QR_EINVAL, "prompt_logprobs",
                             "`prompt_logprobs` is not available when `stream` is true.");
    int64_t n = p->logprobs;
    if (p->chat) n = p->want_logprobs ? (p->top_logprobs > 0 ? p->top_logprobs : 0) : -1;
    p->sampling.n_logprobs = (int32_t)n;
    p->sampling.n_prompt_logprobs = (int32_t)p->prompt_logprobs;
    if (!p->chat && p->echo && n > p->prompt_logprobs) p->sampling.n_prompt_logprobs = (int32_t)n;
    return QR_OK;
}

// Temperatures below 1e-5 are greedy, and then the filters mean nothing; below 0.01 they are raised to it,
// because the division by them overflows.
static void set_sampling(struct api_params *p)
{
    struct qr_sampling *s = &p->sampling;
    bool greedy = p->temperature < 1e-5;
    s->temperature = greedy ? 0 : (float)(p->temperature < 0.01 ? 0.01 : p->temperature);
    s->top_p = greedy ? 1 : (float)p->top_p;
    if (s->top_p <= 0) s->top_p = 1e-30f; // a double that is no float
    s->min_p = greedy ? 0 : (float)p->min_p;
    s->top_k = greedy || p->top_k < 0 ? 0 : p->top_k > INT32_MAX ? INT32_MAX : (int32_t)p->top_k;
    s->presence = (float)p->presence;
    s->frequency = (float)p->frequency;
    s->repetition = (float)p->repetition;
    if (s->repetition <= 0) s->repetition = 1e-30f;
}

enum qr_status api_priority_check(int64_t priority, const struct api_limits *lim, struct qr_error *err)
{
    if (priority == 0 || lim->takes_priority) return QR_OK;
    return qr_fail_param(err, QR_EINVAL, "priority",
                         "`priority` must be 0: this server's scheduling policy is %s, which knows no priorities.",
                         lim->policy ? lim->policy : "fcfs");
}

static enum qr_status check(struct api_params *p, const struct api_limits *lim, struct qr_error *err)
{
    if (p->best_of != -1 && p->best_of != p->n)
        return qr_fail_param(err, QR_ENOTSUP, "best_of", "`best_of` must be absent or equal to `n`: every answer is returned.");
    if ((p->include_usage || p->continuous_usage) && !p->stream)
        return qr_fail_param(err, QR_EINVAL, "stream_options",
                             "`stream_options` can only be set when `stream` is true.");
    if (p->chat && !p->messages) return qr_fail_param(err, QR_EINVAL, "messages", "`messages` is required.");
    if (!p->chat && !p->prompt)
        return qr_fail_param(err, QR_EINVAL, "prompt", "`prompt` must be provided and non-empty.");
    if (p->model && qr_json_type(p->model) != QR_JSON_STR)
        return field_type_error(err, "model", "a string", p->model);
    enum qr_status rc = api_priority_check(p->priority, lim, err);
    if (rc == QR_OK) rc = check_tokens(p, err);
    if (rc == QR_OK) rc = check_logprobs(p, lim, err);
    if (rc == QR_OK) set_sampling(p);
    return rc == QR_OK ? beam_check(p, err) : rc;
}

static void set_defaults(struct api_params *p, bool chat, const struct api_limits *lim)
{
    *p = (struct api_params){.chat = chat,
                             .skip_special = true,
                             .add_special = !chat,
                             .add_generation_prompt = true,
                             .truncate = -2,
                             .seed = -1,
                             .n = 1,
                             .length_penalty = 1,
                             .best_of = -1,
                             .max_tokens = -1,
                             .max_completion_tokens = -1,
                             .logprobs = -1,
                             .top_logprobs = -1,
                             .prompt_logprobs = -1,
                             .top_p = 1,
                             .repetition = 1};
    p->temperature = lim->default_temperature < 0 ? 1.0 : lim->default_temperature;
}

enum qr_status api_params_parse(qr_json *root, bool chat, const struct api_limits *lim,
                                struct api_params *out, struct qr_error *err)
{
    if (qr_json_type(root) != QR_JSON_OBJ)
        return qr_fail(err, QR_EINVAL, "The body must be a JSON object, not %s.",
                       qr_json_type_name(qr_json_type(root)));
    if (qr_json_len(root) > API_MAX_FIELDS)
        return qr_fail(err, QR_EINVAL, "The body has more than %d fields.", API_MAX_FIELDS);
    struct api_params p;
    set_defaults(&p, chat, lim);
    const char *key;
    size_t bytes;
    bool generation_prompt_said = false;
    enum qr_status rc = QR_OK;
    struct qr_json_iter it = qr_json_iter(root);
    for (qr_json *v; rc == QR_OK && (v = qr_json_next(&it, &key, &bytes));) {
        const struct field *f = find(key, bytes, chat ? CHAT : COMP);
        if (!f) {
            ignore(&p, key, bytes);
            continue;
        }
        if (f->at == IN(add_generation_prompt) && f->kind == F_BOOL && qr_json_bool(v, false))
            generation_prompt_said = true;
        rc = read_field(&p, f, v, lim, err);
    }
    if (rc == QR_OK && p.continue_final && generation_prompt_said)
        rc = qr_fail_param(err, QR_EINVAL, "continue_final_message",
                           "`continue_final_message` and `add_generation_prompt` cannot both be true.");
    if (p.continue_final) p.add_generation_prompt = false;
    if (rc == QR_OK) rc = check(&p, lim, err);
    if (rc != QR_OK) {
        api_params_fini(&p);
        return rc;
    }
    *out = p;
    return QR_OK;
}

void api_params_fini(struct api_params *p)
{
    qr_free((void *)p->sampling.stop_ids);
    qr_free((void *)p->sampling.bias);
    qr_free((void *)p->sampling.allowed);
    qr_free((void *)p->sampling.bad_ids);
    qr_free((void *)p->sampling.bad_lens);
    p->sampling = (struct qr_sampling){0};
}
