/* From the body to token ids: on a worker thread. */
#include "api/api_internal.h"

#include <string.h>
#include <strings.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"

bool call_json(struct call *c, struct qr_json_doc **doc)
{
    const char *type = http_req_header(c->req, "Content-Type");
    if (type) {
        size_t n = strcspn(type, "; \t");
        if (n != 16 || strncasecmp(type, "application/json", 16) != 0) {
            call_error(c, 400, NULL, "Unsupported Media Type: Only 'application/json' is allowed");
            return false;
        }
    }
    size_t bytes;
    const char *body = http_req_body(c->req, &bytes);
    if (bytes == 0) {
        call_error(c, 400, NULL, "The body is empty; a JSON object is expected.");
        return false;
    }
    struct qr_error err = {0};
    if (qr_json_parse(body, bytes, QR_JSON_DEPTH_MAX, doc, &err) == QR_OK) return true;
    call_fail(c, &err);
    return false;
}

bool call_model_ok(struct call *c, qr_json *model)
{
    struct api *a = c->api;
    size_t n;
    const char *name = qr_json_str(model, &n);
    if (!name || n == 0) return true;
    char list[256] = "";
    if (a->conf.n_served_names == 0 && strlen(a->model_name) == n && memcmp(a->model_name, name, n) == 0)
        return true;
    for (int i = 0; i < a->conf.n_served_names; i++) {
        const char *s = a->conf.served_names[i];
        if (strlen(s) == n && memcmp(s, name, n) == 0) return true;
        if (strlen(list) + strlen(s) + 3 < sizeof list) strcat(strcat(list, list[0] ? ", " : ""), s);
    }
    call_error(c, 404, "model", "The model does not exist. Valid aliases: %s.",
               list[0] ? list : a->model_name);
    return false;
}

// --- The length of a prompt ---

static enum qr_status fit(struct call *c, struct api_seq *s, struct qr_error *err)
{
    const struct api_params *p = &atomic_load(&c->gen)->params;
    const struct qr_lib_info *info = qr_lib_info(atomic_load(&c->api->lib));
    size_t max = (size_t)info->max_model_len,
           wanted = p->sampling.max_tokens > 0 ? (size_t)p->sampling.max_tokens : 1;
    if (p->truncate >= -1) {
        size_t keep = p->truncate >= 0 ? (size_t)p->truncate : wanted < max ? max - wanted : 1;
        if (keep < s->n_prompt) {
            if (p->truncate_left)
                memmove(s->prompt, s->prompt + (s->n_prompt - keep), keep * sizeof *s->prompt);
            s->n_prompt = keep;
        }
    }
    const char *param = p->chat ? "messages" : "prompt";
    if (s->n_prompt == 0)
        return qr_fail_param(err, QR_EINVAL, param, "`%s` must be provided and non-empty.", param);
    size_t room = p->sampling.max_tokens == 0 ? 0 : 1;
    if (s->n_prompt + room <= max) return QR_OK;
    return qr_fail_param(err, QR_EINVAL, "input_tokens",
                         "This model's maximum context length is %zu tokens. However, your prompt contains "
                         "at least %zu input tokens, "
                         "which leaves no room for an answer. Please shorten the prompt.",
                         max, s->n_prompt);
}

// Tokenising costs time: what cannot fit is refused by its bytes.
static enum qr_status encode(struct call *c, const char *text, size_t bytes, struct api_seq *s,
                             struct qr_error *err)
{
    const struct api *a = c->api;
    if (bytes > a->text_bytes_max && atomic_load(&c->gen)->params.truncate < -1)
        return qr_fail_param(err, QR_EINVAL, "input_text",
                             "This model's maximum context length is %d tokens. However, your prompt has %zu "
                             "bytes of text, more than "
                             "so many tokens can stand for. Please shorten the prompt.",
                             qr_lib_info(atomic_load(&a->lib))->max_model_len, bytes);
    unsigned flags =
        QR_ENCODE_PARSE_SPECIAL | (atomic_load(&c->gen)->params.add_special ? QR_ENCODE_ADD_SPECIAL : 0);
    return qr_tokenizer_encode(a->tok, text, bytes, flags, &s->prompt, &s->n_prompt, err);
}

// --- Completions ---

static enum qr_status keep_echo(struct call *c, struct api_seq *s, const char *text, size_t bytes,
                                struct qr_error *err)
{
    enum qr_status rc = QR_OK;
    if (text)
        qr_buf_add(&s->text, text, bytes);
    else
        rc = qr_tokenizer_decode(c->api->tok, s->prompt, s->n_prompt, false, &s->text, err);
    return rc == QR_OK && s->text.failed ? qr_fail(err, QR_ENOMEM, "Out of memory.") : rc;
}

