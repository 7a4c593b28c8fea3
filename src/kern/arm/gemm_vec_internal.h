/* Vectors of four float32 or int32 lanes for matrix kernels: one register of NEON.
 *
 * Owns: nothing. Refuses to know: formats, what kernels compute. Threads: pure inlines, static to each file. Lifetime:
 * none. Included by tmpl/gemm_simd_internal.h alone. */
#ifndef QR_KERN_ARM_GEMM_VEC_INTERNAL_H
#define QR_KERN_ARM_GEMM_VEC_INTERNAL_H

#if defined(__aarch64__)

#include <arm_neon.h>
#include <stdint.h>

#ifndef SIMD_INLINE
#define SIMD_INLINE static inline __attribute__((always_inline, unused))
#endif

#define VL 4 // lanes
typedef float32x4_t vf;
typedef int32x4_t vi;

// One line an operation:
// clang-format off
SIMD_INLINE vf vf_zero(void) { return vdupq_n_f32(0); }
SIMD_INLINE vf vf_set1(float f) { return vdupq_n_f32(f); }
SIMD_INLINE vf vf_load(const float *p) { return vld1q_f32(p); }
SIMD_INLINE void vf_store(float *p, vf v) { vst1q_f32(p, v); }
SIMD_INLINE vf vf_add(vf a, vf b) { return vaddq_f32(a, b); }
SIMD_INLINE vf vf_sub(vf a, vf b) { return vsubq_f32(a, b); }
SIMD_INLINE vf vf_mul(vf a, vf b) { return vmulq_f32(a, b); }
SIMD_INLINE vf vf_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
SIMD_INLINE vf vf_fms(vf a, vf b, vf c) { return vfmaq_f32(vnegq_f32(c), a, b); }
SIMD_INLINE vf vf_fnma(vf a, vf b, vf c) { return vfmsq_f32(c, a, b); }
SIMD_INLINE vf vf_of_vi(vi a) { return vcvtq_f32_s32(a); }
SIMD_INLINE vf vf_of_nibble(vi a) { return vcvtq_f32_s32(vandq_s32(a, vdupq_n_s32(15))); }
SIMD_INLINE vf vf_bits(vi a) { return vreinterpretq_f32_s32(a); }
SIMD_INLINE vi vi_bits(vf a) { return vreinterpretq_s32_f32(a); }
SIMD_INLINE vf vf_of_f16(const uint16_t *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
SIMD_INLINE vi vi_zero(void) { return vdupq_n_s32(0); }
SIMD_INLINE vi vi_set1(int32_t i) { return vdupq_n_s32(i); }
SIMD_INLINE vi vi_load(const void *p) { return vreinterpretq_s32_u8(vld1q_u8((const uint8_t *)p)); }
SIMD_INLINE uint8x8_t four_bytes(const void *p) // and nothing after them
{
    uint32_t v;
    __builtin_memcpy(&v, p, sizeof v);
    return vreinterpret_u8_u32(vdup_n_u32(v));
}
SIMD_INLINE vi vi_of_u8(const uint8_t *p)
{
    return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(four_bytes(p)))));
}
SIMD_INLINE vi vi_of_i8(const int8_t *p)
{
    return vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(four_bytes(p)))));
}
SIMD_INLINE vi vi_add(vi a, vi b) { return vaddq_s32(a, b); }
SIMD_INLINE vi vi_mul(vi a, vi b) { return vmulq_s32(a, b); }
SIMD_INLINE vi vi_and(vi a, vi b) { return vandq_s32(a, b); }
SIMD_INLINE vi vi_or(vi a, vi b) { return vorrq_s32(a, b); }
SIMD_INLINE vi vi_xor(vi a, vi b) { return veorq_s32(a, b); }
SIMD_INLINE vi vi_srl(vi a, int n)
{
    return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a), vdupq_n_s32(-n)));
}
SIMD_INLINE vi vi_sra(vi a, int n) { return vshlq_s32(a, vdupq_n_s32(-n)); }
SIMD_INLINE vi vi_sll(vi a, int n) { return vshlq_s32(a, vdupq_n_s32(n)); }
// Sixteen bytes, and the byte of such a table at each byte of i (0..15).
SIMD_INLINE vi vi_bcst16(const void *p) { return vi_load(p); }
SIMD_INLINE vi vi_lookup16(vi table, vi i)
{
    return vreinterpretq_s32_u8(vqtbl1q_u8(vreinterpretq_u8_s32(table), vreinterpretq_u8_s32(i)));
}
// Float16 in the lower half of every lane.
SIMD_INLINE vf vf_of_f16_low(vi a)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(vreinterpretq_u32_s32(a))));
}
// Where a is NaN: its upper half with the quiet bit; elsewhere b.
SIMD_INLINE vf vf_quiet_or(vf a, vf b)
{
    vi quiet = vi_or(vi_and(vi_bits(a), vi_set1((int)0xFFFF0000)), vi_set1(0x00400000));
    return vbslq_f32(vceqq_f32(a, a), b, vf_bits(quiet));
}
// clang-format on

#endif

#endif
