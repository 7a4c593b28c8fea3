/* From tensors of a file to packed weights in one arena.
 *
 * Owns: the list of what was asked for, until weights_fini. Refuses to know: which tensors a family has.
 * Threads: one caller; packing spreads over the workers it is given.
 * Lifetime: _init, then asks, then weights_pack, then _fini. Pointers that were asked for are set by
 * weights_pack.
 *
 * Asking checks a tensor's type and shape and takes room in the arena; nothing is read before all asks went
 * well. */
#ifndef QR_MODEL_WEIGHTS_H
#define QR_MODEL_WEIGHTS_H

#include "model/model_internal.h"

struct weights_item;

struct weights {
    const struct qr_gguf *g;
    struct qr_error *err;
    struct weights_item *items;
    size_t n_items, n_items_max;
    bool *used; // (n_tensors): was asked for
    uint64_t n_params;
    size_t arena_bytes; // of all items so far
};

enum weights_need { WEIGHTS_REQUIRED, WEIGHTS_OPTIONAL };

enum qr_status weights_init(struct weights *w, const struct qr_gguf *g, struct qr_error *err) QR_MUST_CHECK;
void weights_fini(struct weights *w);

// A matrix of n outputs and k inputs, named by prefix and ".weight", and its bias, ".bias".
enum qr_status weights_linear(struct weights *w, struct model_linear *out, const char *prefix, int n, int k,
                              enum weights_need bias) QR_MUST_CHECK;
// n floats. An absent optional one leaves *out NULL.
enum qr_status weights_vector(struct weights *w, float **out, const char *name, int n,
                              enum weights_need need) QR_MUST_CHECK;
// Refuses a tensor that nobody asked for: it would change the answer in a way that this build does not know.
enum qr_status weights_no_others(const struct weights *w, const char *arch) QR_MUST_CHECK;
// Allocates the arena, fills it, and drops the file's pages on the way.
enum qr_status weights_pack(struct weights *w, struct qr_model *m,
                            const struct qr_model_conf *conf) QR_MUST_CHECK;

#endif
