/* Steps of any shape on the executor of this process: so many generated rows at a context, so many prompt rows from a position.
 *
 * Owns: the sequences, their blocks and the batch's buffer. Refuses to know: schedulers, requests.
 * Threads: one. Lifetime: stepper_open to stepper_close, within which no request may live. */
#ifndef QR_BENCH_STEPPER_H
#define QR_BENCH_STEPPER_H

#include "core/exec.h"
#include "lib/lib.h"

struct stepper {
    struct qr_exec *x;
    struct qr_exec_info info;
    struct qr_sampling sampling;
    int32_t n_seqs, n_seq_blocks; // sequence i owns blocks [i * n_seq_blocks, (i + 1) * n_seq_blocks)
    int32_t len;                  // positions of each whose KV was written
    struct qr_batch *batch;
};
// n_seqs sequences of at most len_max positions, all written: nothing that is read was never there. QR_ETOOBIG: the pool
// or the model is too small.
enum qr_status stepper_open(struct qr_lib *lib, int32_t n_seqs, int32_t len_max, struct stepper *out,
                            struct qr_error *err) QR_MUST_CHECK;
void stepper_close(struct stepper *s);

// A step: sequences 0 .. n_rows - 1 each generate a token at position context - 1; sequence n_rows computes n_prompt
// prompt tokens from position prompt_at. Either may be 0.
struct step_shape {
    int32_t n_rows, context, n_prompt, prompt_at;
};
// Lays it out in s->batch.
void stepper_plan(struct stepper *s, const struct step_shape *shape);
// Runs s->batch. Returns what it took, in ns.
uint64_t stepper_run(struct stepper *s);

#endif
