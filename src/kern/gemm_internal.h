/* The prototypes of all matrix kernels, and how a finished sum reaches y.
 *
 * Owns: nothing. Refuses to know: which kernel runs. Threads: pure functions. Lifetime: static. */
#ifndef QR_KERN_GEMM_INTERNAL_H
#define QR_KERN_GEMM_INTERNAL_H

#include "kern/gemm.h"

#define QR_GEMM(cls, fmt, isa, m_min, m_max, fn) qr_gemm_fn fn;
#include "kern/gemm_impls.def"
#undef QR_GEMM

// Output column `out` of row r = sum: the order of the two additions is part of the specification.
static inline void gemm_store(const struct qr_gemm *g, int r, int out, float sum)
{
    float *y = g->y + (size_t)r * g->ldy + out;
    if (g->bias) sum += g->bias[out];
    *y = g->add ? *y + sum : sum;
}

#endif