// A prompt is text, or token ids.
static enum qr_status read_prompt(struct call *c, qr_json *v, struct api_seq *s, struct qr_error *err)
{
    size_t bytes = 0;
    const char *text = qr_json_str(v, &bytes);
    enum qr_status rc;
    if (text) {
        if (bytes == 0)
            return qr_fail_param(err, QR_EINVAL, "prompt", "`prompt` must be provided and non-empty.");
        rc = encode(c, text, bytes, s, err);
    } else {
        const struct qr_lib_info *info = qr_lib_info(atomic_load(&c->api->lib));
        if (qr_json_type(v) == QR_JSON_ARR && qr_json_len(v) == 0)
            return qr_fail_param(err, QR_EINVAL, "prompt", "`prompt` must be provided and non-empty.");
        rc = api_ids_parse(v, "prompt", info->model.n_vocab, 8u << 20, &s->prompt, &s->n_prompt, err);
    }
    size_t before = s->n_prompt;
    if (rc == QR_OK) rc = fit(c, s, err);
    if (rc == QR_OK && atomic_load(&c->gen)->params.echo)
        rc = keep_echo(c, s, s->n_prompt == before ? text : NULL, bytes, err);
    return rc;
}

static enum qr_status make_seqs(struct call *c, size_t n_prompts, struct qr_error *err)
{
    struct api_gen *g = atomic_load(&c->gen);
    g->n_choices = (int32_t)g->params.n;
    size_t n = n_prompts * (size_t)g->n_choices;
    if (n > API_MAX_CHOICES)
        return qr_fail_param(err, QR_EINVAL, "n", "%zu prompts with `n` %d are %zu answers; at most %d are allowed.",
                             n_prompts, g->n_choices, n, API_MAX_CHOICES);
    g->seqs = qr_calloc(QR_MEM_REQ, n, sizeof *g->seqs);
    if (!g->seqs) return qr_fail(err, QR_ENOMEM, "Out of memory.");
    for (size_t i = 0; i < n; i++) {
        g->seqs[i].call = c;
        g->seqs[i].index = (int32_t)i;
        g->seqs[i].choice = (int32_t)i % g->n_choices;
        g->seqs[i].stop_token = g->seqs[i].stop_string = -1;
    }
    atomic_store(&g->n_seqs, (int32_t)n);
    return QR_OK;
}

// The other choices of a prompt begin as the first does.
static enum qr_status copy_choices(struct call *c, struct api_seq *first, struct qr_error *err)
{
    for (int32_t k = 1; k < atomic_load(&c->gen)->n_choices; k++) {
        first[k].prompt = first->prompt;
        first[k].n_prompt = first->n_prompt;
        if (first->text.len) qr_buf_add(&first[k].text, first->text.data, first->text.len);
        if (first[k].text.failed) return qr_fail(err, QR_ENOMEM, "Out of memory.");
    }
    return QR_OK;
}

// str | [str] | [int] | [[int]]
enum qr_status prompts_read(struct call *c, struct qr_error *err)
{
    struct api_gen *g = atomic_load(&c->gen);
    qr_json *v = g->params.prompt, *first = qr_json_at(v, 0);
    enum qr_json_type t = qr_json_type(v), inner = qr_json_type(first);
    if (t != QR_JSON_STR && t != QR_JSON_ARR)
        return qr_fail_param(err, QR_EINVAL, "prompt",
                             "`prompt` must be a string, a list of strings, or token ids.");
    bool many = t == QR_JSON_ARR && (inner == QR_JSON_STR || inner == QR_JSON_ARR);
    size_t n = many ? qr_json_len(v) : 1;
    if (n > API_MAX_PROMPTS)
        return qr_fail_param(err, QR_EINVAL, "prompt", "`prompt` holds %zu prompts; at most %d are allowed.",
                             n, API_MAX_PROMPTS);
    enum qr_status rc = make_seqs(c, n, err);
    if (!many) {
        if (rc == QR_OK) rc = read_prompt(c, v, &g->seqs[0], err);
        return rc == QR_OK ? copy_choices(c, &g->seqs[0], err) : rc;
    }
    struct qr_json_iter it = qr_json_iter(v);
    for (size_t i = 0; rc == QR_OK && i < n && !atomic_load(&c->gone); i++) {
        qr_json *e = qr_json_next(&it, NULL, NULL);
        if (qr_json_type(e) != inner)
            return qr_fail_param(err, QR_EINVAL, "prompt", "`prompt` must not mix strings and token ids.");
        struct api_seq *s = &g->seqs[i * (size_t)g->n_choices];
        rc = read_prompt(c, e, s, err);
        if (rc == QR_OK) rc = copy_choices(c, s, err);
    }
    return rc;
}

// --- Chat ---

// echo: the last message, when it is the assistant's, stands before the answer.
static enum qr_status echo_final(struct call *c, struct api_seq *s, struct qr_error *err)
{
    qr_json *messages = atomic_load(&c->gen)->params.messages,
            *last = qr_json_at(messages, qr_json_len(messages) - 1);
    size_t n, role_bytes;
    const char *text = qr_json_str(qr_json_get(last, "content"), &n),
               *role = qr_json_str(qr_json_get(last, "role"), &role_bytes);
    if (!text || !role || role_bytes != 9 || memcmp(role, "assistant", 9) != 0) return QR_OK;
    return keep_echo(c, s, text, n, err);
}

