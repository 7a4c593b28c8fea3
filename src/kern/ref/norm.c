#include "kern/kern_internal.h"
#include "kern/ref/ref_internal.h"

void kern_rmsnorm_ref(const float *x, const float *w, float eps, int n, float *y)
{
    float lane[REF_LANES] = {0};
    for (int i = 0; i < n; i++) lane[i % REF_LANES] = fmaf(x[i], x[i], lane[i % REF_LANES]);
    float inv = 1.0f / sqrtf(ref_tree_sum(lane) / (float)n + eps);
    for (int i = 0; i < n; i++) y[i] = x[i] * inv * w[i];
}
