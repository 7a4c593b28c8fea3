#include "sched/queue.h"

#include "base/assert.h"

bool qr_sched_before(const struct qr_sched_req *a, const struct qr_sched_req *b)
{
    if (a->req->priority != b->req->priority) return a->req->priority < b->req->priority;
    return a->order < b->order;
}

void qr_queue_insert(struct qr_queue *q, struct qr_sched_req *r)
{
    struct qr_sched_req *prev = q->tail;
    if (q->head && qr_sched_before(r, q->head)) prev = NULL;
    while (prev && qr_sched_before(r, prev)) prev = prev->prev;
    r->prev = prev;
    r->next = prev ? prev->next : q->head;
    *(r->next ? &r->next->prev : &q->tail) = r;
    *(prev ? &prev->next : &q->head) = r;
    q->n++;
}

void qr_queue_remove(struct qr_queue *q, struct qr_sched_req *r)
{
    QR_ASSERT(q->n > 0);
    *(r->prev ? &r->prev->next : &q->head) = r->next;
    *(r->next ? &r->next->prev : &q->tail) = r->prev;
    r->prev = r->next = NULL;
    q->n--;
}

void qr_queue_check(const struct qr_queue *q)
{
    int32_t n = 0;
    const struct qr_sched_req *prev = NULL;
    for (const struct qr_sched_req *r = q->head; r; prev = r, r = r->next) {
        QR_ASSERT(++n <= q->n && r->prev == prev && r->state == QR_SCHED_WAITING);
        QR_ASSERT(!prev || qr_sched_before(prev, r));
    }
    QR_ASSERT(n == q->n && q->tail == prev);
}
