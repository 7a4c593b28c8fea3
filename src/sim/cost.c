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
        qr_work_add(&l.work, q->n_prompt, q->pos0, q->n_tokens);
        l.n_prompt_rows += in_prompt;
        l.prompt_context += in_prompt * (2 * (int64_t)prompt_to - in_prompt + 1) / 2;
        l.row_context += rows * (2 * (int64_t)to - rows + 1) / 2; // to - rows + 1 .. to
        l.n_samples += q->flags & QR_BATCH_SAMPLE ? 1 : 0;
        if (q->flags & QR_BATCH_SCORE) l.n_samples += in_prompt;
    }
    *out = l;
}

uint64_t qr_sim_copy_ns(const struct qr_sim_cost *c, const struct qr_sim_load *load)
{
    if (load->n_copies == 0 || c->kind == QR_SIM_RECORDED) return 0;
    if (c->kind == QR_SIM_TABLE && c->copy_ns != QR_SIM_COPY_BY_HARDWARE)
        return qr_cost_times((uint64_t)load->n_copies, c->copy_ns);
    return (uint64_t)(qr_sim_roofline_copy_s(&c->roofline, load) * 1e9 + 0.5);
}

uint64_t qr_sim_cost_ns(struct qr_sim_cost *c, const struct qr_sim_load *load)
{
    if (c->kind == QR_SIM_TABLE) return qr_costs_ns(&c->table, &load->work);
    if (c->kind == QR_SIM_ROOFLINE) return (uint64_t)(qr_sim_roofline_s(&c->roofline, load) * 1e9 + 0.5);
    QR_ASSERT(c->n_recorded > 0);
    size_t i = c->i_recorded < c->n_recorded ? c->i_recorded : c->n_recorded - 1;
    c->i_recorded++;
    return c->recorded_ns[i];
}

static uint64_t per(double more_s, double n, double unit)
{
    return more_s > 0 ? (uint64_t)(more_s / n * unit) : 0;
}

struct qr_costs qr_sim_cost_guess(const struct qr_sim_cost *c)
{
    const struct qr_sim_roofline *r = &c->roofline;
    if (c->kind == QR_SIM_TABLE) return c->table;
    if (c->kind == QR_SIM_RECORDED) return (struct qr_costs){.epoch = 1, .fixed_ns = c->recorded_ns[0] + 1};
    struct qr_sim_load one = {.work.n_rows = 1, .n_samples = 1}, rows = {.work.n_rows = 65, .n_samples = 65};
    struct qr_sim_load far = one, prompt = one, late = one;
    far.row_context = far.work.context = 100000;
    prompt.n_prompt_rows = late.n_prompt_rows = 1024;
    late.prompt_context = 1024 * 4096;
    double base = qr_sim_roofline_s(r, &one), with_prompt = qr_sim_roofline_s(r, &prompt);
    return (struct qr_costs){
        .epoch = 1,
        .fixed_ns = (uint64_t)(base * 1e9) + 1,
        .row_ns = per(qr_sim_roofline_s(r, &rows) - base, 64, 1e9),
        .prompt_row_ns = per(with_prompt - base, 1024, 1e9),
        .context_ps = per(qr_sim_roofline_s(r, &far) - base, 100000, 1e12),
        .query_context_ps = per(qr_sim_roofline_s(r, &late) - with_prompt, 1024.0 * 4096, 1e12),
    };
}
