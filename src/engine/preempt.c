/* What preempting costs here, and the line that says that it happened. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "engine/engine_internal.h"

#define LOG_EVERY_NS 1000000000u // lines about preemptions: at most one a second

// Until steps have been seen. Recomputing was measured to be worth 10 to 115 MB/s of blocks, by model and machine;
// a copy to memory that is not in the cache takes a thread about 4 GB/s.
#define COMPUTE_NS_PER_BYTE 20
#define COPY_BYTES_PER_NS 4
// And a file: 500 MB/s each way, and the time that a device takes to answer.
#define FILE_NS_PER_BYTE 2
#define FILE_NS 100000

// A step of fewer tokens than this is priced by its fixed costs, not by its tokens.
#define TOKENS_MIN 64
#define SAMPLES_MIN 5 // before they replace the constants

void engine_costs_init(struct qr_engine *e)
{
    uint64_t block_bytes = e->info.block_bytes[0], block_size = (uint64_t)e->info.block_size;
    struct qr_preempt_costs *c = &e->preempt.costs;
    c->token_ns = block_bytes * COMPUTE_NS_PER_BYTE / block_size + 1;
    c->block_ns[QR_TIER_RAM] = 2 * block_bytes / COPY_BYTES_PER_NS + 1;
    c->block_ns[QR_TIER_FILE] = 2 * (block_bytes * FILE_NS_PER_BYTE + FILE_NS);
}

// Adds a sample and gives the median of the last ones; 0 while they are too few. A stolen core is an outlier.
static uint64_t median_add(struct engine_median *m, uint64_t v)
{
    m->v[m->n++ % ENGINE_SAMPLES] = v;
    int n = m->n < ENGINE_SAMPLES ? (int)m->n : ENGINE_SAMPLES;
    if (n < SAMPLES_MIN) return 0;
    uint64_t sorted[ENGINE_SAMPLES];
    for (int i = 0; i < n; i++) {
        int at = i;
        for (; at > 0 && sorted[at - 1] > m->v[i]; at--) sorted[at] = sorted[at - 1];
        sorted[at] = m->v[i];
    }
    return sorted[n / 2];
}

void engine_costs_take(struct qr_engine *e, const struct qr_batch *b, const struct qr_exec_result *res)
{
    struct qr_preempt_costs *c = &e->preempt.costs;
    bool changed = false;
    if (b->n_tokens >= TOKENS_MIN) {
        uint64_t ns = median_add(&e->preempt.token, (res->elapsed_ns - res->copy_ns) / (uint64_t)b->n_tokens);
        changed |= ns > 0 && ns != c->token_ns;
        if (ns > 0) c->token_ns = ns;
    }
    bool moves = b->n_copies > 0 && qr_batch_copy_phase(&qr_batch_copies(b)[0]) < 2;
    if (moves && res->copy_ns > 0) {
        uint64_t ns = 2 * median_add(&e->preempt.copy, res->copy_ns / (uint64_t)b->n_copies);
        changed |= ns > 0 && ns != c->block_ns[QR_TIER_RAM];
        if (ns > 0) c->block_ns[QR_TIER_RAM] = ns;
    }
    if (!changed) return;
    trace_preempt_costs(e, c);
    qr_sched_set_costs(e->sched, c);
}

void engine_io_done(struct qr_engine *e, const struct qr_io_done *done)
{
    struct engine_preempt *p = &e->preempt;
    if (done->status == QR_OK) {
        uint64_t ns = median_add(&p->io[done->io.kind], done->elapsed_ns);
        if (ns == 0) return;
        p->io_ns[done->io.kind] = ns;
        if (p->io_ns[QR_IO_READ] == 0 || p->io_ns[QR_IO_WRITE] == 0) return;
        p->costs.block_ns[QR_TIER_FILE] = p->io_ns[QR_IO_READ] + p->io_ns[QR_IO_WRITE];
        trace_preempt_costs(e, &p->costs);
        qr_sched_set_costs(e->sched, &p->costs);
        return;
    }
    p->n_io_failed++;
    p->io_failed = *done;
}

void engine_log_io(struct qr_engine *e)
{
    struct engine_preempt *p = &e->preempt;
    if (p->n_io_failed == p->n_io_logged) return;
    uint64_t lost = qr_sched_lost_tokens(e->sched), now = e->conf.clock->now_ns(e->conf.clock);
    if (lost == p->n_lost_logged && qr_sched_io_in_flight(e->sched) > 0) return; // who waits for them still waits
    if (p->io_log_ns && now - p->io_log_ns < LOG_EVERY_NS) return;
    const struct qr_io_done *d = &p->io_failed;
    QR_WARN("engine",
            "KV blocks that could not be %s their file (%s): %" PRIu64 " (%" PRIu64 " so far); tokens computed again for it: %" PRIu64,
            d->io.kind == QR_IO_READ ? "read from" : "written to",
            d->status == QR_EFORMAT ? "checksum mismatch" : qr_status_name(d->status), p->n_io_failed - p->n_io_logged,
            p->n_io_failed, lost - p->n_lost_logged);
    p->io_log_ns = now ? now : 1;
    p->n_io_logged = p->n_io_failed, p->n_lost_logged = lost;
}

static void say_how(const struct qr_preemption *p, char *out, size_t cap)
{
    double swap_ms = (double)p->swap_ns * 1e-6, compute_ms = (double)p->compute_ns * 1e-6;
    if (p->tier != QR_TIER_POOL)
        snprintf(out, cap, "swapped to %s (about %.1f ms there and back; to compute them again: %.1f ms)",
                 p->tier == QR_TIER_RAM ? "memory" : "the file", swap_ms, compute_ms);
    else if (p->best == QR_TIER_POOL)
        snprintf(out, cap, "dropped (about %.1f ms to compute them again; --swap-space or --swap-file would keep them)",
                 compute_ms);
    else if (!p->had_room)
        snprintf(out, cap,
                 "dropped (about %.1f ms to compute them again; the swap space is full, a larger --swap-space or "
                 "--swap-file-size would keep them)",
                 compute_ms);
    else
        snprintf(out, cap, "dropped (about %.1f ms to compute them again; swapping: %.1f ms)", compute_ms, swap_ms);
}

// Why this one: the order of qr_sched_before, whose last is taken.
static void say_why(const struct qr_preemption *p, char *out, size_t cap)
{
    const struct qr_sched_req *v = p->victim, *r = p->for_whom;
    if (r->aged)
        snprintf(out, cap, v->aged ? "of those that waited too long it came last"
                                   : "the other waited so long that it goes first");
    else if (v->class != r->class)
        snprintf(out, cap, "its priority %d goes after priority %d", v->req->priority, r->req->priority);
    else
        snprintf(out, cap, "of those that run it began last");
}

void engine_log_preemptions(struct qr_engine *e, const struct qr_plan *plan)
{
    const struct qr_preemption *p = NULL;
    for (int32_t i = plan->n_preemptions - 1; i >= 0; i--) {
        if (!plan->preemptions[i].for_whom) continue; // a test's
        p = &plan->preemptions[i];
        e->preempt.n_unlogged++;
    }
    if (!p) return;
    uint64_t now = e->conf.clock->now_ns(e->conf.clock);
    if (e->preempt.log_ns && now - e->preempt.log_ns < LOG_EVERY_NS) return;
    char how[192], why[96];
    say_how(p, how, sizeof how);
    say_why(p, why, sizeof why);
    QR_INFO("engine",
            "preempted request %" PRIu64 " (%s) so that request %" PRIu64 " %s: %d tokens %s; %" PRIu64
            " preemptions since the last such line. More --kv-cache-memory-bytes or %s --max-num-seqs avoid it.",
            p->victim->id, why, p->for_whom->id, p->made_way ? "can begin" : "finds a KV block", p->n_tokens, how,
            e->preempt.n_unlogged, p->made_way ? "more" : "fewer");
    e->preempt.log_ns = now ? now : 1;
    e->preempt.n_unlogged = 0;
}
