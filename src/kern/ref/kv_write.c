/* Puts the K and V of one token into its slot (the layouts are drawn in kern/attn.h). Neighbouring tokens
 * may be written by different threads at once, so nothing but the token's own bytes is stored. */
#include "kern/kern_internal.h"
#include "kern/ref/ref_internal.h"

static uint8_t *unit_of(const struct qr_kv_view *kv, int pos, size_t unit_bytes)
{
    size_t block = kv->table[pos / kv->block_size];
    size_t unit = (size_t)(pos % kv->block_size) / QR_KV_UNIT;
    return kv->pool + block * kv->block_bytes + kv->head_off + unit * unit_bytes;
}

void kern_kv_write_bf16_ref(const struct qr_kv_view *kv, int pos, const float *k, const float *v)
{
    int d = kv->d, t = pos % QR_KV_UNIT;
    uint16_t *uk = (uint16_t *)unit_of(kv, pos, qr_kv_unit_bytes(QR_KV_BF16, d));
    uint16_t *uv = uk + d * QR_KV_UNIT;
    for (int i = 0; i < d; i++) {
        uk[(i / 2 * 16 + t) * 2 + i % 2] = qr_bf16_of_f32(k[i]);
        uv[((i / 16 * 8 + t / 2) * 16 + i % 16) * 2 + t % 2] = qr_bf16_of_f32(v[i]);
    }
}

void kern_kv_write_f32_ref(const struct qr_kv_view *kv, int pos, const float *k, const float *v)
{
    int d = kv->d, t = pos % QR_KV_UNIT;
    float *uk = (float *)unit_of(kv, pos, qr_kv_unit_bytes(QR_KV_F32, d));
    float *uv = uk + d * QR_KV_UNIT;
    for (int i = 0; i < d; i++) {
        uk[i * 16 + t] = k[i];
        uv[(i / 16 * 16 + t) * 16 + i % 16] = v[i];
    }
}
