/* The waiting queue, and the one order in which requests are served.
 *
 * Owns: the links of waiting requests, what each key was served, how often its oldest request was passed over.
 * Refuses to know: blocks, budgets, what makes a class (sched/policy.h).
 * Threads: the engine thread. Lifetime: qr_queue_init; it owns no request.
 *
 * Requests of one key stand in a lane, in the order in which they will be served:
 *
 *   lane 3: [aged] [preempted ...] [waiting, by class, rank, arrival ...]
 *   lane 7: [preempted ...] [waiting ...]
 *
 * `head` is the request that is admitted next: the first of the lanes' first ones, by class, then by what
 * their lanes were served. Other policies than by_key have one lane.
 *
 * Ageing (S4). A step passes a lane over when it admits a request that came later than the lane's oldest one.
 * After `starve_steps` such steps that oldest request goes before all that are not aged themselves, and keeps
 * that place also while it runs. So each lane moves on, and in a lane each request once is the oldest.
 *
 * Sharing. A lane's `served` grows with the tokens computed for its requests: prompt tokens when one is
 * admitted (but for those that the prefix cache has), generated ones as they come; what is recomputed after a
 * preemption is not charged. A lane in which somebody waits again begins at the least of those in which
 * somebody waits, so that nobody saves up. (This is the virtual token counter of Sheng et al., OSDI 2024.) */
#ifndef QR_SCHED_QUEUE_H
#define QR_SCHED_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "sched/policy.h"
#include "sched/request.h"

// Lanes: keys that fall into one share as if they were one. The API numbers its keys from 1.
#define QR_LANES 256

struct qr_lane {
    struct qr_sched_req *head, *tail;     // in the order in which they are served
    struct qr_sched_req *oldest, *newest; // the same ones, by arrival
    uint64_t served;                      // tokens
};

struct qr_queue {
    const struct qr_policy *policy;
    int32_t starve_steps;
    struct qr_sched_req *head; // admitted next; NULL: nobody waits
    int32_t n, n_begun;        // waiting; of them, those that were preempted
    int64_t n_tokens;          // tokens known of those that never ran
    uint64_t deadline_ns;      // no request has an earlier one; UINT64_MAX: none has one
    uint64_t served_floor;     // what the lane had been served that the queue's last request left
    uint64_t n_aged;           // requests that ageing brought forward, ever
    uint64_t busy[QR_LANES / 64]; // bit i: somebody waits in lane i
    struct qr_lane lanes[QR_LANES];
};

// starve_steps 0: the default, 512.
void qr_queue_init(struct qr_queue *q, const struct qr_policy *policy, int32_t starve_steps);

// Whether a is served before b: both run, or both are of one lane. Aged ones first, by arrival; then by class,
// by the order in which they began to run, by rank, by arrival.
bool qr_sched_before(const struct qr_sched_req *a, const struct qr_sched_req *b);

// Puts r in its place; at its first time this also decides its lane, class and rank.
void qr_queue_insert(struct qr_queue *q, struct qr_sched_req *r);
void qr_queue_remove(struct qr_queue *q, struct qr_sched_req *r);
// Tokens that were computed for r: its lane is served so much more. The head follows at the next _settle or
// _remove.
void qr_queue_charge(struct qr_queue *q, const struct qr_sched_req *r, int64_t n_tokens);
void qr_queue_settle(struct qr_queue *q);
// A step admitted requests, the latest of which has this order of arrival: counts whom it passed over.
void qr_queue_passed(struct qr_queue *q, uint64_t order);
// A request that never ran and whose deadline is not after now; NULL: none.
struct qr_sched_req *qr_queue_expired(struct qr_queue *q, uint64_t now_ns);
// Arrival of the request that waits longest; 0: nobody waits.
uint64_t qr_queue_oldest_ns(const struct qr_queue *q);
// All that wait, lane by lane, by arrival: begin with NULL; NULL behind the last.
struct qr_sched_req *qr_queue_each(const struct qr_queue *q, const struct qr_sched_req *after);
void qr_queue_check(const struct qr_queue *q); // links, order, counts, S4; aborts

#endif
