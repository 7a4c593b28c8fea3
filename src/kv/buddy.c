#include "kv/buddy.h"

#include "base/assert.h"
#include "base/mem.h"

#define INSIDE (-1) // of a longer run, or handed out: no head of a free run

struct run { // meaningful at the head of a free run
    uint32_t prev, next;
};

struct qr_buddy {
    uint32_t n_blocks, n_free;
    uint32_t heads[QR_BUDDY_ORDERS];  // of the lists of free runs
    uint32_t counts[QR_BUDDY_ORDERS]; // their lengths
    struct run *runs;                 // (n_blocks)
    int8_t *orders;                   // (n_blocks) of the free run that begins here, or INSIDE
};

static void push(struct qr_buddy *b, uint32_t start, int order)
{
    b->runs[start] = (struct run){.prev = QR_BUDDY_NONE, .next = b->heads[order]};
    if (b->heads[order] != QR_BUDDY_NONE) b->runs[b->heads[order]].prev = start;
    b->heads[order] = start;
    b->orders[start] = (int8_t)order;
    b->counts[order]++;
    b->n_free += 1u << order;
}

static void unlink_run(struct qr_buddy *b, uint32_t start, int order)
{
    const struct run *r = &b->runs[start];
    if (r->next != QR_BUDDY_NONE) b->runs[r->next].prev = r->prev;
    *(r->prev != QR_BUDDY_NONE ? &b->runs[r->prev].next : &b->heads[order]) = r->next;
    b->orders[start] = INSIDE;
    b->counts[order]--;
    b->n_free -= 1u << order;
}

enum qr_status qr_buddy_new(uint32_t n_blocks, struct qr_buddy **out)
{
    QR_ASSERT(n_blocks >= 1 && n_blocks < 1u << (QR_BUDDY_ORDERS - 1));
    struct qr_buddy *b = qr_calloc(QR_MEM_SCHED, 1, sizeof *b);
    if (!b) return QR_ENOMEM;
    b->n_blocks = n_blocks;
    b->runs = qr_malloc(QR_MEM_SCHED, n_blocks * sizeof *b->runs);
    b->orders = qr_malloc(QR_MEM_SCHED, n_blocks * sizeof *b->orders);
    if (!b->runs || !b->orders) {
        qr_buddy_free(&b);
        return QR_ENOMEM;
    }
    for (int k = 0; k < QR_BUDDY_ORDERS; k++) b->heads[k] = QR_BUDDY_NONE;
    for (uint32_t i = 0; i < n_blocks; i++) b->orders[i] = INSIDE;
    uint32_t at = 0;
    for (int k = QR_BUDDY_ORDERS - 2; k >= 0; k--)
        if (n_blocks >> k & 1) {
            push(b, at, k);
            at += 1u << k;
        }
    *out = b;
    return QR_OK;
}

void qr_buddy_free(struct qr_buddy **buddy)
{
    if (!*buddy) return;
    qr_free((*buddy)->runs);
    qr_free((*buddy)->orders);
    qr_free(*buddy);
    *buddy = NULL;
}

int qr_buddy_order(uint32_t n_blocks)
{
    QR_ASSERT(n_blocks >= 1 && n_blocks <= 1u << (QR_BUDDY_ORDERS - 1));
    int k = 0;
    while (1u << k < n_blocks) k++;
    return k;
}

uint32_t qr_buddy_take(struct qr_buddy *b, int order)
{
    QR_ASSERT(order >= 0 && order < QR_BUDDY_ORDERS);
    int k = order;
    while (k < QR_BUDDY_ORDERS && b->heads[k] == QR_BUDDY_NONE) k++;
    if (k == QR_BUDDY_ORDERS) return QR_BUDDY_NONE;
    uint32_t start = b->heads[k];
    unlink_run(b, start, k);
    while (k-- > order) push(b, start + (1u << k), k);
    return start;
}

void qr_buddy_give(struct qr_buddy *b, uint32_t start, int order)
{
    QR_ASSERT(order >= 0 && order < QR_BUDDY_ORDERS && start % (1u << order) == 0);
    QR_ASSERT(start < b->n_blocks && (1u << order) <= b->n_blocks - start && b->orders[start] == INSIDE);
    for (; order < QR_BUDDY_ORDERS - 1; order++) {
        uint32_t other = start ^ 1u << order;
        // A buddy beyond the pool's end has no record.
        if (other >= b->n_blocks || b->orders[other] != order) break;
        unlink_run(b, other, order);
        if (other < start) start = other;
    }
    push(b, start, order);
}

uint32_t qr_buddy_room(const struct qr_buddy *b, int order)
{
    uint32_t n = 0;
    for (int k = order; k < QR_BUDDY_ORDERS; k++) n += b->counts[k] << (k - order);
    return n;
}

uint32_t qr_buddy_n_free(const struct qr_buddy *b)
{
    return b->n_free;
}

void qr_buddy_check(const struct qr_buddy *b)
{
    uint32_t n_free = 0, end = 0;
    for (uint32_t i = 0; i < b->n_blocks; i++) {
        int k = b->orders[i];
        if (k == INSIDE) continue;
        QR_ASSERT(i >= end && i % (1u << k) == 0 && (1u << k) <= b->n_blocks - i);
        end = i + (1u << k);
        n_free += 1u << k;
        uint32_t other = i ^ 1u << k;
        QR_ASSERT(other >= b->n_blocks || b->orders[other] != k);
    }
    QR_ASSERT(n_free == b->n_free);
    for (int k = 0; k < QR_BUDDY_ORDERS; k++) {
        uint32_t n = 0, prev = QR_BUDDY_NONE;
        for (uint32_t i = b->heads[k]; i != QR_BUDDY_NONE; prev = i, i = b->runs[i].next) {
            QR_ASSERT(b->orders[i] == k && b->runs[i].prev == prev && n < b->counts[k]);
            n++;
        }
        QR_ASSERT(n == b->counts[k]);
    }
}
