/* Which matrices are timed: typical ones, or those of a model's file. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "bench/kernels_internal.h"
#include "fmt/gguf.h"

// A middling layer: too large for a second-level cache in most formats, and 512 rows of it are some milliseconds.
#define TYPICAL_N 1536
#define TYPICAL_K 1536

void kernels_typical_shapes(struct kernels_shapes *out)
{
    *out = (struct kernels_shapes){.n_heads = 32, .n_kv_heads = 8, .d = 128, .width = TYPICAL_K};
    for (int f = 0; f < QR_W_COUNT; f++)
        out->v[out->n++] = (struct kernels_shape){.fmt = (enum qr_wfmt)f, .n = TYPICAL_N, .k = TYPICAL_K, .n_tensors = 1};
}

bool kernels_add_shape(struct kernels_shapes *s, const char *name, size_t name_bytes, enum qr_wfmt fmt, int n, int k)
{
    for (int i = 0; i < s->n; i++) {
        struct kernels_shape *have = &s->v[i];
        if (have->fmt != fmt || have->n != n || have->k != k) continue;
        have->n_tensors++;
        return true;
    }
    if (s->n == KERNELS_SHAPES_MAX) return false;
    // "blk.7.attn_q.weight": attn_q
    size_t from = 0, end = name_bytes;
    if (end > 7 && memcmp(name + end - 7, ".weight", 7) == 0) end -= 7;
    for (size_t i = 0; i < end; i++)
        if (name[i] == '.') from = i + 1;
    struct kernels_shape *new = &s->v[s->n++];
    *new = (struct kernels_shape){.fmt = fmt, .n = n, .k = k, .n_tensors = 1};
    snprintf(new->name, sizeof new->name, "%.*s", (int)(end - from), name + from);
    return true;
}

static uint64_t number(const struct qr_gguf *g, struct qr_gguf_str arch, const char *key, uint64_t otherwise)
{
    char full[128];
    uint64_t v = otherwise;
    snprintf(full, sizeof full, "%.*s.%s", arch.bytes < 64 ? (int)arch.bytes : 64, arch.data, key);
    return qr_gguf_u64(g, full, &v) && v > 0 && v < 1 << 20 ? v : otherwise;
}

static void read_heads(const struct qr_gguf *g, struct kernels_shapes *s)
{
    struct qr_gguf_str arch = {"", 0};
    (void)qr_gguf_str(g, "general.architecture", &arch);
    s->width = (int)number(g, arch, "embedding_length", 1536);
    s->n_heads = (int)number(g, arch, "attention.head_count", 1);
    s->n_kv_heads = (int)number(g, arch, "attention.head_count_kv", (uint64_t)s->n_heads);
    s->d = (int)number(g, arch, "attention.key_length", (uint64_t)(s->width / s->n_heads));
}

static bool is_product(const struct qr_gguf *g, const struct qr_gguf_tensor *t)
{
    static const char embedding[] = "token_embd.weight";
    bool is_embedding = t->name.bytes == sizeof embedding - 1 && memcmp(t->name.data, embedding, t->name.bytes) == 0;
    // Looked up row by row; without a head of its own the model multiplies by it too.
    return t->n_dims == 2 && !(is_embedding && qr_gguf_tensor(g, "output.weight"));
}

static enum qr_status read_tensors(const struct qr_gguf *g, struct kernels_shapes *s, struct qr_error *err)
{
    for (size_t i = 0; i < qr_gguf_n_tensors(g); i++) {
        const struct qr_gguf_tensor *t = qr_gguf_tensor_at(g, i);
        if (!is_product(g, t)) continue;
        if (!t->type)
            return qr_fail(err, QR_ENOTSUP, "tensor %.*s: type %u has no kernels", (int)t->name.bytes, t->name.data, t->type_id);
        if (t->dims[0] > INT_MAX / 64 || t->dims[1] > INT_MAX / 64)
            return qr_fail(err, QR_ENOTSUP, "tensor %.*s is too large to be timed", (int)t->name.bytes, t->name.data);
        if (!kernels_add_shape(s, t->name.data, t->name.bytes, t->type->packed, (int)t->dims[1], (int)t->dims[0]))
            return qr_fail(err, QR_ENOTSUP, "the model has more than %d shapes of matrices", KERNELS_SHAPES_MAX);
    }
    return s->n > 0 ? QR_OK : qr_fail(err, QR_ENOTSUP, "the file has no matrices");
}

enum qr_status kernels_model_shapes(const char *path, struct kernels_shapes *out, struct qr_error *err)
{
    struct qr_gguf *g = NULL;
    enum qr_status st = qr_gguf_open(path, &g, err);
    *out = (struct kernels_shapes){0};
    if (st != QR_OK) return st;
    read_heads(g, out);
    st = read_tensors(g, out, err);
    qr_gguf_free(&g);
    int group = out->n_heads / out->n_kv_heads;
    if (st == QR_OK && (out->d % 16 || out->d < 16 || out->d > 256 || out->n_heads % out->n_kv_heads || group > 16))
        return qr_fail(err, QR_ENOTSUP, "heads of %d values, %d on each KV head: no kernel of attention takes them", out->d, group);
    return st;
}
