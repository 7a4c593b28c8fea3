#include "kern/kern.h"

#include <string.h>

#include "base/assert.h"
#include "kern/kern_internal.h"

void qr_kern_fill(struct qr_kern *k, uint32_t isa_mask)
{
#define QR_KERNEL(name, ret, params, tol) k->name = kern_##name##_ref;
#include "kern/kernels.def"
#undef QR_KERNEL
#define QR_IMPL(isa, name)                                                                                   \
    if (qr_isa_has(isa_mask, QR_ISA_##isa)) k->name = kern_##name##_##isa;
#include "kern/impls.def"
#undef QR_IMPL
}

const struct qr_kern *qr_kern(void)
{
    static struct qr_kern table;
    static uint32_t mask = ~0u; // of which the table was filled; no real mask has all bits
    if (mask != qr_isa_active()) {
        mask = qr_isa_active();
        qr_kern_fill(&table, mask);
    }
    return &table;
}

const char *qr_kern_origin(const char *name, uint32_t isa_mask)
{
    const char *origin = "ref";
#define QR_IMPL(isa, slot)                                                                                   \
    if (qr_isa_has(isa_mask, QR_ISA_##isa) && !strcmp(name, #slot)) origin = #isa;
#include "kern/impls.def"
#undef QR_IMPL
    return origin;
}

struct qr_kv_kernels qr_kern_kv(const struct qr_kern *k, enum qr_kvtype t)
{
    switch (t) {
#define QR_KVTYPE(ID, name, other, value_bytes, scale_bytes, tol)                                            \
    case QR_KV_##ID:                                                                                         \
        return (struct qr_kv_kernels){k->kv_write_##name, k->attn_decode_##name, k->attn_prefill_##name};
#include "kern/kvtypes.def"
#undef QR_KVTYPE
    case QR_KV_AUTO:
    case QR_KV_COUNT: break;
    }
    QR_ASSERT(!"a KV type that was chosen");
    return (struct qr_kv_kernels){0};
}
