#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "lib/lib_internal.h"

int32_t lib_token_id(const struct qr_gguf *g, const char *key)
{
    uint64_t id;
    return qr_gguf_u64(g, key, &id) && id < INT32_MAX ? (int32_t)id : -1;
}

// A C string copy of a metadata string, NULL where absent.
static char *text_of(const struct qr_gguf *g, const char *key)
{
    struct qr_gguf_str s;
    if (!qr_gguf_str(g, key, &s)) return NULL;
    char *p = qr_malloc(QR_MEM_MISC, s.bytes + 1);
    if (!p) return NULL;
    memcpy(p, s.data, s.bytes);
    p[s.bytes] = 0;
    return p;
}

static struct qr_text_span *spans_of(const struct qr_gguf *g, const char *key, size_t *n)
{
    const struct qr_gguf_kv *kv = qr_gguf_find(g, key);
    *n = 0;
    if (!kv || kv->type != QR_GGUF_ARR || kv->elem != QR_GGUF_STR) return NULL;
    struct qr_text_span *spans = qr_malloc(QR_MEM_MISC, (kv->n + 1) * sizeof *spans);
    if (!spans) return NULL;
    *n = kv->n;
    for (size_t i = 0; i < *n; i++) spans[i] = (struct qr_text_span){kv->strs[i].data, kv->strs[i].bytes};
    return spans;
}

// A numeric array with one element a token; NULL when it is absent or has another length.
static const struct qr_gguf_kv *numbers_of(const struct qr_gguf *g, const char *key, size_t n)
{
    const struct qr_gguf_kv *kv = qr_gguf_find(g, key);
    if (!kv || kv->type != QR_GGUF_ARR || kv->elem == QR_GGUF_STR || kv->n != n) return NULL;
    return kv;
}

static bool flag_of(const struct qr_gguf *g, const char *key, bool otherwise)
{
    bool b;
    return qr_gguf_bool(g, key, &b) ? b : otherwise;
}

// Files that leave add_bos_token out mean what their kind of tokenizer does: SPM and Llama 3's BPE begin with
// BOS.
static bool adds_bos_unasked(const struct qr_vocab *v)
{
    if (strcmp(v->model, "llama") == 0) return true;
    return v->pre && (strcmp(v->pre, "llama-bpe") == 0 || strcmp(v->pre, "llama3") == 0 ||
                      strcmp(v->pre, "llama-v3") == 0);
}

struct vocab_memory {
    char *model, *pre;
    struct qr_text_span *tokens, *merges;
    float *scores;
    int32_t *types;
};

static enum qr_status read_numbers(const struct qr_gguf *g, struct qr_vocab *v, struct vocab_memory *m)
{
    const struct qr_gguf_kv *scores = numbers_of(g, "tokenizer.ggml.scores", v->n_tokens);
    const struct qr_gguf_kv *types = numbers_of(g, "tokenizer.ggml.token_type", v->n_tokens);
    if (scores && !(m->scores = qr_malloc(QR_MEM_MISC, v->n_tokens * sizeof *m->scores))) return QR_ENOMEM;
    if (types && !(m->types = qr_malloc(QR_MEM_MISC, v->n_tokens * sizeof *m->types))) return QR_ENOMEM;
    for (size_t i = 0; scores && i < v->n_tokens; i++) m->scores[i] = (float)qr_gguf_arr_f64(scores, i);
    for (size_t i = 0; types && i < v->n_tokens; i++) m->types[i] = (int32_t)qr_gguf_arr_i64(types, i);
    v->scores = m->scores;
    v->types = m->types;
    return QR_OK;
}

static enum qr_status read_vocab(const struct qr_gguf *g, struct qr_vocab *v, struct vocab_memory *m,
                                 struct qr_error *err)
{
    m->model = text_of(g, "tokenizer.ggml.model");
    m->pre = text_of(g, "tokenizer.ggml.pre");
    m->tokens = spans_of(g, "tokenizer.ggml.tokens", &v->n_tokens);
    m->merges = spans_of(g, "tokenizer.ggml.merges", &v->n_merges);
    if (!m->model || !m->tokens)
        return qr_fail(err, QR_EFORMAT, "tokenizer: the file has no %s",
                       m->model ? "tokenizer.ggml.tokens" : "tokenizer.ggml.model");
    v->model = m->model;
    v->pre = m->pre;
    v->tokens = m->tokens;
    v->merges = m->merges;
    if (read_numbers(g, v, m) != QR_OK)
        return qr_fail(err, QR_ENOMEM, "tokenizer: no memory for %zu tokens", v->n_tokens);
    v->bos = lib_token_id(g, "tokenizer.ggml.bos_token_id");
    v->eos = lib_token_id(g, "tokenizer.ggml.eos_token_id");
    v->unk = lib_token_id(g, "tokenizer.ggml.unknown_token_id");
    bool spm = strcmp(v->model, "llama") == 0;
    v->add_bos = flag_of(g, "tokenizer.ggml.add_bos_token", adds_bos_unasked(v));
    v->add_eos = flag_of(g, "tokenizer.ggml.add_eos_token", false);
    v->add_space_prefix = flag_of(g, "tokenizer.ggml.add_space_prefix", spm);
    return QR_OK;
}

enum qr_status lib_make_tokenizer(const struct qr_gguf *g, struct qr_tokenizer **out, struct qr_error *err)
{
    struct qr_vocab v = {.bos = -1, .eos = -1, .unk = -1};
    struct vocab_memory m = {0};
    enum qr_status st = read_vocab(g, &v, &m, err);
    if (st == QR_OK) st = qr_tokenizer_from_vocab(&v, out, err);
    qr_free(m.model);
    qr_free(m.pre);
    qr_free(m.tokens);
    qr_free(m.merges);
    qr_free(m.scores);
    qr_free(m.types);
    return st;
}

enum qr_status lib_make_template(const struct qr_gguf *g, const char *given, struct qr_template **out,
                                 struct qr_error *err)
{
    if (given) return qr_template_new(given, strlen(given), out, err);
    struct qr_gguf_str s;
    struct qr_error own = {0};
    if (!qr_gguf_str(g, "tokenizer.chat_template", &s)) return QR_OK;
    enum qr_status st = qr_template_new(s.data, s.bytes, out, &own);
    if (st == QR_OK) return QR_OK;
    *out = NULL;
    QR_WARN("lib", "the file's chat template is not usable (%s); give one with --chat-template", own.msg);
    return QR_OK;
}

static void add_eos(int32_t id, int32_t eos[LIB_EOS_MAX], size_t *n)
{
    if (id < 0 || *n == LIB_EOS_MAX) return;
    for (size_t i = 0; i < *n; i++)
        if (eos[i] == id) return;
    eos[(*n)++] = id;
}

size_t lib_find_eos(const struct qr_gguf *g, const struct qr_tokenizer *t, int32_t eos[LIB_EOS_MAX])
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    static const char *const names[] = {"<|im_end|>",    "<|eot_id|>", "<|eom_id|>",    "<|end|>",
                                        "<end_of_turn>", "<|return|>", "<|endoftext|>", "<|end_of_text|>"};
    size_t n = 0;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        int32_t id = lib_token_id(g, keys[i]);
        if (id < qr_tokenizer_size(t)) add_eos(id, eos, &n);
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        int32_t id = qr_tokenizer_find(t, names[i]);
        if (id >= 0 && qr_tokenizer_is_special(t, id)) add_eos(id, eos, &n);
    }
    return n;
}
