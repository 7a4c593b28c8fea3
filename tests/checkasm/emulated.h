/* Kernels on tiles, built over emulated ones: <kernel>_emu for every QR_AMX of kern/gemm_impls.def.
 *
 * Owns: their prototypes. Refuses to know: which machine this is. Threads: main only. Lifetime: static. */
#ifndef QR_TESTS_EMULATED_H
#define QR_TESTS_EMULATED_H

#include "kern/gemm.h"

#define QR_GEMM(cls, fmt, isa, m_min, m_max, fn)
#define QR_AMX(cls, fmt, m_min, m_max, fn) qr_gemm_fn fn##_emu;
#include "kern/gemm_impls.def"
#undef QR_GEMM

#endif
