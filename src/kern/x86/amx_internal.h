/* Tiles: eight registers of at most 16 rows of 64 bytes, and products of them.
 *
 * Owns: the words that kernels are written in. Refuses to know: kernels.
 * Threads: tiles belong to a thread. Lifetime: from amx_config to amx_release; both come once a call of a kernel.
 *
 * Each word is written out with a memory clobber: the compiler's own (gcc 12) do not say what they read, so that stores
 * to a configuration or to a tile's bytes are deleted. Who defines AMX_EMULATED brings the words himself
 * (tests/checkasm/amx_emu.h), so that kernels are checked on machines without tiles. */
#ifndef QR_KERN_X86_AMX_INTERNAL_H
#define QR_KERN_X86_AMX_INTERNAL_H

#include <stdint.h>

struct amx_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t colsb[16]; // bytes a row of each tile
    uint8_t rows[16];
} __attribute__((aligned(64)));

#if defined(__AMX_TILE__) && !defined(AMX_EMULATED)
static inline void amx_config(const struct amx_config *c)
{
    __asm__ volatile("ldtilecfg %0" : : "m"(*c) : "memory");
}
static inline void amx_release(void)
{
    __asm__ volatile("tilerelease" : : : "memory");
}
// Tile numbers are literals; rows of a load or store are `stride` bytes apart.
#define AMX_ZERO(t) __asm__ volatile("tilezero %%tmm" #t : :)
#define AMX_LOAD(t, p, stride)                                                                               \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t : : "r"(p), "r"((int64_t)(stride)) : "memory")
#define AMX_STORE(t, p, stride)                                                                              \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" : : "r"(p), "r"((int64_t)(stride)) : "memory")
// c += a * b over bytes with a sign, four k at a time, in int32; over pairs of bf16 in float32.
#define AMX_DOT_I8(c, a, b) __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)
#define AMX_DOT_BF16(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)
// c += a * b where a has signs and b has none, and the other way round.
#define AMX_DOT_SU8(c, a, b) __asm__ volatile("tdpbsud %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)
#define AMX_DOT_US8(c, a, b) __asm__ volatile("tdpbusd %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)
#endif

#endif
