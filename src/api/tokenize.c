/* /tokenize and /detokenize, in vLLM's shape (prompt or messages) and llama-server's (content). */
#include "api/api_internal.h"

#include <string.h>

#include "base/mem.h"

// A boolean member; false in *ok when it is something else.
static bool flag(qr_json *root, const char *name, bool otherwise, const char **wrong)
{
    qr_json *v = qr_json_get(root, name);
    enum qr_json_type t = qr_json_type(v);
    if (t == QR_JSON_ABSENT || t == QR_JSON_NULL) return otherwise;
    if (t != QR_JSON_BOOL) *wrong = name;
    return qr_json_bool(v, otherwise);
}

struct wish {
    bool add_special, parse_special, strings, pieces;
};

static void write_tokens(struct qr_json_writer *w, const struct qr_tokenizer *t, const int32_t *ids, size_t n,
                         bool pieces)
{
    qr_jw_arr(w);
    for (size_t i = 0; i < n; i++) {
        if (!pieces) {
            qr_jw_int(w, ids[i]);
            continue;
        }
        struct qr_text_span s = token_text(t, ids[i]);
        qr_jw_obj(w);
        qr_jw_key(w, "id");
        qr_jw_int(w, ids[i]);
        qr_jw_key(w, "piece");
        qr_jw_strn(w, s.data, s.bytes);
        qr_jw_obj_end(w);
    }
    qr_jw_arr_end(w);
}

static void reply_tokens(struct call *c, const struct wish *wish, const int32_t *ids, size_t n)
{
    struct qr_lib *lib = atomic_load(&c->api->lib);
    const struct qr_tokenizer *t = c->api->tok;
    struct qr_buf b = {0};
    struct qr_json_writer w;
    qr_jw_init(&w, &b);
    qr_jw_obj(&w);
    qr_jw_key(&w, "count");
    qr_jw_int(&w, (int64_t)n);
    qr_jw_key(&w, "max_model_len");
    qr_jw_int(&w, qr_lib_info(lib)->max_model_len);
    qr_jw_key(&w, "tokens");
    write_tokens(&w, t, ids, n, wish->pieces);
    qr_jw_key(&w, "token_strs");
    if (wish->strings) {
        qr_jw_arr(&w);
        for (size_t i = 0; i < n; i++) {
            struct qr_text_span s = qr_tokenizer_piece(t, ids[i]);
            qr_jw_strn(&w, s.data, s.bytes);
        }
        qr_jw_arr_end(&w);
    } else {
        qr_jw_null(&w);
    }
    qr_jw_obj_end(&w);
    call_reply_json(c, 200, &b);
}

// The text of messages or prompt or content. *text may point into buf or the document.
static enum qr_status text_of(struct call *c, qr_json *root, struct wish *wish, struct qr_buf *buf,
                              struct qr_text_span *text, struct qr_error *err)
{
    const char *wrong = NULL;
    qr_json *messages = qr_json_get(root, "messages"), *prompt = qr_json_get(root, "prompt"),
            *content = qr_json_get(root, "content");
    bool chat = qr_json_type(messages) == QR_JSON_ARR;
    *wish = (struct wish){
        flag(root, "add_special_tokens", !chat && prompt, &wrong), flag(root, "parse_special", true, &wrong),
        flag(root, "return_token_strs", false, &wrong), flag(root, "with_pieces", false, &wrong)};
    if (!chat && !prompt) wish->add_special = flag(root, "add_special", false, &wrong);
    struct chat_options o = {messages, NULL, flag(root, "add_generation_prompt", true, &wrong),
                             flag(root, "continue_final_message", false, &wrong)};
    if (wrong) return qr_fail_param(err, QR_EINVAL, wrong, "`%s` must be a boolean.", wrong);
    if (!chat) {
        const char *name = prompt || !content ? "prompt" : "content";
        text->data = qr_json_str(prompt ? prompt : content, &text->bytes);
        if (!text->data)
            return qr_fail_param(err, QR_EINVAL, name, "`%s` must be a string, or `messages` a list.", name);
        return QR_OK;
    }
    if (o.continue_final) o.add_generation_prompt = false;
    struct api_params p = {0};
    qr_json *kwargs = qr_json_get(root, "chat_template_kwargs"), *own = qr_json_get(root, "chat_template"),
            *tools = qr_json_get(root, "tools");
    if (qr_json_type(own) > QR_JSON_NULL)
        return qr_fail_param(err, QR_EINVAL, "chat_template",
                             "`chat_template` in a request is not trusted by this server.");
    if (qr_json_type(tools) > QR_JSON_NULL)
        return qr_fail_param(err, QR_ENOTSUP, "tools", "`tools` is not supported by this server.");
    enum qr_status rc = qr_json_type(kwargs) > QR_JSON_NULL ? api_kwargs_read(&p, kwargs, err) : QR_OK;
    o.kwargs = p.template_kwargs;
    if (rc == QR_OK) rc = chat_render(atomic_load(&c->api->lib), &o, buf, err);
    *text = (struct qr_text_span){buf->data ? buf->data : "", buf->len};
    return rc;
}

