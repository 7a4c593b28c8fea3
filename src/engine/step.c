/* The loop's body: drain the inbox, schedule, execute, publish. */
#include <stdio.h>

#include "base/assert.h"
#include "base/log.h"
#include "engine/engine_internal.h"

#define IO_WAIT_MS 2

static bool drain_requests(struct qr_engine *e)
{
    struct engine_req *er;
    bool any = false;
    while (qr_ring_pop(e->inbox, &er)) {
        any = true;
        if (!er) continue; // a wake to stop: something was done, so the loop looks at `stop` before it sleeps
        e->counts.n_requests++;
        trace_add(e, er->r);
        qr_sched_add(e->sched, er->r);
        if (er->early) engine_finish_all(e, er, er->early, QR_FINISH_ABORT, NULL);
    }
    return any;
}

// Tokens that were drawn after a stop string was complete, before the cancel came, are neither counted nor
// cached.
static void drop_tokens(struct qr_engine *e, const struct engine_req *er, uint64_t choices)
{
    for (int32_t i = 0; i < er->r->req->n_choices; i++) {
        struct qr_seq *q = &er->r->seqs[i];
        int32_t at = er->keep_to[i], n_kept = at + 1 > er->r->req->n_prompt ? at + 1 : er->r->req->n_prompt;
        if (!(choices >> i & 1) || at < 0 || q->done || q->n_ids <= n_kept) continue;
        q->n_kept = n_kept;
        e->counts.n_dropped_tokens += (uint64_t)(q->n_ids - n_kept);
    }
}

static struct engine_req *next_cancel(struct qr_engine *e, uint64_t *choices, uint64_t *quiet)
{
    pthread_mutex_lock(&e->table_lock);
    struct engine_req *er = e->cancels;
    if (er) {
        e->cancels = er->cancel_next;
        *choices = er->cancel;
        *quiet = er->quiet;
        drop_tokens(e, er, *choices);
        er->cancel = er->quiet = 0;
        er->cancel_listed = false;
    }
    pthread_mutex_unlock(&e->table_lock);
    return er;
}

// Carries out cancels, one at a time: publishing must not hold the lock that a reader may want.
static bool drain_cancels(struct qr_engine *e)
{
    if (!atomic_exchange(&e->any_cancels, false)) return false;
    uint64_t choices = 0, quiet = 0;
    for (struct engine_req *er; (er = next_cancel(e, &choices, &quiet));) {
        er->silent |= quiet;
        if (er->r->state == QR_SCHED_NEW)
            er->early |= choices; // its submit is not out of the inbox yet
        else
            engine_finish_all(e, er, choices, QR_FINISH_ABORT, NULL);
    }
    return true;
}

static enum qr_status open_slot(struct qr_engine *e, const struct qr_order *o)
{
    struct qr_seq *q = &o->r->seqs[o->choice];
    const struct qr_req *req = o->r->req;
    const int32_t *ids = req->prompt;
    if (q->n_ids > req->n_prompt) {
        for (int32_t i = 0; i < q->n_ids; i++) e->resume_ids[i] = qr_seq_id(o->r, q, i);
        ids = e->resume_ids;
    }
    enum qr_status st =
        e->exec->ops->seq_open(e->exec, o->slot, &req->sampling, o->choice, ids, req->n_prompt, q->n_ids);
    q->open = st == QR_OK;
    return st;
}

// Carries out the plan's orders. A request whose slot cannot be opened ends; nobody else notices. It is freed
// by then, so the orders that it has left are recognised by their pointer only.
static void carry_out(struct qr_engine *e, const struct qr_plan *plan)
{
    const struct qr_sched_req *failed = NULL;
    for (int32_t i = 0; i < plan->n_orders; i++) {
        const struct qr_order *o = &plan->orders[i];
        if (o->kind == QR_ORDER_CLOSE) {
            struct qr_seq *q = &o->r->seqs[o->choice];
            if (q->open) e->exec->ops->seq_close(e->exec, o->slot);
            q->open = false;
        } else if (o->r != failed && open_slot(e, o) != QR_OK) {
            failed = o->r;
            engine_finish_all(e, o->r->user, UINT64_MAX, QR_FINISH_ERROR,
                              "the executor has no memory for this request");
        }
    }
}

