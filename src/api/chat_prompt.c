/* From messages to the text that the model reads. */
#include "api/api_internal.h"

#include <string.h>

// What is given to templates in place of a role, or NULL for one that nobody knows. `developer` is OpenAI's
// newer name of the system role, which the templates of the models served here do not know.
static const char *role_of(qr_json *role)
{
    static const char *const known[] = {"system", "user", "assistant", "tool", "function"};
    size_t n;
    const char *s = qr_json_str(role, &n);
    if (!s) return NULL;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (n == strlen(known[i]) && memcmp(s, known[i], n) == 0) return known[i];
    return n == 9 && memcmp(s, "developer", 9) == 0 ? "system" : NULL;
}

static enum qr_status bad(struct qr_error *err, size_t i, const char *what)
{
    return qr_fail_param(err, QR_EINVAL, "messages", "`messages[%zu]` %s", i, what);
}

// A list of parts becomes one text, the parts on lines of their own as vLLM joins them.
static enum qr_status join_parts(qr_json *parts, size_t i, struct qr_buf *text, struct qr_error *err)
{
    if (qr_json_len(parts) == 0) return bad(err, i, "has an empty list of parts as content.");
    struct qr_json_iter it = qr_json_iter(parts);
    size_t k = 0;
    for (qr_json *part; (part = qr_json_next(&it, NULL, NULL)); k++) {
        size_t n, type_bytes = 0;
        const char *s = qr_json_str(part, &n); // a bare string is a text part
        if (!s) {
            if (qr_json_type(part) != QR_JSON_OBJ)
                return bad(err, i, "has a part that is neither a string nor an object.");
            const char *type = qr_json_str(qr_json_get(part, "type"), &type_bytes);
            bool is_text = type && ((type_bytes == 4 && memcmp(type, "text", 4) == 0) ||
                                    (type_bytes == 10 && memcmp(type, "input_text", 10) == 0) ||
                                    (type_bytes == 11 && memcmp(type, "output_text", 11) == 0));
            bool is_refusal = type && type_bytes == 7 && memcmp(type, "refusal", 7) == 0;
            if (!is_text && !is_refusal)
                return bad(err, i,
                           "has a part that is not text: images, audio and other media are not supported by "
                           "this model.");
            s = qr_json_str(qr_json_get(part, is_text ? "text" : "refusal"), &n);
            if (!s) return bad(err, i, "has a text part without its text.");
        }
        if (k) qr_buf_char(text, '\n');
        qr_buf_add(text, s, n);
    }
    return QR_OK;
}

static enum qr_status write_content(qr_json *content, size_t i, struct qr_json_writer *w,
                                    struct qr_error *err)
{
    size_t n;
    const char *s;
    switch (qr_json_type(content)) {
    case QR_JSON_ABSENT:
    case QR_JSON_NULL: qr_jw_str(w, ""); return QR_OK;
    case QR_JSON_STR:
        s = qr_json_str(content, &n);
        qr_jw_strn(w, s, n);
        return QR_OK;
    case QR_JSON_ARR: {
        struct qr_buf text = {0};
        enum qr_status rc = join_parts(content, i, &text, err);
        if (text.failed) rc = qr_fail(err, QR_ENOMEM, "Out of memory.");
        if (rc == QR_OK) qr_jw_strn(w, text.data ? text.data : "", text.len);
        qr_buf_fini(&text);
        return rc;
    }
    default: return bad(err, i, "has content that is neither a string nor a list of parts.");
    }
}

// Arguments come as JSON text; templates want them as an object.
static enum qr_status write_arguments(qr_json *arguments, size_t i, struct qr_json_writer *w,
                                      struct qr_error *err)
{
    struct qr_json_doc *doc = NULL;
    struct qr_buf text = {0};
    size_t n;
    const char *s = qr_json_str(arguments, &n);
    qr_json *v = arguments;
    if (s && n > 0) {
        enum qr_status rc = qr_json_parse(s, n, QR_JSON_DEPTH_MAX / 2, &doc, NULL);
        if (rc == QR_ENOMEM) return qr_fail(err, rc, "Out of memory.");
        if (rc != QR_OK) return bad(err, i, "has a tool call whose arguments are not JSON.");
        v = qr_json_root(doc);
    }
    if (qr_json_type(v) == QR_JSON_OBJ)
        qr_json_render(v, &text);
    else
        qr_buf_str(&text, "{}");
    enum qr_status rc = text.failed ? qr_fail(err, QR_ENOMEM, "Out of memory.") : QR_OK;
    if (rc == QR_OK && qr_json_type(v) != QR_JSON_OBJ && s && n > 0)
        rc = bad(err, i, "has a tool call whose arguments are not an object.");
    if (rc == QR_OK) qr_jw_raw(w, text.data, text.len);
    qr_buf_fini(&text);
    qr_json_free(&doc);
    return rc;
}

