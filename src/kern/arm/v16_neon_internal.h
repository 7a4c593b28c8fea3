/* Sixteen float32 lanes in four registers of NEON.
 *
 * Owns: the type v16 and its operations. Refuses to know: kernels. Threads: pure functions. Lifetime: static.
 * Included by tmpl/v16_internal.h alone, which says what the lanes are for. */
#ifndef QR_KERN_ARM_V16_NEON_INTERNAL_H
#define QR_KERN_ARM_V16_NEON_INTERNAL_H

#if defined(__aarch64__)

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    float32x4_t r[4]; // lanes 0 to 3, 4 to 7, ...
} v16;
typedef struct {
    int32x4_t r[4];
} v16i;

// One operation a line reads as a table.
// clang-format off
#define EACH4(expr) {{expr(0), expr(1), expr(2), expr(3)}}

V16 v16 v16_set1(float x)
{
    float32x4_t a = vdupq_n_f32(x);
    return (v16){{a, a, a, a}};
}
#define E(i) vld1q_f32(p + 4 * i)
V16 v16 v16_load(const float *p) { return (v16)EACH4(E); }
#undef E
V16 void v16_store(float *p, v16 a)
{
    UNROLL for (int i = 0; i < 4; i++) vst1q_f32(p + 4 * i, a.r[i]);
}
V16 v16 v16_load_n(const float *p, int n) // zeros after the first n; nothing else is read
{
    float t[16] = {0};
    memcpy(t, p, (size_t)n * sizeof *t);
    return v16_load(t);
}
V16 void v16_store_n(float *p, v16 a, int n)
{
    float t[16];
    v16_store(t, a);
    memcpy(p, t, (size_t)n * sizeof *t);
}
#define E(i) vaddq_f32(a.r[i], b.r[i])
V16 v16 v16_add(v16 a, v16 b) { return (v16)EACH4(E); }
#undef E
#define E(i) vsubq_f32(a.r[i], b.r[i])
V16 v16 v16_sub(v16 a, v16 b) { return (v16)EACH4(E); }
#undef E
#define E(i) vmulq_f32(a.r[i], b.r[i])
V16 v16 v16_mul(v16 a, v16 b) { return (v16)EACH4(E); }
#undef E
#define E(i) vdivq_f32(a.r[i], b.r[i])
V16 v16 v16_div(v16 a, v16 b) { return (v16)EACH4(E); }
#undef E
#define E(i) vfmaq_f32(c.r[i], a.r[i], b.r[i])
V16 v16 v16_fma(v16 a, v16 b, v16 c) { return (v16)EACH4(E); }
#undef E
#define E(i) vfmsq_f32(c.r[i], a.r[i], b.r[i])
V16 v16 v16_fnma(v16 a, v16 b, v16 c) { return (v16)EACH4(E); }
#undef E
#define E(i) vfmaq_f32(vnegq_f32(c.r[i]), a.r[i], b.r[i])
V16 v16 v16_fms(v16 a, v16 b, v16 c) { return (v16)EACH4(E); }
#undef E
// b where either is NaN, which the processor's own maximum is not.
V16 float32x4_t v4_max(float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
#define E(i) v4_max(a.r[i], b.r[i])
V16 v16 v16_max(v16 a, v16 b) { return (v16)EACH4(E); }
#undef E
V16 uint32x4_t v4_first(int n) // all ones in the first n of 4 lanes; any n
{
    static const int32_t lane[4] = {0, 1, 2, 3};
    return vcgtq_s32(vdupq_n_s32(n), vld1q_s32(lane));
}
#define E(i) vbslq_f32(v4_first(n - 4 * i), a.r[i], rest.r[i])
V16 v16 v16_first_or(v16 a, int n, v16 rest) { return (v16)EACH4(E); }
#undef E
#define E(i) vbslq_f32(vcltq_f32(a.r[i], vdupq_n_f32(bound)), vdupq_n_f32(then), otherwise.r[i])
V16 v16 v16_where_lt(v16 a, float bound, float then, v16 otherwise) { return (v16)EACH4(E); }
#undef E
#define E(i) vbslq_f32(vcgtq_f32(a.r[i], vdupq_n_f32(bound)), vdupq_n_f32(then), otherwise.r[i])
V16 v16 v16_where_gt(v16 a, float bound, float then, v16 otherwise) { return (v16)EACH4(E); }
#undef E
V16 uint32_t v16_eq_bits(v16 a, v16 b)
{
    static const uint32_t bit[4] = {1, 2, 4, 8};
    uint32_t bits = 0;
    UNROLL for (int i = 0; i < 4; i++)
        bits |= vaddvq_u32(vandq_u32(vceqq_f32(a.r[i], b.r[i]), vld1q_u32(bit))) << 4 * i;
    return bits;
}
V16 float v16_first_lane(v16 a) { return vgetq_lane_f32(a.r[0], 0); }
// 2^n where t = 1.5 * 2^23 + n.
#define E(i) vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vreinterpretq_s32_f32(t.r[i]), vdupq_n_s32(127)), 23))
V16 v16 v16_exp2_of_sum(v16 t) { return (v16)EACH4(E); }
#undef E
// Even and odd members of 16 pairs.
V16 void v16_load_pairs(const float *p, v16 *even, v16 *odd)
{
    UNROLL for (int i = 0; i < 4; i++) {
        float32x4x2_t both = vld2q_f32(p + 8 * i);
        even->r[i] = both.val[0];
        odd->r[i] = both.val[1];
    }
}
// Complex products x * cs; see kern/ref/rope.c for the order of operations.
V16 float32x4_t v4_rotate(float32x4_t x, float32x4_t cs)
{
    static const uint32_t minus[4] = {0x80000000u, 0, 0x80000000u, 0};
    float32x4_t y = vmulq_f32(vrev64q_f32(x), vtrn2q_f32(cs, cs));
    y = vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(y), vld1q_u32(minus)));
    return vfmaq_f32(y, x, vtrn1q_f32(cs, cs));
}
#define E(i) v4_rotate(x.r[i], cs.r[i])
V16 v16 v16_rotate(v16 x, v16 cs) { return (v16)EACH4(E); }
#undef E

