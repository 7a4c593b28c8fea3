#include "kern/qtype.h"

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

const char *qr_wfmt_name(enum qr_wfmt fmt)
{
    static const char *const name[QR_W_COUNT] = {
        [QR_W_U4G32] = "u4g32", [QR_W_U4G32M] = "u4g32m", [QR_W_U4K] = "u4k", [QR_W_I8G32] = "i8g32",
        [QR_W_I6G16] = "i6g16", [QR_W_BF16] = "bf16",     [QR_W_F32] = "f32",
    };
    return name[fmt];
}
