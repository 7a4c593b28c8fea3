#include "kern/qtype.h"

#include "kern/pack_layout.h"
#include "kern/quant/quant_internal.h"

static const struct qr_qtype_traits traits[] = {
#define QR_QTYPE(name, id, elems, bytes, packed)                                                             \
    {#name, QR_Q_##name, elems, bytes, QR_W_##packed, qr_unpack_##name},
#include "kern/qtypes.def"
#undef QR_QTYPE
};

const struct qr_qtype_traits *qr_qtype(uint32_t gguf_id)
{
    for (size_t i = 0; i < sizeof traits / sizeof *traits; i++)
        if ((uint32_t)traits[i].id == gguf_id) return &traits[i];
    return NULL;
}

const struct qr_wfmt_traits *qr_wfmt(enum qr_wfmt fmt)
{
    static const struct qr_wfmt_traits formats[QR_W_COUNT] = {
#define QR_WFMT_INT(NAME, name, group, sub, record, top, offset, minima)                                     \
    {#name, group, sizeof(record), sub, minima},
#define QR_WFMT(NAME, name, group, bytes) {#name, group, bytes, 0, false},
#include "kern/wfmts.def"
    };
    return &formats[fmt];
}
