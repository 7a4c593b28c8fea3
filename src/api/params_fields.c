/* Readers of the fields that are more than one number. */
#include "api/params_internal.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

// --- Token ids ---

enum qr_status api_ids_parse(qr_json *v, const char *param, int32_t n_vocab, size_t n_max, int32_t **out,
                             size_t *n, struct qr_error *err)
{
    if (qr_json_type(v) != QR_JSON_ARR) return field_type_error(err, param, "a list of token ids", v);
    size_t len = qr_json_len(v);
    if (len > n_max)
        return qr_fail_param(err, QR_EINVAL, param, "`%s` has %zu entries; at most %zu are allowed.", param,
                             len, n_max);
    int32_t *ids = qr_malloc(QR_MEM_REQ, sizeof *ids * (len + 1));
    if (!ids) return qr_fail(err, QR_ENOMEM, "Out of memory.");
    struct qr_json_iter it = qr_json_iter(v);
    for (size_t i = 0; i < len; i++) {
        qr_json *e = qr_json_next(&it, NULL, NULL);
        enum qr_json_type t = qr_json_type(e);
        int64_t id = -1;
        if ((t != QR_JSON_INT && t != QR_JSON_REAL) || !qr_json_int64(e, &id) || id < 0 || id >= n_vocab) {
            qr_free(ids);
            if (t != QR_JSON_INT)
                return qr_fail_param(err, QR_EINVAL, param, "`%s` must hold integers only.", param);
            return qr_fail_param(err, QR_EINVAL, param, "Token id %lld is out of vocabulary (0 to %d).",
                                 (long long)id, n_vocab - 1);
        }
        ids[i] = (int32_t)id;
    }
    *out = ids;
    *n = len;
    return QR_OK;
}

enum qr_status field_stop_ids(struct api_params *p, const char *name, qr_json *v,
                              const struct api_limits *lim, struct qr_error *err)
{
    int32_t *ids = NULL;
    enum qr_status rc =
        api_ids_parse(v, name, lim->n_vocab, API_MAX_STOP_IDS, &ids, &p->sampling.n_stop_ids, err);
    if (rc == QR_OK) p->sampling.stop_ids = ids;
    return rc;
}

enum qr_status field_allowed(struct api_params *p, const char *name, qr_json *v, const struct api_limits *lim,
                             struct qr_error *err)
{
    int32_t *ids = NULL;
    enum qr_status rc =
        api_ids_parse(v, name, lim->n_vocab, (size_t)lim->n_vocab, &ids, &p->sampling.n_allowed, err);
    if (rc != QR_OK) return rc;
    p->sampling.allowed = ids;
    if (p->sampling.n_allowed == 0)
        return qr_fail_param(err, QR_EINVAL, name, "`%s` must not be empty.", name);
    return QR_OK;
}

// "17": digits only, without leading zeros, so that two keys never mean one token.
static bool token_key(const char *s, size_t n, int64_t *id)
{
    if (n == 0 || n > 10 || (n > 1 && s[0] == '0')) return false;
    *id = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9') return false;
        *id = *id * 10 + (s[i] - '0');
    }
    return true;
}

enum qr_status field_logit_bias(struct api_params *p, const char *name, qr_json *v,
                                const struct api_limits *lim, struct qr_error *err)
{
    if (qr_json_type(v) != QR_JSON_OBJ)
        return field_type_error(err, name, "an object of token ids and numbers", v);
    size_t len = qr_json_len(v);
    if (len > API_MAX_BIAS)
        return qr_fail_param(err, QR_EINVAL, name, "`%s` has %zu entries; at most %d are allowed.", name, len,
                             API_MAX_BIAS);
    if (len == 0) return QR_OK;
    struct qr_bias *bias = qr_malloc(QR_MEM_REQ, sizeof *bias * len);
    if (!bias) return qr_fail(err, QR_ENOMEM, "Out of memory.");
    p->sampling.bias = bias;
    struct qr_json_iter it = qr_json_iter(v);
    const char *key;
    size_t bytes;
    for (qr_json *e; (e = qr_json_next(&it, &key, &bytes));) {
        int64_t id;
        double x;
        if (!token_key(key, bytes, &id))
            return qr_fail_param(err, QR_EINVAL, name, "The keys of `%s` must be token ids.", name);
        if (id >= lim->n_vocab)
            return qr_fail_param(err, QR_EINVAL, name,
                                 "Token id %lld in `%s` is out of vocabulary (0 to %d).", (long long)id, name,
                                 lim->n_vocab - 1);
        enum qr_json_type t = qr_json_type(e);
        if ((t != QR_JSON_INT && t != QR_JSON_REAL) || !qr_json_double(e, &x) || isnan(x))
            return qr_fail_param(err, QR_EINVAL, name, "The values of `%s` must be numbers.", name);
        bias[p->sampling.n_bias++] = (struct qr_bias){(int32_t)id, (float)fmax(-100, fmin(100, x))};
    }
    return QR_OK;
}

