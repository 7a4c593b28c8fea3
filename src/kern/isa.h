/* Which instruction sets this machine has and which of them kernels may use.
 *
 * Owns: one process-wide mask. Refuses to know: kernels.
 * Threads: qr_isa_limit before any thread computes; reads from any. Lifetime: process. */
#ifndef QR_KERN_ISA_H
#define QR_KERN_ISA_H

#include <stdint.h>

#include "base/status.h"

enum qr_isa {
#define QR_ISA(name, flags) QR_ISA_##name,
#include "kern/isa.def"
#undef QR_ISA
    QR_ISA_COUNT
};

// Bits (1 << enum qr_isa) of what the processor and the system support. A set counts only if all weaker ones do. The
// first call asks the system for tiles where the processor has them, so it comes before threads start.
uint32_t qr_isa_detected(void);
// Bits that kernels may use now: detected and within the limit.
uint32_t qr_isa_active(void);
static inline int qr_isa_has(uint32_t mask, enum qr_isa isa)
{
    return (mask >> isa) & 1;
}
// "ref", "avx2", "neon", ... : kernels of this set and weaker ones only. "auto" takes all. QR_EINVAL lists the names;
// a set that the machine lacks is QR_ENOTSUP.
enum qr_status qr_isa_limit(const char *name, struct qr_error *err) QR_MUST_CHECK;
const char *qr_isa_name(enum qr_isa isa);

#endif
