/* What sim and plan take in alike. A model is a name of models.def, a config.json, or a .gguf file's own keys and tensors. */
#include "cmd/sim_input.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conf/paths.h"
#include "fmt/gguf.h"

#define SIZE_MAX_OF_A_KEY (1 << 24)

struct keys {
    const struct qr_gguf *g;
    char arch[32];
    struct qr_error *err;
};

// `otherwise` where the key is absent; 0: it must be there.
static enum qr_status get(struct keys *k, const char *suffix, int32_t otherwise, int32_t *out)
{
    char name[128];
    uint64_t v = 0;
    snprintf(name, sizeof name, "%s.%s", k->arch, suffix);
    if (!qr_gguf_find(k->g, name) && otherwise > 0) return *out = otherwise, QR_OK;
    if (!qr_gguf_u64(k->g, name, &v) || v < 1 || v > SIZE_MAX_OF_A_KEY)
        return qr_fail(k->err, QR_EFORMAT, "model: key %s: expected a whole number from 1 to %d, got %s", name, SIZE_MAX_OF_A_KEY,
                       qr_gguf_find(k->g, name) ? "something else" : "nothing");
    *out = (int32_t)v;
    return QR_OK;
}

static enum qr_status refuse_unmodelled(struct keys *k)
{
    static const struct {
        const char *suffix, *what;
    } others[] = {{"expert_count", "mixtures of experts are"}, {"attention.kv_lora_rank", "latent attention is"},
               {"ssm.state_size", "state space layers are"}, {"wkv.head_size", "layers without attention are"}};
    char name[128];
    uint64_t n;
    bool causal;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        snprintf(name, sizeof name, "%s.%s", k->arch, others[i].suffix);
        if (qr_gguf_u64(k->g, name, &n) && n > 0)
            return qr_fail(k->err, QR_ENOTSUP, "model: %s %llu: %s not modelled", name, (unsigned long long)n, others[i].what);
    }
    snprintf(name, sizeof name, "%s.attention.causal", k->arch);
    if (qr_gguf_bool(k->g, name, &causal) && !causal)
        return qr_fail(k->err, QR_ENOTSUP, "model: %s false: a model that generates nothing is not modelled", name);
    return QR_OK;
}

static void note_window(const struct keys *k, struct qr_sim_model *m)
{
    char name[64];
    uint64_t n;
    snprintf(name, sizeof name, "%s.attention.sliding_window", k->arch);
    if (qr_gguf_u64(k->g, name, &n) && n > 0 && n < (uint64_t)m->ctx_max)
        snprintf(m->left_out, sizeof m->left_out, "%s %llu: KV of the whole context counts", name, (unsigned long long)n);
}

static enum qr_status read_keys(struct keys *k, struct qr_sim_model *m)
{
    struct qr_gguf_str arch;
    if (!qr_gguf_str(k->g, "general.architecture", &arch) || arch.bytes >= sizeof k->arch)
        return qr_fail(k->err, QR_EFORMAT, "model: key general.architecture: expected a short string");
    snprintf(k->arch, sizeof k->arch, "%.*s", (int)arch.bytes, arch.data);
    enum qr_status st = refuse_unmodelled(k);
    if (st == QR_OK) st = get(k, "block_count", 0, &m->n_layers);
    if (st == QR_OK) st = get(k, "embedding_length", 0, &m->hidden);
    if (st == QR_OK) st = get(k, "attention.head_count", 0, &m->n_heads);
    if (st == QR_OK) st = get(k, "attention.head_count_kv", m->n_heads, &m->n_kv_heads);
    if (st == QR_OK) st = get(k, "attention.key_length", m->hidden / m->n_heads > 0 ? m->hidden / m->n_heads : 1, &m->head_dim);
    if (st == QR_OK) st = get(k, "feed_forward_length", 0, &m->ffn);
    if (st == QR_OK) st = get(k, "context_length", 0, &m->ctx_max);
    m->n_ffn_matrices = 3;
    if (st == QR_OK) note_window(k, m);
    return st;
}

static enum qr_status read_tensors(struct keys *k, struct qr_sim_model *m)
{
    const struct qr_gguf_tensor *embedding = qr_gguf_tensor(k->g, "token_embd.weight");
    double layers = 0;
    if (!embedding || embedding->dims[1] < 2 || embedding->dims[1] > SIZE_MAX_OF_A_KEY)
        return qr_fail(k->err, QR_EFORMAT, "model: tensor token_embd.weight: expected a row for each of at least 2 tokens");
    m->n_vocab = (int32_t)embedding->dims[1];
    m->tied = !qr_gguf_tensor(k->g, "output.weight");
    for (size_t i = 0; i < qr_gguf_n_tensors(k->g); i++) {
        const struct qr_gguf_tensor *t = qr_gguf_tensor_at(k->g, i);
        if (!t->type)
            return qr_fail(k->err, QR_ENOTSUP, "model: tensor %.*s is of type %u, which quire does not compute with", (int)t->name.bytes,
                           t->name.data, t->type_id);
        m->file_bytes += (double)t->bytes;
        if (t->n_dims == 2 && t->name.bytes > 4 && memcmp(t->name.data, "blk.", 4) == 0) layers += (double)t->bytes;
    }
    m->bits = 8 * layers / ((double)qr_sim_layer_weights(m) * m->n_layers);
    return QR_OK;
}

