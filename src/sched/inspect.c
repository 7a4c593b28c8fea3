/* A picture of the scheduler's state, for people. */
#include <string.h>

#include "sched/sched_internal.h"

static void add_seq(const struct qr_sched *s, const struct qr_sched_req *r, const struct qr_seq *q,
                    struct qr_inspect *out)
{
    if (out->n_seqs == out->seqs_max) return;
    struct qr_inspect_seq *o = &out->seqs[out->n_seqs];
    *o = (struct qr_inspect_seq){.id = r->id,
                                 .arrival_ns = r->arrival_ns,
                                 .fair_key = r->req->fair_key,
                                 .choice = q->choice,
                                 .priority = r->req->priority,
                                 .running = q->slot >= 0,
                                 .n_prompt = r->req->n_prompt,
                                 .n_ids = q->n_ids,
                                 .n_computed = q->n_computed,
                                 .n_preemptions = r->n_preemptions,
                                 .first_block = out->n_tables};
    uint32_t len = q->slot >= 0 ? (uint32_t)qr_kv_table_len(s->tables, q->slot) : 0;
    if (len > out->tables_max - out->n_tables) return;
    if (len > 0)
        memcpy(out->tables + out->n_tables, qr_kv_table_ids(s->tables, q->slot), len * sizeof *out->tables);
    o->n_blocks = len;
    out->n_tables += len;
    out->n_seqs++;
}

static void add_request(const struct qr_sched *s, const struct qr_sched_req *r, struct qr_inspect *out)
{
    for (int32_t i = 0; i < r->req->n_choices; i++)
        if (!r->seqs[i].done) add_seq(s, r, &r->seqs[i], out);
}

void qr_sched_inspect(const struct qr_sched *s, struct qr_inspect *out)
{
    out->n_seqs = 0;
    out->n_tables = 0;
    qr_sched_snapshot(s, &out->snapshot);
    for (int32_t i = 0; i < s->n_running; i++) add_request(s, s->running[i], out);
    int32_t n = 0;
    for (const struct qr_sched_req *r = qr_queue_each(&s->waiting, NULL); r && n < QR_INSPECT_WAITING_MAX;
         r = qr_queue_each(&s->waiting, r), n++)
        add_request(s, r, out);
    out->n_states = qr_kv_pool_n_touched(s->pool);
    for (uint32_t i = 0; i < out->n_states; i++) out->states[i] = qr_kv_pool_state(s->pool, i);
}
