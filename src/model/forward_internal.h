/* The state of a step on its way through the layers.
 *
 * Owns: activations, scratch and the plan of the step. Refuses to know: families.
 * Threads: the caller plans; tasks of a phase write rows, panels or heads of their own.
 * Lifetime: one qr_forward, sized once; the plan is of the batch run last.
 *
 * Rows are sorted by class so that each class is one matrix:
 *   row        0 ........ groups[0].n | groups[1].row0 ........ n_rows
 *   fast       class D                | class P
 *   f32        class F                |
 * Within a class they follow the batch: sequences in order, positions ascending. */
#ifndef QR_MODEL_FORWARD_INTERNAL_H
#define QR_MODEL_FORWARD_INTERNAL_H

#include <stdatomic.h>

#include "kern/gemm.h"
#include "kern/kern.h"
#include "model/model_internal.h"

#define FORWARD_GROUPS_MAX 2

struct forward_group {
    enum qr_class cls;
    int row0, n;
    uint8_t *acts_mem[2][QR_A_COUNT];   // [side][kind]: NULL for kinds that no weight of the model needs
    struct qr_acts acts[2][QR_A_COUNT]; // laid out anew for every phase's k
    const struct qr_gemm_impl *gemm[2][QR_W_COUNT]; // [fine][format]: for this step's n
};

struct forward_seq { // where the rows of a sequence of the batch are
    int row_p, n_p;  // its first n_p tokens are prompt
    int row_d;
};

// A run of rows of one sequence that one task handles for one KV head.
struct forward_tile {
    int i_seq, pos0, row0, n;
    bool decode; // kernel for generated tokens
    bool writes; // rotates and writes its own K and V first: no other row of the step needs them
};

// A row that the head takes.
struct forward_logit {
    int32_t row;   // of x
    int32_t place; // in logits, where it wants all
    enum qr_logit_want want;
};

// What a worker's scratch holds of the activations of a product: of no use after the phase.
struct forward_held {
    uint64_t i_phase;
    const struct qr_acts *acts;
    qr_gemm_fn *fn;
};

struct qr_forward {
    const struct qr_model *m;
    struct qr_workers *workers;
    int n_workers;
    size_t ahead; // of products (struct qr_gemm)
    struct qr_forward_conf conf;
    int k_max; // the widest row of activations
    const struct qr_kern *kern;
    struct qr_kv_kernels kv; // of the model's KV type

    // The plan of the step.
    const struct qr_batch *batch;
    uint8_t *pool;
    int block_size;
    size_t block_bytes;
    int n_rows, n_first; // rows of the step, and of its first class
    int n_groups;
    int side; // of the acts that hold the input of the product to come
    struct forward_group groups[FORWARD_GROUPS_MAX];
    struct forward_seq *seqs;    // (n_seqs_max)
    int32_t *row_id, *row_pos;   // (n_tokens_max)
    struct forward_tile *writes; // tiles of 16 positions whose K and V are written before any is read
    struct forward_tile *attends;
    int n_writes, n_attends;
    atomic_int *heads_left; // (n_tokens_max): KV heads whose attention is not done

    // Activations of the step: rows as above.
    float *x;      // (n_rows, d_model) the residual stream
    float *qkv;    // (n_rows, q then k then v)
    float *att;    // (n_rows, n_heads * head_dim)
    float *ffn;    // (n_rows, gate then up)
    float *cs;     // (n_rows, d_rot / 2, 2)
    float *logits; // (n_logit_rows, n_vocab), touched only where a row wants all
    int ld_qkv, ld_att, ld_ffn;
    int n_stored;                // rows of logits that the last call filled
    struct forward_logit *heads; // (n_head_rows) in the caller's order
    int32_t *head_order;         // (n_head_rows) indices of heads: by class, within it those that want all first
    struct qr_logit_tile *tiles; // (n_head_rows, n_tiles) of rows that want a peak
    float *tile_mem;             // (n_workers, n_head_rows, LOGIT_TILE_LD)
    int n_tiles;                 // of a row

    uint64_t n_products;       // phases of products so far
    struct forward_held *held; // (n_workers)
    uint8_t *scratch;          // (n_workers, scratch_bytes)
    size_t scratch_bytes;
    uint8_t *mem;
    size_t mem_bytes;
};

// Floats from row to row of a tile in hand: an odd number of lines, so that rows begin in different cache sets.
#define LOGIT_TILE_LD (QR_LOGIT_TILE + 16)

static inline void *forward_scratch(const struct qr_forward *f, int i_worker)
{
    return f->scratch + (size_t)i_worker * f->scratch_bytes;
}

// The arithmetic of a product for rows of a class.
static inline enum qr_class forward_class(enum qr_class cls, const struct model_linear *lin)
{
    return cls == QR_CLASS_D && lin->fine ? QR_CLASS_D15 : cls;
}

static inline struct forward_group *forward_group_of(struct qr_forward *f, int row)
{
    return &f->groups[f->n_groups > 1 && row >= f->groups[1].row0];
}

// Lays out the rows, groups and tiles of a batch.
void forward_plan(struct qr_forward *f, const struct qr_batch *b, uint8_t *pool, int block_size);
static inline int forward_row(const struct forward_seq *s, int i)
{
    return i < s->n_p ? s->row_p + i : s->row_d + i - s->n_p;
}

#endif
