/* Kernels on tiles, built over emulated ones: <kernel>_emu for every QR_AMX of kern/gemm_impls.def and every QR_AMX_IMPL of
 * kern/x86/x86.def.
 *
 * Owns: their prototypes. Refuses to know: which machine this is. Threads: main only. Lifetime: static. */
#ifndef QR_TESTS_EMULATED_H
#define QR_TESTS_EMULATED_H

#include "kern/attn.h"
#include "kern/gemm.h"

#define QR_GEMM(cls, fmt, isa, m_min, m_max, fn)
#define QR_AMX(cls, fmt, m_min, m_max, fn) qr_gemm_fn fn##_emu;
#include "kern/gemm_impls.def"
#undef QR_GEMM

#define QR_IMPL(isa, slot)
#define QR_AMX_IMPL(slot) qr_attn_fn kern_##slot##_amx_emu;
#include "kern/x86/x86.def"
#undef QR_IMPL

#endif
