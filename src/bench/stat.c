#include "bench/stat.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"

void bench_list_add(struct bench_list *l, double x)
{
    if (l->n == l->cap && !l->failed) {
        size_t cap = l->cap ? l->cap * 2 : 256;
        double *v = qr_realloc(QR_MEM_MISC, l->v, cap * sizeof *v);
        l->failed = v == NULL;
        if (v) l->v = v, l->cap = cap;
    }
    if (!l->failed) l->v[l->n++] = x;
}

void bench_list_fini(struct bench_list *l)
{
    qr_free(l->v);
    *l = (struct bench_list){0};
}

double bench_mean(const struct bench_list *l)
{
    double sum = 0;
    for (size_t i = 0; i < l->n; i++) sum += l->v[i];
    return l->n ? sum / (double)l->n : NAN;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_percentile(struct bench_list *l, double p)
{
    if (l->n == 0) return NAN;
    qsort(l->v, l->n, sizeof *l->v, ascending);
    double at = (double)(l->n - 1) * p;
    size_t i = (size_t)at;
    if (i + 1 >= l->n) return l->v[l->n - 1];
    return l->v[i] + (l->v[i + 1] - l->v[i]) * (at - (double)i);
}

double bench_max(const struct bench_list *l)
{
    double m = l->n ? l->v[0] : NAN;
    for (size_t i = 1; i < l->n; i++)
        if (l->v[i] > m) m = l->v[i];
    return m;
}
