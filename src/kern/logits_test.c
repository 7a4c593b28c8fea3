#include "kern/logits.h"

#include <math.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/test.h"
#include "kern/kern.h"

enum { T = QR_LOGIT_TILE, N_MAX = 5 * T };

static struct qr_logit_peak peak_of(const float *x, int n)
{
    struct qr_logit_tile tiles[5];
    for (int t = 0; t < qr_logit_tiles(n); t++) {
        int first = t * T, len = n - first < T ? n - first : T;
        qr_logit_tile(x + first, len, first, true, &tiles[t]);
    }
    struct qr_logit_peak p = qr_logit_merge(tiles, qr_logit_tiles(n), true);
    struct qr_logit_peak q = qr_logit_merge(tiles, qr_logit_tiles(n), false);
    assert_int_equal(q.id, p.id);
    assert_true(q.norm == 0);
    return p;
}

// Few values, so that there are ties within tiles and across them.
static void fill(float *x, int n, uint64_t seed)
{
    for (int i = 0; i < n; i++) x[i] = (float)(qr_rand_u64(seed, 0, (uint64_t)i) % 21) * 0.5f - 5;
}

static const int sizes[] = {1, 15, 16, 17, T - 1, T, T + 1, 2 * T, 3 * T + 77, 4 * T + 16, N_MAX - 1, N_MAX};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

QR_TEST(logits_peak_is_the_rows_argmax_and_norm)
{
    static float x[N_MAX];
    for (uint64_t seed = 0; seed < 8; seed++)
        for (int s = 0; s < N_SIZES; s++) {
            int n = sizes[s], best = 0;
            double sum = 0;
            fill(x, n, seed);
            for (int i = 0; i < n; i++) {
                if (x[i] > x[best]) best = i;
                sum += exp((double)x[i]);
            }
            struct qr_logit_peak p = peak_of(x, n);
            assert_int_equal(p.id, best);
            assert_true(p.max == x[best]);
            assert_true(fabs(p.norm - log(sum)) < 2e-6);
        }
}

QR_TEST(logits_nan_never_wins_and_spoils_the_norm)
{
    static float x[N_MAX];
    for (int s = 0; s < N_SIZES; s++) {
        int n = sizes[s];
        fill(x, n, 3);
        x[0] = NAN; // of the first tile alone, then of whole tiles, then of the row
        for (int n_nan = 1; n_nan <= n; n_nan = n_nan < n && n_nan * 4 > n ? n : n_nan * 4) {
            for (int i = 0; i < n_nan; i++) x[i] = NAN;
            struct qr_logit_peak p = peak_of(x, n);
            assert_int_equal(p.id, qr_kern()->argmax(x, n));
            assert_true(n_nan == n ? p.id == 0 : p.max == x[p.id]);
            assert_true(isnan(p.norm));
            if (n_nan == n) break;
        }
    }
}

QR_TEST(logits_of_masked_tiles_add_nothing)
{
    static float x[N_MAX];
    for (int i = 0; i < N_MAX; i++) x[i] = -INFINITY;
    struct qr_logit_peak p = peak_of(x, N_MAX);
    assert_int_equal(p.id, 0);
    assert_true(isnan(p.norm)); // of nothing at all
    x[T + 5] = 2;
    x[2 * T + 1] = 2;
    p = peak_of(x, N_MAX);
    assert_int_equal(p.id, T + 5);
    assert_true(fabs(p.norm - (2 + log(2))) < 1e-7);
    x[4 * T] = NAN; // alone in its tile with -infinity
    p = peak_of(x, N_MAX);
    assert_int_equal(p.id, T + 5);
    assert_true(isnan(p.norm));
    x[4 * T] = INFINITY;
    assert_int_equal(peak_of(x, N_MAX).id, 4 * T);
}
