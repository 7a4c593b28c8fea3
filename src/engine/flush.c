/* Cached prefixes go to the file: for the next process, which is the last thing an engine does, and before an idle pool
 * gives its memory back. */
#include <inttypes.h>

#include "base/log.h"
#include "engine/engine_internal.h"

// Who stops a server waits for it; what is not written by then is computed again some day.
#define FLUSH_NS ((uint64_t)8 * 1000000000)

static bool write_round(struct qr_engine *e)
{
    const struct qr_batch *batch = qr_sched_batch(e->sched);
    struct qr_exec_result res = {0};
    qr_ticket ticket;
    trace_flush(e, batch ? batch->n_copies : 0);
    if (!batch) return false;
    enum qr_status st = e->exec->ops->submit(e->exec, batch, &ticket);
    if (st == QR_OK) st = e->exec->ops->wait(e->exec, ticket, &res);
    if (st != QR_OK) {
        trace_word(e, 'F');
        qr_sched_failed(e->sched);
        return false;
    }
    trace_word(e, 'Z');
    qr_sched_flushed(e->sched);
    return true;
}

// Waits for I/O, at most until then.
static void wait_io(struct qr_engine *e, uint64_t until_ns)
{
    const struct qr_io *io;
    int32_t n = qr_sched_io(e->sched, &io);
    if (n > 0) trace_io_started(e, n);
    if (n > 0) e->exec->ops->io_submit(e->exec, io, n);
    while (qr_sched_io_in_flight(e->sched) > 0 && e->conf.clock->now_ns(e->conf.clock) < until_ns) {
        struct qr_io_done done[64];
        n = e->exec->ops->io_poll(e->exec, done, sizeof done / sizeof done[0], 100);
        for (int32_t i = 0; i < n; i++) {
            trace_io_done(e, &done[i]);
            qr_sched_io_done(e->sched, &done[i]);
        }
    }
}

static bool has_file(const struct qr_engine *e)
{
    return e->info.prefix_slots[QR_TIER_FILE] > 0 && e->conf.prefix_caching;
}

// Somebody wants something of an idle engine.
static bool is_wanted(const struct qr_engine *e)
{
    return qr_ring_len(e->inbox) > 0 || atomic_load(&e->reset_prefix);
}

// Until all is written, or it is time. True: all is, or the rest cannot be.
static bool write_all(struct qr_engine *e, uint64_t until, bool idle)
{
    uint64_t start = e->conf.clock->now_ns(e->conf.clock), n_blocks = 0;
    wait_io(e, until); // of what was on its way
    bool more = true;
    while (more && !(idle && is_wanted(e)) && e->conf.clock->now_ns(e->conf.clock) < until) {
        more = qr_sched_flush(e->sched);
        if (!write_round(e)) {
            more = false;
            break;
        }
        n_blocks += (uint64_t)qr_sched_io_in_flight(e->sched);
        wait_io(e, until);
    }
    uint64_t took = e->conf.clock->now_ns(e->conf.clock) - start;
    if (n_blocks > 0)
        QR_INFO("engine", "%" PRIu64 " KV blocks of cached prefixes went to the file in %.1f s%s", n_blocks,
                (double)took * 1e-9, !more ? "" : idle ? "; the rest waits" : "; the rest is left out");
    return !more;
}

void engine_flush(struct qr_engine *e)
{
    if (has_file(e)) (void)write_all(e, e->conf.clock->now_ns(e->conf.clock) + FLUSH_NS, false);
}

bool engine_flush_idle(struct qr_engine *e)
{
    return !has_file(e) || write_all(e, UINT64_MAX, true);
}
