/* The executor of this machine: model, KV bytes and sampling on one pool of workers.
 *
 * Owns: the KV pool's bytes (address space reserved at once, touched on use in 2 MiB extents) and those of
 * the other tiers, one sampler a slot, the step's activations. Refuses to know: requests, queues. Threads: calls come from the engine
 * thread, which works as worker 0. Lifetime: _new to ops->close. Model and workers outlive it. */
#ifndef QR_EXEC_EXEC_LOCAL_H
#define QR_EXEC_EXEC_LOCAL_H

#include "base/clock.h"
#include "base/workers.h"
#include "core/exec.h"
#include "exec/tiers.h"
#include "model/model.h"

struct qr_exec_local_conf {
    const struct qr_model *model;
    struct qr_workers *workers;
    int32_t n_slots, n_tokens_max, block_size;
    uint32_t n_blocks;
    struct tiers_conf tiers; // where blocks may go that are not in the pool
    struct qr_phases *phases; // a measurement's clock; NULL: none
};
enum qr_status qr_exec_local_new(const struct qr_exec_local_conf *conf, struct qr_exec **out,
                                 struct qr_error *err) QR_MUST_CHECK;
// The KV pool's bytes that are resident now (touched extents).
uint64_t qr_exec_local_kv_bytes(const struct qr_exec *x);

#endif