static enum qr_status write_as_is(qr_json *v, struct qr_json_writer *w, struct qr_error *err)
{
    struct qr_buf text = {0};
    qr_json_render(v, &text);
    enum qr_status rc = text.failed ? qr_fail(err, QR_ENOMEM, "Out of memory.") : QR_OK;
    if (rc == QR_OK) qr_jw_raw(w, text.data, text.len);
    qr_buf_fini(&text);
    return rc;
}

static bool is_key(const char *key, size_t bytes, const char *name)
{
    return strlen(name) == bytes && memcmp(key, name, bytes) == 0;
}

// An object, member by member, with `special` replaced by what `write` makes of it.
typedef enum qr_status member_fn(qr_json *v, size_t i, struct qr_json_writer *w, struct qr_error *err);
static enum qr_status copy_object(qr_json *obj, const char *special, member_fn *write, size_t i,
                                  struct qr_json_writer *w, struct qr_error *err)
{
    struct qr_json_iter it = qr_json_iter(obj);
    const char *key;
    size_t bytes;
    enum qr_status rc = QR_OK;
    qr_jw_obj(w);
    for (qr_json *v; rc == QR_OK && (v = qr_json_next(&it, &key, &bytes));) {
        if (memchr(key, 0, bytes)) continue; // a NUL cannot stand in a name that a template asks for
        qr_jw_key(w, key);
        rc = is_key(key, bytes, special) ? write(v, i, w, err) : write_as_is(v, w, err);
    }
    if (rc == QR_OK) qr_jw_obj_end(w);
    return rc;
}

static enum qr_status write_function(qr_json *v, size_t i, struct qr_json_writer *w, struct qr_error *err)
{
    if (qr_json_type(v) != QR_JSON_OBJ) return bad(err, i, "has a tool call without a function object.");
    return copy_object(v, "arguments", write_arguments, i, w, err);
}

static enum qr_status write_tool_calls(qr_json *calls, size_t i, struct qr_json_writer *w,
                                       struct qr_error *err)
{
    if (qr_json_type(calls) != QR_JSON_ARR) return bad(err, i, "has tool calls that are not a list.");
    enum qr_status rc = QR_OK;
    struct qr_json_iter it = qr_json_iter(calls);
    qr_jw_arr(w);
    for (qr_json *v; rc == QR_OK && (v = qr_json_next(&it, NULL, NULL));) {
        if (qr_json_type(v) != QR_JSON_OBJ)
            rc = bad(err, i, "has a tool call that is not an object.");
        else
            rc = copy_object(v, "function", write_function, i, w, err);
    }
    if (rc == QR_OK) qr_jw_arr_end(w);
    return rc;
}

static enum qr_status write_message(qr_json *m, size_t i, struct qr_json_writer *w, struct qr_error *err)
{
    if (qr_json_type(m) != QR_JSON_OBJ) return bad(err, i, "is not an object.");
    const char *role = role_of(qr_json_get(m, "role"));
    if (!role)
        return bad(err, i, "has a role other than system, developer, user, assistant, tool and function.");
    qr_json *content = qr_json_get(m, "content"), *calls = qr_json_get(m, "tool_calls");
    bool none = qr_json_type(content) == QR_JSON_ABSENT || qr_json_type(content) == QR_JSON_NULL;
    if (none && strcmp(role, "assistant") != 0) return bad(err, i, "has no content.");
    qr_jw_obj(w);
    qr_jw_key(w, "role");
    qr_jw_str(w, role);
    qr_jw_key(w, "content");
    enum qr_status rc = write_content(content, i, w, err);
    if (rc == QR_OK && qr_json_len(calls) > 0) {
        qr_jw_key(w, "tool_calls");
        rc = write_tool_calls(calls, i, w, err);
    }
    struct qr_json_iter it = qr_json_iter(m);
    const char *key;
    size_t bytes;
    for (qr_json *v; rc == QR_OK && (v = qr_json_next(&it, &key, &bytes));) {
        if (is_key(key, bytes, "role") || is_key(key, bytes, "content") || is_key(key, bytes, "tool_calls") ||
            memchr(key, 0, bytes))
            continue;
        qr_jw_key(w, key);
        rc = write_as_is(v, w, err);
    }
    if (rc == QR_OK) qr_jw_obj_end(w);
    return rc;
}

