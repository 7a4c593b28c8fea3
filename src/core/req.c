#include "core/req.h"

#include <string.h>

#include "base/mem.h"

// Copies an array to base + *at and moves *at past it, 8-byte aligned. With base NULL it only measures.
static void *put(char *base, size_t *at, const void *src, size_t bytes)
{
    char *p = base && bytes ? base + *at : NULL;
    if (p) memcpy(p, src, bytes);
    *at += (bytes + 7) & ~(size_t)7;
    return p;
}

static size_t bad_ids_count(const struct qr_sampling *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_bad; i++) n += (size_t)s->bad_lens[i];
    return n;
}

// The size of the copy; with dst, also fills it (dst is the start of that many bytes).
static size_t lay_out(const struct qr_req *src, struct qr_req *dst)
{
    struct qr_req r = *src;
    const struct qr_sampling *s = &src->sampling;
    char *base = (char *)dst;
    size_t at = 0;
    put(NULL, &at, NULL, sizeof r);
    r.prompt = put(base, &at, src->prompt, (size_t)src->n_prompt * sizeof *src->prompt);
    r.sampling.eos = put(base, &at, s->eos, s->n_eos * sizeof *s->eos);
    r.sampling.stop_ids = put(base, &at, s->stop_ids, s->n_stop_ids * sizeof *s->stop_ids);
    r.sampling.bias = put(base, &at, s->bias, s->n_bias * sizeof *s->bias);
    r.sampling.allowed = put(base, &at, s->allowed, s->n_allowed * sizeof *s->allowed);
    r.sampling.bad_ids = put(base, &at, s->bad_ids, bad_ids_count(s) * sizeof *s->bad_ids);
    r.sampling.bad_lens = put(base, &at, s->bad_lens, s->n_bad * sizeof *s->bad_lens);
    if (dst) *dst = r;
    return at;
}

enum qr_status qr_req_copy(const struct qr_req *src, struct qr_req **out)
{
    struct qr_req *r = qr_malloc(QR_MEM_REQ, lay_out(src, NULL));
    if (!r) return QR_ENOMEM;
    lay_out(src, r);
    *out = r;
    return QR_OK;
}

const char *qr_finish_name(enum qr_finish f)
{
    switch (f) {
    case QR_FINISH_NONE: return NULL;
    case QR_FINISH_STOP: return "stop";
    case QR_FINISH_LENGTH: return "length";
    case QR_FINISH_ABORT: return "abort";
    case QR_FINISH_ERROR: return "error";
    }
    return NULL;
}
