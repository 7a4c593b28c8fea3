#include "kern/attn.h"

#include <string.h>

#include "base/assert.h"

static const struct {
    const char *name, *other;
    int value_bytes, scale_bytes;
} types[QR_KV_COUNT] = {
    [QR_KV_AUTO] = {"auto", "auto", 0, 0},
#define QR_KVTYPE(ID, name, other, value_bytes, scale_bytes, tol)                                            \
    [QR_KV_##ID] = {#name, other, value_bytes, scale_bytes},
#include "kern/kvtypes.def"
#undef QR_KVTYPE
};

const char *qr_kvtype_name(enum qr_kvtype t)
{
    QR_ASSERT((unsigned)t < QR_KV_COUNT);
    return types[t].name;
}

enum qr_status qr_kvtype_parse(const char *name, enum qr_kvtype *out, struct qr_error *err)
{
    for (int i = 0; i < QR_KV_COUNT; i++)
        if (strcmp(name, types[i].name) == 0 || strcmp(name, types[i].other) == 0) {
            *out = (enum qr_kvtype)i;
            return QR_OK;
        }
    return qr_fail(err, QR_EINVAL,
                   "expected auto"
#define QR_KVTYPE(ID, name, other, value_bytes, scale_bytes, tol) ", " #name
#include "kern/kvtypes.def"
#undef QR_KVTYPE
                   ", got \"%.40s\"",
                   name);
}

size_t qr_kv_unit_bytes(enum qr_kvtype t, int d)
{
    QR_ASSERT(d >= 16 && d <= 256 && d % 16 == 0);
    QR_ASSERT(t > QR_KV_AUTO && t < QR_KV_COUNT);
    return (size_t)QR_KV_UNIT * 2 * ((size_t)d * (size_t)types[t].value_bytes + (size_t)types[t].scale_bytes);
}