// --- Strings ---

// One string or a list of them, none empty.
static enum qr_status strings(const char *name, qr_json *v, size_t n_max, size_t bytes_max,
                              struct qr_text_span *out, size_t *n, struct qr_error *err)
{
    bool one = qr_json_type(v) == QR_JSON_STR;
    if (!one && qr_json_type(v) != QR_JSON_ARR)
        return field_type_error(err, name, "a string or a list of strings", v);
    size_t len = one ? 1 : qr_json_len(v);
    if (len > n_max)
        return qr_fail_param(err, QR_EINVAL, name, "`%s` has %zu strings; at most %zu are allowed.", name,
                             len, n_max);
    struct qr_json_iter it = qr_json_iter(v);
    for (size_t i = 0; i < len; i++) {
        qr_json *e = one ? v : qr_json_next(&it, NULL, NULL);
        const char *s = qr_json_str(e, &out[i].bytes);
        if (!s) return qr_fail_param(err, QR_EINVAL, name, "`%s` must hold strings only.", name);
        if (out[i].bytes == 0)
            return qr_fail_param(err, QR_EINVAL, name, "`%s` must not hold an empty string.", name);
        if (out[i].bytes > bytes_max)
            return qr_fail_param(err, QR_EINVAL, name, "A string of `%s` is longer than %zu bytes.", name,
                                 bytes_max);
        out[i].data = s;
    }
    *n = len;
    return QR_OK;
}

enum qr_status field_stop(struct api_params *p, const char *name, qr_json *v, const struct api_limits *lim,
                          struct qr_error *err)
{
    return strings(name, v, API_MAX_STOPS, QR_STOP_BYTES_MAX, p->stops, &p->n_stops, err);
}

enum qr_status field_bad_words(struct api_params *p, const char *name, qr_json *v,
                               const struct api_limits *lim, struct qr_error *err)
{
    if (qr_json_type(v) != QR_JSON_ARR) return field_type_error(err, name, "a list of strings", v);
    return strings(name, v, API_MAX_BAD_WORDS, 1024, p->bad_words, &p->n_bad_words, err);
}

static enum qr_status one_string(const char *name, qr_json *v, struct qr_text_span *out, struct qr_error *err)
{
    out->data = qr_json_str(v, &out->bytes);
    return out->data ? QR_OK : field_type_error(err, name, "a string", v);
}

enum qr_status field_cache_salt(struct api_params *p, const char *name, qr_json *v,
                                const struct api_limits *lim, struct qr_error *err)
{
    enum qr_status rc = one_string(name, v, &p->cache_salt, err);
    if (rc != QR_OK) return rc;
    bool bad = p->cache_salt.bytes == 0 || p->cache_salt.bytes > 128;
    for (size_t i = 0; !bad && i < p->cache_salt.bytes; i++)
        bad = p->cache_salt.data[i] == 0 || strchr("@/\\", p->cache_salt.data[i]);
    if (bad)
        return qr_fail_param(err, QR_EINVAL, name, "`%s` must be 1 to 128 bytes without @, / and \\.", name);
    return QR_OK;
}

bool api_id_ok(const char *id, size_t bytes)
{
    if (bytes == 0 || bytes > API_MAX_ID_BYTES) return false;
    for (size_t i = 0; i < bytes; i++)
        if (!isalnum((unsigned char)id[i]) && (!id[i] || !strchr("-_.:", id[i]))) return false;
    return true;
}

enum qr_status field_request_id(struct api_params *p, const char *name, qr_json *v,
                                const struct api_limits *lim, struct qr_error *err)
{
    enum qr_status rc = one_string(name, v, &p->request_id, err);
    if (rc != QR_OK || api_id_ok(p->request_id.data, p->request_id.bytes)) return rc;
    return qr_fail_param(err, QR_EINVAL, name, "`%s` must be 1 to %d letters, digits, -, _, . and :.", name,
                         API_MAX_ID_BYTES);
}

// It changes no answer.
enum qr_status field_user(struct api_params *p, const char *name, qr_json *v, const struct api_limits *lim,
                          struct qr_error *err)
{
    struct qr_text_span unused;
    return one_string(name, v, &unused, err);
}

