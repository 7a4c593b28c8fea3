/* What a KV type has to say so that plain C can attend over it: kern/kvtype/<name>.c says it.
 *
 * Owns: the struct, and the three kernels that KVTYPE_KERNELS makes of one. Refuses to know: instruction
 * sets. Threads: pure functions. Lifetime: static. */
#ifndef QR_KERN_REF_ATTN_INTERNAL_H
#define QR_KERN_REF_ATTN_INTERNAL_H

#include "kern/kern_internal.h"
#include "kern/ref/ref_internal.h"

#define REF_CHUNK 64  // positions of one step of the online softmax
#define REF_SPLIT 512 // positions of a split of the decode kernel
#define REF_D_MAX 256

// A query in the form in which it meets K.
struct ref_query {
    float q[REF_D_MAX];
    int16_t i[REF_D_MAX]; // of integer types: q = scale * i
    float scale;
};

// One token's slot: its unit, and its place 0 .. 15 there.
struct ref_slot {
    uint8_t *unit;
    int t, d;
};

struct ref_kvtype {
    enum qr_kvtype type;
    void (*write)(struct ref_slot at, const float *k, const float *v); // stores the token's own bytes alone
    void (*set_query)(struct ref_query *out, const float *q, int d);
    float (*score)(const struct ref_query *q, struct ref_slot at); // q . k
    // acc += sum of p[t] * v over the n slots of a chunk, t ascending.
    void (*weigh)(float *acc, const float *p, const struct ref_slot *at, int n);
};

void ref_kv_write(const struct ref_kvtype *type, const struct qr_kv_view *kv, int pos, const float *k, const float *v);
// split: REF_SPLIT, or 0 for none.
void ref_attend(const struct ref_kvtype *type, const struct qr_attn *a, int split);

// Scales of int8 and fp8 tokens: of what K is multiplied with before it is rounded, and of what comes back.
// top: the largest rounded magnitude. Below 2^-100 a token is zero; one that holds a NaN or an infinity is NaN.
static inline float ref_token_scale(const float *x, int d, float top, float *inverse)
{
    uint32_t most = 0;
    for (int i = 0; i < d; i++) {
        uint32_t u = qr_bits_of_f32(x[i]) & 0x7FFFFFFFu;
        if (u > most) most = u;
    }
    float m = qr_f32_of_bits(most);
    *inverse = 0;
    if (most >= 0x7F800000u) return NAN;
    if (m < 0x1p-100f) return 0;
    *inverse = top / m;
    return m / top;
}

#define KVTYPE_KERNELS(name)                                                                                 \
    void kern_kv_write_##name##_ref(const struct qr_kv_view *kv, int pos, const float *k, const float *v)    \
    {                                                                                                        \
        ref_kv_write(&kvtype, kv, pos, k, v);                                                                \
    }                                                                                                        \
    void kern_attn_decode_##name##_ref(const struct qr_attn *a)                                              \
    {                                                                                                        \
        ref_attend(&kvtype, a, REF_SPLIT);                                                                   \
    }                                                                                                        \
    void kern_attn_prefill_##name##_ref(const struct qr_attn *a)                                             \
    {                                                                                                        \
        ref_attend(&kvtype, a, 0);                                                                           \
    }

#endif
