#include "sim/names.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

// Where the name is, or would be.
static struct qr_name *find(const struct qr_names *x, uint64_t hash, const char *name)
{
    size_t i = hash & (x->cap - 1);
    while (x->places[i].id >= 0 && (x->places[i].hash != hash || strcmp(x->text.data + x->places[i].at, name) != 0))
        i = (i + 1) & (x->cap - 1);
    return &x->places[i];
}

static bool grow(struct qr_names *x)
{
    struct qr_names wider = *x;
    wider.cap = x->cap ? 2 * x->cap : 64;
    wider.places = qr_malloc(QR_MEM_MISC, wider.cap * sizeof *wider.places);
    if (!wider.places) return false;
    for (size_t i = 0; i < wider.cap; i++) wider.places[i] = (struct qr_name){.id = -1};
    for (size_t i = 0; i < x->cap; i++)
        if (x->places[i].id >= 0) *find(&wider, x->places[i].hash, x->text.data + x->places[i].at) = x->places[i];
    qr_free(x->places);
    *x = wider;
    return true;
}

int64_t qr_names_put(struct qr_names *x, const char *name, bool *is_new)
{
    uint64_t hash = qr_hash_bytes(0, name, strlen(name));
    if (2 * x->n >= x->cap && !grow(x)) return -1;
    struct qr_name *place = find(x, hash, name);
    *is_new = place->id < 0;
    if (!*is_new) return place->id;
    *place = (struct qr_name){hash, x->text.len, (int64_t)x->n};
    qr_buf_add(&x->text, name, strlen(name) + 1);
    if (x->text.failed) return -1;
    return (int64_t)x->n++;
}

void qr_names_fini(struct qr_names *x)
{
    qr_free(x->places);
    qr_buf_fini(&x->text);
    *x = (struct qr_names){0};
}