static enum qr_status from_gguf(const char *path, struct qr_sim_model *out, struct qr_error *err)
{
    struct qr_gguf *g = NULL;
    enum qr_status st = qr_gguf_open(path, &g, err);
    if (st != QR_OK) return st;
    struct keys k = {.g = g, .err = err};
    struct qr_sim_model m = {0};
    const char *name = strrchr(path, '/');
    snprintf(m.name, sizeof m.name, "%.60s", name ? name + 1 : path);
    st = read_keys(&k, &m);
    if (st == QR_OK) st = read_tensors(&k, &m);
    qr_gguf_free(&g);
    if (st == QR_OK) *out = m;
    return st;
}

// With the names of both kinds.
static enum qr_status no_such_model(const char *name, struct qr_error *err)
{
    char cached[96], known[192];
    qr_paths_list_cached(cached, sizeof cached);
    qr_sim_model_names(known, sizeof known);
    return qr_fail(err, QR_ENOTFOUND, "no model \"%.60s\": expected a .gguf file, a config.json, or one of %s%s%s", name, known,
                   cached[0] ? "; cached: " : "", cached);
}

static enum qr_status find_model(const char *name, struct qr_sim_model *out, struct qr_error *err)
{
    char path[4096];
    size_t n = strlen(name);
    bool is_gguf = n > 5 && strcmp(name + n - 5, ".gguf") == 0;
    enum qr_status st = is_gguf ? QR_ENOTFOUND : qr_sim_model_find(name, out, err);
    if (st != QR_ENOTFOUND) return st;
    struct qr_error why = {0};
    st = qr_paths_find_model(name, path, sizeof path, &why);
    if (st == QR_OK) return from_gguf(path, out, err);
    if (is_gguf) return qr_fail(err, st, "%.250s", why.msg);
    return no_such_model(name, err);
}

enum qr_status cmd_sim_model(const char *name, struct qr_sim_model *out, struct qr_error *err)
{
    enum qr_status st = find_model(name, out, err);
    if (st == QR_OK && out->left_out[0]) fprintf(stderr, "quire: %s: %s\n", name, out->left_out);
    return st;
}

enum qr_status cmd_sim_check_output(const struct qr_conf *c, const char *flag, const char *path, struct qr_error *err)
{
    enum qr_status st = qr_paths_check_writable(flag, path, err);
    if (st == QR_OK) st = qr_paths_check_apart(flag, path, "--workload", c->workload, err);
    if (st == QR_OK) st = qr_paths_check_apart(flag, path, "--costs", c->costs, err);
    if (st == QR_OK && c->args.n > 0) st = qr_paths_check_apart(flag, path, "the model", c->args.v[0], err);
    return st;
}

enum qr_status cmd_sim_max_len(const struct qr_conf *c, const struct qr_sim_model *m, int32_t *out, struct qr_error *err)
{
    int64_t len = c->max_model_len ? c->max_model_len : m->ctx_max;
    if (len < 1 || len > m->ctx_max)
        return qr_fail(err, QR_EINVAL, "--max-model-len: expected 1 to %d, which %s takes, got %" PRId64, m->ctx_max, m->name, len);
    *out = (int32_t)len;
    return QR_OK;
}

enum qr_status cmd_sim_kv_fits(const struct qr_conf *c, const struct qr_sim_model *m, const struct qr_sim_hardware *h,
                               int32_t n_tokens, double block_bytes, struct qr_error *err)
{
    struct qr_sim_memory all;
    bool by_blocks = c->num_gpu_blocks_override > 0;
    double bytes = by_blocks ? (double)c->num_gpu_blocks_override * block_bytes : (double)c->kv_cache_memory_bytes;
    if (bytes == 0) return QR_OK;
    enum qr_status st = qr_sim_memory(m, h, (int32_t)c->tensor_parallel_size, 1, n_tokens, &all, err);
    if (st != QR_OK || bytes <= all.kv) return st;
    return qr_fail(err, QR_ETOOBIG, "--%s: expected at most %.4g GB, what %s leaves of the %.4g GB of %s, got %.4g GB",
                   by_blocks ? "num-gpu-blocks-override" : "kv-cache-memory-bytes", all.kv * 1e-9, m->name, all.total * 1e-9,
                   qr_sim_hardware_text((char[QR_SIM_HARDWARE_TEXT]){0}, h, (int32_t)c->tensor_parallel_size), bytes * 1e-9);
}

enum qr_status cmd_sim_num_prompts(const struct qr_conf *c, int64_t *out, struct qr_error *err)
{
    *out = 0;
    if (c->origin[QR_OPT_num_prompts] == QR_FROM_DEFAULT) return QR_OK;
    if (c->num_prompts < 1 || c->num_prompts > QR_SIM_REQUESTS_MAX)
        return qr_fail(err, QR_EINVAL, "--num-prompts: expected 1 to %d, got %lld", QR_SIM_REQUESTS_MAX, (long long)c->num_prompts);
    *out = c->num_prompts;
    return QR_OK;
}

enum qr_status cmd_sim_check(const char *text, uint64_t *out, struct qr_error *err)
{
    char *end;
    *out = 0;
    if (strcmp(text, "no") == 0) return QR_OK;
    if (strcmp(text, "step") == 0) return *out = 1, QR_OK;
    *out = strtoull(text, &end, 10);
    if (text[0] >= '1' && text[0] <= '9' && *end == 0) return QR_OK;
    return qr_fail(err, QR_EINVAL, "--check: expected no, step or a number of steps, got \"%.40s\"", text);
}

void cmd_say_unused(const char *workload, const char *unused)
{
    if (unused[0]) fprintf(stderr, "quire: %s: %s: not used (src/sim/README.md lists what is)\n", workload, unused);
}
