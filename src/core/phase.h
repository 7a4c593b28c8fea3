/* Where a step's time goes: a clock that a measurement lends to an executor. Nobody pays for it otherwise.
 *
 * Owns: nothing. Refuses to know: who measures.
 * Threads: the thread that runs the steps adds; others read when no step runs.
 * Lifetime: the measurement's; it outlives the executor that it is lent to. */
#ifndef QR_CORE_PHASE_H
#define QR_CORE_PHASE_H

#include <stdint.h>

#include "base/clock.h"

// QR_PHASE(id, what a run of the workers does in it)
#define QR_PHASE_LIST                                                                                        \
    QR_PHASE(PRODUCTS, "layer products, SwiGLU")                                                             \
    QR_PHASE(HEAD, "LM head")                                                                                \
    QR_PHASE(ATTENTION, "attention, RoPE, KV write")                                                         \
    QR_PHASE(ROWS, "embedding, norms, quantising")                                                           \
    QR_PHASE(SAMPLE, "sampling")

enum qr_phase {
#define QR_PHASE(id, what) QR_PHASE_##id,
    QR_PHASE_LIST
#undef QR_PHASE
        QR_PHASE_COUNT
};

struct qr_phases {
    uint64_t ns[QR_PHASE_COUNT];     // barriers included
    uint64_t n_runs[QR_PHASE_COUNT]; // of the workers: each ends in a barrier
};

// Both cost a test when `p` is NULL.
static inline uint64_t qr_phase_begin(const struct qr_phases *p)
{
    return p ? qr_clock_wall()->now_ns(qr_clock_wall()) : 0;
}
static inline void qr_phase_end(struct qr_phases *p, enum qr_phase phase, uint64_t begin_ns)
{
    if (!p) return;
    p->ns[phase] += qr_clock_wall()->now_ns(qr_clock_wall()) - begin_ns;
    p->n_runs[phase]++;
}

#endif
