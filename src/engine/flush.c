/* The last thing an engine does: cached prefixes go to the file, for the next process. */
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
    if (!batch) return false;
    enum qr_status st = e->exec->ops->submit(e->exec, batch, &ticket);
    if (st == QR_OK) st = e->exec->ops->wait(e->exec, ticket, &res);
    if (st != QR_OK) {
        qr_sched_failed(e->sched);
        return false;
    }
    qr_sched_flushed(e->sched);
    return true;
}

// Waits for I/O, at most until then.
static void wait_io(struct qr_engine *e, uint64_t until_ns)
{
    const struct qr_io *io;
    int32_t n = qr_sched_io(e->sched, &io);
    if (n > 0) e->exec->ops->io_submit(e->exec, io, n);
    while (qr_sched_io_in_flight(e->sched) > 0 && e->conf.clock->now_ns(e->conf.clock) < until_ns) {
        struct qr_io_done done[64];
        n = e->exec->ops->io_poll(e->exec, done, sizeof done / sizeof done[0], 100);
        for (int32_t i = 0; i < n; i++) qr_sched_io_done(e->sched, &done[i]);
    }
}

void engine_flush(struct qr_engine *e)
{
    if (e->info.prefix_slots[QR_TIER_FILE] == 0 || !e->conf.prefix_caching) return;
    uint64_t start = e->conf.clock->now_ns(e->conf.clock), until = start + FLUSH_NS;
    wait_io(e, until); // of what was on its way
    uint64_t n_blocks = 0;
    bool more = true;
    while (more && e->conf.clock->now_ns(e->conf.clock) < until) {
        more = qr_sched_flush(e->sched);
        if (!write_round(e)) break;
        n_blocks += (uint64_t)qr_sched_io_in_flight(e->sched);
        wait_io(e, until);
    }
    uint64_t took = e->conf.clock->now_ns(e->conf.clock) - start;
    if (n_blocks > 0)
        QR_INFO("engine", "%" PRIu64 " KV blocks of cached prefixes went to the file in %.1f s%s", n_blocks,
                (double)took * 1e-9, more ? "; the rest is left out" : "");
}
