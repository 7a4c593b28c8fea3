/* Beams: the sequences of a request change their histories between steps, without copying a block. */
#include <string.h>

#include "base/assert.h"
#include "sched/sched_internal.h"

// A beam that dies leaves its blocks before another takes its place, so a move never needs a free one: what `to` shares
// with `from` afterwards is written by copy, when its turn comes.
static void move(struct qr_sched *s, struct qr_sched_req *r, const struct qr_seq *from, struct qr_seq *to)
{
    QR_ASSERT(from != to && from->slot >= 0 && to->slot >= 0 && from->n_computed == from->n_ids);
    qr_kv_table_drop(s->tables, to->slot);
    qr_kv_table_fork(s->tables, from->slot, to->slot, from->n_computed);
    size_t n_generated = (size_t)(from->n_ids - r->req->n_prompt);
    memcpy(to->generated, from->generated, n_generated * sizeof *to->generated);
    to->n_ids = from->n_ids;
    to->n_computed = from->n_computed;
    if (to->n_seen < to->n_computed) to->n_seen = to->n_computed;
    sched_follow(from, to);
}

void qr_sched_move_beams(struct qr_sched *s, struct qr_sched_req *r, const struct qr_beam_move *moves, int32_t n)
{
    QR_ASSERT(r->state == QR_SCHED_RUNNING && r->req->beam.width > 0 && !r->loading);
    for (int32_t i = 0; i < n; i++) move(s, r, &r->seqs[moves[i].from], &r->seqs[moves[i].to]);
    for (int32_t i = 0; i < r->req->n_choices; i++)
        QR_ASSERT(r->seqs[i].done || r->seqs[i].n_computed == r->seqs[i].n_ids);
    r->forked = true;
}
