#include "base/ring.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/mem.h"

struct cell {
    _Atomic size_t seq; // == position: free for the producer; == position + 1: full for the consumer
    unsigned char record[];
};

struct qr_ring {
    size_t mask, record_bytes, cell_bytes;
    int fd;
    atomic_bool sleeping; // the consumer waits, or is about to
    unsigned char *cells;
    char apart0[64];     // producers and the consumer do not share a cache line
    _Atomic size_t head; // next to push
    char apart1[64];
    _Atomic size_t tail; // next to pop
    char apart2[64];
};

static struct cell *cell_at(const struct qr_ring *r, size_t pos)
{
    return (struct cell *)(r->cells + (pos & r->mask) * r->cell_bytes);
}

enum qr_status qr_ring_new(size_t capacity, size_t record_bytes, struct qr_ring **out)
{
    size_t n = 2;
    while (n < capacity) n *= 2;
    struct qr_ring *r = qr_calloc(QR_MEM_MISC, 1, sizeof *r);
    if (!r) return QR_ENOMEM;
    r->mask = n - 1;
    r->record_bytes = record_bytes;
    r->cell_bytes = (sizeof(struct cell) + record_bytes + 15) & ~(size_t)15;
    r->cells = qr_calloc(QR_MEM_MISC, n, r->cell_bytes);
    r->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!r->cells || r->fd < 0) {
        qr_ring_free(&r);
        return QR_ENOMEM;
    }
    for (size_t i = 0; i < n; i++) atomic_init(&cell_at(r, i)->seq, i);
    *out = r;
    return QR_OK;
}

void qr_ring_free(struct qr_ring **ring)
{
    struct qr_ring *r = *ring;
    if (!r) return;
    if (r->fd >= 0) close(r->fd);
    qr_free(r->cells);
    qr_free(r);
    *ring = NULL;
}

bool qr_ring_push(struct qr_ring *r, const void *record)
{
    size_t pos = atomic_load_explicit(&r->head, memory_order_relaxed);
    for (;;) {
        struct cell *c = cell_at(r, pos);
        size_t seq = atomic_load_explicit(&c->seq, memory_order_acquire);
        intptr_t diff = (intptr_t)(seq - pos);
        if (diff < 0) return false;
        if (diff > 0) {
            pos = atomic_load_explicit(&r->head, memory_order_relaxed);
        } else if (atomic_compare_exchange_weak_explicit(&r->head, &pos, pos + 1, memory_order_relaxed,
                                                         memory_order_relaxed)) {
            memcpy(c->record, record, r->record_bytes);
            atomic_store_explicit(&c->seq, pos + 1, memory_order_release);
            return true;
        }
    }
}

bool qr_ring_pop(struct qr_ring *r, void *record)
{
    size_t pos = atomic_load_explicit(&r->tail, memory_order_relaxed);
    struct cell *c = cell_at(r, pos);
    if (atomic_load_explicit(&c->seq, memory_order_acquire) != pos + 1) return false;
    memcpy(record, c->record, r->record_bytes);
    atomic_store_explicit(&c->seq, pos + r->mask + 1, memory_order_release);
    atomic_store_explicit(&r->tail, pos + 1, memory_order_relaxed);
    return true;
}

void qr_ring_wake(struct qr_ring *r)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (!atomic_load(&r->sleeping)) return;
    uint64_t one = 1;
    ssize_t put = write(r->fd, &one, sizeof one);
    (void)put; // a full counter already wakes
}

static bool has_record(struct qr_ring *r)
{
    size_t pos = atomic_load_explicit(&r->tail, memory_order_relaxed);
    return atomic_load_explicit(&cell_at(r, pos)->seq, memory_order_acquire) == pos + 1;
}

void qr_ring_wait(struct qr_ring *r, int timeout_ms)
{
    atomic_store(&r->sleeping, true);
    atomic_thread_fence(memory_order_seq_cst);
    if (!has_record(r)) {
        struct pollfd p = {.fd = r->fd, .events = POLLIN};
        poll(&p, 1, timeout_ms);
    }
    atomic_store(&r->sleeping, false);
    uint64_t drained;
    ssize_t got = read(r->fd, &drained, sizeof drained);
    (void)got;
}

size_t qr_ring_len(const struct qr_ring *r)
{
    size_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
    size_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
    return head - tail;
}
