/* Products of int8 KV on x86, the part of tmpl/attn_int8_internal.h that each instruction set does in its own way.
 *
 * Owns: nothing. Refuses to know: the loops. Threads: pure functions. Lifetime: static.
 *
 * With VNNI a multiplier is two bytes, 128 * hi + lo, of four values each, one instruction a byte: unsigned K by
 * signed q, unsigned p by signed V. Without it, values and multipliers are words: the even and the odd values of
 * four, by vpmaddwd. */
#ifdef KERN_ISA

#if defined(__AVX512VNNI__)

#define UNITS 2 // 4 x 2 sums of two registers each
#define DIMS 2
typedef struct {
    v16i hi, lo;
} sum;
typedef v16i part;
typedef struct {
    v16i hi, lo;
} coef;

V16 sum sum_zero(void)
{
    return (sum){v16i_zero(), v16i_zero()};
}
V16 part k_part(const uint8_t *line, int step)
{
    (void)step;
    return _mm512_loadu_si512(line);
}
#define v_part k_part
V16 coef coef_load(const void *p, int i)
{
    const int32_t *c = (const int32_t *)p + 2 * i;
    return (coef){_mm512_set1_epi32(c[0]), _mm512_set1_epi32(c[1])};
}
// Spelt out: from the intrinsic, gcc 12 moves each sum to another register and back in every turn of a loop.
V16 v16i dot_u8_s8(v16i s, v16i u8, v16i s8)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(s) : "v"(u8), "v"(s8));
    return s;
}
V16 sum k_dot(sum s, part a, coef b)
{
    return (sum){dot_u8_s8(s.hi, a, b.hi), dot_u8_s8(s.lo, a, b.lo)};
}
V16 sum v_dot(sum s, part a, coef b)
{
    return (sum){dot_u8_s8(s.hi, b.hi, a), dot_u8_s8(s.lo, b.lo, a)};
}
V16 v16i sum_ints(sum s)
{
    return _mm512_add_epi32(_mm512_slli_epi32(s.hi, 7), s.lo);
}
// Four multipliers a coef: their upper bytes, then their lower ones, of lo in 0 .. 127 or -64 .. 63.
V16 void coef_pack(uint8_t *coefs, int i16, v16i x, int half)
{
    v16i up = _mm512_srai_epi32(_mm512_add_epi32(x, _mm512_set1_epi32(half)), 7);
    __m128i hi = _mm512_cvtepi32_epi8(up), lo = _mm512_cvtepi32_epi8(_mm512_sub_epi32(x, _mm512_slli_epi32(up, 7)));
    __m128i *p = (__m128i *)(void *)coefs + 2 * i16;
    _mm_storeu_si128(p, _mm_unpacklo_epi32(hi, lo));
    _mm_storeu_si128(p + 1, _mm_unpackhi_epi32(hi, lo));
}

#else

typedef v16i sum;
typedef struct {
    v16i even, odd;
} part;
typedef part coef;

#if defined(__AVX512F__)
#define UNITS 4
#define DIMS 4
V16 part k_part(const uint8_t *line, int step)
{
    (void)step;
    __m512i a = _mm512_loadu_si512(line);
    return (part){_mm512_and_si512(a, _mm512_set1_epi16(0xff)), _mm512_srli_epi16(a, 8)};
}
V16 part v_part(const uint8_t *line, int step)
{
    (void)step;
    __m512i a = _mm512_loadu_si512(line);
    return (part){_mm512_srai_epi16(_mm512_slli_epi16(a, 8), 8), _mm512_srai_epi16(a, 8)};
}
V16 coef coef_load(const void *p, int i)
{
    const int32_t *c = (const int32_t *)p + 2 * i;
    return (coef){_mm512_set1_epi32(c[0]), _mm512_set1_epi32(c[1])};
}
V16 sum k_dot(sum s, part a, coef b)
{
    s = _mm512_add_epi32(s, _mm512_madd_epi16(a.even, b.even));
    return _mm512_add_epi32(s, _mm512_madd_epi16(a.odd, b.odd));
}
V16 __m256i words_of(v16i x)
{
    return _mm512_cvtepi32_epi16(x);
}
#else
#define UNITS 1
#define DIMS 1
V16 part k_part(const uint8_t *line, int step)
{
    (void)step;
    __m256i a = _mm256_loadu_si256((const __m256i *)line), b = _mm256_loadu_si256((const __m256i *)(line + 32));
    __m256i m = _mm256_set1_epi16(0xff);
    return (part){{_mm256_and_si256(a, m), _mm256_and_si256(b, m)}, {_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8)}};
}
V16 part v_part(const uint8_t *line, int step)
{
    (void)step;
    __m256i a = _mm256_loadu_si256((const __m256i *)line), b = _mm256_loadu_si256((const __m256i *)(line + 32));
    return (part){{_mm256_srai_epi16(_mm256_slli_epi16(a, 8), 8), _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8)},
                  {_mm256_srai_epi16(a, 8), _mm256_srai_epi16(b, 8)}};
}
V16 coef coef_load(const void *p, int i)
{
    const int32_t *c = (const int32_t *)p + 2 * i;
    __m256i even = _mm256_set1_epi32(c[0]), odd = _mm256_set1_epi32(c[1]);
    return (coef){{even, even}, {odd, odd}};
}
V16 sum k_dot(sum s, part a, coef b)
{
    s.lo = _mm256_add_epi32(s.lo, _mm256_madd_epi16(a.even.lo, b.even.lo));
    s.hi = _mm256_add_epi32(s.hi, _mm256_madd_epi16(a.even.hi, b.even.hi));
    s.lo = _mm256_add_epi32(s.lo, _mm256_madd_epi16(a.odd.lo, b.odd.lo));
    s.hi = _mm256_add_epi32(s.hi, _mm256_madd_epi16(a.odd.hi, b.odd.hi));
    return s;
}
V16 __m256i words_of(v16i x)
{
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(x.lo, x.hi), 0xd8);
}
#endif
#define v_dot k_dot

V16 sum sum_zero(void)
{
    return v16i_zero();
}
V16 v16i sum_ints(sum s)
{
    return s;
}
// Words of four multipliers a coef: the even ones, then the odd ones.
V16 void coef_pack(uint8_t *coefs, int i16, v16i x, int half)
{
    (void)half;
    __m256i w = words_of(x);
    _mm256_storeu_si256((__m256i *)(void *)coefs + i16, _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(w, 0xd8), 0xd8));
}

#endif

#endif
