/* The waiting queue, and the order in which requests are served.
 *
 * Owns: the links of waiting requests. Refuses to know: blocks, budgets.
 * Threads: the engine thread. Lifetime: {0} is an empty queue; it owns no request.
 *
 * One rule orders everything (admission, prompt chunks, who loses its blocks last): lower priority value
 * first, then earlier arrival. A preempted request keeps its arrival, so it goes back before all that came
 * after it. */
#ifndef QR_SCHED_QUEUE_H
#define QR_SCHED_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "sched/request.h"

struct qr_queue {
    struct qr_sched_req *head, *tail;
    int32_t n;
};

// Whether a is served before b.
bool qr_sched_before(const struct qr_sched_req *a, const struct qr_sched_req *b);

// Puts r in its place: at once at either end, else by a walk from the tail.
void qr_queue_insert(struct qr_queue *q, struct qr_sched_req *r);
void qr_queue_remove(struct qr_queue *q, struct qr_sched_req *r);
void qr_queue_check(const struct qr_queue *q); // links, order, states; aborts

#endif
