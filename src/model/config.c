/* From a file's keys to a model's numbers. A key that would change the answer and is not supported is refused
 * by name. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "model/model_internal.h"

struct keys {
    const struct qr_gguf *g;
    const char *arch;
    char name[128];
    struct qr_error *err;
};

static const char *name_of(struct keys *k, const char *suffix)
{
    snprintf(k->name, sizeof k->name, "%s.%s", k->arch, suffix);
    return k->name;
}

static bool has(struct keys *k, const char *suffix)
{
    return qr_gguf_find(k->g, name_of(k, suffix)) != NULL;
}

// A count of 1 to max. An absent key takes `otherwise`; 0 there means that it must be present.
static enum qr_status count(struct keys *k, const char *suffix, int otherwise, int max, int *out)
{
    uint64_t v = 0;
    const char *name = name_of(k, suffix);
    if (!qr_gguf_find(k->g, name)) {
        if (otherwise == 0) return qr_fail(k->err, QR_EFORMAT, "model: key %s is missing", name);
        *out = otherwise;
        return QR_OK;
    }
    if (!qr_gguf_u64(k->g, name, &v) || v < 1 || v > (uint64_t)max) {
        return qr_fail(k->err, QR_EFORMAT, "model: key %s: expected an integer of 1 to %d, got %s%llu", name,
                       max, v ? "" : "another type or ", (unsigned long long)v);
    }
    *out = (int)v;
    return QR_OK;
}

// A number in (min, max). An absent key takes `otherwise`; a negative one there means that it must be
// present.
static enum qr_status real(struct keys *k, const char *suffix, double otherwise, double min, double max,
                           double *out)
{
    double v = 0;
    const char *name = name_of(k, suffix);
    if (!qr_gguf_find(k->g, name)) {
        if (otherwise < 0) return qr_fail(k->err, QR_EFORMAT, "model: key %s is missing", name);
        *out = otherwise;
        return QR_OK;
    }
    if (!qr_gguf_f64(k->g, name, &v) || !(v > min && v < max))
        return qr_fail(k->err, QR_EFORMAT, "model: key %s: expected a number in (%g, %g), got %g", name, min,
                       max, v);
    *out = v;
    return QR_OK;
}

static enum qr_status read_scaling(struct keys *k, struct model_config *c)
{
    struct qr_gguf_str kind = {"none", 4};
    double linear = 0;
    enum qr_status st;
    if (has(k, "rope.scale_linear")) { // the key of 2023's files
        if ((st = real(k, "rope.scale_linear", -1, 0, 1e6, &linear))) return st;
        c->rope_scaling = MODEL_ROPE_LINEAR;
        c->rope_factor = linear;
    }
    if (has(k, "rope.scaling.type") && !qr_gguf_str(k->g, k->name, &kind))
        return qr_fail(k->err, QR_EFORMAT, "model: key %s: expected a string", k->name);
    if (kind.bytes == 4 && !memcmp(kind.data, "none", 4)) return QR_OK;
    if (kind.bytes == 6 && !memcmp(kind.data, "linear", 6)) {
        c->rope_scaling = MODEL_ROPE_LINEAR;
        return real(k, "rope.scaling.factor", -1, 0, 1e6, &c->rope_factor);
    }
    if (kind.bytes == 6 && !memcmp(kind.data, "llama3", 6)) {
        c->rope_scaling = MODEL_ROPE_LLAMA3;
        if ((st = real(k, "rope.scaling.factor", -1, 0, 1e6, &c->rope_factor))) return st;
        if ((st = real(k, "rope.scaling.low_freq_factor", 1, 0, 1e6, &c->rope_low))) return st;
        if ((st = real(k, "rope.scaling.high_freq_factor", 4, c->rope_low, 1e6, &c->rope_high))) return st;
        return real(k, "rope.scaling.original_context_length", 8192, 0, 1e9, &c->rope_ctx);
    }
    return qr_fail(k->err, QR_ENOTSUP,
                   "model: %s: RoPE scaling \"%.*s\" is not supported; linear and llama3 are",
                   name_of(k, "rope.scaling.type"), (int)(kind.bytes < 32 ? kind.bytes : 32), kind.data);
}

static enum qr_status read_rope(struct keys *k, struct model_config *c)
{
    enum qr_status st;
    if ((st = count(k, "rope.dimension_count", c->head_dim, c->head_dim, &c->d_rot))) return st;
    if (c->d_rot % 2)
        return qr_fail(k->err, QR_EFORMAT, "model: key %s: expected an even number, got %d", k->name,
                       c->d_rot);
    if ((st = real(k, "rope.freq_base", 10000, 1, 1e12, &c->rope_base))) return st;
    return read_scaling(k, c);
}

static enum qr_status read_heads(struct keys *k, struct model_config *c)
{
    enum qr_status st;
    int value_length;
    if ((st = count(k, "attention.head_count", 0, MODEL_WIDTH_MAX, &c->n_heads))) return st;
    if ((st = count(k, "attention.head_count_kv", c->n_heads, c->n_heads, &c->n_kv_heads))) return st;
    if (c->n_heads % c->n_kv_heads != 0 || c->n_heads / c->n_kv_heads > MODEL_GROUP_MAX) {
        return qr_fail(k->err, QR_ENOTSUP,
                       "model: %d heads on %d KV heads: expected a whole number of 1 to %d each", c->n_heads,
                       c->n_kv_heads, MODEL_GROUP_MAX);
    }
    int otherwise = c->d_model / c->n_heads;
    if (c->d_model % c->n_heads != 0 && !has(k, "attention.key_length"))
        return qr_fail(k->err, QR_EFORMAT, "model: embedding length %d is no multiple of %d heads",
                       c->d_model, c->n_heads);
    if ((st = count(k, "attention.key_length", otherwise > 0 ? otherwise : 1, MODEL_WIDTH_MAX, &c->head_dim)))
        return st;
    if ((st = count(k, "attention.value_length", c->head_dim, MODEL_WIDTH_MAX, &value_length))) return st;
    if (value_length != c->head_dim || c->head_dim % 16 != 0 || c->head_dim > MODEL_HEAD_MAX) {
        return qr_fail(
            k->err, QR_ENOTSUP,
            "model: heads of %d (keys) and %d (values): expected the same multiple of 16, at most %d",
            c->head_dim, value_length, MODEL_HEAD_MAX);
    }
    return QR_OK;
}

// Keys of relatives of these families that change the answer.
static enum qr_status refuse_others(struct keys *k)
{
    static const char *const others[] = {
        "logit_scale",         "embedding_scale",        "residual_scale",         "attention.scale",
        "attention.clamp_kqv", "attn_logit_softcapping", "final_logit_softcapping"};
    uint64_t n = 0;
    bool causal = true;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (has(k, others[i])) return qr_fail(k->err, QR_ENOTSUP, "model: key %s is not supported", k->name);
    if (qr_gguf_u64(k->g, name_of(k, "expert_count"), &n) && n > 0)
        return qr_fail(k->err, QR_ENOTSUP, "model: %s %llu: mixtures of experts are not supported", k->name,
                       (unsigned long long)n);
    if (qr_gguf_bool(k->g, name_of(k, "attention.causal"), &causal) && !causal)
        return qr_fail(k->err, QR_ENOTSUP, "model: %s: only causal attention is supported", k->name);
    return QR_OK;
}

static enum qr_status find_family(const struct qr_gguf *g, const struct model_family **out,
                                  struct qr_error *err)
{
    static const struct model_family *const families[] = {
#define QR_MODEL(name) &model_##name,
#include "model/models.def"
#undef QR_MODEL
    };
    struct qr_gguf_str arch;
    char known[128] = "";
    if (!qr_gguf_str(g, "general.architecture", &arch))
        return qr_fail(err, QR_EFORMAT, "model: key general.architecture is missing or no string");
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const char *name = families[i]->arch;
        if (arch.bytes == strlen(name) && !memcmp(arch.data, name, arch.bytes)) {
            *out = families[i];
            return QR_OK;
        }
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "", name);
    }
    return qr_fail(err, QR_ENOTSUP, "model: architecture \"%.*s\" is not supported; these are: %s",
                   (int)(arch.bytes < 32 ? arch.bytes : 32), arch.data, known);
}

enum qr_status model_configure(const struct qr_gguf *g, const struct model_family **family,
                               struct model_config *c, struct qr_error *err)
{
    enum qr_status st;
    double eps;
    int window;
    *c = (struct model_config){0};
    if ((st = find_family(g, family, err))) return st;
    struct keys k = {.g = g, .arch = (*family)->arch, .err = err};
    if ((st = count(&k, "block_count", 0, MODEL_LAYERS_MAX, &c->n_layers))) return st;
    if ((st = count(&k, "context_length", 0, INT_MAX / 2, &c->ctx_max))) return st;
    // Up to the window a sliding model is a plain one; beyond it the file says something that quire does not
    // do.
    if ((st = count(&k, "attention.sliding_window", c->ctx_max, INT_MAX / 2, &window))) return st;
    if (window < c->ctx_max) c->ctx_max = window;
    if ((st = count(&k, "embedding_length", 0, MODEL_WIDTH_MAX, &c->d_model))) return st;
    if ((st = count(&k, "feed_forward_length", 0, MODEL_WIDTH_MAX, &c->d_ff))) return st;
    if ((st = real(&k, "attention.layer_norm_rms_epsilon", -1, 0, 1, &eps))) return st;
    c->rms_eps = (float)eps;
    if ((st = read_heads(&k, c))) return st;
    if ((st = read_rope(&k, c))) return st;
    if ((st = refuse_others(&k))) return st;
    return (*family)->configure(g, c, err);
}
