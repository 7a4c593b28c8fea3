/* A model's sizes from its Hugging Face config.json: of dense decoders. What would make the sizes wrong is refused by name, or
 * named in left_out where they are right but for it. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "sim/model.h"

struct arch {
    const char *name;
    int32_t n_ffn_matrices, extra_positions; // -1: no table of positions
    bool tied;
};
static const struct arch archs[] = {
#define QR_SIM_ARCH(name, matrices, positions, tied) {name, matrices, positions, tied},
#include "sim/archs.def"
#undef QR_SIM_ARCH
};
enum { N_ARCHS = sizeof archs / sizeof archs[0], ARCH_BY_DEFAULT = 0, N_NAMES = 4 };

struct config {
    qr_json *root, *text; // of models that also see: the part about the language model; else the root
    const struct arch *arch;
    struct qr_sim_model *m;
    struct qr_error *err;
};

void qr_sim_arch_names(struct qr_buf *out)
{
    for (int i = 0; i < N_ARCHS; i++) qr_buf_printf(out, "%s%s", i ? ", " : "", archs[i].name);
}

// Null is as good as absent.
static qr_json *member(qr_json *o, const char *key)
{
    qr_json *v = qr_json_get(o, key);
    return qr_json_type(v) == QR_JSON_NULL ? NULL : v;
}

// What may stand in either part.
static qr_json *anywhere(const struct config *c, const char *key)
{
    qr_json *v = member(c->text, key);
    return v ? v : member(c->root, key);
}

static void leave_out(struct config *c, const char *what)
{
    char *out = c->m->left_out;
    size_t at = strlen(out);
    snprintf(out + at, sizeof c->m->left_out - at, "%s%s", at ? "; " : "", what);
}

// A positive integer under one of some names; `otherwise` when it is absent, -1: it must be there.
static enum qr_status get(struct config *c, const char *const keys[N_NAMES], int32_t otherwise, int32_t *out)
{
    const char *key = keys[0];
    qr_json *v = NULL;
    int64_t n = 0;
    char got[40];
    for (int i = 0; i < N_NAMES && keys[i] && !v; i++)
        if ((v = member(c->text, keys[i]))) key = keys[i];
    if (!v && otherwise >= 0) return *out = otherwise, QR_OK;
    if (!v) return qr_fail(c->err, QR_EFORMAT, "%s is missing: expected a whole number", key);
    qr_json_shown(v, got, sizeof got);
    if (!qr_json_int64(v, &n) || n < 1 || n > 1 << 24)
        return qr_fail(c->err, QR_EFORMAT, "%s: expected a whole number from 1 to %d, got %s", key, 1 << 24, got);
    *out = (int32_t)n;
    return QR_OK;
}

/* ==== What is not modelled. ==== */

// Every key about experts, as models have them: num_local_experts, n_routed_experts, num_experts, moe_intermediate_size ...
static enum qr_status refuse_experts(struct config *c, qr_json *o)
{
    struct qr_json_iter members = qr_json_iter(o);
    const char *key;
    for (qr_json *v; (v = qr_json_next(&members, &key, NULL));) {
        int64_t n;
        bool about = strstr(key, "expert") || strncmp(key, "moe_", 4) == 0;
        if (about && qr_json_int64(v, &n) && n > 1)
            return qr_fail(c->err, QR_ENOTSUP, "%.40s %lld: mixtures of experts are not modelled", key, (long long)n);
    }
    return QR_OK;
}

// The kinds of layers that hold KV as all do here.
static bool is_attention(const char *kind)
{
    static const char *const kinds[] = {"attention", "full_attention", "sliding_attention", "chunked_attention"};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kind, kinds[i]) == 0) return true;
    return false;
}

static enum qr_status refuse_other_layers(struct config *c, const char *key)
{
    struct qr_json_iter kinds = qr_json_iter(anywhere(c, key));
    for (qr_json *v; (v = qr_json_next(&kinds, NULL, NULL));) {
        const char *kind = qr_json_str(v, NULL);
        if (kind && !is_attention(kind))
            return qr_fail(c->err, QR_ENOTSUP, "%s: layers of kind \"%.30s\" are not modelled, only attention", key, kind);
    }
    return QR_OK;
}

static enum qr_status refuse_unmodelled(struct config *c)
{
    int64_t rank;
    enum qr_status st = refuse_experts(c, c->root);
    if (st == QR_OK && c->text != c->root) st = refuse_experts(c, c->text);
    if (st == QR_OK) st = refuse_other_layers(c, "layer_types");
    if (st == QR_OK) st = refuse_other_layers(c, "layers_block_type");
    if (st == QR_OK && qr_json_int64(anywhere(c, "kv_lora_rank"), &rank))
        st = qr_fail(c->err, QR_ENOTSUP, "kv_lora_rank %lld: latent attention is not modelled", (long long)rank);
    return st;
}

static enum qr_status find_arch(struct config *c)
{
    const char *type = qr_json_str(anywhere(c, "model_type"), NULL);
    c->arch = &archs[ARCH_BY_DEFAULT];
    if (!type) return leave_out(c, "model_type is missing: sized as a llama"), QR_OK;
    for (int i = 0; i < N_ARCHS; i++)
        if (strcmp(archs[i].name, type) == 0) return c->arch = &archs[i], QR_OK;
    return qr_fail(c->err, QR_ENOTSUP,
                   "model_type \"%.30s\" is not modelled (quire sim --help lists what is); a model with the layers of one of these may be "
                   "given as it", type);
}