V16 v16i v16i_set1(int32_t x)
{
    int32x4_t a = vdupq_n_s32(x);
    return (v16i){{a, a, a, a}};
}
V16 v16i v16i_zero(void) { return v16i_set1(0); }
#define E(i) vaddq_s32(a.r[i], b.r[i])
V16 v16i v16i_add(v16i a, v16i b) { return (v16i)EACH4(E); }
#undef E
#define E(i) vmaxq_s32(a.r[i], b.r[i])
V16 v16i v16i_max(v16i a, v16i b) { return (v16i)EACH4(E); }
#undef E
#define E(i) vandq_s32(vreinterpretq_s32_f32(a.r[i]), vdupq_n_s32(0x7fffffff))
V16 v16i v16i_magnitude(v16 a) { return (v16i)EACH4(E); }
#undef E
#define E(i) vcvtq_f32_s32(a.r[i])
V16 v16 v16i_to_v16(v16i a) { return (v16)EACH4(E); }
#undef E
#define E(i) vcvtnq_s32_f32(a.r[i])
V16 v16i v16i_round(v16 a) { return (v16i)EACH4(E); } // to nearest, ties to even
#undef E
V16 void v16i_store_u16(uint16_t *p, v16i a) // the low half of every lane
{
    UNROLL for (int i = 0; i < 4; i++) vst1_u16(p + 4 * i, vmovn_u32(vreinterpretq_u32_s32(a.r[i])));
}
V16 void v16i_store_u8(uint8_t *p, v16i a) // the low byte of every lane
{
    UNROLL for (int i = 0; i < 4; i += 2) {
        uint16x4_t lo = vmovn_u32(vreinterpretq_u32_s32(a.r[i])), hi = vmovn_u32(vreinterpretq_u32_s32(a.r[i + 1]));
        vst1_u8(p + 4 * i, vmovn_u16(vcombine_u16(lo, hi)));
    }
}
V16 void v16i_store_i8(int8_t *p, v16i a) { v16i_store_u8((uint8_t *)p, a); }
#define E(i) vshrq_n_s32(vaddq_s32(a.r[i], vdupq_n_s32(half)), 7)
V16 v16i v16i_upper_15(v16i a, int half) { return (v16i)EACH4(E); }
#undef E
#define E(i) vsubq_s32(a.r[i], vshlq_n_s32(up.r[i], 7))
V16 v16i v16i_lower_15(v16i a, v16i up) { return (v16i)EACH4(E); }
#undef E
V16 void v16i_store_15(int8_t *hi, int8_t *lo, v16i a) // lanes within 128 * 127, as 128 * hi + lo
{
    v16i up = v16i_upper_15(a, 64);
    v16i_store_i8(hi, up);
    v16i_store_i8(lo, v16i_lower_15(a, up));
}
// bf16 of every lane in its low half, as kern/ref rounds; the high half is zero.
V16 int32x4_t v4i_bf16(float32x4_t x)
{
    uint32x4_t u = vreinterpretq_u32_f32(x), odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
    uint32x4_t r = vaddq_u32(vaddq_u32(u, vdupq_n_u32(0x7fff)), odd), quiet = vorrq_u32(u, vdupq_n_u32(0x400000));
    return vreinterpretq_s32_u32(vshrq_n_u32(vbslq_u32(vceqq_f32(x, x), r, quiet), 16));
}
#define E(i) v4i_bf16(x.r[i])
V16 v16i v16i_bf16(v16 x) { return (v16i)EACH4(E); }
#undef E
#define E(i) vreinterpretq_f32_s32(vshlq_n_s32(h.r[i], 16))
V16 v16 v16i_f32_of_bf16(v16i h) { return (v16)EACH4(E); }
#undef E
// fp8 codes of lanes up to 1.75, as kern/kvtype/fp8.c rounds, in their low bytes.
V16 int32x4_t v4i_fp8(float32x4_t y)
{
    uint32x4_t u = vreinterpretq_u32_f32(y), mag = vandq_u32(u, vdupq_n_u32(0x7fffffff));
    uint32x4_t odd = vandq_u32(vshrq_n_u32(mag, 20), vdupq_n_u32(1));
    uint32x4_t r = vshrq_n_u32(vaddq_u32(vaddq_u32(mag, vdupq_n_u32(0x7ffff)), odd), 20);
    r = vsubq_u32(r, vdupq_n_u32(112 << 3));
    float32x4_t m = vreinterpretq_f32_u32(mag);
    uint32x4_t least = vandq_u32(vcgtq_f32(m, vdupq_n_f32(0x1p-15f)), vdupq_n_u32(8));
    r = vbslq_u32(vcltq_f32(m, vdupq_n_f32(0x1p-14f)), least, r);
    return vreinterpretq_s32_u32(vorrq_u32(r, vandq_u32(vshrq_n_u32(u, 24), vdupq_n_u32(0x80))));
}
#define E(i) v4i_fp8(y.r[i])
V16 v16i v16i_fp8(v16 y) { return (v16i)EACH4(E); }
#undef E
V16 void v16_store_f16(uint16_t *p, v16 a)
{
    UNROLL for (int i = 0; i < 4; i++) vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(a.r[i])));
}
#define E(i) vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p + 8 * i)))
V16 v16 v16_load_f16(const uint8_t *p) { return (v16)EACH4(E); }
#undef E
// The lower or the upper bf16 of each of 16 pairs.
V16 float32x4_t v4_bf16_of_2(const uint8_t *p, int upper)
{
    uint32x4_t a = vreinterpretq_u32_u8(vld1q_u8(p));
    return vreinterpretq_f32_u32(upper ? vandq_u32(a, vdupq_n_u32(0xffff0000u)) : vshlq_n_u32(a, 16));
}
#define E(i) v4_bf16_of_2(p + 16 * i, upper)
V16 v16 v16_load_bf16_of_2(const uint8_t *p, int upper) { return (v16)EACH4(E); }
#undef E
// Value i of each lane's four of fp8: its code at the top, shifted down to where a float32 has it; 2^112 is what its exponent
// lacks.
V16 float32x4_t v4_fp8_of_4(const uint8_t *p, int i)
{
    int32x4_t x = vshlq_s32(vreinterpretq_s32_u8(vld1q_u8(p)), vdupq_n_s32(24 - 8 * i));
    x = vandq_s32(vshrq_n_s32(x, 4), vdupq_n_s32((int)0x87f00000));
    return vmulq_f32(vreinterpretq_f32_s32(x), vdupq_n_f32(0x1p112f));
}
#define E(j) v4_fp8_of_4(p + 16 * j, i)
V16 v16 v16_load_fp8_of_4(const uint8_t *p, int i) { return (v16)EACH4(E); }
#undef E

