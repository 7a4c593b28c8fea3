/* A roofline: each part of a step takes as long as its arithmetic or its memory traffic, whichever is more. */
#include "sim/cost.h"

static double larger(double a, double b)
{
    return a > b ? a : b;
}

// Within the pool a block is read and written; to and from the host it crosses PCIe, each device its share.
double qr_sim_roofline_copy_s(const struct qr_sim_roofline *r, const struct qr_sim_load *l)
{
    const struct qr_sim_hardware *h = &r->hardware;
    double block = r->block_size * qr_sim_kv_bytes(&r->model) / r->n_devices;
    return (double)l->n_moves * block / (h->pcie_gbs * 1e9) +
           (double)(l->n_copies - l->n_moves) * block * 2 / (h->memory_gbs * 1e9 * h->eff_memory);
}

double qr_sim_roofline_s(const struct qr_sim_roofline *r, const struct qr_sim_load *l)
{
    const struct qr_sim_model *m = &r->model;
    const struct qr_sim_hardware *h = &r->hardware;
    double n = r->n_devices, rows = (double)(l->work.n_rows + l->n_prompt_rows);
    double flops = h->tflops * 1e12 * h->eff_compute * n, bytes = h->memory_gbs * 1e9 * h->eff_memory * n;

    // Every weight is read once, whatever the rows.
    double layers_flops = 2.0 * (double)qr_sim_layer_weights(m) * m->n_layers * rows;
    double layers = larger(layers_flops / flops, qr_sim_layer_bytes(m) * m->n_layers / bytes);
    double head_weights = (double)m->n_vocab * m->hidden;
    double head = l->n_samples ? larger(2 * head_weights * (double)l->n_samples / flops, 2 * head_weights / bytes) : 0;

    // Scores and weighted sums: 2 operations each, a head dimension and position, for every query head.
    double per_position = 4.0 * m->n_heads * m->head_dim * m->n_layers, kv = qr_sim_kv_bytes(m);
    double decode = larger(per_position * (double)l->row_context / flops, kv * (double)l->row_context / bytes);
    double prompt = larger(per_position * (double)l->prompt_context / flops, kv * (double)(l->work.context - l->row_context) / bytes);
    if (l->n_prompt_rows == 0) prompt = 0;

    // Two all-reduces a layer, as rings: each device sends 2 (n - 1) / n of the rows.
    double reduce = 0;
    if (r->n_devices > 1)
        reduce = 2.0 * m->n_layers *
                 (h->link_us * 1e-6 + rows * m->hidden * 2 * 2 * (n - 1) / n / (h->link_gbs * 1e9));
    return layers + head + decode + prompt + reduce + (m->n_layers * h->layer_us + h->step_us + (double)l->n_samples * h->row_us) * 1e-6;
}