enum qr_status field_truncation_side(struct api_params *p, const char *name, qr_json *v,
                                     const struct api_limits *lim, struct qr_error *err)
{
    struct qr_text_span s;
    enum qr_status rc = one_string(name, v, &s, err);
    if (rc != QR_OK) return rc;
    p->truncate_left = s.bytes == 4 && memcmp(s.data, "left", 4) == 0;
    if (!p->truncate_left && (s.bytes != 5 || memcmp(s.data, "right", 5) != 0))
        return qr_fail_param(err, QR_EINVAL, name, "`%s` must be \"left\" or \"right\".", name);
    return QR_OK;
}

// --- Objects ---

enum qr_status field_stream_options(struct api_params *p, const char *name, qr_json *v,
                                    const struct api_limits *lim, struct qr_error *err)
{
    if (qr_json_type(v) != QR_JSON_OBJ) return field_type_error(err, name, "an object", v);
    struct {
        const char *key;
        bool *out;
    } flags[] = {{"include_usage", &p->include_usage}, {"continuous_usage_stats", &p->continuous_usage}};
    for (int i = 0; i < 2; i++) {
        qr_json *e = qr_json_get(v, flags[i].key);
        enum qr_json_type t = qr_json_type(e);
        if (t == QR_JSON_ABSENT || t == QR_JSON_NULL) continue;
        if (t != QR_JSON_BOOL)
            return qr_fail_param(err, QR_EINVAL, name, "`%s.%s` must be a boolean.", name, flags[i].key);
        *flags[i].out = qr_json_bool(e, false);
    }
    return QR_OK;
}

enum qr_status field_response_format(struct api_params *p, const char *name, qr_json *v,
                                     const struct api_limits *lim, struct qr_error *err)
{
    if (qr_json_type(v) != QR_JSON_OBJ) return field_type_error(err, name, "an object", v);
    size_t n;
    const char *type = qr_json_str(qr_json_get(v, "type"), &n);
    if (!type) return qr_fail_param(err, QR_EINVAL, name, "`%s.type` must be a string.", name);
    if (n == 4 && memcmp(type, "text", 4) == 0) return QR_OK;
    return qr_fail_param(err, QR_ENOTSUP, name, "`%s` supports the type \"text\" only.", name);
}

// Names that the server itself gives to the template, or that change how the prompt is made.
static const char *const reserved[] = {"messages",
                                       "tools",
                                       "documents",
                                       "add_generation_prompt",
                                       "continue_final_message",
                                       "bos_token",
                                       "eos_token",
                                       "chat_template",
                                       "conversation",
                                       "tokenize",
                                       "padding",
                                       "truncation",
                                       "max_length",
                                       "return_tensors",
                                       "return_dict",
                                       "return_assistant_tokens_mask",
                                       "tokenizer_kwargs"};

enum qr_status field_kwargs(struct api_params *p, const char *name, qr_json *v, const struct api_limits *lim,
                            struct qr_error *err)
{
    if (qr_json_type(v) != QR_JSON_OBJ) return field_type_error(err, name, "an object", v);
    for (size_t i = 0; i < sizeof reserved / sizeof reserved[0]; i++)
        if (qr_json_get(v, reserved[i]))
            return qr_fail_param(err, QR_EINVAL, name, "`%s` cannot set the reserved name \"%s\".", name,
                                 reserved[i]);
    p->template_kwargs = v;
    return QR_OK;
}

enum qr_status api_kwargs_read(struct api_params *p, qr_json *v, struct qr_error *err)
{
    return field_kwargs(p, "chat_template_kwargs", v, NULL, err);
}

enum qr_status field_chat_template(struct api_params *p, const char *name, qr_json *v,
                                   const struct api_limits *lim, struct qr_error *err)
{
    return qr_fail_param(err, QR_EINVAL, name,
                         "`%s` in a request is not trusted by this server; set it with --chat-template.",
                         name);
}

// Completions: how many; chat: whether.
enum qr_status field_logprobs(struct api_params *p, const char *name, qr_json *v,
                              const struct api_limits *lim, struct qr_error *err)
{
    enum qr_json_type t = qr_json_type(v);
    if (p->chat) {
        if (t != QR_JSON_BOOL) return field_type_error(err, name, "a boolean", v);
        p->want_logprobs = qr_json_bool(v, false);
        return QR_OK;
    }
    if (t != QR_JSON_INT && t != QR_JSON_REAL) return field_type_error(err, name, "an integer", v);
    if (!qr_json_int64(v, &p->logprobs) || p->logprobs < 0)
        return qr_fail_param(err, QR_EINVAL, name, "`%s` must be an integer of at least 0.", name);
    return QR_OK;
}
