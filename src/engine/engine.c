#define _GNU_SOURCE // pthread_setname_np
#include "engine/engine.h"

#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/engine_internal.h"

static enum qr_status check_conf(const struct qr_engine_conf *c, const struct qr_exec_info *x,
                                 struct qr_error *err)
{
    if (c->max_num_seqs < 1 || c->max_num_seqs > x->n_slots)
        return qr_fail(err, QR_EINVAL, "max_num_seqs must be 1 to %d (the executor's slots), got %d",
                       x->n_slots, c->max_num_seqs);
    if (c->max_num_batched_tokens < 1 || c->max_num_batched_tokens > x->n_tokens_max)
        return qr_fail(err, QR_EINVAL, "max_num_batched_tokens must be 1 to %d (the executor's step), got %d",
                       x->n_tokens_max, c->max_num_batched_tokens);
    if (c->max_model_len < 1 || c->max_model_len > x->ctx_max)
        return qr_fail(err, QR_EINVAL, "max_model_len must be 1 to %d (the model's positions), got %d",
                       x->ctx_max, c->max_model_len);
    if (c->inbox_capacity < 1 || c->outbox_capacity < 1)
        return qr_fail(err, QR_EINVAL, "inbox and outbox must hold at least 1 record, got %d and %d",
                       c->inbox_capacity, c->outbox_capacity);
    if (x->n_groups != 1)
        return qr_fail(err, QR_ENOTSUP, "1 KV group is supported, the executor has %d", x->n_groups);
    return QR_OK;
}

enum qr_status qr_engine_new(const struct qr_engine_conf *conf, struct qr_exec *exec, struct qr_engine **out,
                             struct qr_error *err)
{
    struct qr_exec_info info = {0};
    exec->ops->info(exec, &info);
    enum qr_status st = check_conf(conf, &info, err);
    if (st != QR_OK) return st;
    struct qr_engine *e = qr_calloc(QR_MEM_SCHED, 1, sizeof *e);
    if (!e) return qr_fail(err, QR_ENOMEM, "no memory for the engine");
    e->conf = *conf;
    e->exec = exec;
    e->info = info;
    e->sched_conf = (struct qr_sched_conf){.max_num_seqs = conf->max_num_seqs,
                                           .max_model_len = conf->max_model_len,
                                           .max_num_batched_tokens = conf->max_num_batched_tokens,
                                           .block_size = info.block_size,
                                           .n_blocks = info.n_blocks,
                                           .layout = conf->layout,
                                           .page_blocks = conf->page_blocks,
                                           .prefix_caching = conf->prefix_caching,
                                           .prefix_seed = conf->prefix_seed,
                                           .exact = conf->exact,
                                           .batching = conf->batching,
                                           .preempt_mode = conf->preempt_mode,
                                           .preempt_every = conf->preempt_every,
                                           .preempt_at = conf->preempt_at,
                                           .policy = conf->policy};
    e->sched_conf.n_staging = info.n_staging;
    memcpy(e->sched_conf.n_prefix, info.prefix_slots, sizeof e->sched_conf.n_prefix);
    memcpy(e->sched_conf.prefix_key, info.prefix_key, sizeof e->sched_conf.prefix_key);
    memcpy(e->sched_conf.n_slots, info.tier_slots, sizeof e->sched_conf.n_slots);
    engine_costs_init(e);
    e->sched_conf.preempt_costs = e->preempt.costs;
    e->queue.n_free_slots = conf->max_num_seqs;
    pthread_mutex_init(&e->table_lock, NULL);
    pthread_mutex_init(&e->snapshot_lock, NULL);
    e->resume_ids = qr_malloc(QR_MEM_SCHED, (size_t)conf->max_model_len * sizeof *e->resume_ids);
    if (!e->resume_ids || qr_sched_new(&e->sched_conf, &e->sched) != QR_OK ||
        qr_ring_new((size_t)conf->inbox_capacity, sizeof(struct engine_req *), &e->inbox) != QR_OK ||
        qr_ring_new((size_t)conf->outbox_capacity, sizeof(struct qr_event), &e->outbox) != QR_OK ||
        engine_picture_new(e, &e->picture) != QR_OK) {
        qr_engine_free(&e);
        return qr_fail(err, QR_ENOMEM, "no memory for the engine's tables (%u blocks, %d sequences)",
                       info.n_blocks, conf->max_num_seqs);
    }
    engine_measure_init(&e->measure, &conf->costs);
    trace_conf(e);
    trace_budget(e, &e->measure.costs, conf->step_budget_ns);
    qr_sched_set_budget(e->sched, &e->measure.costs, conf->step_budget_ns);
    for (uint32_t i = 0; i < info.prefix_slots[QR_TIER_FILE]; i++) {
        const void *tag = exec->ops->tier_tag(exec, i);
        if (!tag) continue;
        trace_import(e, i, tag);
        (void)qr_sched_import(e->sched, i, tag); // what is there twice is found once
    }
    engine_update_snapshot(e);
    *out = e;
    return QR_OK;
}

