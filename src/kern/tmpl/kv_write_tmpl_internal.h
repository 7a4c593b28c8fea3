/* A token's K and V into its slot, for each KV type (kern/kvtype/ draws the layouts).
 *
 * Owns: the loops. Refuses to know: the width of a register. Threads: neighbouring tokens may be written at once,
 * so nothing but the token's own bytes is stored, and no byte is read. Lifetime: static. */
#ifdef KERN_ISA

#include <string.h>

#include "kern/kern_internal.h"
#include "kern/tmpl/v16_internal.h"

V16 uint8_t *unit_of(const struct qr_kv_view *kv, int pos, size_t unit_bytes)
{
    size_t block = kv->table[pos / kv->block_size];
    size_t unit = (size_t)(pos % kv->block_size) / QR_KV_UNIT;
    return kv->pool + block * kv->block_bytes + kv->head_off + unit * unit_bytes;
}

// Two bytes of V lie between those of the neighbour token, which another thread may be writing: no
// read-modify-write.
V16 void store_v_line(uint16_t *line, v16i v, int odd)
{
#if defined(__AVX512F__)
    _mm512_mask_storeu_epi16(line, odd ? 0xaaaaaaaa : 0x55555555, odd ? _mm512_slli_epi32(v, 16) : v);
#else
    uint16_t h[16];
    v16i_store_u16(h, v);
    for (int i = 0; i < 16; i++) line[i * 2 + odd] = h[i];
#endif
}

void KERN(kv_write_bf16)(const struct qr_kv_view *kv, int pos, const float *k, const float *v)
{
    int d = kv->d, t = pos % QR_KV_UNIT;
    uint32_t *uk = (uint32_t *)unit_of(kv, pos, (size_t)d * 64); // pairs of dimensions, 16 tokens a line
    uint16_t *uv = (uint16_t *)(uk + d * 8);
    for (int i = 0; i < d; i += 16) {
        uint16_t h[16];
        uint32_t pair[8];
        v16i_store_u16(h, v16i_bf16(v16_load(k + i)));
        memcpy(pair, h, sizeof pair);
        for (int j = 0; j < 8; j++) uk[(i / 2 + j) * 16 + t] = pair[j];
        store_v_line(uv + (i / 16 * 8 + t / 2) * 32, v16i_bf16(v16_load(v + i)), t % 2);
    }
}

void KERN(kv_write_f32)(const struct qr_kv_view *kv, int pos, const float *k, const float *v)
{
    int d = kv->d, t = pos % QR_KV_UNIT;
    float *uk = (float *)unit_of(kv, pos, (size_t)d * 128);
    float *uv = uk + d * QR_KV_UNIT;
    for (int i = 0; i < d; i += 16) {
        for (int j = 0; j < 16; j++) uk[(i + j) * 16 + t] = k[i + j];
        v16_store(uv + (i + t) * 16, v16_load(v + i));
    }
}

void KERN(kv_write_f16)(const struct qr_kv_view *kv, int pos, const float *k, const float *v)
{
    int d = kv->d, t = pos % QR_KV_UNIT;
    uint16_t *uk = (uint16_t *)(void *)unit_of(kv, pos, (size_t)d * 64), *uv = uk + d * QR_KV_UNIT;
    for (int i = 0; i < d; i += 16) {
        uint16_t h[16];
        v16_store_f16(h, v16_clamp_f16(v16_load(k + i)));
        for (int j = 0; j < 16; j++) uk[(i + j) * 16 + t] = h[j];
        v16_store_f16(uv + (i + t) * 16, v16_clamp_f16(v16_load(v + i)));
    }
}

// See ref_token_scale.
V16 float token_scale(const float *x, int d, float top, float *inverse)
{
    v16i most = v16i_zero();
    for (int i = 0; i < d; i += 16) most = v16i_max(most, v16i_magnitude(v16_load(x + i)));
    return v16_scale_of(most, top, inverse);
}

// Sixteen values of K and of V from dimension i on, a byte each.
V16 void store_bytes(uint8_t *uk, uint8_t *uv, int i, int t, const uint8_t *k, const uint8_t *v)
{
    uint32_t four[4];
    memcpy(four, k, sizeof four);
    for (int j = 0; j < 4; j++) ((uint32_t *)(void *)uk)[(i / 4 + j) * 16 + t] = four[j];
    for (int j = 0; j < 16; j++) uv[((i / 16 * 4 + t / 4) * 16 + j) * 4 + t % 4] = v[j];
}

V16 v16 scaled(const float *x, float inverse) // an inverse of 0 may meet an infinity
{
    return inverse > 0 ? v16_mul(v16_load(x), v16_set1(inverse)) : v16_set1(0);
}

void KERN(kv_write_int8)(const struct qr_kv_view *kv, int pos, const float *k, const float *v)
{
    int d = kv->d, t = pos % QR_KV_UNIT;
    size_t values = (size_t)d * QR_KV_UNIT;
    uint8_t *uk = unit_of(kv, pos, 2 * values + 128), *uv = uk + values + 64;
    float k_inverse, v_inverse;
    ((float *)(void *)(uk + values))[t] = token_scale(k, d, 127, &k_inverse);
    ((float *)(void *)(uv + values))[t] = token_scale(v, d, 127, &v_inverse);
    for (int i = 0; i < d; i += 16) {
        uint8_t bk[16], bv[16];
        v16i_store_u8(bk, v16i_add(v16i_round(scaled(k + i, k_inverse)), v16i_set1(128)));
        v16i_store_i8((int8_t *)bv, v16i_round(scaled(v + i, v_inverse)));
        store_bytes(uk, uv, i, t, bk, bv);
    }
}

void KERN(kv_write_fp8)(const struct qr_kv_view *kv, int pos, const float *k, const float *v)
{
    int d = kv->d, t = pos % QR_KV_UNIT;
    size_t values = (size_t)d * QR_KV_UNIT;
    uint8_t *uk = unit_of(kv, pos, 2 * values + 128), *uv = uk + values + 64;
    float k_inverse, v_inverse;
    ((float *)(void *)(uk + values))[t] = token_scale(k, d, 1.75f, &k_inverse);
    ((float *)(void *)(uv + values))[t] = token_scale(v, d, 1.75f, &v_inverse);
    for (int i = 0; i < d; i += 16) {
        uint8_t bk[16], bv[16];
        v16i_store_u8(bk, v16i_fp8(scaled(k + i, k_inverse)));
        v16i_store_u8(bv, v16i_fp8(scaled(v + i, v_inverse)));
        store_bytes(uk, uv, i, t, bk, bv);
    }
}

#endif
