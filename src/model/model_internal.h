/* What the files of this room share: a model's numbers, its packed weights and the vtable of a family.
 *
 * Owns: the structs. Refuses to know: batches (forward_internal.h). Threads: immutable once loaded.
 * Lifetime: the model's. */
#ifndef QR_MODEL_MODEL_INTERNAL_H
#define QR_MODEL_MODEL_INTERNAL_H

#include "kern/pack.h"
#include "model/model.h"

#define MODEL_LAYERS_MAX 1024
#define MODEL_WIDTH_MAX                                                                                      \
    (1 << 20) // of any matrix but the vocabulary: keeps every product of sizes within 64 bits
#define MODEL_VOCAB_MAX (1 << 23)
#define MODEL_GROUP_MAX 16 // query heads on one KV head (kern/attn.h)
#define MODEL_HEAD_MAX 256 // elements of a head (kern/attn.h)

enum model_rope_scaling { MODEL_ROPE_PLAIN, MODEL_ROPE_LINEAR, MODEL_ROPE_LLAMA3 };

struct model_config {
    int n_layers, d_model, d_ff, n_heads, n_kv_heads, head_dim, n_vocab, ctx_max;
    float rms_eps;
    bool rope_neox; // pairs (i, i + d_rot / 2); else (2i, 2i + 1)
    int d_rot;      // rotated elements of a head
    double rope_base;
    enum model_rope_scaling rope_scaling;
    double rope_factor;                   // of LINEAR and LLAMA3
    double rope_low, rope_high, rope_ctx; // of LLAMA3
};

struct model_linear {
    struct qr_wmat w;
    float *bias; // (n) or NULL
    // Class D multiplies by activations of 15 bits (QR_CLASS_D15), where 8 would cost too much of the model's
    // quality (docs/DESIGN.md, N2).
    bool fine;
};

struct model_layer {
    float *attn_norm, *ffn_norm;  // (d_model)
    struct model_linear q;        // (n_heads * head_dim, d_model)
    struct model_linear k, v;     // (n_kv_heads * head_dim, d_model)
    struct model_linear o;        // (d_model, n_heads * head_dim)
    struct model_linear gate, up; // (d_ff, d_model)
    struct model_linear down;     // (d_model, d_ff)
};

struct model_family;

struct qr_model {
    struct qr_model_info info;
    const struct model_family *family;
    enum qr_activations activations;
    struct model_config cfg;
    struct model_linear embd;        // (n_vocab, d_model)
    struct model_linear output;      // (n_vocab, d_model); unused when tied
    const struct model_linear *head; // &output or &embd
    float *out_norm;                 // (d_model)
    float *inv_freq;                 // (d_rot / 2)
    struct model_layer *layers;      // (n_layers)
    uint8_t *arena;                  // every weight above
    size_t arena_bytes;
};

struct weights;
struct qr_forward;

struct model_family {
    const char *arch; // general.architecture
    // Sets what the family fixes and checks what it refuses; cfg holds the common keys already.
    enum qr_status (*configure)(const struct qr_gguf *g, struct model_config *cfg, struct qr_error *err);
    // Names the tensors of layer i.
    enum qr_status (*bind_layer)(struct weights *w, struct qr_model *m, int i);
    // Runs layer i over the rows of the step.
    void (*run_layer)(struct qr_forward *f, int i);
};

#define QR_MODEL(name) extern const struct model_family model_##name;
#include "model/models.def"
#undef QR_MODEL

// Reads the keys that every family has, then the family's own.
enum qr_status model_configure(const struct qr_gguf *g, const struct model_family **family,
                               struct model_config *cfg, struct qr_error *err);

// The angle per position of each rotated pair, scaled as the file says. factors: rope_freqs.weight (d_rot /
// 2), or NULL.
enum qr_status model_rope_freqs(const struct model_config *cfg, const float *factors, float *inv_freq,
                                struct qr_error *err) QR_MUST_CHECK;
// cs = (cos, sin) of each pair at a position: (d_rot / 2, 2)
void model_rope_row(const float *inv_freq, int d_rot, int pos, float *cs);

#endif
