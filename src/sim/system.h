/* Presets: a serving system as layout, batching and sizes.
 *
 * Owns: the list in systems.def. Refuses to know: options, costs.
 * Threads: pure functions. Lifetime: static. */
#ifndef QR_SIM_SYSTEM_H
#define QR_SIM_SYSTEM_H

#include "base/buf.h"
#include "base/status.h"
#include "kv/layout.h"
#include "sched/request.h"

struct qr_sim_system {
    const char *name;
    enum qr_kv_layout_kind layout;
    enum qr_batching batching;
    int32_t block_size, max_num_seqs, max_num_batched_tokens;
    const char *what;
};
// QR_ENOTFOUND lists the names.
enum qr_status qr_sim_system_find(const char *name, const struct qr_sim_system **out, struct qr_error *err) QR_MUST_CHECK;
int qr_sim_system_count(void);
const struct qr_sim_system *qr_sim_system_at(int i);

#endif
