#include "bench/fit.h"

#include <math.h>
#include <string.h>

enum { N = 6 };

// In ns: with what each number of the table is multiplied.
static void terms(const struct qr_work *l, double x[N])
{
    x[0] = 1;
    x[1] = (double)l->n_rows;
    x[2] = l->n_prompt_tile > 0;
    x[3] = (double)l->n_prompt_tile;
    x[4] = (double)l->context * 1e-3;
    x[5] = (double)l->query_context * 1e-3;
}

// Solves a * x = b over the variables in use, by elimination with pivoting. The columns are scaled first: they differ by 1e9.
static bool solve(const double a[N][N], const double b[N], const bool use[N], double x[N])
{
    double m[N][N + 1], scale[N];
    int at[N], n = 0;
    for (int i = 0; i < N; i++)
        if (use[i]) at[n++] = i;
    for (int i = 0; i < n; i++) scale[i] = a[at[i]][at[i]] > 0 ? 1 / sqrt(a[at[i]][at[i]]) : 1;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < n; k++) m[i][k] = a[at[i]][at[k]] * scale[i] * scale[k];
        m[i][n] = b[at[i]] * scale[i];
    }
    for (int c = 0; c < n; c++) {
        int best = c;
        for (int i = c + 1; i < n; i++)
            if (fabs(m[i][c]) > fabs(m[best][c])) best = i;
        if (fabs(m[best][c]) < 1e-12) return false;
        for (int k = 0; k <= n; k++) {
            double t = m[c][k];
            m[c][k] = m[best][k];
            m[best][k] = t;
        }
        for (int i = 0; i < n; i++) {
            double f = i == c ? 0 : m[i][c] / m[c][c];
            for (int k = c; k <= n && f != 0; k++) m[i][k] -= f * m[c][k];
        }
    }
    memset(x, 0, sizeof(double) * N);
    for (int i = 0; i < n; i++) x[at[i]] = m[i][n] / m[i][i] * scale[i];
    return true;
}

bool fit_costs(const struct fit_sample *samples, size_t n, struct qr_costs *out)
{
    double a[N][N] = {0}, b[N] = {0}, x[N];
    bool use[N] = {true, true, true, true, true, true};
    for (size_t s = 0; s < n; s++) {
        double t[N], w = 1 / samples[s].ns;
        terms(&samples[s].work, t);
        for (int i = 0; i < N; i++) {
            b[i] += t[i] * w;
            for (int k = 0; k < N; k++) a[i][k] += t[i] * w * t[k] * w;
        }
    }
    for (int round = 0; round < N; round++) { // what comes out below 0 is 0, and the others are found again
        if (!solve(a, b, use, x)) return false;
        bool again = false;
        for (int i = 0; i < N; i++)
            if (use[i] && x[i] < 0) use[i] = false, again = true;
        if (!again) break;
    }
    uint64_t v[N];
    for (int i = 0; i < N; i++) v[i] = x[i] > 0 ? (uint64_t)(x[i] + 0.5) : 0;
    *out = (struct qr_costs){.epoch = 1,
                             .fixed_ns = v[0] ? v[0] : 1, // a step takes some time
                                 .row_ns = v[1],
                                 .prompt_fixed_ns = v[2],
                                 .prompt_row_ns = v[3],
                                 .context_ps = v[4],
                                 .query_context_ps = v[5]};
    return true;
}

double fit_error(const struct qr_costs *c, const struct fit_sample *s)
{
    return fabs((double)qr_costs_ns(c, &s->work) - s->ns) / s->ns;
}
