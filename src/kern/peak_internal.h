/* Declarations of the loops of kern/peak.def.
 *
 * Owns: nothing. Refuses to know: which of them this machine can run. Threads: pure functions. Lifetime: static. */
#ifndef QR_KERN_PEAK_INTERNAL_H
#define QR_KERN_PEAK_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
#define QR_PEAK(isa, kind, ops) void kern_peak_##kind##_##isa(uint64_t n_rounds);
#include "kern/peak.def"
#undef QR_PEAK
uint64_t kern_peak_read_avx2(const void *p, size_t bytes);
uint64_t kern_peak_read_avx512(const void *p, size_t bytes);

// A round: `op` on each of 12 sums s0 .. s11. The empty assembly keeps a sum in its register, and the loop from being
// worked out by the compiler.
#define PEAK_EACH(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)
#endif

#endif
