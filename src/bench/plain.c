/* Kernels of one row: all that a step does between products and attention. */
#include "bench/kernels_internal.h"
#include "kern/kern.h"

#define N_MAX 4096 // with it all operands lie in the first-level cache

static _Alignas(64) float x[N_MAX], y[N_MAX], z[N_MAX];
static _Alignas(64) int8_t q[2][N_MAX];
static float scale[N_MAX / 32];
static int32_t sum[N_MAX / 32];
static _Alignas(64) uint16_t half[N_MAX];
static volatile float kept;

#define RUN(name, call)                                                                                      \
    static void run_##name(void *arg)                                                                        \
    {                                                                                                        \
        const struct qr_kern *k = qr_kern();                                                                 \
        int n = *(const int *)arg;                                                                           \
        call;                                                                                                \
    }
// A call, and the bytes that it reads and writes for each value.
#define EACH(DO)                                                                                             \
    DO(rmsnorm, k->rmsnorm(x, y, 1e-5f, n, z), 12)                                                           \
    DO(quant_g32, k->quant_g32(x, n, q[0], scale, sum), 5)                                                   \
    DO(quant_g256, k->quant_g256(x, n, q[0], scale, sum), 5)                                                 \
    DO(quant_q15, k->quant_q15(x, n, q[0], q[1], scale, sum), 6)                                             \
    DO(to_bf16, k->to_bf16(x, n, half), 6)                                                                   \
    DO(rope_norm, k->rope_norm(z, y, n), 12)                                                                 \
    DO(rope_neox, k->rope_neox(z, y, n), 12)                                                                 \
    DO(swiglu, k->swiglu(x, y, n, z), 12)                                                                    \
    DO(vec_add, k->vec_add(z, y, n), 12)                                                                     \
    DO(vec_exp, k->vec_exp(x, n, z), 8)                                                                      \
    DO(argmax, kept = (float)k->argmax(x, n), 4)                                                             \
    DO(chunk_max, k->chunk_max(x, n, z), 4)                                                                  \
    DO(sum_exp, kept = k->sum_exp(x, n, 1), 4)
#define RUN_ONE(name, call, bytes) RUN(name, call)
EACH(RUN_ONE)

static const struct {
    const char *name;
    void (*run)(void *arg);
    double bytes;
} kernels[] = {
#define ROW(name, call, bytes) {#name, run_##name, bytes},
    EACH(ROW)
#undef ROW
};
enum { N_KERNELS = sizeof kernels / sizeof *kernels };
_Static_assert(N_KERNELS <= KERNELS_PLAIN_MAX, "room in the caller's array");

int kernels_time_plain(int n, struct kernels_plain out[KERNELS_PLAIN_MAX])
{
    n = n < N_MAX ? n / 256 * 256 : N_MAX; // whole groups of every way to quantise
    if (n == 0) n = 256;
    for (int i = 0; i < N_MAX; i++) {
        x[i] = (float)(i * 37 % 101 - 50) / 50;
        y[i] = i % 2 ? 0.6f : 0.8f; // a rotation: repeated, it leaves sizes as they are
        z[i] = x[i];
    }
    for (int i = 0; i < N_KERNELS; i++)
        out[i] = (struct kernels_plain){.name = kernels[i].name,
                                        .isa = qr_kern_origin(kernels[i].name, qr_isa_active()),
                                        .n = n,
                                        .ns = bench_quick_ns(kernels[i].run, &n),
                                        .bytes = kernels[i].bytes * n};
    return N_KERNELS;
}
