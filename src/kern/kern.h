/* The table of plain kernels: one pointer per operation, filled from portable C and then from each
 * instruction set that is active, weakest first.
 *
 * Owns: the process-wide table. Refuses to know: models, blocks' owners, threads.
 * Threads: qr_kern_init before any thread computes; reads from any. Lifetime: process. */
#ifndef QR_KERN_KERN_H
#define QR_KERN_KERN_H

#include <stdint.h>

#include "kern/attn.h"
#include "kern/isa.h"

struct qr_kern {
#define QR_KERNEL(name, ret, params, tol) ret(*name) params;
#include "kern/kernels.def"
#undef QR_KERNEL
};

// Fills a table for a mask of instruction sets (qr_isa_*). Tests ask for any mask; the program uses
// qr_kern().
void qr_kern_fill(struct qr_kern *k, uint32_t isa_mask);
// The program's table, for qr_isa_active(); filled at the first call, which must come before threads start.
const struct qr_kern *qr_kern(void);
// The kernels of a KV type.
struct qr_kv_kernels {
    qr_kv_write_fn *write;
    qr_attn_fn *decode, *prefill;
};
struct qr_kv_kernels qr_kern_kv(const struct qr_kern *k, enum qr_kvtype t);
// The instruction set that slot `name` came from under the mask, "ref" for portable C (quire inspect
// kernels).
const char *qr_kern_origin(const char *name, uint32_t isa_mask);

#endif
