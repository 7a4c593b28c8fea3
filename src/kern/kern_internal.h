/* Declarations of every kernel function: kern_<slot>_ref from kernels.def, kern_<slot>_<isa> from
 * impls.def.
 *
 * Owns: nothing. Refuses to know: which of them this machine can run (kern.c chooses).
 * Threads: pure functions. Lifetime: static. */
#ifndef QR_KERN_KERN_INTERNAL_H
#define QR_KERN_KERN_INTERNAL_H

#include "kern/kern.h"

#define QR_KERNEL(name, ret, params, tol)                                                                    \
    typedef ret kern_##name##_fn params;                                                                     \
    kern_##name##_fn kern_##name##_ref;
#include "kern/kernels.def"
#undef QR_KERNEL

#define QR_IMPL(isa, name) kern_##name##_fn kern_##name##_##isa;
#include "kern/impls.def"
#undef QR_IMPL

#endif