// Horizontal operations: lanes 8 apart, 4, 2, 1 (N5).
V16 float v16_sum(v16 a)
{
    float32x4_t s4 = vaddq_f32(vaddq_f32(a.r[0], a.r[2]), vaddq_f32(a.r[1], a.r[3]));
    float32x2_t s2 = vadd_f32(vget_low_f32(s4), vget_high_f32(s4));
    return vget_lane_f32(s2, 0) + vget_lane_f32(s2, 1);
}
V16 float v16_hmax(v16 a)
{
    float32x4_t s4 = v4_max(v4_max(a.r[0], a.r[2]), v4_max(a.r[1], a.r[3]));
    s4 = v4_max(s4, vextq_f32(s4, s4, 2));
    s4 = v4_max(s4, vextq_f32(s4, s4, 1));
    return vgetq_lane_f32(s4, 0);
}
V16 int32_t v16i_sum(v16i a) { return vaddvq_s32(vaddq_s32(vaddq_s32(a.r[0], a.r[2]), vaddq_s32(a.r[1], a.r[3]))); }
V16 int32_t v16i_hmax(v16i a) { return vmaxvq_s32(vmaxq_s32(vmaxq_s32(a.r[0], a.r[2]), vmaxq_s32(a.r[1], a.r[3]))); }
// clang-format on

#endif
#endif
