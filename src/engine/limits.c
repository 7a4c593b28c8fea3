/* The queue's limits: what it takes, what leaves it without having run, and how long it will last. */
#include <inttypes.h>
#include <stdio.h>

#include "engine/engine_internal.h"

#define RETRY_S_MAX 600 // no estimate reaches further

enum qr_status engine_queue_room(const struct qr_engine *e, const struct qr_req *req, struct qr_error *err)
{
    const struct engine_queue *q = &e->queue;
    const struct qr_engine_conf *c = &e->conf;
    // What free slots will take does not wait: a burst into an idle server is no queue.
    int32_t n_before = q->n_reqs - q->n_free_slots;
    if (req->follows || q->n_reqs == 0 || n_before < 0) return QR_OK;
    int64_t n = (int64_t)n_before + 1 + req->n_followers,
            n_tokens = q->n_tokens + req->n_prompt + req->n_follower_tokens;
    if (c->max_queued_reqs > 0 && n > c->max_queued_reqs)
        return qr_fail_param(err, QR_AGAIN, "max_num_queued_reqs",
                             "%d requests wait already; this server queues at most %d. Try again later.", n_before,
                             c->max_queued_reqs);
    if (c->max_queued_tokens > 0 && n_tokens > c->max_queued_tokens)
        return qr_fail_param(err, QR_AGAIN, "max_num_queued_tokens",
                             "%" PRId64 " prompt tokens wait already; this server queues at most %" PRId64
                             ". Try again later.",
                             q->n_tokens, c->max_queued_tokens);
    return QR_OK;
}

void engine_queue_add(struct qr_engine *e, struct engine_req *er)
{
    er->n_queued_tokens = er->r->req->n_prompt;
    e->queue.n_reqs++;
    e->queue.n_tokens += er->n_queued_tokens;
}

void engine_queue_drop(struct qr_engine *e, struct engine_req *er)
{
    if (er->n_queued_tokens == 0) return;
    e->queue.n_reqs--;
    e->queue.n_tokens -= er->n_queued_tokens;
    er->n_queued_tokens = 0;
}

void engine_queue_take(struct qr_engine *e, const struct qr_plan *plan, uint64_t now_ns)
{
    struct engine_queue *q = &e->queue;
    if (plan->n_orders == 0) return;
    uint64_t n = 0;
    pthread_mutex_lock(&e->table_lock);
    for (int32_t i = 0; i < plan->n_orders; i++) {
        struct engine_req *er = plan->orders[i].r->user;
        if (plan->orders[i].kind != QR_ORDER_OPEN || er->n_queued_tokens == 0) continue;
        engine_queue_drop(e, er);
        n++;
        q->n_free_slots = q->n_free_slots > er->r->n_live ? q->n_free_slots - er->r->n_live : 0;
    }
    pthread_mutex_unlock(&e->table_lock);
    pthread_mutex_lock(&e->snapshot_lock);
    for (; n > 0; n--) q->admitted_ns[q->n_admitted++ % ENGINE_ADMISSIONS] = now_ns;
    pthread_mutex_unlock(&e->snapshot_lock);
}

void engine_queue_expire(struct qr_engine *e, uint64_t now_ns)
{
    for (struct qr_sched_req *r; (r = qr_sched_expired(e->sched, now_ns));) {
        struct engine_req *er = r->user;
        char why[96];
        double s = (double)(now_ns > r->arrival_ns ? now_ns - r->arrival_ns : 0) * 1e-9;
        snprintf(why, sizeof why, "The request waited %.*f %s and was not begun in time. Try again later.",
                 s < 1e-3 ? 2 : s < 1 ? 0 : 1, s < 1 ? s * 1e3 : s, s < 1 ? "ms" : "s");
        er->status = QR_AGAIN;
        e->counts.n_expired++;
        engine_finish_all(e, er, UINT64_MAX, QR_FINISH_ERROR, why);
    }
}

void engine_queue_publish(struct qr_engine *e, const struct qr_snapshot *s, uint64_t now_ns)
{
    // While somebody waits, free slots are not what is missing.
    int32_t n_free = s->n_waiting > 0 ? 0 : e->conf.max_num_seqs - s->n_running_seqs;
    pthread_mutex_lock(&e->table_lock);
    e->queue.n_free_slots = n_free;
    pthread_mutex_unlock(&e->table_lock);
    pthread_mutex_lock(&e->snapshot_lock);
    if (s->n_waiting == 0)
        e->queue.busy_since_ns = 0;
    else if (e->queue.busy_since_ns == 0)
        e->queue.busy_since_ns = now_ns;
    pthread_mutex_unlock(&e->snapshot_lock);
}

int32_t engine_queue_wait_s(const struct qr_engine *e, int32_t n_waiting, uint64_t now_ns)
{
    const struct engine_queue *q = &e->queue;
    if (q->busy_since_ns == 0 || n_waiting == 0) return 1;
    // As fast as requests were admitted since the queue formed, and no further back than the ring remembers.
    uint64_t n = 0, since = q->busy_since_ns;
    uint64_t n_kept = q->n_admitted < ENGINE_ADMISSIONS ? q->n_admitted : ENGINE_ADMISSIONS;
    uint64_t oldest = n_kept > 0 ? q->admitted_ns[(q->n_admitted - n_kept) % ENGINE_ADMISSIONS] : 0;
    if (oldest > since) since = oldest;
    for (uint64_t i = 0; i < n_kept; i++) n += q->admitted_ns[(q->n_admitted - 1 - i) % ENGINE_ADMISSIONS] > since;
    double seconds = (double)(now_ns > since ? now_ns - since : 0) * 1e-9;
    double wait = n > 0 ? seconds / (double)n * n_waiting : seconds;
    return wait < 1 ? 1 : wait > RETRY_S_MAX ? RETRY_S_MAX : (int32_t)wait + 1;
}
