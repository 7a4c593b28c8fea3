/* Look-ups in an open GGUF file: by name, and of values as C numbers. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "fmt/gguf.h"
#include "fmt/gguf_internal.h"

int qr_gguf_version(const struct qr_gguf *g)
{
    return (int)g->version;
}

uint64_t qr_gguf_file_bytes(const struct qr_gguf *g)
{
    return g->bytes;
}

size_t qr_gguf_n_kvs(const struct qr_gguf *g)
{
    return g->n_kvs;
}

const struct qr_gguf_kv *qr_gguf_kv_at(const struct qr_gguf *g, size_t i)
{
    QR_ASSERT(i < g->n_kvs);
    return &g->kvs[i];
}

size_t qr_gguf_n_tensors(const struct qr_gguf *g)
{
    return g->n_tensors;
}

const struct qr_gguf_tensor *qr_gguf_tensor_at(const struct qr_gguf *g, size_t i)
{
    QR_ASSERT(i < g->n_tensors);
    return &g->tensors[i];
}

// Names are the first member of what they name.
static const void *find(const struct qr_gguf_str **names, size_t n, const char *name)
{
    struct qr_gguf_str want = {name, strlen(name)};
    const struct qr_gguf_str *key = &want;
    const struct qr_gguf_str **hit = n ? bsearch(&key, names, n, sizeof *names, gguf_name_cmp) : NULL;
    return hit ? *hit : NULL;
}

const struct qr_gguf_kv *qr_gguf_find(const struct qr_gguf *g, const char *key)
{
    return find(g->kv_names, g->n_kvs, key);
}

const struct qr_gguf_tensor *qr_gguf_tensor(const struct qr_gguf *g, const char *name)
{
    return find(g->tensor_names, g->n_tensors, name);
}

// Element i of a scalar or array as an integer. False for other types and for u64 values above INT64_MAX.
static bool int_at(const struct qr_gguf_kv *kv, uint64_t i, int64_t *out)
{
    union {
        int8_t i8;
        uint8_t u8;
        int16_t i16;
        uint16_t u16;
        int32_t i32;
        uint32_t u32;
        int64_t i64;
        uint64_t u64;
    } v;
    size_t each = gguf_scalar_bytes(kv->elem);
    if (each == 0) return false;
    memcpy(&v, kv->data + i * each, each);
    switch (kv->elem) {
    case QR_GGUF_U8: *out = v.u8; return true;
    case QR_GGUF_I8: *out = v.i8; return true;
    case QR_GGUF_U16: *out = v.u16; return true;
    case QR_GGUF_I16: *out = v.i16; return true;
    case QR_GGUF_U32: *out = v.u32; return true;
    case QR_GGUF_I32: *out = v.i32; return true;
    case QR_GGUF_BOOL: *out = v.u8; return true;
    case QR_GGUF_I64: *out = v.i64; return true;
    case QR_GGUF_U64: *out = (int64_t)v.u64; return v.u64 <= INT64_MAX;
    default: return false;
    }
}

static bool real_at(const struct qr_gguf_kv *kv, uint64_t i, double *out)
{
    float f;
    int64_t n;
    uint64_t u;
    switch (kv->elem) {
    case QR_GGUF_F32:
        memcpy(&f, kv->data + i * 4, 4);
        *out = f;
        return true;
    case QR_GGUF_F64: memcpy(out, kv->data + i * 8, 8); return true;
    case QR_GGUF_U64:
        memcpy(&u, kv->data + i * 8, 8);
        *out = (double)u;
        return true;
    default:
        if (!int_at(kv, i, &n)) return false;
        *out = (double)n;
        return true;
    }
}

static const struct qr_gguf_kv *scalar(const struct qr_gguf *g, const char *key)
{
    const struct qr_gguf_kv *kv = qr_gguf_find(g, key);
    return kv && kv->type != QR_GGUF_ARR ? kv : NULL;
}

bool qr_gguf_u64(const struct qr_gguf *g, const char *key, uint64_t *out)
{
    const struct qr_gguf_kv *kv = scalar(g, key);
    int64_t v;
    if (!kv || kv->type == QR_GGUF_BOOL) return false;
    if (kv->type == QR_GGUF_U64) {
        memcpy(out, kv->data, 8);
        return true;
    }
    if (!int_at(kv, 0, &v) || v < 0) return false;
    *out = (uint64_t)v;
    return true;
}

bool qr_gguf_f64(const struct qr_gguf *g, const char *key, double *out)
{
    const struct qr_gguf_kv *kv = scalar(g, key);
    return kv && kv->type != QR_GGUF_BOOL && real_at(kv, 0, out);
}

bool qr_gguf_bool(const struct qr_gguf *g, const char *key, bool *out)
{
    const struct qr_gguf_kv *kv = scalar(g, key);
    if (!kv || kv->type != QR_GGUF_BOOL) return false;
    *out = kv->data[0] != 0;
    return true;
}

bool qr_gguf_str(const struct qr_gguf *g, const char *key, struct qr_gguf_str *out)
{
    const struct qr_gguf_kv *kv = scalar(g, key);
    if (!kv || kv->type != QR_GGUF_STR) return false;
    *out = kv->strs[0];
    return true;
}

double qr_gguf_arr_f64(const struct qr_gguf_kv *kv, uint64_t i)
{
    double v = 0;
    QR_ASSERT(i < kv->n);
    QR_ASSERT(real_at(kv, i, &v));
    return v;
}

int64_t qr_gguf_arr_i64(const struct qr_gguf_kv *kv, uint64_t i)
{
    int64_t v = 0;
    double f = 0;
    QR_ASSERT(i < kv->n);
    if (int_at(kv, i, &v)) return v;
    QR_ASSERT(real_at(kv, i, &f));
    return f > -0x1p62 && f < 0x1p62 ? (int64_t)f : 0; // NaN and what no index or count can be
}
