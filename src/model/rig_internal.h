/* A model on a bench: what the tests of this room run sequences with.
 *
 * Owns: one loaded model, its workers, step state and pages. Refuses to know: schedulers.
 * Threads: the test's. Lifetime: rig_open to rig_close. */
#ifndef QR_MODEL_RIG_INTERNAL_H
#define QR_MODEL_RIG_INTERNAL_H

#include <stdio.h>

#include "model/model.h"

struct rig {
    struct qr_gguf *g;
    struct qr_workers *w;
    struct qr_model *m;
    struct qr_forward *f;
    uint8_t *pool;
    size_t pool_bytes;
    struct qr_batch *batch;
    struct qr_batch_caps caps;
    int block_size;
    uint32_t n_blocks;
    int n_vocab, n_logit_rows;
};

struct rig_conf {
    const char *path;
    enum qr_activations activations;
    int n_threads, block_size;
    int n_tokens; // of a step, and of all sequences together
    enum qr_kvtype kvtype;
};

// A sequence: its ids, the step's share of them, and the blocks that it may use.
struct rig_seq {
    const int32_t *ids;
    int n_prompt, pos0, n_tokens;
    const uint32_t *table;
    int n_blocks;
};

// Fails the test where anything fails. Pages are filled with NaN.
void rig_open(struct rig *r, const struct rig_conf *conf);
void rig_close(struct rig *r);
// Runs one step.
void rig_step(struct rig *r, const struct rig_seq *seqs, int n_seqs);
// Runs n ids of one sequence over a scattered table in steps of at most `chunk` tokens; row i of out (n,
// n_vocab), if it is not NULL, takes the logits of position i.
void rig_run(struct rig *r, const int32_t *ids, int n, int n_prompt, int chunk, float *out);
// A permutation of the blocks from `first` on.
void rig_scatter(uint32_t *table, int n, uint32_t first);

// One case of a golden file (tests/vectors/mkgolden.py).
struct rig_row {
    int pos, n;
    float max;
    int32_t id[64];
    float logit[64];
};
struct rig_case {
    char name[64];
    int n_prompt, n_ids, n_steps, n_rows;
    int32_t ids[1024];
    float gap[128]; // between the two largest logits of positions n_prompt - 1 ...
    struct rig_row rows[8];
};
// Reads the next case; false at the end.
bool rig_next_case(FILE *f, struct rig_case *c);

#endif
