#include "sample/counts.h"

#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/mem.h"

struct qr_counts {
    int32_t n, capacity;
    uint32_t mask;
    struct qr_count *list;
    int32_t *slots; // index into list, -1 when free; open addressing, at most half full
};

enum qr_status qr_counts_new(int32_t capacity, struct qr_counts **out)
{
    size_t n_slots = 8;
    while (n_slots < 2 * (size_t)capacity) n_slots *= 2;
    size_t list_bytes = ((size_t)capacity + 1) * sizeof(struct qr_count);
    struct qr_counts *c = qr_malloc(QR_MEM_EXEC, sizeof *c + list_bytes + n_slots * sizeof(int32_t));
    if (!c) return QR_ENOMEM;
    *c = (struct qr_counts){.capacity = capacity, .mask = (uint32_t)(n_slots - 1)};
    c->list = (struct qr_count *)(c + 1);
    c->slots = (int32_t *)((char *)c->list + list_bytes);
    memset(c->slots, 0xff, n_slots * sizeof(int32_t));
    *out = c;
    return QR_OK;
}

void qr_counts_free(struct qr_counts **c)
{
    qr_free(*c);
    *c = NULL;
}

void qr_counts_add(struct qr_counts *c, int32_t id, int32_t generated)
{
    uint32_t at = (uint32_t)qr_mix64((uint64_t)id) & c->mask;
    while (c->slots[at] >= 0 && c->list[c->slots[at]].id != id) at = (at + 1) & c->mask;
    if (c->slots[at] < 0) {
        QR_ASSERT(c->n < c->capacity);
        c->slots[at] = c->n;
        c->list[c->n++] = (struct qr_count){.id = id};
    }
    c->list[c->slots[at]].n_generated += generated;
}

const struct qr_count *qr_counts_list(const struct qr_counts *c, int32_t *n)
{
    *n = c->n;
    return c->list;
}
