#include "kern/attn.h"

#include "base/assert.h"

const char *qr_kvtype_name(enum qr_kvtype t)
{
    static const char *const names[QR_KV_COUNT] = {[QR_KV_BF16] = "bf16", [QR_KV_F32] = "f32"};
    QR_ASSERT((unsigned)t < QR_KV_COUNT);
    return names[t];
}

size_t qr_kv_unit_bytes(enum qr_kvtype t, int d)
{
    QR_ASSERT(d >= 16 && d <= 256 && d % 16 == 0);
    size_t elem_bytes = t == QR_KV_F32 ? 4 : 2;
    return (size_t)d * QR_KV_UNIT * 2 * elem_bytes; // K and V
}
