#include "model/weights.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define LINE 64
#define PACK_PANELS 8 // a task: some tens of kilobytes of file

struct weights_item {
    const struct qr_gguf_tensor *t;
    struct qr_wmat *w; // a matrix, or
    float **vec;       // a vector
    size_t at;         // in the arena
};

enum qr_status weights_init(struct weights *w, const struct qr_gguf *g, struct qr_error *err)
{
    size_t n = qr_gguf_n_tensors(g);
    *w = (struct weights){.g = g, .err = err, .n_items_max = n};
    w->items = qr_calloc(QR_MEM_MODEL, n ? n : 1, sizeof *w->items);
    w->used = qr_calloc(QR_MEM_MODEL, n ? n : 1, sizeof *w->used);
    if (w->items && w->used) return QR_OK;
    weights_fini(w);
    return qr_fail(err, QR_ENOMEM, "model: no memory for the list of %zu tensors", n);
}

void weights_fini(struct weights *w)
{
    qr_free(w->items);
    qr_free(w->used);
    w->items = NULL;
    w->used = NULL;
}

// Finds a tensor of the given shape (outputs 1: a vector) and marks it as used. *out stays NULL for an absent
// optional one.
static enum qr_status find(struct weights *w, const char *name, int n, int k, enum weights_need need,
                           const struct qr_gguf_tensor **out)
{
    const struct qr_gguf_tensor *t = qr_gguf_tensor(w->g, name);
    *out = NULL;
    if (!t && need == WEIGHTS_OPTIONAL) return QR_OK;
    if (!t) return qr_fail(w->err, QR_EFORMAT, "model: tensor %s is missing", name);
    if (!t->type)
        return qr_fail(w->err, QR_ENOTSUP, "model: tensor %s: type %u is not supported", name, t->type_id);
    if (t->dims[0] != (uint64_t)k || t->dims[1] != (uint64_t)n || t->dims[2] != 1 || t->dims[3] != 1) {
        return qr_fail(w->err, QR_EFORMAT, "model: tensor %s: expected shape (%d, %d), got (%llu, %llu)%s",
                       name, n, k, (unsigned long long)t->dims[1], (unsigned long long)t->dims[0],
                       t->dims[2] * t->dims[3] == 1 ? "" : " and more dimensions");
    }
    w->used[t - qr_gguf_tensor_at(w->g, 0)] = true;
    *out = t;
    return QR_OK;
}

// A tensor can be asked for once, so the list has room.
static void take(struct weights *w, struct weights_item item, size_t bytes)
{
    item.at = w->arena_bytes;
    w->items[w->n_items++] = item;
    w->arena_bytes += (bytes + LINE - 1) / LINE * LINE;
    w->n_params += item.t->dims[0] * item.t->dims[1];
}

enum qr_status weights_vector(struct weights *w, float **out, const char *name, int n, enum weights_need need)
{
    const struct qr_gguf_tensor *t;
    enum qr_status st = find(w, name, 1, n, need, &t);
    *out = NULL;
    if (st || !t) return st;
    take(w, (struct weights_item){.t = t, .vec = out}, (size_t)n * sizeof(float));
    return QR_OK;
}

enum qr_status weights_linear(struct weights *w, struct model_linear *out, const char *prefix, int n, int k,
                              enum weights_need bias)
{
    char name[128];
    const struct qr_gguf_tensor *t;
    snprintf(name, sizeof name, "%s.weight", prefix);
    enum qr_status st = find(w, name, n, k, WEIGHTS_REQUIRED, &t);
    if (st) return st;
    qr_wmat_init(&out->w, t->type->packed, n, k);
    take(w, (struct weights_item){.t = t, .w = &out->w}, qr_wmat_bytes(&out->w));
    snprintf(name, sizeof name, "%s.bias", prefix);
    return weights_vector(w, &out->bias, name, n, bias);
}

enum qr_status weights_no_others(const struct weights *w, const char *arch)
{
    for (size_t i = 0; i < qr_gguf_n_tensors(w->g); i++) {
        const struct qr_gguf_tensor *t = qr_gguf_tensor_at(w->g, i);
        if (w->used[i]) continue;
        return qr_fail(w->err, QR_ENOTSUP, "model: tensor %.*s is not part of a %s model that quire knows",
                       (int)t->name.bytes, t->name.data, arch);
    }
    return QR_OK;
}

static void pack_task(void *arg, int i_task, int i_worker)
{
    const struct weights_item *item = arg;
    const struct qr_wmat *w = item->w;
    size_t row_bytes = (size_t)w->k / (size_t)item->t->type->block_elems * (size_t)item->t->type->block_bytes;
    int end = (i_task + 1) * PACK_PANELS < w->n_panels ? (i_task + 1) * PACK_PANELS : w->n_panels;
    for (int p = i_task * PACK_PANELS; p < end; p++) {
        const void *rows[QR_PANEL];
        for (int r = 0; r < QR_PANEL; r++) {
            int row = p * QR_PANEL + r;
            rows[r] = row < w->n ? item->t->data + (size_t)row * row_bytes : NULL;
        }
        qr_pack_panel(w, p, item->t->type->id, rows);
    }
}

enum qr_status weights_pack(struct weights *w, struct qr_model *m, const struct qr_model_conf *conf)
{
    uint64_t done = 0, total = 0;
    for (size_t i = 0; i < w->n_items; i++) total += w->items[i].t->bytes;
    m->arena = qr_pages_alloc(QR_MEM_MODEL, w->arena_bytes);
    if (!m->arena)
        return qr_fail(w->err, QR_ENOMEM, "model: no memory for %zu bytes of weights", w->arena_bytes);
    m->arena_bytes = w->arena_bytes;
    for (size_t i = 0; i < w->n_items; i++) {
        struct weights_item *item = &w->items[i];
        if (item->w) {
            item->w->data = m->arena + item->at;
            int n_tasks = (item->w->n_panels + PACK_PANELS - 1) / PACK_PANELS;
            qr_workers_run(conf->workers, n_tasks, pack_task, item);
        } else {
            *item->vec = (float *)(m->arena + item->at);
            item->t->type->unpack(item->t->data, *item->vec, (size_t)item->t->dims[0]);
        }
        qr_gguf_drop(w->g, item->t);
        done += item->t->bytes;
        if (conf->progress) conf->progress(conf->progress_arg, done, total);
    }
    return QR_OK;
}
