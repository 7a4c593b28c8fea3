#include "sched/queue.h"

#include <string.h>

#include "base/assert.h"

#define STARVE_STEPS 512

void qr_queue_init(struct qr_queue *q, const struct qr_policy *policy, int32_t starve_steps)
{
    memset(q, 0, sizeof *q);
    q->policy = policy;
    q->starve_steps = starve_steps > 0 ? starve_steps : STARVE_STEPS;
    q->deadline_ns = UINT64_MAX;
}

// --- The order ---

// The parts of the order that hold between any two requests; 0 where they say nothing.
static int compare(const struct qr_sched_req *a, const struct qr_sched_req *b)
{
    if (a->aged != b->aged) return a->aged ? -1 : 1;
    if (a->aged) return a->order < b->order ? -1 : 1;
    if (a->class != b->class) return a->class < b->class ? -1 : 1;
    if (a->turn != b->turn) return a->turn - 1 < b->turn - 1 ? -1 : 1; // turn 0, never, comes last
    return 0;
}

bool qr_sched_before(const struct qr_sched_req *a, const struct qr_sched_req *b)
{
    int c = a == b ? 1 : compare(a, b);
    if (c != 0) return c < 0;
    if (a->rank != b->rank) return a->rank < b->rank;
    return a->order < b->order;
}

// Whether a, the first of its lane, is admitted before b, the first of another.
static bool lane_before(const struct qr_queue *q, const struct qr_sched_req *a, const struct qr_sched_req *b)
{
    int c = compare(a, b);
    if (c != 0) return c < 0;
    uint64_t sa = q->lanes[a->lane].served, sb = q->lanes[b->lane].served;
    return sa != sb ? sa < sb : a->order < b->order;
}

static int next_busy(const uint64_t *busy, int i)
{
    for (; i < QR_LANES; i = (i | 63) + 1) {
        uint64_t rest = busy[i / 64] >> (i % 64);
        if (rest) return i + __builtin_ctzll(rest);
    }
    return QR_LANES;
}

void qr_queue_settle(struct qr_queue *q)
{
    q->head = NULL;
    for (int i = next_busy(q->busy, 0); i < QR_LANES; i = next_busy(q->busy, i + 1))
        if (!q->head || lane_before(q, q->lanes[i].head, q->head)) q->head = q->lanes[i].head;
}

// --- A lane's two lists ---

static void link_serving(struct qr_lane *l, struct qr_sched_req *r)
{
    struct qr_sched_req *prev = l->tail;
    if (l->head && qr_sched_before(r, l->head)) prev = NULL;
    while (prev && qr_sched_before(r, prev)) prev = prev->lane_prev;
    r->lane_prev = prev;
    r->lane_next = prev ? prev->lane_next : l->head;
    *(r->lane_next ? &r->lane_next->lane_prev : &l->tail) = r;
    *(prev ? &prev->lane_next : &l->head) = r;
}

static void unlink_serving(struct qr_lane *l, struct qr_sched_req *r)
{
    *(r->lane_prev ? &r->lane_prev->lane_next : &l->head) = r->lane_next;
    *(r->lane_next ? &r->lane_next->lane_prev : &l->tail) = r->lane_prev;
    r->lane_prev = r->lane_next = NULL;
}

// A new request is the newest; a preempted one is among the oldest.
static void link_age(struct qr_lane *l, struct qr_sched_req *r)
{
    struct qr_sched_req *newer = l->newest && l->newest->order < r->order ? NULL : l->oldest;
    while (newer && newer->order < r->order) newer = newer->newer;
    r->newer = newer;
    r->older = newer ? newer->older : l->newest;
    *(r->older ? &r->older->newer : &l->oldest) = r;
    *(newer ? &newer->older : &l->newest) = r;
}

static void unlink_age(struct qr_lane *l, struct qr_sched_req *r)
{
    *(r->older ? &r->older->newer : &l->oldest) = r->newer;
    *(r->newer ? &r->newer->older : &l->newest) = r->older;
    r->older = r->newer = NULL;
}

// --- Coming and going ---

// Somebody waits in a lane again: what it missed while nobody did is not made up for.
static void lift(struct qr_queue *q, struct qr_lane *l)
{
    uint64_t least = q->n > 0 ? UINT64_MAX : q->served_floor;
    for (int i = next_busy(q->busy, 0); i < QR_LANES; i = next_busy(q->busy, i + 1))
        if (q->lanes[i].served < least) least = q->lanes[i].served;
    if (l->served < least) l->served = least;
}

void qr_queue_insert(struct qr_queue *q, struct qr_sched_req *r)
{
    if (!r->turn) {
        r->lane = q->policy->by_key ? (int32_t)(r->req->fair_key % QR_LANES) : 0;
        r->class = q->policy->class_of(r->req);
        r->rank = q->policy->rank_of(r->req);
    }
    struct qr_lane *l = &q->lanes[r->lane];
    if (!l->head) lift(q, l);
    link_serving(l, r);
    link_age(l, r);
    q->busy[r->lane / 64] |= (uint64_t)1 << (r->lane % 64);
    q->n++;
    if (r->turn)
        q->n_begun++;
    else
        q->n_tokens += r->req->n_prompt;
    if (!r->turn && r->req->deadline_ns && r->req->deadline_ns < q->deadline_ns)
        q->deadline_ns = r->req->deadline_ns;
    if (l->head == r) qr_queue_settle(q);
}