static bool contains(const int32_t *ids, size_t n, int32_t id)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

static void take_token(struct qr_engine *e, const struct qr_grant *g, const struct qr_out_row *row,
                       const struct qr_top *tops)
{
    const struct qr_sampling *s = &g->r->req->sampling;
    struct engine_req *er = g->r->user;
    if (er->beam) {
        engine_beam_take(e, er, g->seq, row, tops + row->first_top);
        return;
    }
    trace_token(e, g->r, g->seq->choice, row->token);
    qr_sched_append(g->r, g->seq, row->token);
    e->counts.n_generated_tokens++;
    engine_publish_row(e, er, g->seq, row, tops);
    int32_t n_generated = g->seq->n_ids - g->r->req->n_prompt;
    bool end = (!s->ignore_eos && contains(s->eos, s->n_eos, row->token)) ||
               contains(s->stop_ids, s->n_stop_ids, row->token);
    if (end && n_generated > s->min_tokens)
        engine_finish(e, er, g->seq->choice, QR_FINISH_STOP, row->token, NULL);
    else if (n_generated >= s->max_tokens)
        engine_finish(e, er, g->seq->choice, QR_FINISH_LENGTH, -1, NULL);
}

static void take_score(struct qr_engine *e, const struct qr_grant *g, const struct qr_out_row *row,
                       const struct qr_top *tops)
{
    if (row->pos < g->r->n_scored) return; // published before a preemption
    g->r->n_scored = row->pos + 1;
    trace_scored(e, g->r);
    engine_publish_row(e, g->r->user, g->seq, row, tops);
}

// Hands out the results. Nothing of a request is touched after its last sequence ended: rows come in the
// order of grants, scores before the sample, and a sequence has one grant; a scoring request ends after its
// rows. Beams step when the last of their rows is in, so a search, too, ends after its rows.
static void publish(struct qr_engine *e, const struct qr_plan *plan, int32_t n_grants,
                    const struct qr_exec_result *res)
{
    int32_t i_row = 0;
    for (int32_t i = 0; i < n_grants; i++) {
        struct engine_req *er = plan->grants[i].r->user;
        if (er->beam && plan->grants[i].flags & QR_BATCH_SAMPLE)
            engine_beam_expect(er->beam, plan->grants[i].seq->choice);
    }
    for (int32_t i = 0; i < n_grants; i++) {
        const struct qr_grant *g = &plan->grants[i];
        bool scores_only = g->r->req->sampling.max_tokens == 0 && g->seq->n_computed == g->r->req->n_prompt;
        struct engine_req *er = g->r->user;
        int32_t choice = g->seq->choice;
        for (; i_row < res->n_rows && res->rows[i_row].i_seq == i; i_row++) {
            const struct qr_out_row *row = &res->rows[i_row];
            if (row->is_score)
                take_score(e, g, row, res->tops);
            else
                take_token(e, g, row, res->tops);
        }
        if (scores_only) engine_finish(e, er, choice, QR_FINISH_LENGTH, -1, NULL);
    }
    QR_ASSERT(i_row == res->n_rows);
}

// The executor failed: what it computed is unknown, so every request of the batch ends. The engine lives on.
static void fail_batch(struct qr_engine *e, const struct qr_plan *plan, enum qr_status st)
{
    char why[96];
    snprintf(why, sizeof why, "the step failed: %s", qr_status_name(st));
    QR_ERROR("engine", "%s; its %d sequences end with an error", why, plan->n_grants);
    for (;;) {
        // Ending a request drops its grants, so the next live one is looked for from the start.
        int32_t i = 0;
        while (i < plan->n_grants && plan->grants[i].n_tokens == 0) i++;
        if (i == plan->n_grants) return;
        engine_finish_all(e, plan->grants[i].r->user, UINT64_MAX, QR_FINISH_ERROR, why);
    }
}

