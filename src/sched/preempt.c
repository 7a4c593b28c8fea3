/* Preemption: a running request gives its blocks up and waits again. */
#include "sched/sched_internal.h"

void sched_preempt(struct qr_sched *s, struct qr_sched_req *v, struct qr_sched_req *for_whom)
{
    int32_t n_tokens = 0;
    for (int32_t i = 0; i < v->req->n_choices; i++) {
        struct qr_seq *q = &v->seqs[i];
        if (q->slot < 0) continue;
        n_tokens += q->n_computed;
        sched_order(s, QR_ORDER_CLOSE, v, q);
        sched_release(s, q);
    }
    sched_unrun(s, v);
    v->forked = false;
    v->n_preemptions++;
    v->state = QR_SCHED_WAITING;
    qr_queue_insert(&s->waiting, v);
    s->counts.n_preemptions++;
    s->counts.n_preempted_tokens += (uint64_t)n_tokens;
    s->preemptions[s->plan.n_preemptions++] = (struct qr_preemption){v, for_whom, n_tokens};
}