void qr_queue_remove(struct qr_queue *q, struct qr_sched_req *r)
{
    struct qr_lane *l = &q->lanes[r->lane];
    bool first = l->head == r;
    QR_ASSERT(q->n > 0);
    unlink_serving(l, r);
    unlink_age(l, r);
    if (!l->head) q->busy[r->lane / 64] &= ~((uint64_t)1 << (r->lane % 64));
    q->n--;
    if (r->turn)
        q->n_begun--;
    else
        q->n_tokens -= r->req->n_prompt;
    if (q->n == 0) q->served_floor = l->served;
    if (first) qr_queue_settle(q);
}

// --- Sharing and ageing ---

void qr_queue_charge(struct qr_queue *q, const struct qr_sched_req *r, int64_t n_tokens)
{
    if (!q->policy->by_key || n_tokens <= 0) return;
    q->lanes[r->lane].served += (uint64_t)n_tokens;
}

static void age(struct qr_queue *q, struct qr_lane *l)
{
    struct qr_sched_req *r = l->oldest;
    unlink_serving(l, r);
    r->aged = true;
    link_serving(l, r);
    q->n_aged++;
}

void qr_queue_passed(struct qr_queue *q, uint64_t order)
{
    bool any = false;
    for (int i = next_busy(q->busy, 0); i < QR_LANES; i = next_busy(q->busy, i + 1)) {
        struct qr_lane *l = &q->lanes[i];
        if (l->oldest->order >= order || l->oldest->aged) continue;
        if (++l->oldest->n_passed < q->starve_steps) continue;
        age(q, l);
        any = true;
    }
    if (any) qr_queue_settle(q);
}

// --- Looking ---

struct qr_sched_req *qr_queue_each(const struct qr_queue *q, const struct qr_sched_req *after)
{
    if (after && after->newer) return after->newer;
    int i = next_busy(q->busy, after ? after->lane + 1 : 0);
    return i < QR_LANES ? q->lanes[i].oldest : NULL;
}

struct qr_sched_req *qr_queue_expired(struct qr_queue *q, uint64_t now_ns)
{
    if (now_ns < q->deadline_ns) return NULL;
    uint64_t least = UINT64_MAX;
    for (struct qr_sched_req *r = qr_queue_each(q, NULL); r; r = qr_queue_each(q, r)) {
        uint64_t at = r->turn ? 0 : r->req->deadline_ns;
        if (at && at <= now_ns) return r;
        if (at && at < least) least = at;
    }
    q->deadline_ns = least;
    return NULL;
}

uint64_t qr_queue_oldest_ns(const struct qr_queue *q)
{
    uint64_t least = UINT64_MAX;
    for (int i = next_busy(q->busy, 0); i < QR_LANES; i = next_busy(q->busy, i + 1))
        if (q->lanes[i].oldest->arrival_ns < least) least = q->lanes[i].oldest->arrival_ns;
    return q->n > 0 ? least : 0;
}

static int32_t check_lane(const struct qr_queue *q, int i)
{
    const struct qr_lane *l = &q->lanes[i];
    int32_t n = 0, n_by_age = 0;
    const struct qr_sched_req *prev = NULL;
    for (const struct qr_sched_req *r = l->head; r; prev = r, r = r->lane_next) {
        QR_ASSERT(++n <= q->n && r->lane_prev == prev && r->lane == i && r->state == QR_SCHED_WAITING);
        QR_ASSERT(!prev || qr_sched_before(prev, r));
    }
    QR_ASSERT(l->tail == prev);
    prev = NULL;
    for (const struct qr_sched_req *r = l->oldest; r; prev = r, r = r->newer) {
        QR_ASSERT(++n_by_age <= n && r->older == prev);
        QR_ASSERT(!prev || prev->order < r->order);
    }
    QR_ASSERT(l->newest == prev && n_by_age == n);
    QR_ASSERT((q->busy[i / 64] >> (i % 64) & 1) == (n > 0));
    QR_ASSERT(!l->oldest || l->oldest->n_passed <= q->starve_steps); // S4
    return n;
}

void qr_queue_check(const struct qr_queue *q)
{
    int32_t n = 0, n_begun = 0;
    int64_t n_tokens = 0;
    for (int i = 0; i < QR_LANES; i++) n += check_lane(q, i);
    QR_ASSERT(n == q->n && (n > 0) == (q->head != NULL));
    for (const struct qr_sched_req *r = qr_queue_each(q, NULL); r; r = qr_queue_each(q, r)) {
        n_begun += r->turn != 0;
        n_tokens += r->turn ? 0 : r->req->n_prompt;
        QR_ASSERT(r->turn || !r->req->deadline_ns || r->req->deadline_ns >= q->deadline_ns);
    }
    QR_ASSERT(n_begun == q->n_begun && n_tokens == q->n_tokens);
    for (int i = 0; i < QR_LANES; i++) {
        const struct qr_sched_req *first = q->lanes[i].head;
        QR_ASSERT(!first || first == q->head || lane_before(q, q->head, first));
    }
}
