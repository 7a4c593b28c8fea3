/* How int8 KV's queries and weights become integers (kern/kvtype/int8.c).
 *
 * Owns: nothing. Refuses to know: how integers are multiplied. Threads: pure functions. Lifetime: static. */
#ifdef KERN_ISA

#include <string.h>

#include "kern/tmpl/v16_internal.h"

#define Q_TOP 16256.0f
#define P_TOP 32640.0f

// Magnitudes compare as integers. Returns the scale; *inverse 0: all are zero, or one is not a number.
V16 float scale_of(v16i most, float top, float *inverse)
{
    uint32_t bits = (uint32_t)v16i_hmax(most);
    float m;
    memcpy(&m, &bits, sizeof m);
    *inverse = 0;
    if (bits >= 0x7f800000) return NAN;
    if (m < 0x1p-100f) return 0;
    *inverse = top / m;
    return m / top;
}

V16 v16i rounded(v16 x, float inverse)
{
    return inverse > 0 ? v16i_round(v16_mul(x, v16_set1(inverse))) : v16i_zero();
}

#endif
