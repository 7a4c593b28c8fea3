/* Words of attn_tmpl_internal.h that every KV type summed in float32 has in common.
 *
 * Owns: sums. Refuses to know: how a line becomes lanes, what a multiplier is (coef_store, 16 of them at a time,
 * is the includer's). Threads: pure functions. Lifetime: static. */
#ifdef KERN_ISA

#define INTEGER 0
typedef v16 sum;
struct p_form {
    float scale;
};
struct q_form {
    char none;
};

V16 sum sum_zero(void)
{
    return v16_set1(0);
}
V16 struct q_form q_pack(uint8_t *coefs, const float *q, int d)
{
    for (int b = 0; b < d / 16; b++) coef_store(coefs, b, v16_load(q + b * 16));
    return (struct q_form){0};
}
V16 v16 k_value(sum s, const struct q_form *f)
{
    (void)f;
    return s;
}
V16 struct p_form p_form(v16i most)
{
    (void)most;
    return (struct p_form){1};
}
V16 void p_pack(uint8_t *coefs, const v16 *p, int u0, int n_units, struct p_form f)
{
    (void)f;
    UNROLL for (int u = 0; u < 4; u++)
    {
        if (u >= u0 && u < n_units) coef_store(coefs, u, p[u]);
    }
}
V16 sum v_begin(const float *acc, float keep)
{
    return v16_mul(v16_load(acc), v16_set1(keep));
}
V16 void v_end(sum s, float *acc, float keep, float scale)
{
    (void)keep;
    (void)scale;
    v16_store(acc, s);
}

#endif
