/* A model: weights and a forward pass from a batch to logits.
 *
 * Owns: packed weights (once; the file's pages are dropped as they are packed). Sees core/batch.h, never a
 * request. Refuses to know: who owns a block, how tokens are chosen. Threads: load and forward are called by
 * one thread and spread over the workers it is given. Lifetime: qr_model_load to qr_model_free. The gguf may
 * be freed after load.
 *
 * A model family is one short file (model/llama.c) over shared layers (model/layers.c) and one line in
 * models.def. */
#ifndef QR_MODEL_MODEL_H
#define QR_MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/workers.h"
#include "core/batch.h"
#include "core/phase.h"
#include "fmt/gguf.h"
#include "kern/attn.h"
#include "kern/logits.h"

struct qr_model;
struct qr_forward; // activations and scratch of one step, sized once

enum qr_activations { QR_ACT_FAST, QR_ACT_F32 }; // classes D and P, or class F for every row (DESIGN 5)

struct qr_model_info {
    char arch[32]; // "llama"
    char name[96]; // general.name
    int32_t n_layers, d_model, d_ff, n_heads, n_kv_heads, head_dim, n_vocab, ctx_max;
    bool tied; // the embedding is also the head
    uint64_t file_bytes, packed_bytes;
    uint64_t n_params;
    enum qr_kvtype kvtype;   // never AUTO
    uint64_t kv_token_bytes; // all layers
};

typedef void qr_progress_fn(void *arg, uint64_t done, uint64_t total);

struct qr_model_conf {
    enum qr_activations activations;
    enum qr_kvtype kvtype; // AUTO: BF16; F32 with QR_ACT_F32
    struct qr_workers *workers;
    qr_progress_fn *progress; // NULL: none
    void *progress_arg;
};

// QR_ENOTSUP names an architecture, tensor type or RoPE scaling that is not known; QR_EFORMAT a missing
// tensor or a wrong shape, by name.
enum qr_status qr_model_load(const struct qr_gguf *g, const struct qr_model_conf *conf, struct qr_model **out,
                             struct qr_error *err) QR_MUST_CHECK;
void qr_model_free(struct qr_model **m);
const struct qr_model_info *qr_model_info(const struct qr_model *m);
size_t qr_model_block_bytes(const struct qr_model *m, int block_size);

struct qr_forward_conf {
    int32_t n_tokens_max, n_seqs_max; // of a step
    int32_t n_head_rows;              // rows that qr_model_logits takes at a time
    int32_t n_logit_rows;             // of these, rows that want all their logits
    struct qr_phases *phases;         // a measurement's clock; NULL: none
};
enum qr_status qr_forward_new(const struct qr_model *m, struct qr_workers *w,
                              const struct qr_forward_conf *conf, struct qr_forward **out) QR_MUST_CHECK;
void qr_forward_free(struct qr_forward **f);

// Runs every token of the batch through all layers: K and V go to the pool, final hidden states stay in *f.
// No allocation.
void qr_model_forward(const struct qr_model *m, struct qr_forward *f, const struct qr_batch *b, uint8_t *pool,
                      int block_size);

// A row of the batch whose logits are wanted: token i of sequence i_seq (0 <= i < n_tokens).
struct qr_logit_row {
    int32_t i_seq, i;
    enum qr_logit_want want;
};
// Computes what n (<= n_head_rows) rows of the batch just run want, of which at most n_logit_rows want all.
void qr_model_logits(const struct qr_model *m, struct qr_forward *f, const struct qr_batch *b,
                     const struct qr_logit_row *rows, int32_t n);
// Of row r of that call, until the next, from any thread: its n_vocab logits, where it wanted all; its peak, where it
// wanted that.
float *qr_model_logit_row(const struct qr_forward *f, int32_t r);
struct qr_logit_peak qr_model_peak(const struct qr_forward *f, int32_t r);

#endif
