/* Beam search over the API: vLLM's fields, transformers' early_stopping, and what neither goes together with. */
#include <string.h>

#include "api/params_internal.h"

// vLLM knows no early stopping. Who asks for it means transformers' search, and gets its rules.
enum qr_status field_early_stopping(struct api_params *p, const char *name, qr_json *v, const struct api_limits *lim,
                                    struct qr_error *err)
{
    size_t n;
    const char *s = qr_json_str(v, &n);
    p->beam.rules = QR_BEAM_TRANSFORMERS;
    if (qr_json_type(v) == QR_JSON_BOOL)
        p->beam.early_stopping = qr_json_bool(v, false) ? QR_BEAM_FULL : QR_BEAM_HEURISTIC;
    else if (s && n == 5 && memcmp(s, "never", 5) == 0)
        p->beam.early_stopping = QR_BEAM_NEVER;
    else
        return qr_fail_param(err, QR_EINVAL, name, "`%s` must be true, false or \"never\".", name);
    return QR_OK;
}

static enum qr_status refuse(struct qr_error *err, const char *name)
{
    return qr_fail_param(err, QR_ENOTSUP, name,
                         "`%s` cannot be used with `use_beam_search`: a beam search ranks the model's own probabilities.",
                         name);
}

// temperature and seed are taken, as by vLLM: nothing is drawn, and a temperature does not enter the sums.
enum qr_status beam_check(struct api_params *p, struct qr_error *err)
{
    const struct qr_sampling *s = &p->sampling;
    const struct {
        bool is_set;
        const char *name;
    } all[] = {
        {p->top_p != 1, "top_p"},
        {p->top_k > 0, "top_k"},
        {p->min_p != 0, "min_p"},
        {p->presence != 0, "presence_penalty"},
        {p->frequency != 0, "frequency_penalty"},
        {p->repetition != 1, "repetition_penalty"},
        {s->n_bias > 0, "logit_bias"},
        {s->n_allowed > 0, "allowed_token_ids"},
        {p->n_bad_words > 0, "bad_words"},
        {p->n_stops > 0, "stop"},
        {p->prompt_logprobs >= 0, "prompt_logprobs"},
        {p->chat && p->top_logprobs > 0, "top_logprobs"},
        {!p->chat && (p->logprobs > 0 || (p->logprobs == 0 && p->echo)), "logprobs"},
    };
    if (!p->use_beam_search) {
        if (p->length_penalty != 1)
            return qr_fail_param(err, QR_ENOTSUP, "length_penalty", "`length_penalty` needs `use_beam_search`.");
        return QR_OK;
    }
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].is_set) return refuse(err, all[i].name);
    if (s->max_tokens == 0)
        return qr_fail_param(err, QR_EINVAL, "max_tokens", "`max_tokens` must be at least 1 with `use_beam_search`.");
    p->beam.width = (int32_t)p->n;
    p->beam.length_penalty = (float)p->length_penalty;
    return QR_OK;
}
