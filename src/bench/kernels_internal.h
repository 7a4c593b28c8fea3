/* What `quire bench kernels` measures beside the machine: products, attention, plain kernels.
 *
 * Owns: nothing. Refuses to know: how results are printed. Threads: one core, which flushes denormals as workers do.
 * Lifetime: a call.
 *
 * Everything that a step reads from memory lies in one arena, larger than any cache, and calls go round it, as a step goes
 * round a model's layers. */
#ifndef QR_BENCH_KERNELS_INTERNAL_H
#define QR_BENCH_KERNELS_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include "bench/machine.h"
#include "kern/attn.h"
#include "kern/gemm.h"

struct kernels_arena {
    uint8_t *p; // all bytes 0x3c: a finite number whatever reads it
    size_t bytes;
};

// ==== shapes.c ====

struct kernels_shape {
    enum qr_wfmt fmt;
    int n, k;
    int n_tensors;  // of the model that have it
    char name[24];  // of the first, without its layer
};
#define KERNELS_SHAPES_MAX 64
struct kernels_shapes {
    int n;
    struct kernels_shape v[KERNELS_SHAPES_MAX];
    int n_heads, n_kv_heads, d; // of attention
    int width;                  // of a row of activations
};
// Every format, of one middling shape, and the heads of a model of 8 billion weights.
void kernels_typical_shapes(struct kernels_shapes *out);
// The matrices that a model multiplies by. As qr_gguf_open; QR_ENOTSUP: a type without kernels, or none that can be timed.
enum qr_status kernels_model_shapes(const char *path, struct kernels_shapes *out, struct qr_error *err) QR_MUST_CHECK;
// Adds a tensor's name, format and shape, or counts it to those that are there. False: there is no more room.
bool kernels_add_shape(struct kernels_shapes *s, const char *name, size_t name_bytes, enum qr_wfmt fmt, int n, int k);

// ==== products.c ====

struct kernels_product {
    const struct qr_gemm_impl *impl;
    int n, k, rows;
    double ns;
};
// What the kernel is measured against ("int8", "bf16", "f32"); NULL for portable C.
const char *kernels_peak_kind(enum qr_class cls, enum qr_wfmt fmt, int isa);
// Operations of a product that count as its work: 2 * rows * n * k.
double kernels_product_ops(const struct kernels_product *p);
// Share of the machine's peak. Class D15 multiplies twice for each weight, and both count. 0: unknown.
double kernels_product_share(const struct kernels_product *p, const struct bench_machine *m);
// GB/s of packed weights.
double kernels_product_gbs(const struct kernels_product *p);
// Times the kernel that is chosen for so many rows; of a matrix that is larger than half the arena, as many of its outputs
// as fit. QR_ENOMEM.
enum qr_status kernels_time_product(const struct kernels_arena *a, enum qr_class cls, const struct kernels_shape *s, int rows,
                                    struct kernels_product *out, struct qr_error *err) QR_MUST_CHECK;

// ==== attention.c ====

struct kernels_attention {
    enum qr_kvtype type;
    bool prefill;
    const char *isa;
    int context, rows, n_group, d;
    double ns;
};
// Bytes of K and V that a call reads, and the operations of its scores and sums.
double kernels_attention_bytes(const struct kernels_attention *a);
double kernels_attention_ops(const struct kernels_attention *a);
const char *kernels_attention_kind(const struct kernels_attention *a); // its peak; NULL: none
enum qr_status kernels_time_attention(const struct kernels_arena *a, const struct kernels_shapes *s, enum qr_kvtype t,
                                      bool prefill, struct kernels_attention *out, struct qr_error *err) QR_MUST_CHECK;

// ==== plain.c ====

struct kernels_plain {
    const char *name, *isa;
    int n;
    double ns, bytes; // read and written by a call
};
#define KERNELS_PLAIN_MAX 16
// Times the plain kernels over n values that lie in the first-level cache. Returns how many.
int kernels_time_plain(int n, struct kernels_plain out[KERNELS_PLAIN_MAX]);

#endif
