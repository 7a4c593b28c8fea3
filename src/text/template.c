#include "text/text.h"

#include <time.h>

#include "base/mem.h"
#include "text/rs_internal.h"
#include "text/tokenizer_internal.h"

struct qr_template {
    struct text_rs_template *rs;
};

enum qr_status qr_template_new(const char *source, size_t bytes, struct qr_template **out,
                               struct qr_error *err)
{
    struct text_rs_template *rs = NULL;
    int code = text_rs_template_new(source, bytes, &rs, text_message(err));
    if (code) return text_failed(err, code);
    struct qr_template *t = qr_malloc(QR_MEM_MODEL, sizeof *t);
    if (!t) {
        text_rs_template_free(rs);
        return qr_fail(err, QR_ENOMEM, "chat template: no memory");
    }
    t->rs = rs;
    *out = t;
    return QR_OK;
}

void qr_template_free(struct qr_template **t)
{
    if (!*t) return;
    text_rs_template_free((*t)->rs);
    qr_free(*t);
    *t = NULL;
}

static int take_text(void *ctx, const void *data, size_t n)
{
    struct qr_buf *out = ctx;
    qr_buf_add(out, data, n);
    return out->failed ? QR_ENOMEM : 0;
}

enum qr_status text_template_render_at(const struct qr_template *t, const char *vars_json, size_t bytes,
                                       int64_t now, struct qr_buf *out, struct qr_error *err)
{
    int code = text_rs_template_render(t->rs, vars_json, bytes, now, take_text, out, text_message(err));
    return code ? text_failed(err, code) : QR_OK;
}

enum qr_status qr_template_render(const struct qr_template *t, const char *vars_json, size_t bytes,
                                  struct qr_buf *out, struct qr_error *err)
{
    return text_template_render_at(t, vars_json, bytes, time(NULL), out, err);
}
