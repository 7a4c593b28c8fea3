#include "bench/fit.h"

#include <math.h>
#include <string.h>

enum { N = QR_COST_TERMS };

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

// The table that comes closest where steps of at most n_few rows are the floor's.
static bool fit_from(const struct fit_sample *samples, size_t n, int64_t n_few, struct qr_costs *out)
{
    double a[N][N] = {0}, b[N] = {0}, x[N];
    bool use[N];
    for (int i = 0; i < N; i++) use[i] = true;
    use[QR_COST_FLOOR] = n_few >= 0;
    for (size_t s = 0; s < n; s++) {
        double t[N], w = 1 / samples[s].ns;
        qr_work_counts(&samples[s].work, samples[s].work.n_rows <= n_few, t);
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
    *out = qr_costs_of_terms(x, 1);
    return true;
}

bool fit_costs(const struct fit_sample *samples, size_t n, struct qr_costs *out)
{
    double least = INFINITY;
    for (size_t i = 0; i <= n; i++) { // first without a floor, then up to each sample's rows
        struct qr_costs c;
        double sum = 0;
        if (!fit_from(samples, n, i == 0 ? -1 : samples[i - 1].work.n_rows, &c)) continue;
        for (size_t s = 0; s < n; s++) sum += fit_error(&c, &samples[s]) * fit_error(&c, &samples[s]);
        if (sum >= least) continue;
        least = sum;
        *out = c;
    }
    return least < INFINITY;
}

double fit_error(const struct qr_costs *c, const struct fit_sample *s)
{
    return fabs((double)qr_costs_ns(c, &s->work) - s->ns) / s->ns;
}
