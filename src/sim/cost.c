#include "sim/cost.h"

#include "base/assert.h"

void qr_sim_load_of(const struct qr_batch *b, struct qr_sim_load *out)
{
    struct qr_sim_load l = {.n_copies = b->n_copies};
    for (int32_t i = 0; i < b->n_copies; i++) l.n_moves += qr_batch_copy_phase(&qr_batch_copies(b)[i]) < 2;
    const struct qr_batch_seq *q = qr_batch_seqs(b);
    for (int32_t i = 0; i < b->n_seqs; i++, q++) {
        int32_t to = q->pos0 + q->n_tokens, prompt_to = to < q->n_prompt ? to : q->n_prompt;
        int64_t in_prompt = prompt_to > q->pos0 ? prompt_to - q->pos0 : 0, rows = q->n_tokens - in_prompt;
        l.n_prompt_rows += in_prompt;
        l.n_prompt_tile += (in_prompt + 15) / 16 * 16;
        l.n_rows += rows;
        l.context += to;
        l.prompt_context += in_prompt * (2 * (int64_t)prompt_to - in_prompt + 1) / 2;
        l.query_context += in_prompt * prompt_to;
        l.row_context += rows * (2 * (int64_t)to - rows + 1) / 2; // to - rows + 1 .. to
        l.n_samples += q->flags & QR_BATCH_SAMPLE ? 1 : 0;
        if (q->flags & QR_BATCH_SCORE) l.n_samples += in_prompt;
    }
    *out = l;
}

static uint64_t table_ns(const struct qr_sim_costs *c, const struct qr_sim_load *l)
{
    uint64_t rows = (uint64_t)l->n_rows, tile = (uint64_t)l->n_prompt_tile;
    return c->fixed_ns + rows * c->row_ns + (tile ? c->prompt_fixed_ns : 0) + tile * c->prompt_row_ns +
           ((uint64_t)l->context * c->context_ps + (uint64_t)l->query_context * c->query_context_ps) / 1000;
}

uint64_t qr_sim_copy_ns(const struct qr_sim_cost *c, const struct qr_sim_load *load)
{
    if (load->n_copies == 0 || c->kind == QR_SIM_RECORDED) return 0;
    if (c->kind == QR_SIM_TABLE) return (uint64_t)load->n_copies * c->table.copy_ns;
    return (uint64_t)(qr_sim_roofline_copy_s(&c->roofline, load) * 1e9 + 0.5);
}

uint64_t qr_sim_cost_ns(struct qr_sim_cost *c, const struct qr_sim_load *load)
{
    if (c->kind == QR_SIM_TABLE) return table_ns(&c->table, load);
    if (c->kind == QR_SIM_ROOFLINE) return (uint64_t)(qr_sim_roofline_s(&c->roofline, load) * 1e9 + 0.5);
    QR_ASSERT(c->n_recorded > 0);
    size_t i = c->i_recorded < c->n_recorded ? c->i_recorded : c->n_recorded - 1;
    c->i_recorded++;
    return c->recorded_ns[i];
}
