#include "kern/kern_internal.h"
#include "kern/ref/ref_internal.h"

static inline void rotate(float *a, float *b, float cos, float sin)
{
    float x = *a, y = *b;
    *a = fmaf(x, cos, -(y * sin));
    *b = fmaf(y, cos, x * sin);
}

void kern_rope_norm_ref(float *x, const float *cs, int d_rot)
{
    for (int i = 0; i < d_rot / 2; i++) rotate(&x[2 * i], &x[2 * i + 1], cs[2 * i], cs[2 * i + 1]);
}

void kern_rope_neox_ref(float *x, const float *cs, int d_rot)
{
    for (int i = 0; i < d_rot / 2; i++) rotate(&x[i], &x[i + d_rot / 2], cs[2 * i], cs[2 * i + 1]);
}