/* ==== Sizes. ==== */

static enum qr_status get_bits(struct config *c)
{
    qr_json *q = anywhere(c, "quantization_config"), *type = anywhere(c, "dtype");
    int64_t b = 16, group = 128;
    if (!type) type = anywhere(c, "torch_dtype");
    const char *dtype = qr_json_str(type, NULL);
    c->m->bits = 16;
    if (!q && dtype && strcmp(dtype, "float32") == 0) leave_out(c, "float32: weights count 16 bits, as servers load them");
    if (!q) return QR_OK;
    qr_json *v = qr_json_get(q, "bits") ? qr_json_get(q, "bits") : qr_json_get(q, "w_bit");
    if (!v || !qr_json_int64(v, &b) || b < 2 || b > 16)
        return qr_fail(c->err, QR_ENOTSUP, "quantization_config: expected \"bits\" from 2 to 16 (AWQ, GPTQ)");
    if (qr_json_get(q, "group_size") && (!qr_json_int64(qr_json_get(q, "group_size"), &group) || group < 1)) group = 128;
    c->m->bits = (double)b + (16.0 + (double)b) / (double)group;
    return QR_OK;
}

static enum qr_status get_kv_heads(struct config *c)
{
    static const char *const keys[N_NAMES] = {"num_key_value_heads", "num_kv_heads", "n_head_kv"};
    struct qr_sim_model *m = c->m;
    // One head for all, whatever num_kv_heads says beside it; newer Falcons go by that.
    if (qr_json_bool(anywhere(c, "multi_query"), false) && !qr_json_bool(anywhere(c, "new_decoder_architecture"), false))
        return m->n_kv_heads = 1, QR_OK;
    enum qr_status st = get(c, keys, m->n_heads, &m->n_kv_heads);
    if (st == QR_OK && m->n_heads % m->n_kv_heads)
        return qr_fail(c->err, QR_EFORMAT, "num_key_value_heads %d does not divide num_attention_heads %d", m->n_kv_heads,
                       m->n_heads);
    return st;
}

static enum qr_status get_sizes(struct config *c)
{
    static const char *const layers[N_NAMES] = {"num_hidden_layers", "n_layer"},
                      *const hidden[N_NAMES] = {"hidden_size", "n_embd", "n_embed"},
                      *const heads[N_NAMES] = {"num_attention_heads", "n_head"}, *const dim[N_NAMES] = {"head_dim"},
                      *const ffn[N_NAMES] = {"intermediate_size", "ffn_dim", "ffn_hidden_size", "n_inner"},
                      *const vocab[N_NAMES] = {"vocab_size"}, *const positions[N_NAMES] = {"max_position_embeddings", "n_positions"};
    struct qr_sim_model *m = c->m;
    enum qr_status st = get(c, layers, -1, &m->n_layers);
    if (st == QR_OK) st = get(c, hidden, -1, &m->hidden);
    if (st == QR_OK) st = get(c, heads, -1, &m->n_heads);
    if (st == QR_OK) st = get_kv_heads(c);
    if (st == QR_OK) st = get(c, dim, m->hidden / m->n_heads > 0 ? m->hidden / m->n_heads : 1, &m->head_dim);
    if (st == QR_OK) st = get(c, ffn, 4 * m->hidden, &m->ffn);
    if (st == QR_OK) st = get(c, vocab, -1, &m->n_vocab);
    if (st == QR_OK) st = get(c, positions, 2048, &m->ctx_max);
    return st == QR_OK ? get_bits(c) : st;
}

static void note_window(struct config *c)
{
    int64_t n;
    char what[80];
    if (!qr_json_int64(anywhere(c, "sliding_window"), &n) || n >= c->m->ctx_max) return;
    if (!qr_json_bool(anywhere(c, "use_sliding_window"), true)) return;
    snprintf(what, sizeof what, "sliding_window %lld: KV of the whole context counts", (long long)n);
    leave_out(c, what);
}

static enum qr_status parse_object(struct config *c)
{
    struct qr_sim_model *m = c->m;
    if (qr_json_type(c->root) != QR_JSON_OBJ)
        return qr_fail(c->err, QR_EFORMAT, "expected an object, got %s", qr_json_type_name(qr_json_type(c->root)));
    enum qr_status st = refuse_unmodelled(c);
    if (st == QR_OK) st = find_arch(c);
    if (st == QR_OK) st = get_sizes(c);
    if (st != QR_OK) return st;
    m->n_ffn_matrices = c->arch->n_ffn_matrices;
    m->n_positions = c->arch->extra_positions >= 0 ? m->ctx_max + c->arch->extra_positions : 0;
    m->tied = qr_json_bool(anywhere(c, "tie_word_embeddings"), c->arch->tied);
    note_window(c);
    return QR_OK;
}

enum qr_status qr_sim_model_parse(const char *json, size_t bytes, struct qr_sim_model *out, struct qr_error *err)
{
    struct qr_json_doc *doc = NULL;
    struct qr_sim_model m = {0};
    enum qr_status st = qr_json_parse(json, bytes, QR_JSON_DEPTH_MAX, &doc, err);
    if (st != QR_OK) return st;
    struct config c = {.root = qr_json_root(doc), .m = &m, .err = err};
    qr_json *text = member(c.root, "text_config");
    c.text = text ? text : c.root;
    st = parse_object(&c);
    qr_json_free(&doc);
    if (st == QR_OK) *out = m;
    return st;
}
