#include "text/text.h"

#include <malloc.h>
#include <string.h>

#include "base/mem.h"
#include "text/rs_internal.h"
#include "text/tokenizer_internal.h"

struct text_rs_message text_message(struct qr_error *err)
{
    if (!err) return (struct text_rs_message){NULL, 0};
    *err = (struct qr_error){0};
    return (struct text_rs_message){err->msg, sizeof err->msg};
}

enum qr_status text_failed(struct qr_error *err, int code)
{
    if (err) err->code = (enum qr_status)code;
    return (enum qr_status)code;
}

// Building a vocabulary makes and drops many small objects; what they leave in the heap goes back to the
// system.
static enum qr_status finish(int code, struct text_rs_tok *rs, struct qr_tokenizer **out,
                             struct qr_error *err)
{
    if (code) return text_failed(err, code);
    struct qr_tokenizer *t = qr_malloc(QR_MEM_MODEL, sizeof *t);
    if (!t) {
        text_rs_tokenizer_free(rs);
        return qr_fail(err, QR_ENOMEM, "tokenizer: no memory");
    }
    t->rs = rs;
    text_rs_view(rs, &t->view);
    malloc_trim(0);
    *out = t;
    return QR_OK;
}

enum qr_status qr_tokenizer_from_vocab(const struct qr_vocab *v, struct qr_tokenizer **out,
                                       struct qr_error *err)
{
    struct text_rs_tok *rs = NULL;
    int code = text_rs_from_vocab(v, &rs, text_message(err));
    return finish(code, rs, out, err);
}

enum qr_status qr_tokenizer_from_json(const char *json, size_t bytes, struct qr_tokenizer **out,
                                      struct qr_error *err)
{
    struct text_rs_tok *rs = NULL;
    int code = text_rs_from_json(json, bytes, &rs, text_message(err));
    return finish(code, rs, out, err);
}

void qr_tokenizer_free(struct qr_tokenizer **t)
{
    if (!*t) return;
    text_rs_tokenizer_free((*t)->rs);
    qr_free(*t);
    *t = NULL;
}

struct ids {
    int32_t *data;
    size_t n;
};

static int take_ids(void *ctx, const void *data, size_t n)
{
    struct ids *ids = ctx;
    ids->data = qr_malloc(QR_MEM_REQ, n ? n * sizeof *ids->data : 1);
    if (!ids->data) return QR_ENOMEM;
    if (n) memcpy(ids->data, data, n * sizeof *ids->data);
    ids->n = n;
    return 0;
}

enum qr_status qr_tokenizer_encode(const struct qr_tokenizer *t, const char *text, size_t bytes,
                                   unsigned flags, int32_t **ids, size_t *n, struct qr_error *err)
{
    struct ids got = {0};
    int code = text_rs_encode(t->rs, text, bytes, flags, take_ids, &got, text_message(err));
    if (code) return text_failed(err, code);
    *ids = got.data;
    *n = got.n;
    return QR_OK;
}

enum qr_status qr_tokenizer_decode(const struct qr_tokenizer *t, const int32_t *ids, size_t n,
                                   bool skip_special, struct qr_buf *out, struct qr_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || (size_t)ids[i] >= t->view.n)
            return qr_fail(err, QR_EINVAL, "token %zu: expected an id from 0 to %zu, got %d", i,
                           t->view.n - 1, ids[i]);
    struct qr_detok d;
    qr_detok_init(&d, t, skip_special, true);
    for (size_t i = 0; i < n; i++) qr_detok_push(&d, ids[i], out);
    qr_detok_flush(&d, out);
    return out->failed ? qr_fail(err, QR_ENOMEM, "decoding %zu tokens: no memory", n) : QR_OK;
}

int32_t qr_tokenizer_size(const struct qr_tokenizer *t)
{
    return (int32_t)t->view.n;
}

static bool has(const struct qr_tokenizer *t, int32_t id)
{
    return id >= 0 && (size_t)id < t->view.n;
}

struct qr_text_span qr_tokenizer_bytes(const struct qr_tokenizer *t, int32_t id)
{
    if (!has(t, id)) return (struct qr_text_span){"", 0};
    const uint32_t *o = t->view.byte_offs + id;
    return (struct qr_text_span){t->view.bytes + o[0], o[1] - o[0]};
}

struct qr_text_span qr_tokenizer_piece(const struct qr_tokenizer *t, int32_t id)
{
    if (!has(t, id)) return (struct qr_text_span){"", 0};
    const uint32_t *o = t->view.piece_offs + id;
    return (struct qr_text_span){t->view.pieces + o[0], o[1] - o[0]};
}

int32_t qr_tokenizer_find(const struct qr_tokenizer *t, const char *piece)
{
    return text_rs_find(t->rs, piece, strlen(piece));
}

bool qr_tokenizer_is_special(const struct qr_tokenizer *t, int32_t id)
{
    return has(t, id) && (t->view.flags[id] & TEXT_RS_SPECIAL);
}
