/* Pictures of the engine's memory for readers on other threads. While anybody asks, the engine's thread takes
 * one after each step into memory of its own; a reader copies the latest. */
#include <stddef.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "engine/engine_internal.h"

// After the last question pictures are taken for so long: a reader that polls never waits for a step.
#define WANTED_NS 2000000000u
// A picture as old as this is taken anew while its reader waits.
#define STALE_NS 250000000u
#define WAIT_MS 1000

struct engine_picture {
    pthread_mutex_t lock;
    pthread_cond_t taken;
    atomic_uint_fast64_t wanted_until_ns;
    struct qr_inspect now; // lock
    bool any;              // lock
};

enum qr_status engine_picture_new(const struct qr_engine *e, struct engine_picture **out)
{
    const struct qr_sched_conf *c = &e->sched_conf;
    struct engine_picture *p = qr_calloc(QR_MEM_SCHED, 1, sizeof *p);
    if (!p) return QR_ENOMEM;
    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&p->taken, &attr);
    pthread_condattr_destroy(&attr);
    struct qr_inspect *n = &p->now;
    n->seqs_max = c->max_num_seqs + QR_INSPECT_WAITING_MAX;
    // Sequences that share blocks list them more than once; pages that no picture reaches stay untouched.
    n->tables_max = (uint32_t)c->max_num_seqs * (uint32_t)(c->max_model_len / c->block_size + 1);
    n->seqs = qr_malloc(QR_MEM_SCHED, (size_t)n->seqs_max * sizeof *n->seqs);
    n->tables = qr_malloc(QR_MEM_SCHED, (size_t)n->tables_max * sizeof *n->tables);
    n->states = qr_malloc(QR_MEM_SCHED, c->n_blocks);
    if (n->seqs && n->tables && n->states) {
        *out = p;
        return QR_OK;
    }
    engine_picture_free(&p);
    return QR_ENOMEM;
}

void engine_picture_free(struct engine_picture **picture)
{
    struct engine_picture *p = *picture;
    if (!p) return;
    qr_free(p->now.seqs);
    qr_free(p->now.tables);
    qr_free(p->now.states);
    pthread_cond_destroy(&p->taken);
    pthread_mutex_destroy(&p->lock);
    qr_free(p);
    *picture = NULL;
}

void engine_picture_take(struct qr_engine *e)
{
    struct engine_picture *p = e->picture;
    uint64_t wanted = atomic_load_explicit(&p->wanted_until_ns, memory_order_relaxed);
    if (wanted == 0) return;
    uint64_t now = e->conf.clock->now_ns(e->conf.clock);
    if (now > wanted) {
        // A question that comes between the two is asked again by its reader's wake.
        atomic_compare_exchange_strong(&p->wanted_until_ns, &wanted, 0);
        return;
    }
    pthread_mutex_lock(&p->lock);
    qr_sched_inspect(e->sched, &p->now);
    p->now.now_ns = now;
    p->any = true;
    pthread_cond_broadcast(&p->taken);
    pthread_mutex_unlock(&p->lock);
}

static struct qr_inspect *copy_of(const struct qr_inspect *n)
{
    size_t seqs = (size_t)n->n_seqs * sizeof *n->seqs, tables = n->n_tables * sizeof *n->tables;
    struct qr_inspect *c = qr_malloc(QR_MEM_REQ, sizeof *c + seqs + tables + n->n_states);
    if (!c) return NULL;
    *c = *n;
    c->seqs = (struct qr_inspect_seq *)(c + 1);
    c->tables = (uint32_t *)((char *)c->seqs + seqs);
    c->states = (char *)c->tables + tables;
    memcpy(c->seqs, n->seqs, seqs);
    memcpy(c->tables, n->tables, tables);
    memcpy(c->states, n->states, n->n_states);
    return c;
}

struct qr_inspect *qr_engine_inspect(struct qr_engine *e)
{
    struct engine_picture *p = e->picture;
    uint64_t asked = e->conf.clock->now_ns(e->conf.clock);
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += WAIT_MS / 1000;
    atomic_store(&p->wanted_until_ns, asked + WANTED_NS);
    pthread_mutex_lock(&p->lock);
    if (!p->any || p->now.now_ns + STALE_NS < asked) {
        struct engine_req *nobody = NULL;
        // A record wakes an idle engine for certain; a full inbox has it awake.
        if (e->has_thread && qr_ring_push(e->inbox, &nobody)) qr_ring_wake(e->inbox);
        while (e->has_thread && (!p->any || p->now.now_ns < asked))
            if (pthread_cond_timedwait(&p->taken, &p->lock, &until) != 0) break; // a long step: what there is
    }
    struct qr_inspect *c = copy_of(&p->now);
    pthread_mutex_unlock(&p->lock);
    if (c) {
        struct qr_snapshot s;
        qr_engine_snapshot(e, &s); // the engine's own counters are in this one only
        c->snapshot = s;
    }
    return c;
}
