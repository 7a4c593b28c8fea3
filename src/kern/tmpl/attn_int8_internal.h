/* Words of attn_tmpl_internal.h for int8 KV: exact integer sums (kern/kvtype/int8.c).
 *
 * Owns: nothing. Refuses to know: the loops. Threads: pure functions. Lifetime: static.
 *
 * K is unsigned with 128 added, which sum of q undoes, and V is signed. How they are multiplied
 * is the set's own: x86/ and arm/attn_int8_words_internal.h give sum, part, coef and their words, coef_pack and
 * sum_ints. */
#ifdef KERN_ISA

#include "kern/tmpl/attn_int8_scales_internal.h"

#define W 4
#define STEPS 1
#define INTEGER 1
#define SCALED 1
#define VECS 4
#define COEF_BYTES 8

struct q_form {
    float scale;
    int32_t bias; // -128 * sum of q
};
struct p_form {
    float scale, inverse;
};

#if defined(__aarch64__)
#include "kern/arm/attn_int8_words_internal.h"
#else
#include "kern/x86/attn_int8_words_internal.h"
#endif

V16 struct q_form q_pack(uint8_t *coefs, const float *q, int d)
{
    v16i most = v16i_zero(), all = v16i_zero();
    for (int i = 0; i < d; i += 16) most = v16i_max(most, v16i_magnitude(v16_load(q + i)));
    float inverse, scale = v16_scale_of(most, Q_TOP, &inverse);
    for (int i = 0; i < d; i += 16) {
        v16i x = rounded(v16_load(q + i), inverse);
        all = v16i_add(all, x);
        coef_pack(coefs, i / 16, x, 64);
    }
    return (struct q_form){scale, -128 * v16i_sum(all)};
}

V16 v16 k_value(sum s, const struct q_form *f)
{
    return v16_mul(v16i_to_v16(v16i_add(sum_ints(s), v16i_set1(f->bias))), v16_set1(f->scale));
}

V16 struct p_form p_form(v16i most)
{
    struct p_form f;
    f.scale = v16_scale_of(most, P_TOP, &f.inverse);
    return f;
}

V16 void p_pack(uint8_t *coefs, const v16 *p, int u0, int n_units, struct p_form f)
{
    UNROLL for (int u = 0; u < 4; u++)
    {
        if (u >= u0 && u < n_units) coef_pack(coefs, u, rounded(p[u], f.inverse), 0);
    }
}

V16 sum v_begin(const float *acc, float keep)
{
    (void)acc;
    (void)keep;
    return sum_zero();
}

V16 void v_end(sum s, float *acc, float keep, float scale)
{
    v16 kept = v16_mul(v16_load(acc), v16_set1(keep));
    v16_store(acc, v16_fma(v16i_to_v16(sum_ints(s)), v16_set1(scale), kept));
}

#endif
