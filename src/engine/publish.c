/* From the engine to its reader: events, and the snapshot. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/mem.h"
#include "engine/engine_internal.h"

// An event is never dropped: a full outbox holds up the engine until its reader has caught up.
static void push(struct qr_engine *e)
{
    e->published = true;
    for (int i = 0; !qr_ring_push(e->outbox, &e->event); i++) {
        QR_ASSERT(e->has_thread); // who steps by hand also reads, and must read between steps
        if (atomic_load(&e->stop)) return;
        qr_ring_wake(e->outbox);
        if (i < 100) continue;
        struct timespec t = {0, i < 1000 ? 50000 : 1000000}; // 50 us, then 1 ms
        nanosleep(&t, NULL);
    }
}

// Starts an event; fields that its kind does not use are 0.
static struct qr_event *event_of(struct qr_engine *e, const struct engine_req *er, int32_t choice,
                                 enum qr_event_kind kind)
{
    memset(&e->event, 0, sizeof e->event);
    e->event.id = er->r->id;
    e->event.choice = choice;
    e->event.kind = kind;
    e->event.stop_token = -1;
    e->event.now_ns = e->conf.clock->now_ns(e->conf.clock);
    e->event.arrival_ns = er->r->arrival_ns;
    e->event.scheduled_ns = er->r->scheduled_ns;
    e->event.n_cached = er->r->n_cached;
    return &e->event;
}

void engine_publish_row(struct qr_engine *e, struct engine_req *er, const struct qr_seq *q,
                        const struct qr_out_row *row, const struct qr_top *tops)
{
    if (er->silent >> q->choice & 1) return;
    struct qr_event *ev = event_of(e, er, q->choice, row->is_score ? QR_EVENT_PROMPT : QR_EVENT_TOKEN);
    ev->token = row->token;
    ev->pos = row->pos + 1;
    ev->logprob = row->logprob;
    ev->rank = row->rank;
    ev->n_top = row->n_top < QR_LOGPROBS_MAX ? row->n_top : QR_LOGPROBS_MAX;
    if (ev->n_top > 0) memcpy(ev->top, tops + row->first_top, (size_t)ev->n_top * sizeof *tops);
    push(e);
}

bool engine_finish(struct qr_engine *e, struct engine_req *er, int32_t choice, enum qr_finish finish,
                   int32_t stop_token, const char *error)
{
    struct qr_sched_req *r = er->r;
    struct qr_seq *q = &r->seqs[choice];
    if (q->done) return true;
    trace_end(e, r, q);
    int32_t slot = qr_sched_end(e->sched, r, choice);
    if (slot >= 0 && q->open) e->exec->ops->seq_close(e->exec, slot);
    q->open = false;
    e->counts.n_finished[finish]++;
    if (!(er->silent >> choice & 1)) {
        struct qr_event *ev = event_of(e, er, choice, QR_EVENT_FINISH);
        ev->finish = finish;
        ev->stop_token = stop_token;
        ev->n_preemptions = r->n_preemptions;
        if (finish == QR_FINISH_ERROR) ev->status = er->status != QR_OK ? er->status : QR_EIO;
        if (error) snprintf(ev->error, sizeof ev->error, "%s", error);
        push(e);
    }
    if (r->n_live > 0) return true;
    engine_forget(e, er);
    engine_req_free(er);
    return false;
}

void engine_finish_all(struct qr_engine *e, struct engine_req *er, uint64_t choices, enum qr_finish finish,
                       const char *error)
{
    int32_t n = er->r->req->n_choices;
    for (int32_t i = 0; i < n; i++)
        if (choices >> i & 1 && !engine_finish(e, er, i, finish, -1, error)) return;
}

void engine_update_snapshot(struct qr_engine *e)
{
    struct qr_snapshot s = {.block_bytes = e->info.block_bytes[0]};
    qr_sched_snapshot(e->sched, &s);
    const struct engine_counts *c = &e->counts;
    s.step_ns = c->step_ns;
    // A counter only grows: it stands still until new tokens make up for dropped ones.
    uint64_t n_generated = c->n_generated_tokens - c->n_dropped_tokens,
             before = e->snapshot.n_generated_tokens;
    s.n_generated_tokens = n_generated > before ? n_generated : before;
    s.n_requests = c->n_requests;
    s.n_finished_stop = c->n_finished[QR_FINISH_STOP];
    s.n_finished_length = c->n_finished[QR_FINISH_LENGTH];
    s.n_finished_abort = c->n_finished[QR_FINISH_ABORT];
    s.n_finished_error = c->n_finished[QR_FINISH_ERROR];
    s.n_expired = c->n_expired;
    s.costs = e->measure.costs;
    s.step_budget_ns = e->conf.step_budget_ns;
    engine_queue_publish(e, &s, e->conf.clock->now_ns(e->conf.clock));
    pthread_mutex_lock(&e->snapshot_lock);
    e->snapshot = s;
    pthread_mutex_unlock(&e->snapshot_lock);
}
