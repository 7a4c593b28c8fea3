/* Products of int8 KV on ARM, the part of tmpl/attn_int8_internal.h that each instruction set does in its own way.
 *
 * Owns: nothing. Refuses to know: the loops. Threads: pure functions. Lifetime: static.
 *
 * With usdot a multiplier is two bytes, 128 * hi + lo, of four values each, one instruction a byte: unsigned K by
 * signed q, unsigned p by signed V. Without it, values and multipliers are words: the even and the odd values of
 * four, whose products are added in pairs. */
#ifdef KERN_ISA

#define UNITS 1
#define DIMS 1

V16 v16i ints_at(const void *p)
{
    v16i a;
    UNROLL for (int i = 0; i < 4; i++) a.r[i] = vreinterpretq_s32_u8(vld1q_u8((const uint8_t *)p + 16 * i));
    return a;
}

#if defined(__ARM_FEATURE_MATMUL_INT8)

typedef struct {
    v16i hi, lo;
} sum;
typedef v16i part;
typedef struct {
    int32x4_t hi, lo; // equal in all lanes
} coef;

V16 sum sum_zero(void)
{
    return (sum){v16i_zero(), v16i_zero()};
}
V16 part k_part(const uint8_t *line, int step)
{
    (void)step;
    return ints_at(line);
}
#define v_part k_part
V16 coef coef_load(const void *p, int i)
{
    const int32_t *c = (const int32_t *)p + 2 * i;
    return (coef){vdupq_n_s32(c[0]), vdupq_n_s32(c[1])};
}
V16 int32x4_t us_dot(int32x4_t s, int32x4_t without_sign, int32x4_t with_sign)
{
    return vusdotq_s32(s, vreinterpretq_u8_s32(without_sign), vreinterpretq_s8_s32(with_sign));
}
V16 sum k_dot(sum s, part a, coef b)
{
    UNROLL for (int i = 0; i < 4; i++)
    {
        s.hi.r[i] = us_dot(s.hi.r[i], a.r[i], b.hi);
        s.lo.r[i] = us_dot(s.lo.r[i], a.r[i], b.lo);
    }
    return s;
}
V16 sum v_dot(sum s, part a, coef b)
{
    UNROLL for (int i = 0; i < 4; i++)
    {
        s.hi.r[i] = us_dot(s.hi.r[i], b.hi, a.r[i]);
        s.lo.r[i] = us_dot(s.lo.r[i], b.lo, a.r[i]);
    }
    return s;
}
V16 v16i sum_ints(sum s)
{
    UNROLL for (int i = 0; i < 4; i++) s.lo.r[i] = vaddq_s32(vshlq_n_s32(s.hi.r[i], 7), s.lo.r[i]);
    return s.lo;
}
// Four multipliers a coef: their upper bytes, then their lower ones, of lo in 0 .. 127 or -64 .. 63.
V16 void coef_pack(uint8_t *coefs, int i16, v16i x, int half)
{
    uint8_t hi[16], lo[16];
    v16i up = v16i_upper_15(x, half);
    v16i_store_u8(hi, up);
    v16i_store_u8(lo, v16i_lower_15(x, up));
    uint32x4_t h = vreinterpretq_u32_u8(vld1q_u8(hi)), l = vreinterpretq_u32_u8(vld1q_u8(lo));
    vst1q_u32((uint32_t *)(void *)coefs + 8 * i16, vzip1q_u32(h, l));
    vst1q_u32((uint32_t *)(void *)coefs + 8 * i16 + 4, vzip2q_u32(h, l));
}

#else

typedef v16i sum;
typedef struct {
    v16i even, odd; // two words a lane
} part;
typedef struct {
    int16x8_t even, odd; // equal in all lanes
} coef;

V16 sum sum_zero(void)
{
    return v16i_zero();
}
V16 part k_part(const uint8_t *line, int step)
{
    (void)step;
    v16i a = ints_at(line);
    part p;
    UNROLL for (int i = 0; i < 4; i++)
    {
        uint16x8_t w = vreinterpretq_u16_s32(a.r[i]);
        p.even.r[i] = vreinterpretq_s32_u16(vandq_u16(w, vdupq_n_u16(0xff)));
        p.odd.r[i] = vreinterpretq_s32_u16(vshrq_n_u16(w, 8));
    }
    return p;
}
V16 part v_part(const uint8_t *line, int step)
{
    (void)step;
    v16i a = ints_at(line);
    part p;
    UNROLL for (int i = 0; i < 4; i++)
    {
        int16x8_t w = vreinterpretq_s16_s32(a.r[i]);
        p.even.r[i] = vreinterpretq_s32_s16(vshrq_n_s16(vshlq_n_s16(w, 8), 8));
        p.odd.r[i] = vreinterpretq_s32_s16(vshrq_n_s16(w, 8));
    }
    return p;
}
V16 coef coef_load(const void *p, int i)
{
    const int32_t *c = (const int32_t *)p + 2 * i;
    return (coef){vreinterpretq_s16_s32(vdupq_n_s32(c[0])), vreinterpretq_s16_s32(vdupq_n_s32(c[1]))};
}
// Products of words, added in pairs.
V16 int32x4_t pair_dot(int32x4_t a, int16x8_t b)
{
    int16x8_t w = vreinterpretq_s16_s32(a);
    return vpaddq_s32(vmull_s16(vget_low_s16(w), vget_low_s16(b)), vmull_high_s16(w, b));
}
V16 sum k_dot(sum s, part a, coef b)
{
    UNROLL for (int i = 0; i < 4; i++)
    {
        s.r[i] = vaddq_s32(s.r[i], pair_dot(a.even.r[i], b.even));
        s.r[i] = vaddq_s32(s.r[i], pair_dot(a.odd.r[i], b.odd));
    }
    return s;
}
#define v_dot k_dot
V16 v16i sum_ints(sum s)
{
    return s;
}
// Words of four multipliers a coef: the even ones, then the odd ones.
V16 void coef_pack(uint8_t *coefs, int i16, v16i x, int half)
{
    (void)half;
    int16_t *to = (int16_t *)(void *)coefs + 16 * i16;
    UNROLL for (int i = 0; i < 4; i++)
    {
        int16x4_t w = vmovn_s32(x.r[i]);
        int32x2_t even = vreinterpret_s32_s16(vuzp1_s16(w, w)), odd = vreinterpret_s32_s16(vuzp2_s16(w, w));
        vst1_s16(to + 4 * i, vreinterpret_s16_s32(vzip1_s32(even, odd)));
    }
}

#endif

#endif