enum qr_status chat_messages(qr_json *messages, struct qr_json_writer *w, struct qr_error *err)
{
    if (qr_json_type(messages) != QR_JSON_ARR || qr_json_len(messages) == 0)
        return qr_fail_param(err, QR_EINVAL, "messages",
                             "`messages` must be a list of at least one message.");
    enum qr_status rc = QR_OK;
    struct qr_json_iter it = qr_json_iter(messages);
    size_t i = 0;
    qr_jw_arr(w);
    for (qr_json *m; rc == QR_OK && (m = qr_json_next(&it, NULL, NULL)); i++)
        rc = write_message(m, i, w, err);
    if (rc == QR_OK) qr_jw_arr_end(w);
    return rc;
}

static void token_var(struct qr_json_writer *w, const char *name, const struct qr_tokenizer *t, int32_t id)
{
    struct qr_text_span s = {"", 0};
    if (id >= 0) s = qr_tokenizer_piece(t, id);
    qr_jw_key(w, name);
    qr_jw_strn(w, s.data, s.bytes);
}

enum qr_status chat_vars(struct qr_lib *lib, const struct chat_options *o, struct qr_buf *json,
                         struct qr_error *err)
{
    struct qr_json_writer w;
    qr_jw_init(&w, json);
    qr_jw_obj(&w);
    struct qr_json_iter it = qr_json_iter(o->kwargs);
    const char *key;
    size_t bytes;
    enum qr_status rc = QR_OK;
    for (qr_json *v; rc == QR_OK && (v = qr_json_next(&it, &key, &bytes));) {
        if (memchr(key, 0, bytes)) continue;
        qr_jw_key(&w, key);
        rc = write_as_is(v, &w, err);
    }
    if (rc != QR_OK) return rc;
    qr_jw_key(&w, "messages");
    rc = chat_messages(o->messages, &w, err);
    if (rc != QR_OK) return rc;
    qr_jw_key(&w, "tools");
    qr_jw_null(&w);
    qr_jw_key(&w, "documents");
    qr_jw_null(&w);
    qr_jw_key(&w, "add_generation_prompt");
    qr_jw_bool(&w, o->add_generation_prompt);
    const struct qr_lib_info *info = qr_lib_info(lib);
    token_var(&w, "bos_token", qr_lib_tokenizer(lib), info->bos);
    token_var(&w, "eos_token", qr_lib_tokenizer(lib), info->eos);
    qr_jw_obj_end(&w);
    return json->failed ? qr_fail(err, QR_ENOMEM, "Out of memory.") : QR_OK;
}

static bool blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

// Cuts the rendered text behind the last message's content, as transformers does: the last place where the
// content stands, without blanks around it unless the template kept them at the end.
static enum qr_status cut_after_final(qr_json *messages, struct qr_buf *text, struct qr_error *err)
{
    struct qr_buf json = {0};
    struct qr_json_writer w;
    struct qr_json_doc *doc = NULL;
    qr_jw_init(&w, &json);
    enum qr_status rc = chat_messages(messages, &w, err);
    if (rc == QR_OK && json.failed) rc = qr_fail(err, QR_ENOMEM, "Out of memory.");
    if (rc == QR_OK) rc = qr_json_parse(json.data, json.len, QR_JSON_DEPTH_MAX, &doc, err);
    if (rc == QR_OK) {
        qr_json *root = qr_json_root(doc);
        size_t n, at = 0;
        const char *s = qr_json_str(qr_json_get(qr_json_at(root, qr_json_len(root) - 1), "content"), &n);
        while (n && blank(s[0])) s++, n--;
        size_t trimmed = n;
        while (trimmed && blank(s[trimmed - 1])) trimmed--;
        bool found = trimmed == 0;
        for (size_t i = text->len; trimmed && !found && i-- > 0;)
            if (text->len - i >= trimmed && memcmp(text->data + i, s, trimmed) == 0) found = true, at = i;
        if (!found)
            rc = qr_fail_param(
                err, QR_EINVAL, "continue_final_message",
                "The template does not keep the last message as it is, so it cannot be continued.");
        else if (trimmed)
            text->len = at + (text->len - at >= n && memcmp(text->data + at, s, n) == 0 ? n : trimmed);
    }
    qr_json_free(&doc);
    qr_buf_fini(&json);
    return rc;
}

enum qr_status chat_render(struct qr_lib *lib, const struct chat_options *o, struct qr_buf *out,
                           struct qr_error *err)
{
    const struct qr_template *t = qr_lib_template(lib);
    if (!t)
        return qr_fail_param(err, QR_ENOTSUP, "messages",
                             "This model has no chat template; start the server with --chat-template.");
    struct qr_buf json = {0};
    enum qr_status rc = chat_vars(lib, o, &json, err);
    if (rc == QR_OK) rc = qr_template_render(t, json.data, json.len, out, err);
    if (rc == QR_OK && out->failed) rc = qr_fail(err, QR_ENOMEM, "Out of memory.");
    if (rc == QR_OK && o->continue_final) rc = cut_after_final(o->messages, out, err);
    qr_buf_fini(&json);
    return rc;
}