static void execute(struct qr_engine *e, const struct qr_plan *plan, const struct qr_batch *batch)
{
    const struct qr_exec_ops *ops = e->exec->ops;
    struct qr_exec_result res = {0};
    qr_ticket ticket;
    if (e->conf.check_every_step) qr_batch_check(batch, e->info.block_size, e->info.n_blocks);
    enum qr_status st = ops->submit(e->exec, batch, &ticket);
    if (st == QR_OK) st = ops->wait(e->exec, ticket, &res);
    if (st != QR_OK) {
        trace_word(e, 'F');
        qr_sched_failed(e->sched);
        fail_batch(e, plan, st);
        return;
    }
    e->counts.step_ns += res.elapsed_ns;
    engine_costs_take(e, batch, &res);
    engine_measure_step(e, batch, &res);
    trace_computed(e, res.elapsed_ns);
    qr_sched_computed(e->sched);
    publish(e, plan, batch->n_seqs, &res);
}

// Takes in what background I/O has done. With nothing else to do it waits for some, but not so long that a new
// request would notice.
static void take_io(struct qr_engine *e, int timeout_ms)
{
    struct qr_io_done done[64];
    int32_t n;
    if (qr_sched_io_in_flight(e->sched) == 0) return;
    do {
        n = e->exec->ops->io_poll(e->exec, done, sizeof done / sizeof done[0], timeout_ms);
        for (int32_t i = 0; i < n; i++) {
            engine_io_done(e, &done[i]);
            trace_io_done(e, &done[i]);
            qr_sched_io_done(e->sched, &done[i]);
        }
        timeout_ms = 0;
    } while (n == sizeof done / sizeof done[0]);
}

static void start_io(struct qr_engine *e)
{
    const struct qr_io *io;
    int32_t n = qr_sched_io(e->sched, &io);
    if (n == 0) return;
    trace_io_started(e, n);
    e->exec->ops->io_submit(e->exec, io, n);
}

enum qr_status qr_engine_step(struct qr_engine *e)
{
    bool any = drain_requests(e);
    any |= drain_cancels(e);
    if (atomic_exchange(&e->reset_prefix, false)) {
        any = true;
        trace_word(e, 'R');
        qr_sched_reset_prefix(e->sched);
    }
    take_io(e, 0);
    bool computes = false;
    if (!qr_sched_idle(e->sched)) {
        any = true;
        uint64_t now = e->conf.clock->now_ns(e->conf.clock);
        engine_queue_expire(e, now);
    }
    if (!qr_sched_idle(e->sched)) {
        uint64_t now = e->conf.clock->now_ns(e->conf.clock);
        const struct qr_plan *plan = qr_sched_plan(e->sched, now, e->conf.max_num_batched_tokens);
        trace_plan(e, now, plan);
        engine_log_preemptions(e, plan);
        engine_log_io(e);
        engine_queue_take(e, plan, now);
        carry_out(e, plan);
        const struct qr_batch *batch = qr_sched_batch(e->sched);
        trace_batch(e, batch);
        if (e->conf.check_every_step) qr_sched_check(e->sched);
        computes = batch != NULL;
        if (batch) execute(e, plan, batch);
        start_io(e);
    }
    any |= qr_sched_io_in_flight(e->sched) > 0;
    if (!computes) take_io(e, IO_WAIT_MS);
    engine_picture_take(e);
    if (!any) {
        engine_rest(e);
        return QR_AGAIN;
    }
    e->idle_since_ns = 0;
    e->trimmed = false;
    if (e->conf.check_every_step) qr_sched_check(e->sched);
    engine_update_snapshot(e);
    if (e->published) qr_ring_wake(e->outbox);
    e->published = false;
    return QR_OK;
}
