#include "kern/kern_internal.h"
#include "kern/ref/ref_internal.h"

void kern_swiglu_ref(const float *gate, const float *up, int n, float *y)
{
    for (int i = 0; i < n; i++) y[i] = gate[i] / (1.0f + ref_exp(-gate[i])) * up[i];
}

void kern_vec_add_ref(float *y, const float *x, int n)
{
    for (int i = 0; i < n; i++) y[i] += x[i];
}

void kern_vec_exp_ref(const float *x, int n, float *y)
{
    for (int i = 0; i < n; i++) y[i] = ref_exp(x[i]);
}

int kern_argmax_ref(const float *x, int n)
{
    int best = -1;
    for (int i = 0; i < n; i++)
        if (x[i] == x[i] && (best < 0 || x[i] > x[best])) best = i;
    return best < 0 ? 0 : best;
}

int kern_chunk_max_ref(const float *x, int n, float *max)
{
    int c = 0;
    for (; c * 64 < n; c++) {
        max[c] = -INFINITY;
        for (int i = c * 64; i < n && i < c * 64 + 64; i++)
            if (x[i] > max[c]) max[c] = x[i];
    }
    return c;
}

float kern_sum_exp_ref(const float *x, int n, float max)
{
    float lane[REF_LANES] = {0};
    for (int i = 0; i < n; i++) lane[i % REF_LANES] += ref_exp(x[i] - max);
    return ref_tree_sum(lane);
}