void api_tokenize(struct call *c)
{
    struct qr_json_doc *doc = NULL;
    struct qr_error err = {0};
    struct qr_buf buf = {0};
    if (!call_json(c, &doc)) return;
    qr_json *root = qr_json_root(doc);
    if (!call_model_ok(c, qr_json_get(root, "model"))) {
        qr_json_free(&doc);
        return;
    }
    struct wish wish;
    struct qr_text_span text = {"", 0};
    int32_t *ids = NULL;
    size_t n = 0;
    enum qr_status rc = text_of(c, root, &wish, &buf, &text, &err);
    unsigned flags =
        (wish.parse_special ? QR_ENCODE_PARSE_SPECIAL : 0) | (wish.add_special ? QR_ENCODE_ADD_SPECIAL : 0);
    if (rc == QR_OK) rc = qr_tokenizer_encode(c->api->tok, text.data, text.bytes, flags, &ids, &n, &err);
    if (rc == QR_OK) {
        reply_tokens(c, &wish, ids, n);
    } else {
        err.code = rc;
        call_fail(c, &err);
    }
    qr_free(ids);
    qr_buf_fini(&buf);
    qr_json_free(&doc);
}

void api_detokenize(struct call *c)
{
    struct api *a = c->api;
    struct qr_json_doc *doc = NULL;
    struct qr_error err = {0};
    if (!call_json(c, &doc)) return;
    qr_json *root = qr_json_root(doc);
    if (!call_model_ok(c, qr_json_get(root, "model"))) {
        qr_json_free(&doc);
        return;
    }
    const struct qr_tokenizer *t = a->tok;
    int32_t *ids = NULL;
    size_t n = 0;
    struct qr_buf text = {0}, b = {0};
    enum qr_status rc =
        api_ids_parse(qr_json_get(root, "tokens"), "tokens", qr_tokenizer_size(t), 8u << 20, &ids, &n, &err);
    if (rc == QR_OK) rc = qr_tokenizer_decode(t, ids, n, false, &text, &err);
    if (rc == QR_OK) {
        struct qr_json_writer w;
        qr_jw_init(&w, &b);
        qr_jw_obj(&w);
        qr_jw_key(&w, "prompt");
        qr_jw_strn(&w, text.data ? text.data : "", text.len);
        qr_jw_key(&w, "content"); // llama-server's name of it
        qr_jw_strn(&w, text.data ? text.data : "", text.len);
        qr_jw_obj_end(&w);
        if (text.failed) b.failed = true;
        call_reply_json(c, 200, &b);
    } else {
        err.code = rc;
        call_fail(c, &err);
    }
    qr_free(ids);
    qr_buf_fini(&text);
    qr_json_free(&doc);
}
