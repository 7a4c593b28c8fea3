/* Phases that model families are made of. Each is one run of the workers over independent tasks (DESIGN 5).
 *
 * Owns: nothing. Refuses to know: families, files (but for the names of a decoder layer's tensors).
 * Threads: called by the engine's thread. Lifetime: none.
 *
 * A phase that makes the input of matrix products also stores it in the form that each class and weight
 * format needs (qr_acts), so a product reads only acts and writes only float32. */
#ifndef QR_MODEL_LAYERS_H
#define QR_MODEL_LAYERS_H

#include "model/forward_internal.h"
#include "model/weights.h"

#define LAYERS_LINEARS_MAX 3

// The products that share one input; outputs lie side by side in the same rows.
struct layers_linears {
    int n;
    const struct model_linear *lin[LAYERS_LINEARS_MAX];
};

// x = embedding of each row's id, and cs of its position.
void layers_embed(struct qr_forward *f);
// Input of `next`: RMS norm of x.
void layers_norm(struct qr_forward *f, const float *weight, const struct layers_linears *next);
// y[row * ldy + ...] = (or += with `add`) the products, left to right.
void layers_linear(struct qr_forward *f, const struct layers_linears *l, float *y, int ldy, bool add);
// qkv → att over the pages, then input of `next`. i_layer places the KV.
void layers_attention(struct qr_forward *f, int i_layer, const struct model_linear *next);
// Input of `next`: silu(gate x) * (up x), in one run: a task makes the same columns of both for all rows, so
// that they stay in its cache.
void layers_gated(struct qr_forward *f, const struct model_linear *gate, const struct model_linear *up,
                  const struct model_linear *next);
// What is wanted of the logits of the first n of f->heads.
void layers_logits(struct qr_forward *f, int n);

// The pre-norm decoder layer that many families share: the names of its tensors, and its forward pass.
enum qr_status layers_bind_decoder(struct weights *w, struct qr_model *m, int i,
                                   enum weights_need qkv_bias) QR_MUST_CHECK;
void layers_run_decoder(struct qr_forward *f, int i);

#endif
