/* 16-bit floats to and from float32, in portable C.
 *
 * Owns: nothing. Refuses to know: instruction sets (kernels use their own conversions, with the same
 * results). Threads: pure functions. Lifetime: none. */
#ifndef QR_KERN_HALF_H
#define QR_KERN_HALF_H

#include <stdint.h>
#include <string.h>

static inline float qr_f32_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t qr_bits_of_f32(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

// Exact: every float16 is a float32. A denormal is normalised by subtracting its implicit one.
static inline float qr_f32_of_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exp = (h >> 10) & 31;
    uint32_t man = (uint32_t)(h & 0x3FF) << 13;
    if (exp == 31) return qr_f32_of_bits(sign | 0x7F800000u | man);
    if (exp != 0) return qr_f32_of_bits(sign | ((exp + 112) << 23) | man);
    // man * 2^-14 without its implicit one: (1.man * 2^-14) - 2^-14 is exact and never a float32 denormal.
    float f = qr_f32_of_bits((113u << 23) | man) - qr_f32_of_bits(113u << 23);
    return qr_f32_of_bits(sign | qr_bits_of_f32(f));
}

static inline float qr_f32_of_bf16(uint16_t h)
{
    return qr_f32_of_bits((uint32_t)h << 16);
}

// Round to nearest even; NaN stays a quiet NaN.
static inline uint16_t qr_bf16_of_f32(float f)
{
    uint32_t u = qr_bits_of_f32(f);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)((u >> 16) | 0x40);
    return (uint16_t)((u + 0x7FFF + ((u >> 16) & 1)) >> 16);
}

// Round to nearest even, to at most 65504; a NaN stays a quiet NaN.
static inline uint16_t qr_f16_of_f32(float f)
{
    uint32_t u = qr_bits_of_f32(f), sign = u >> 16 & 0x8000, mag = u & 0x7FFFFFFFu;
    if (mag > 0x7F800000u) return (uint16_t)(sign | 0x7E00);
    if (mag > 0x477FE000u) mag = 0x477FE000u; // 65504
    if (mag < 0x38800000u) { // below 2^-14: adding 0.5 leaves the multiple of 2^-24 in the low bits
        float y = qr_f32_of_bits(mag) + 0.5f;
        return (uint16_t)(sign | (qr_bits_of_f32(y) - 0x3F000000u));
    }
    return (uint16_t)(sign | (((mag + 0xFFF + (mag >> 13 & 1)) >> 13) - (112u << 10)));
}

static inline uint16_t qr_load_u16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

#endif
