#include "kern/logits.h"

#include <math.h>

#include "kern/kern.h"

void qr_logit_tile(const float *x, int n, int32_t first_id, bool with_sum, struct qr_logit_tile *out)
{
    const struct qr_kern *kern = qr_kern();
    int at = kern->argmax(x, n);
    float max = x[at];
    *out = (struct qr_logit_tile){.max = max, .id = first_id + at};
    if (with_sum) out->sum = kern->sum_exp(x, n, max > -INFINITY ? max : 0);
}

struct qr_logit_peak qr_logit_merge(const struct qr_logit_tile *tiles, int n, bool with_sum)
{
    int best = -1;
    for (int i = 0; i < n; i++)
        if (tiles[i].max == tiles[i].max && (best < 0 || tiles[i].max > tiles[best].max)) best = i;
    if (best < 0) best = 0;
    struct qr_logit_peak p = {.max = tiles[best].max, .id = tiles[best].id};
    if (!with_sum) return p;
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)tiles[i].sum * exp((double)tiles[i].max - (double)p.max);
    p.norm = (double)p.max + log(sum);
    return p;
}
