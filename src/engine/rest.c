/* Idle: the block pool's memory goes back to the system, so that others on the machine can have it. */
#include <inttypes.h>

#include "base/log.h"
#include "engine/engine_internal.h"

static bool may_trim(const struct qr_engine *e)
{
    return e->conf.kv_idle_release_ns > 0 && !e->trimmed && qr_sched_idle(e->sched);
}

void engine_rest(struct qr_engine *e)
{
    if (!may_trim(e)) return;
    uint64_t now = e->conf.clock->now_ns(e->conf.clock) | 1;
    if (e->idle_since_ns == 0) e->idle_since_ns = now;
    if (now - e->idle_since_ns < e->conf.kv_idle_release_ns) return;
    e->idle_since_ns = now; // blocks that something still pins are looked at again after as long
    if (!engine_flush_idle(e)) return;
    bool trimmed = qr_sched_trim(e->sched);
    trace_trim(e, trimmed);
    if (!trimmed) return;
    e->exec->ops->trim(e->exec);
    e->trimmed = true;
    QR_INFO("engine", "idle for %" PRIu64 " s: the block pool's memory is given back (--kv-idle-release)",
            e->conf.kv_idle_release_ns / 1000000000u);
    engine_update_snapshot(e);
}

int engine_rest_ms(const struct qr_engine *e)
{
    if (!may_trim(e)) return -1;
    uint64_t now = e->conf.clock->now_ns(e->conf.clock), until = e->idle_since_ns + e->conf.kv_idle_release_ns;
    uint64_t ms = until > now ? (until - now) / 1000000u + 1 : 1;
    return ms < 1000000 ? (int)ms : 1000000;
}
