#include "bench/stepper.h"

#include "base/assert.h"
#include "base/mem.h"

// Computes the first sequence's positions; the others get copies of its blocks: that they are alike changes no time.
static void fill(struct stepper *s)
{
    struct step_shape shape = {.n_prompt = s->info.n_tokens_max};
    for (int32_t at = 0; at < s->len; at += shape.n_prompt) {
        shape.prompt_at = at;
        if (s->len - at < shape.n_prompt) shape.n_prompt = s->len - at;
        stepper_plan(s, &shape);
        stepper_run(s);
    }
    stepper_plan(s, &(struct step_shape){0});
    for (int32_t i = s->n_seq_blocks; i < s->n_seqs * s->n_seq_blocks; i++)
        qr_batch_copies(s->batch)[s->batch->n_copies++] =
            (struct qr_batch_copy){.src = (uint32_t)(i % s->n_seq_blocks), .dst = (uint32_t)i};
    if (s->batch->n_copies > 0) stepper_run(s);
}

static enum qr_status open_seqs(struct stepper *s)
{
    int32_t id = 1;
    for (int32_t i = 0; i < s->n_seqs; i++) {
        enum qr_status st = s->x->ops->seq_open(s->x, i, &s->sampling, 0, &id, 1, 1);
        if (st != QR_OK) {
            s->n_seqs = i; // only these are to be closed
            return st;
        }
    }
    return QR_OK;
}

enum qr_status stepper_open(struct qr_lib *lib, int32_t n_seqs, int32_t len_max, struct stepper *s, struct qr_error *err)
{
    *s = (struct stepper){.x = qr_lib_exec(lib), .n_seqs = n_seqs, .len = len_max};
    s->sampling = (struct qr_sampling){
        .top_p = 1, .repetition = 1, .seed = 1, .max_tokens = 1, .ignore_eos = true, .n_logprobs = -1, .n_prompt_logprobs = -1};
    s->x->ops->info(s->x, &s->info);
    s->n_seq_blocks = (len_max + s->info.block_size - 1) / s->info.block_size;
    if (n_seqs > s->info.n_slots || len_max > s->info.ctx_max || (uint64_t)n_seqs * (uint64_t)s->n_seq_blocks > s->info.n_blocks) {
        s->n_seqs = 0;
        return qr_fail(err, QR_ETOOBIG,
                       "steps of %d sequences of %d tokens: %d sequences, %d positions and %u blocks of %d are what fits", n_seqs,
                       len_max, s->info.n_slots, s->info.ctx_max, s->info.n_blocks, s->info.block_size);
    }
    struct qr_batch_caps caps = {n_seqs + 1, s->info.n_tokens_max, (n_seqs + 1) * s->n_seq_blocks, n_seqs * s->n_seq_blocks};
    void *mem = qr_calloc(QR_MEM_MISC, 1, qr_batch_bytes(&caps));
    if (!mem || open_seqs(s) != QR_OK) {
        qr_free(mem);
        return qr_fail(err, QR_ENOMEM, "no memory for steps of %d sequences", n_seqs);
    }
    s->batch = qr_batch_init(mem, &caps);
    fill(s);
    return QR_OK;
}

void stepper_close(struct stepper *s)
{
    for (int32_t i = 0; i < s->n_seqs; i++) s->x->ops->seq_close(s->x, i);
    qr_free(s->batch);
    *s = (struct stepper){0};
}

static void add_seq(struct stepper *s, int32_t pos0, int32_t n_tokens, int32_t n_prompt)
{
    struct qr_batch *b = s->batch;
    int32_t i = b->n_seqs++;
    qr_batch_seqs(b)[i] = (struct qr_batch_seq){.slot = i,
                                                .n_tokens = n_tokens,
                                                .pos0 = pos0,
                                                .n_prompt = n_prompt,
                                                .first_id = b->n_tokens,
                                                .first_block = b->n_table,
                                                .n_blocks = s->n_seq_blocks,
                                                .flags = QR_BATCH_SAMPLE};
    // Any ids: what is computed does not depend on them.
    for (int32_t k = 0; k < n_tokens; k++) qr_batch_ids(b)[b->n_tokens++] = 1 + (pos0 + k * 7 + i * 13) % (s->info.n_vocab - 1);
    for (int32_t k = 0; k < s->n_seq_blocks; k++) qr_batch_table(b)[b->n_table++] = (uint32_t)(i * s->n_seq_blocks + k);
}

void stepper_plan(struct stepper *s, const struct step_shape *p)
{
    struct qr_batch *b = s->batch;
    QR_ASSERT(p->n_rows + (p->n_prompt > 0) <= s->n_seqs && p->context <= s->len && p->prompt_at + p->n_prompt <= s->len);
    b->n_seqs = b->n_tokens = b->n_table = b->n_copies = 0;
    for (int32_t i = 0; i < p->n_rows; i++) add_seq(s, p->context - 1, 1, 1);
    if (p->n_prompt > 0) add_seq(s, p->prompt_at, p->n_prompt, p->prompt_at + p->n_prompt);
}

uint64_t stepper_run(struct stepper *s)
{
    struct qr_exec_result r;
    qr_ticket t;
    enum qr_status st = s->x->ops->submit(s->x, s->batch, &t);
    if (st == QR_OK) st = s->x->ops->wait(s->x, t, &r);
    QR_ASSERT(st == QR_OK); // the local executor fails on no batch that is in order
    s->batch->step++;
    return r.elapsed_ns;
}
