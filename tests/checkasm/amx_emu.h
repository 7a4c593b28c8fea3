/* The words of kern/x86/amx_internal.h in portable C, as the processor's manual describes them, so that kernels on tiles
 * are checked where there are none.
 *
 * Owns: the tiles of this program. Refuses to know: kernels. Threads: main only. Lifetime: process.
 *
 * Float32 products of bf16: sums of even and of odd k begin at zero for each instruction, each step a fused
 * multiply-add; then even + odd, then that is added to the tile. Denormals are zero on the way in and out, whatever the
 * processor's mode. A shape that the processor refuses aborts. */
#ifndef QR_TESTS_AMX_EMU_H
#define QR_TESTS_AMX_EMU_H

#define AMX_EMULATED
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kern/half.h"
#include "kern/x86/amx_internal.h"

static struct {
    bool configured;
    int rows[8], colsb[8];
    uint8_t t[8][16][64];
} amx;

static inline void emu_need(bool c)
{
    if (!c) abort();
}

static inline void amx_config(const struct amx_config *c)
{
    emu_need(c->palette == 1 && c->start_row == 0);
    for (int i = 0; i < 14; i++) emu_need(c->reserved[i] == 0);
    memset(&amx, 0, sizeof amx);
    for (int i = 0; i < 16; i++) {
        emu_need(c->rows[i] <= 16 && c->colsb[i] <= 64 && (c->rows[i] == 0) == (c->colsb[i] == 0));
        emu_need(i < 8 || c->rows[i] == 0);
        if (i < 8) amx.rows[i] = c->rows[i], amx.colsb[i] = c->colsb[i];
    }
    amx.configured = true;
}
static inline void amx_release(void)
{
    emu_need(amx.configured);
    memset(&amx, 0, sizeof amx);
}
static inline void emu_zero(int t)
{
    emu_need(amx.configured && amx.rows[t] > 0);
    memset(amx.t[t], 0, sizeof amx.t[t]);
}
static inline void emu_load(int t, const void *p, size_t stride)
{
    emu_zero(t);
    for (int r = 0; r < amx.rows[t]; r++) memcpy(amx.t[t][r], (const uint8_t *)p + r * stride, (size_t)amx.colsb[t]);
}
static inline void emu_store(int t, void *p, size_t stride)
{
    emu_need(amx.configured && amx.rows[t] > 0);
    for (int r = 0; r < amx.rows[t]; r++) memcpy((uint8_t *)p + r * stride, amx.t[t][r], (size_t)amx.colsb[t]);
}
static inline void emu_shapes(int c, int a, int b)
{
    emu_need(amx.configured && c != a && c != b && a != b);
    emu_need(amx.rows[c] == amx.rows[a] && amx.colsb[c] == amx.colsb[b] && amx.colsb[a] == 4 * amx.rows[b]);
    emu_need(amx.colsb[a] % 4 == 0 && amx.colsb[b] % 4 == 0);
}
static inline int emu_byte(uint8_t b, bool sign)
{
    return sign ? (int8_t)b : b;
}
static inline void emu_dot_8(int c, int a, bool a_sign, int b, bool b_sign)
{
    emu_shapes(c, a, b);
    for (int m = 0; m < amx.rows[c]; m++)
        for (int n = 0; n < amx.colsb[c] / 4; n++) {
            uint32_t sum;
            memcpy(&sum, &amx.t[c][m][4 * n], 4);
            for (int k = 0; k < amx.colsb[a]; k++)
                sum += (uint32_t)(emu_byte(amx.t[a][m][k], a_sign) * emu_byte(amx.t[b][k / 4][4 * n + k % 4], b_sign));
            memcpy(&amx.t[c][m][4 * n], &sum, 4);
        }
}
static inline float emu_flush(float f)
{
    return (qr_bits_of_f32(f) & 0x7F800000u) == 0 ? copysignf(0, f) : f;
}
static inline void emu_dot_bf16(int c, int a, int b)
{
    emu_shapes(c, a, b);
    for (int m = 0; m < amx.rows[c]; m++)
        for (int n = 0; n < amx.colsb[c] / 4; n++) {
            float half[2] = {0, 0}, sum;
            for (int k = 0; k < amx.colsb[a] / 2; k++) {
                float x = qr_f32_of_bf16(qr_load_u16(&amx.t[a][m][2 * k]));
                float w = qr_f32_of_bf16(qr_load_u16(&amx.t[b][k / 2][4 * n + k % 2 * 2]));
                half[k % 2] = emu_flush(fmaf(emu_flush(x), emu_flush(w), half[k % 2]));
            }
            memcpy(&sum, &amx.t[c][m][4 * n], 4);
            sum = emu_flush(emu_flush(sum) + emu_flush(half[0] + half[1]));
            memcpy(&amx.t[c][m][4 * n], &sum, 4);
        }
}

#define AMX_ZERO(t) emu_zero(t)
#define AMX_LOAD(t, p, stride) emu_load(t, p, stride)
#define AMX_STORE(t, p, stride) emu_store(t, p, stride)
#define AMX_DOT_I8(c, a, b) emu_dot_8(c, a, true, b, true)
#define AMX_DOT_SU8(c, a, b) emu_dot_8(c, a, true, b, false)
#define AMX_DOT_US8(c, a, b) emu_dot_8(c, a, false, b, true)
#define AMX_DOT_BF16(c, a, b) emu_dot_bf16(c, a, b)

#endif