static void free_request(struct qr_engine *e, struct engine_req *er)
{
    for (int32_t i = 0; i < er->r->req->n_choices; i++)
        if (er->r->seqs[i].open) e->exec->ops->seq_close(e->exec, er->r->seqs[i].slot);
    engine_req_free(er);
}

void engine_req_free(struct engine_req *er)
{
    if (er->r) qr_sched_req_free(&er->r);
    engine_beam_free(&er->beam);
    qr_free(er);
}

void qr_engine_free(struct qr_engine **engine)
{
    struct qr_engine *e = *engine;
    if (!e) return;
    if (e->has_thread) {
        struct engine_req *nobody = NULL;
        atomic_store(&e->stop, true);
        // A record wakes the thread for certain; a full inbox has it awake.
        if (qr_ring_push(e->inbox, &nobody)) qr_ring_wake(e->inbox);
        pthread_join(e->thread, NULL);
    }
    if (e->sched) engine_flush(e);
    for (size_t i = 0; i < ENGINE_BUCKETS; i++)
        for (struct engine_req *er = e->table[i], *next; er; er = next) {
            next = er->chain;
            free_request(e, er);
        }
    qr_sched_free(&e->sched);
    qr_ring_free(&e->inbox);
    qr_ring_free(&e->outbox);
    engine_picture_free(&e->picture);
    qr_buf_fini(&e->trace_line);
    qr_free(e->resume_ids);
    pthread_mutex_destroy(&e->table_lock);
    pthread_mutex_destroy(&e->snapshot_lock);
    qr_free(e);
    *engine = NULL;
}

void qr_engine_check(const struct qr_engine *e)
{
    qr_sched_check(e->sched);
}

static void *run(void *arg)
{
    struct qr_engine *e = arg;
    pthread_setname_np(pthread_self(), "quire-engine");
    while (!atomic_load(&e->stop)) {
        // A cancel that finds no sleeper concerns a request, and with a request there is something to do.
        if (qr_engine_step(e) == QR_AGAIN) qr_ring_wait(e->inbox, engine_rest_ms(e));
    }
    return NULL;
}

enum qr_status qr_engine_start(struct qr_engine *e)
{
    QR_ASSERT(!e->has_thread);
    e->has_thread = true;
    if (pthread_create(&e->thread, NULL, run, e) == 0) return QR_OK;
    e->has_thread = false;
    return QR_ENOMEM;
}

static struct engine_req **bucket_of(struct qr_engine *e, qr_req_id id)
{
    return &e->table[id % ENGINE_BUCKETS]; // ids are consecutive, so this spreads them evenly
}

static void unlink_locked(struct qr_engine *e, struct engine_req *er)
{
    struct engine_req **p = bucket_of(e, er->r->id);
    while (*p != er) p = &(*p)->chain;
    *p = er->chain;
    if (!er->cancel_listed) return;
    for (p = &e->cancels; *p != er;) p = &(*p)->cancel_next;
    *p = er->cancel_next;
}

void engine_forget(struct qr_engine *e, struct engine_req *er)
{
    pthread_mutex_lock(&e->table_lock);
    engine_queue_drop(e, er);
    unlink_locked(e, er);
    pthread_mutex_unlock(&e->table_lock);
}

static enum qr_status check_request(struct qr_engine *e, const struct qr_req *req, struct qr_error *err)
{
    enum qr_status st = qr_sched_req_fits(&e->sched_conf, req, err);
    if (st == QR_OK && req->beam.width > 0) {
        enum qr_status ok = engine_beam_check(e, req, err);
        if (ok != QR_OK) return ok;
    }
    if (st == QR_OK) {
        for (int32_t i = 0; i < req->n_prompt; i++)
            if (req->prompt[i] < 0 || req->prompt[i] >= e->info.n_vocab)
                return qr_fail_param(err, QR_EINVAL, "prompt",
                                     "prompt token %d at position %d is not in the vocabulary of %d",
                                     req->prompt[i], i, e->info.n_vocab);
        return QR_OK;
    }
    if (st != QR_ETOOBIG) return st;
    atomic_fetch_add(&e->n_refused, 1);
    uint64_t now = e->conf.clock->now_ns(e->conf.clock), last = atomic_load(&e->refused_log_ns);
    if (err && (last == 0 || now - last >= 1000000000u) &&
        atomic_compare_exchange_strong(&e->refused_log_ns, &last, now | 1))
        QR_INFO("engine", "refused a request that can never fit: %s", err->msg);
    return st;
}