enum qr_status chat_prompt_read(struct call *c, struct qr_error *err)
{
    struct api_gen *g = atomic_load(&c->gen);
    struct qr_buf text = {0};
    struct chat_options o = {g->params.messages, g->params.template_kwargs, g->params.add_generation_prompt,
                             g->params.continue_final};
    enum qr_status rc = chat_render(atomic_load(&c->api->lib), &o, &text, err);
    if (rc == QR_OK) rc = make_seqs(c, 1, err);
    if (rc == QR_OK) rc = encode(c, text.data ? text.data : "", text.len, &g->seqs[0], err);
    if (rc == QR_OK) rc = fit(c, &g->seqs[0], err);
    if (rc == QR_OK && g->params.echo) rc = echo_final(c, &g->seqs[0], err);
    if (rc == QR_OK) rc = copy_choices(c, &g->seqs[0], err);
    qr_buf_fini(&text);
    return rc;
}

// --- Bad words ---

#define BAD_IDS_MAX 1024 // of all words together

struct bad_list {
    int32_t ids[BAD_IDS_MAX];
    int32_t lens[2 * API_MAX_BAD_WORDS];
    size_t n_ids, n;
};

static enum qr_status bad_add(struct bad_list *l, const int32_t *ids, size_t n, struct qr_error *err)
{
    if (n == 0) return QR_OK;
    if (l->n_ids + n > BAD_IDS_MAX || l->n == 2 * API_MAX_BAD_WORDS)
        return qr_fail_param(err, QR_EINVAL, "bad_words", "`bad_words` has more than %d tokens in all.",
                             BAD_IDS_MAX);
    memcpy(l->ids + l->n_ids, ids, n * sizeof *ids);
    l->n_ids += n;
    l->lens[l->n++] = (int32_t)n;
    return QR_OK;
}

// A word is forbidden at the start of a text and behind a blank: the second form is another token sequence,
// when it is one token for one.
static enum qr_status bad_word(const struct qr_tokenizer *t, struct qr_text_span word, struct bad_list *l,
                               struct qr_error *err)
{
    while (word.bytes && word.data[0] == ' ') word.data++, word.bytes--;
    if (word.bytes == 0)
        return qr_fail_param(err, QR_EINVAL, "bad_words", "`bad_words` must not hold blank strings.");
    struct qr_buf spaced = {0};
    qr_buf_char(&spaced, ' ');
    qr_buf_add(&spaced, word.data, word.bytes);
    if (spaced.failed) return qr_fail(err, QR_ENOMEM, "Out of memory.");
    int32_t *a = NULL, *b = NULL;
    size_t na = 0, nb = 0;
    enum qr_status rc = qr_tokenizer_encode(t, word.data, word.bytes, 0, &a, &na, err);
    if (rc == QR_OK) rc = qr_tokenizer_encode(t, spaced.data, spaced.len, 0, &b, &nb, err);
    if (rc == QR_OK) rc = bad_add(l, a, na, err);
    if (rc == QR_OK && nb == na && nb > 0 && a[0] != b[0]) rc = bad_add(l, b, nb, err);
    qr_free(a);
    qr_free(b);
    qr_buf_fini(&spaced);
    return rc;
}

enum qr_status bad_words_encode(const struct qr_tokenizer *t, struct api_params *p, struct qr_error *err)
{
    if (p->n_bad_words == 0) return QR_OK;
    struct bad_list *l = qr_calloc(QR_MEM_REQ, 1, sizeof *l);
    if (!l) return qr_fail(err, QR_ENOMEM, "Out of memory.");
    enum qr_status rc = QR_OK;
    for (size_t i = 0; rc == QR_OK && i < p->n_bad_words; i++) rc = bad_word(t, p->bad_words[i], l, err);
    int32_t *ids = rc == QR_OK ? qr_malloc(QR_MEM_REQ, l->n_ids * sizeof *ids) : NULL;
    int32_t *lens = rc == QR_OK ? qr_malloc(QR_MEM_REQ, l->n * sizeof *lens) : NULL;
    if (rc == QR_OK && (!ids || !lens)) rc = qr_fail(err, QR_ENOMEM, "Out of memory.");
    if (rc == QR_OK) {
        memcpy(ids, l->ids, l->n_ids * sizeof *ids);
        memcpy(lens, l->lens, l->n * sizeof *lens);
        p->sampling.bad_ids = ids;
        p->sampling.bad_lens = lens;
        p->sampling.n_bad = l->n;
    } else {
        qr_free(ids);
        qr_free(lens);
    }
    qr_free(l);
    return rc;
}
