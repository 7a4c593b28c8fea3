/* Tokenizers from GGUF vocabularies against the vectors that llama.cpp publishes beside them. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "fmt/gguf.h"
#include "text/text.h"

struct loaded {
    struct qr_gguf *g;
    struct qr_text_span *tokens, *merges;
    float *scores;
    int32_t *types;
    struct qr_tokenizer *t;
    struct qr_vocab v; // without its names: they were read into a buffer of load()
};

static struct qr_text_span *strings(const struct qr_gguf *g, const char *key, size_t *n)
{
    const struct qr_gguf_kv *kv = qr_gguf_find(g, key);
    *n = kv ? kv->n : 0;
    struct qr_text_span *s = calloc(*n + 1, sizeof *s);
    assert_non_null(s);
    for (size_t i = 0; i < *n; i++) s[i] = (struct qr_text_span){kv->strs[i].data, kv->strs[i].bytes};
    return s;
}

static int32_t id_of(const struct qr_gguf *g, const char *key)
{
    uint64_t id;
    return qr_gguf_u64(g, key, &id) ? (int32_t)id : -1;
}

static const char *text_of(const struct qr_gguf *g, const char *key, char *buf, size_t cap)
{
    struct qr_gguf_str s;
    if (!qr_gguf_str(g, key, &s)) return NULL;
    snprintf(buf, cap, "%.*s", (int)s.bytes, s.data);
    return buf;
}

static void json_string(struct qr_buf *b, const char *s, size_t n)
{
    qr_buf_char(b, '"');
    for (size_t i = 0; i < n; i++) {
        uint8_t c = (uint8_t)s[i];
        if (c < 0x20)
            qr_buf_printf(b, "\\u%04x", c);
        else if (c == '"' || c == '\\')
            qr_buf_printf(b, "\\%c", c);
        else
            qr_buf_char(b, (char)c);
    }
    qr_buf_char(b, '"');
}

// The same smollm vocabulary as a tokenizer.json, put together as its own repository does.
static struct qr_tokenizer *through_json(const struct qr_vocab *v)
{
    struct qr_buf b = {0};
    qr_buf_str(&b, "{\"version\":\"1.0\",\"added_tokens\":[");
    const char *sep = "";
    for (size_t i = 0; i < v->n_tokens; i++) {
        if (v->types[i] != 3) continue;
        qr_buf_printf(
            &b,
            "%s{\"id\":%zu,\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,"
            "\"special\":true,\"content\":",
            sep, i);
        json_string(&b, v->tokens[i].data, v->tokens[i].bytes);
        qr_buf_char(&b, '}');
        sep = ",";
    }
    qr_buf_str(&b, "],\"normalizer\":null,\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
                   "\"SpecialToken\":"
                   "{\"id\":\"<|im_start|>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],"
                   "\"pair\":[{\"Sequence\":"
                   "{\"id\":\"A\",\"type_id\":0}},{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}],\"special_"
                   "tokens\":{\"<|im_start|>\":"
                   "{\"id\":\"<|im_start|>\",\"ids\":[1],\"tokens\":[\"<|im_start|>\"]}}},"
                   "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\","
                   "\"individual_digits\":true},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_"
                   "offsets\":true,"
                   "\"use_regex\":true}]},\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
                   "\"trim_offsets\":true,"
                   "\"use_regex\":true},\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
                   "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"fuse_unk\":false,"
                   "\"byte_fallback\":false,\"ignore_merges\":false,\"vocab\":{");
    for (size_t i = 0; i < v->n_tokens; i++) {
        if (i) qr_buf_char(&b, ',');
        json_string(&b, v->tokens[i].data, v->tokens[i].bytes);
        qr_buf_printf(&b, ":%zu", i);
    }
    qr_buf_str(&b, "},\"merges\":[");
    for (size_t i = 0; i < v->n_merges; i++) {
        if (i) qr_buf_char(&b, ',');
        json_string(&b, v->merges[i].data, v->merges[i].bytes);
    }
    qr_buf_str(&b, "]}}");
    struct qr_tokenizer *t;
    struct qr_error err;
    if (qr_tokenizer_from_json(b.data, b.len, &t, &err)) fail_msg("%s", err.msg);
    qr_buf_fini(&b);
    return t;
}

static void load(struct loaded *l, const char *path)
{
    struct qr_error err;
    char model[64], pre[64];
    memset(l, 0, sizeof *l);
    assert_int_equal(qr_gguf_open(path, &l->g, &err), QR_OK);
    struct qr_vocab v = {0};
    l->tokens = strings(l->g, "tokenizer.ggml.tokens", &v.n_tokens);
    l->merges = strings(l->g, "tokenizer.ggml.merges", &v.n_merges);
    const struct qr_gguf_kv *scores = qr_gguf_find(l->g, "tokenizer.ggml.scores");
    const struct qr_gguf_kv *types = qr_gguf_find(l->g, "tokenizer.ggml.token_type");
    l->scores = calloc(v.n_tokens, sizeof *l->scores);
    l->types = calloc(v.n_tokens, sizeof *l->types);
    for (size_t i = 0; i < v.n_tokens; i++) {
        if (scores) l->scores[i] = (float)qr_gguf_arr_f64(scores, i);
        if (types) l->types[i] = (int32_t)qr_gguf_arr_i64(types, i);
    }
    v.tokens = l->tokens;
    v.merges = l->merges;
    v.scores = scores ? l->scores : NULL;
    v.types = types ? l->types : NULL;
    v.model = text_of(l->g, "tokenizer.ggml.model", model, sizeof model);
    v.pre = text_of(l->g, "tokenizer.ggml.pre", pre, sizeof pre);
    v.bos = id_of(l->g, "tokenizer.ggml.bos_token_id");
    v.eos = id_of(l->g, "tokenizer.ggml.eos_token_id");
    v.unk = id_of(l->g, "tokenizer.ggml.unknown_token_id");
    v.add_space_prefix = strcmp(v.model, "llama") == 0;
    enum qr_status st = qr_tokenizer_from_vocab(&v, &l->t, &err);
    if (st) fail_msg("%s: %s", path, err.msg);
    v.model = v.pre = NULL;
    l->v = v;
}

static void unload(struct loaded *l)
{
    qr_tokenizer_free(&l->t);
    qr_gguf_free(&l->g);
    free(l->tokens);
    free(l->merges);
    free(l->scores);
    free(l->types);
}

static char *slurp(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *p = malloc(*n + 1);
    assert_int_equal(fread(p, 1, *n, f), *n);
    p[*n] = 0;
    fclose(f);
    return p;
}

// One text against one line of ids; also back to text.
static void check_one(const struct loaded *l, const char *name, int i, const char *text, size_t bytes,
                      char *line)
{
    int32_t *ids;
    size_t n, k = 0;
    struct qr_error err;
    assert_int_equal(qr_tokenizer_encode(l->t, text, bytes, 0, &ids, &n, &err), QR_OK);
    for (char *p = strtok(line, " "); p; p = strtok(NULL, " "), k++)
        if (k >= n || ids[k] != atoi(p))
            fail_msg("%s text %d: id %zu of %zu: expected %s, got %d", name, i, k, n, p, k < n ? ids[k] : -1);
    assert_int_equal(k, n);
    struct qr_buf out = {0};
    assert_int_equal(qr_tokenizer_decode(l->t, ids, n, false, &out, &err), QR_OK);
    if (out.len != bytes || (bytes && memcmp(out.data, text, bytes)))
        fail_msg("%s text %d: decodes to \"%.*s\"", name, i, (int)out.len, out.data);
    qr_buf_fini(&out);
    qr_free(ids);
}

static void check_vectors(const char *name)
{
    if (!qr_test_shared()) QR_SKIP("no shared data");
    char path[4200];
    struct loaded l;
    size_t n_in, n_out;
    snprintf(path, sizeof path, "%s/data/tokenizers/ggml-vocab-%s.gguf", qr_test_shared(), name);
    load(&l, path);
    size_t stem = strlen(path);
    strcpy(path + stem, ".inp");
    char *in = slurp(path, &n_in);
    strcpy(path + stem, ".out");
    char *out = slurp(path, &n_out), *line = out;
    static const char mark[] = "\n__ggml_vocab_test__\n";
    int n = 0;
    for (char *text = in; text < in + n_in; n++) {
        char *end = strstr(text, mark), *eol = strchr(line, '\n');
        if (!end) break;
        assert_non_null(eol);
        *eol = 0;
        check_one(&l, name, n, text, (size_t)(end - text), line);
        text = end + sizeof mark - 1;
        line = eol + 1;
    }
    assert_true(n >= 40);
    free(in);
    free(out);
    unload(&l);
}

QR_TEST(tokenizer_vectors_llama_bpe)
{
    check_vectors("llama-bpe");
}
QR_TEST(tokenizer_vectors_llama_spm)
{
    check_vectors("llama-spm");
}
QR_TEST(tokenizer_vectors_phi_3)
{
    check_vectors("phi-3");
}
QR_TEST(tokenizer_vectors_qwen2)
{
    check_vectors("qwen2");
}
QR_TEST(tokenizer_vectors_gpt_2)
{
    check_vectors("gpt-2");
}
QR_TEST(tokenizer_vectors_falcon)
{
    check_vectors("falcon");
}
QR_TEST(tokenizer_vectors_starcoder)
{
    check_vectors("starcoder");
}
QR_TEST(tokenizer_vectors_deepseek_coder)
{
    check_vectors("deepseek-coder");
}

static int hex(char c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

// ids: numbers with a space between them.
static void expect_ids(const struct qr_tokenizer *t, const char *text, size_t bytes, unsigned flags,
                       const char *ids, size_t n_line)
{
    struct qr_buf got = {0};
    struct qr_error err;
    int32_t *have;
    size_t n;
    assert_int_equal(qr_tokenizer_encode(t, text, bytes, flags, &have, &n, &err), QR_OK);
    qr_buf_str(&got, "");
    for (size_t i = 0; i < n; i++) qr_buf_printf(&got, "%s%d", i ? " " : "", have[i]);
    if (got.len != n_line || memcmp(got.data, ids, n_line))
        fail_msg("\"%.*s\": expected %.*s, got %s", (int)bytes, text, (int)n_line, ids, got.data);
    qr_buf_clear(&got);
    assert_int_equal(qr_tokenizer_decode(t, have, n, false, &got, &err), QR_OK);
    assert_int_equal(got.len, bytes);
    if (bytes) assert_memory_equal(got.data, text, bytes);
    qr_buf_fini(&got);
    qr_free(have);
}

static int check_golden(const struct qr_tokenizer *t)
{
    size_t size;
    char *file = slurp("tests/vectors/smollm_ids.txt", &size), *save = NULL, text[1024];
    int n = 0;
    for (char *line = strtok_r(file, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (line[0] == '#') continue;
        char *on = strchr(line, '|'), *off = on ? strchr(on + 1, '|') : NULL;
        assert_non_null(off);
        size_t bytes = (size_t)(on - line) / 2, n_on = (size_t)(off - on - 1);
        assert_true(bytes < sizeof text);
        for (size_t i = 0; i < bytes; i++) text[i] = (char)(hex(line[2 * i]) << 4 | hex(line[2 * i + 1]));
        expect_ids(t, text, bytes, QR_ENCODE_PARSE_SPECIAL, on + 1, n_on);
        if (strcmp(off, "|=") == 0)
            expect_ids(t, text, bytes, 0, on + 1, n_on);
        else
            expect_ids(t, text, bytes, 0, off + 1, strlen(off + 1));
        n++;
    }
    free(file);
    return n;
}

QR_TEST(tokenizer_smollm_equals_hugging_face)
{
    if (!qr_test_model()) QR_SKIP("the default model is absent (QUIRE_TEST_MODEL)");
    struct loaded l;
    load(&l, qr_test_model());
    assert_true(check_golden(l.t) >= 40);
    struct qr_tokenizer *j = through_json(&l.v);
    assert_true(check_golden(j) >= 40);
    assert_int_equal(qr_tokenizer_size(j), qr_tokenizer_size(l.t));
    for (int32_t id = 0; id < qr_tokenizer_size(j); id++) {
        struct qr_text_span a = qr_tokenizer_bytes(l.t, id), b = qr_tokenizer_bytes(j, id);
        assert_true(a.bytes == b.bytes && memcmp(a.data, b.data, a.bytes) == 0);
        assert_int_equal(qr_tokenizer_is_special(l.t, id), qr_tokenizer_is_special(j, id));
    }
    expect_ids(j, "", 0, 0, "", 0);
    int32_t *ids;
    size_t n;
    struct qr_error err;
    assert_int_equal(qr_tokenizer_encode(j, "hi", 2, QR_ENCODE_ADD_SPECIAL, &ids, &n, &err), QR_OK);
    assert_int_equal(ids[0], 1); // what the post-processor puts before a text
    assert_true(n == 2 || n == 3);
    qr_free(ids);
    qr_tokenizer_free(&j);
    unload(&l);
}
