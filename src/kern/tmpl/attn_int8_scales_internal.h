/* How int8 KV's queries and weights become integers (kern/kvtype/int8.c).
 *
 * Owns: nothing. Refuses to know: how integers are multiplied. Threads: pure functions. Lifetime: static. */
#ifdef KERN_ISA

#include "kern/tmpl/v16_internal.h"

#define Q_TOP 16256.0f
#define P_TOP 32640.0f

V16 v16i rounded(v16 x, float inverse)
{
    return inverse > 0 ? v16i_round(v16_mul(x, v16_set1(inverse))) : v16i_zero();
}

#endif