// Into the table and the inbox, if the queue takes it.
static enum qr_status hand_over(struct qr_engine *e, struct engine_req *er, struct qr_error *err)
{
    pthread_mutex_lock(&e->table_lock);
    enum qr_status st = engine_queue_room(e, er->r->req, err);
    if (st == QR_OK) {
        er->chain = *bucket_of(e, er->r->id);
        *bucket_of(e, er->r->id) = er;
        engine_queue_add(e, er);
        // Pushed under the lock: once it is out, the engine may finish and free it.
        if (!qr_ring_push(e->inbox, &er)) {
            engine_queue_drop(e, er);
            unlink_locked(e, er);
            st = qr_fail(err, QR_AGAIN, "the engine's inbox of %d requests is full", e->conf.inbox_capacity);
        }
    }
    pthread_mutex_unlock(&e->table_lock);
    return st;
}

enum qr_status qr_engine_submit(struct qr_engine *e, const struct qr_req *req, qr_req_id *id,
                                struct qr_error *err)
{
    enum qr_status st = check_request(e, req, err);
    if (st != QR_OK) return st;
    size_t n = (size_t)req->n_choices;
    struct engine_req *er = qr_calloc(QR_MEM_REQ, 1, sizeof *er + n * sizeof er->keep_to[0]);
    if (!er || qr_sched_req_new(req, atomic_fetch_add(&e->last_id, 1) + 1, &er->r) != QR_OK ||
        qr_sched_req_reserve(er->r, &e->sched_conf) != QR_OK ||
        (req->beam.width > 0 && engine_beam_new(req, &er->beam) != QR_OK)) {
        if (er) engine_req_free(er);
        return qr_fail(err, QR_ENOMEM, "no memory for a request of %d + %d tokens", req->n_prompt,
                       req->sampling.max_tokens);
    }
    er->r->user = er;
    er->r->req->sampling.n_candidates = engine_beam_candidates(req);
    memset(er->keep_to, 0xFF, n * sizeof er->keep_to[0]); // -1
    if (er->r->arrival_ns == 0) er->r->arrival_ns = e->conf.clock->now_ns(e->conf.clock);
    uint64_t timeout_ns = e->conf.queue_timeout_ns, *deadline_ns = &er->r->req->deadline_ns;
    if (timeout_ns && (*deadline_ns == 0 || *deadline_ns > er->r->arrival_ns + timeout_ns))
        *deadline_ns = er->r->arrival_ns + timeout_ns;
    qr_req_id before = *id;
    *id = er->r->id;
    st = hand_over(e, er, err);
    if (st == QR_OK) {
        qr_ring_wake(e->inbox);
        return QR_OK;
    }
    *id = before;
    engine_req_free(er);
    return st;
}

void qr_engine_cancel(struct qr_engine *e, qr_req_id id, int32_t choice, int32_t at_token, bool quiet)
{
    pthread_mutex_lock(&e->table_lock);
    struct engine_req *er = *bucket_of(e, id);
    while (er && er->r->id != id) er = er->chain;
    if (er) {
        if (er->beam) choice = -1; // its choices are one search
        uint64_t bits = choice < 0 ? UINT64_MAX : (uint64_t)1 << (choice & 63);
        er->cancel |= bits;
        if (choice >= 0 && choice < er->r->req->n_choices) er->keep_to[choice] = at_token;
        if (quiet) er->quiet |= bits;
        if (!er->cancel_listed) {
            er->cancel_next = e->cancels;
            e->cancels = er;
            er->cancel_listed = true;
        }
        atomic_store(&e->any_cancels, true);
    }
    pthread_mutex_unlock(&e->table_lock);
    if (er) qr_ring_wake(e->inbox);
}

bool qr_engine_poll(struct qr_engine *e, struct qr_event *out)
{
    return qr_ring_pop(e->outbox, out);
}

void qr_engine_wait(struct qr_engine *e, int timeout_ms)
{
    qr_ring_wait(e->outbox, timeout_ms);
}

void qr_engine_reset_prefix_cache(struct qr_engine *e)
{
    struct engine_req *nobody = NULL;
    // Before the wake, and so before anything that is submitted later: the engine looks after it drained those.
    atomic_store(&e->reset_prefix, true);
    if (qr_ring_push(e->inbox, &nobody)) qr_ring_wake(e->inbox); // a full inbox has it awake
}

void qr_engine_snapshot(struct qr_engine *e, struct qr_snapshot *out)
{
    uint64_t now = e->conf.clock->now_ns(e->conf.clock);
    int32_t n_inbox = (int32_t)qr_ring_len(e->inbox);
    pthread_mutex_lock(&e->snapshot_lock);
    *out = e->snapshot;
    out->n_waiting += n_inbox;
    out->retry_after_s = engine_queue_wait_s(e, out->n_waiting, now);
    pthread_mutex_unlock(&e->snapshot_lock);
    out->now_ns = now;
    out->n_refused = atomic_load(&e->n_refused);
}
