/* Plain kernels against arithmetic in double, for portable C and the program's own table. checkasm compares
 * every set with portable C bit for bit, so what holds here holds for all of them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/test.h"
#include "kern/half.h"
#include "kern/kern.h"

#define N 1000

static float value(uint64_t stream, int i, float top)
{
    return (float)(qr_rand_unit(29, stream, (uint64_t)i) * 2 - 1) * top;
}

static void fill(float *x, int n, uint64_t stream, float top)
{
    for (int i = 0; i < n; i++) x[i] = value(stream, i, top);
}

// Portable C first, then everything this machine has.
#define EACH_TABLE(k)                                                                                        \
    struct qr_kern k;                                                                                        \
    for (int all = 0; all < 2 && (qr_kern_fill(&k, all ? qr_isa_detected() : 0), 1); all++)

QR_TEST(vec_exp_is_within_one_ulp)
{
    static float x[4096], y[4096];
    EACH_TABLE(k)
    {
        for (int block = 0; block < 200; block++) {
            for (int i = 0; i < 4096; i++)
                x[i] = -87.3f + 175.6f * (float)qr_rand_unit(3, (uint64_t)block, (uint64_t)i);
            k.vec_exp(x, 4096, y);
            for (int i = 0; i < 4096; i++) {
                double want = exp((double)x[i]), ulp = ldexp(1, ilogb(want) - 23);
                assert_true(fabs(y[i] - want) <= 0.9 * ulp);
            }
        }
    }
}

QR_TEST(vec_exp_ends_exactly)
{
    static const float x[] = {0, -0.0f, -87.31f, -1000, -INFINITY, 88.38f, INFINITY, NAN, -87.3f, 88.37f};
    float y[10];
    EACH_TABLE(k)
    {
        k.vec_exp(x, 10, y);
        assert_true(y[0] == 1 && y[1] == 1);
        assert_true(y[2] == 0 && y[3] == 0 && y[4] == 0);
        assert_true(isinf(y[5]) && isinf(y[6]));
        assert_true(isnan(y[7]));
        assert_true(y[8] > 1.17e-38f && y[9] < 3.4e38f);
    }
}

QR_TEST(vec_exp_never_falls)
{
    static float x[2048], y[2048];
    struct qr_kern k;
    qr_kern_fill(&k, qr_isa_detected());
    float at = -80;
    for (int block = 0; block < 100; block++) {
        for (int i = 0; i < 2048; i++, at += 1e-4f * fabsf(at) + 1e-5f) x[i] = at;
        at = x[2047];
        k.vec_exp(x, 2048, y);
        for (int i = 1; i < 2048; i++) assert_true(y[i] >= y[i - 1]);
        if (at > 80) break;
    }
}

QR_TEST(vec_rmsnorm_is_the_formula)
{
    float x[N], w[N], y[N];
    EACH_TABLE(k)
    {
        for (int n = 1; n <= N; n += n < 40 ? 1 : 97) {
            fill(x, n, 1, 4);
            fill(w, n, 2, 2);
            k.rmsnorm(x, w, 1e-5f, n, y);
            double sum = 0;
            for (int i = 0; i < n; i++) sum += (double)x[i] * x[i];
            double inv = 1 / sqrt(sum / n + 1e-5);
            for (int i = 0; i < n; i++)
                assert_true(fabs(y[i] - x[i] * inv * w[i]) <= 1e-6 * (1 + fabs((double)y[i])));
        }
    }
}

QR_TEST(vec_swiglu_is_the_formula)
{
    float g[N], u[N], y[N];
    EACH_TABLE(k)
    {
        fill(g, N, 3, 30);
        fill(u, N, 4, 5);
        k.swiglu(g, u, N, y);
        for (int i = 0; i < N; i++) {
            double want = g[i] / (1 + exp(-(double)g[i])) * u[i];
            assert_true(fabs(y[i] - want) <= 3e-7 * fabs(want) + 1e-37);
        }
        float far[4] = {-200, 200, -88.5f, 0}, one[4] = {1, 1, 1, 1};
        k.swiglu(far, one, 4, y);
        assert_true(y[0] == 0 && y[1] == 200 && fabsf(y[2]) < 1e-30f && y[3] == 0);
    }
}

QR_TEST(vec_sum_exp_is_the_sum)
{
    static float x[50000];
    EACH_TABLE(k)
    {
        for (int n = 1; n <= 50000; n = n * 7 + 3) {
            fill(x, n, 5, 20);
            double want = 0;
            for (int i = 0; i < n; i++) want += exp((double)x[i] - 20);
            assert_true(fabs(k.sum_exp(x, n, 20) - want) <= 2e-6 * want);
        }
        assert_true(k.sum_exp(x, 0, 0) == 0);
    }
}

QR_TEST(vec_argmax_takes_the_first_and_no_nan)
{
    float x[N];
    EACH_TABLE(k)
    {
        for (int n = 1; n < 200; n++) {
            fill(x, n, 6, 1);
            int at = (int)(qr_rand_u64(1, 7, (uint64_t)n) % (uint64_t)n);
            x[at] = 2;
            if (at + 1 < n) x[n - 1] = 2; // a tie behind it
            if (at > 0) x[0] = NAN;
            assert_int_equal(k.argmax(x, n), at);
        }
        for (int i = 0; i < 40; i++) x[i] = NAN;
        assert_int_equal(k.argmax(x, 40), 0);
        x[37] = -INFINITY;
        assert_int_equal(k.argmax(x, 40), 37);
        x[3] = -0.0f;
        x[20] = 0.0f;
        assert_int_equal(k.argmax(x, 40), 3); // zeros tie
    }
}

QR_TEST(vec_add_is_exact)
{
    float x[N], y[N], want[N];
    EACH_TABLE(k)
    {
        fill(x, N, 8, 3);
        fill(y, N, 9, 3);
        for (int i = 0; i < N; i++) want[i] = y[i] + x[i];
        k.vec_add(y, x, N);
        assert_memory_equal(y, want, sizeof y);
    }
}

QR_TEST(vec_rope_turns_pairs)
{
    float x[256], y[256], cs[256];
    EACH_TABLE(k)
    {
        for (int d = 2; d <= 256; d += 2) {
            for (int i = 0; i < d / 2; i++) {
                cs[2 * i] = cosf(0.3f * (float)i + 0.1f);
                cs[2 * i + 1] = sinf(0.3f * (float)i + 0.1f);
            }
            for (int neox = 0; neox < 2; neox++) {
                fill(x, d, 10, 2);
                memcpy(y, x, sizeof y);
                (neox ? k.rope_neox : k.rope_norm)(y, cs, d);
                for (int i = 0; i < d / 2; i++) {
                    int a = neox ? i : 2 * i, b = neox ? i + d / 2 : 2 * i + 1;
                    double c = cs[2 * i], s = cs[2 * i + 1];
                    assert_true(fabs(y[a] - (x[a] * c - x[b] * s)) < 1e-6);
                    assert_true(fabs(y[b] - (x[b] * c + x[a] * s)) < 1e-6);
                }
            }
        }
    }
}

QR_TEST(vec_quant_is_within_half_a_step)
{
    float x[512], scale[16];
    int8_t q[512];
    int32_t sum[16];
    EACH_TABLE(k)
    {
        for (int group = 32; group <= 256; group *= 8) {
            fill(x, 512, 12, 7);
            (group == 32 ? k.quant_g32 : k.quant_g256)(x, 512, q, scale, sum);
            for (int g = 0; g < 512 / group; g++) {
                float max = 0;
                for (int i = g * group; i < (g + 1) * group; i++) max = fmaxf(max, fabsf(x[i]));
                assert_true(scale[g] == max / 127);
                for (int i = g * group; i < (g + 1) * group; i++)
                    assert_true(fabs(x[i] - (double)q[i] * scale[g]) <= 0.5001 * (double)scale[g]);
            }
            for (int g = 0; g < 16; g++) {
                int want = 0;
                for (int i = 0; i < 32; i++) want += q[g * 32 + i];
                assert_int_equal(sum[g], want);
            }
        }
    }
}

// A tie goes to the even neighbour; a group of zeros or of tiny values is zero; one with a NaN has the scale
// NaN.
QR_TEST(vec_quant_ends_exactly)
{
    float x[128] = {0}, scale[4];
    int8_t q[128];
    int32_t sum[4];
    x[0] = 127;
    x[1] = 0.5f;
    x[2] = 1.5f;
    x[3] = -2.5f;
    x[32] = 1e-35f;
    x[64] = NAN;
    x[65] = 3;
    x[96] = -3.4e38f;
    EACH_TABLE(k)
    {
        k.quant_g32(x, 128, q, scale, sum);
        assert_true(scale[0] == 1 && q[0] == 127 && q[1] == 0 && q[2] == 2 && q[3] == -2 && sum[0] == 127);
        assert_true(scale[1] == 0 && q[32] == 0 && sum[1] == 0);
        assert_true(isnan(scale[2]) && q[65] == 0 && sum[2] == 0);
        assert_true(q[96] == -127 && sum[3] == -127);
    }
}

// 128 * hi + lo is x in steps of the scale, with lo as small as can be; the largest is +-16256.
QR_TEST(vec_quant_15_is_within_half_a_step)
{
    float x[128], scale[4];
    int8_t hi[128], lo[128];
    int32_t sum[4];
    EACH_TABLE(k)
    {
        fill(x, 128, 12, 7);
        for (int i = 32; i < 64; i++) x[i] = i % 2 ? 16256 : -16256 + (float)i;
        x[64] = INFINITY;
        memset(x + 96, 0, 32 * sizeof *x);
        k.quant_q15(x, 128, hi, lo, scale, sum);
        for (int g = 0; g < 2; g++) {
            int want = 0;
            for (int i = 32 * g; i < 32 * g + 32; i++) {
                int v = 128 * hi[i] + lo[i];
                assert_true(fabs(x[i] - (double)v * scale[g]) <= 0.5002 * (double)scale[g]);
                assert_true(lo[i] >= -64 && lo[i] < 64 && abs(v) <= 16256);
                want += v;
            }
            assert_int_equal(sum[g], want);
        }
        assert_true(scale[1] == 1 && hi[33] == 127 && lo[33] == 0 && hi[32] == -127 && lo[32] == 32);
        assert_true(isnan(scale[2]) && hi[64] == 0 && lo[65] == 0 && sum[2] == 0);
        assert_true(scale[3] == 0 && hi[96] == 0 && lo[97] == 0 && sum[3] == 0);
    }
}

QR_TEST(vec_to_bf16_rounds_to_even)
{
    static const uint32_t in[] = {0x3f808000, 0x3f818000, 0x3f808001, 0x7f7fffff, 0x7f800000,
                                  0x7f800001, 0xffc12345, 0x80000001, 0x00008000, 0x00018000};
    static const uint16_t want[] = {0x3f80, 0x3f82, 0x3f81, 0x7f80, 0x7f80,
                                    0x7fc0, 0xffc1, 0x8000, 0x0000, 0x0002};
    float x[10];
    uint16_t y[10];
    memcpy(x, in, sizeof x);
    EACH_TABLE(k)
    {
        k.to_bf16(x, 10, y);
        for (int i = 0; i < 10; i++) assert_int_equal(y[i], want[i]);
    }
}
