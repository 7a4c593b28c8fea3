#include "model/model.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/model_internal.h"
#include "model/weights.h"

static enum qr_status bind(struct weights *w, struct qr_model *m, float **rope_factors)
{
    const struct model_config *c = &m->cfg;
    enum qr_status st;
    if ((st = weights_linear(w, &m->embd, "token_embd", c->n_vocab, c->d_model, WEIGHTS_OPTIONAL))) return st;
    if (m->embd.bias) return qr_fail(w->err, QR_ENOTSUP, "model: tensor token_embd.bias is not supported");
    for (int i = 0; i < c->n_layers; i++)
        if ((st = m->family->bind_layer(w, m, i))) return st;
    if ((st = weights_vector(w, &m->out_norm, "output_norm.weight", c->d_model, WEIGHTS_REQUIRED))) return st;
    m->info.tied = qr_gguf_tensor(w->g, "output.weight") == NULL;
    m->head = m->info.tied ? &m->embd : &m->output;
    m->embd.fine = m->output.fine = true;
    if (!m->info.tied &&
        (st = weights_linear(w, &m->output, "output", c->n_vocab, c->d_model, WEIGHTS_OPTIONAL)))
        return st;
    if ((st = weights_vector(w, rope_factors, "rope_freqs.weight", c->d_rot / 2, WEIGHTS_OPTIONAL)))
        return st;
    return weights_no_others(w, m->family->arch);
}

static void fill_info(struct qr_model *m, const struct qr_gguf *g, uint64_t n_params)
{
    const struct model_config *c = &m->cfg;
    struct qr_model_info *info = &m->info;
    struct qr_gguf_str name = {"", 0};
    (void)qr_gguf_str(g, "general.name", &name);
    snprintf(info->arch, sizeof info->arch, "%s", m->family->arch);
    snprintf(info->name, sizeof info->name, "%.*s", (int)(name.bytes < 95 ? name.bytes : 95), name.data);
    info->n_layers = c->n_layers;
    info->d_model = c->d_model;
    info->d_ff = c->d_ff;
    info->n_heads = c->n_heads;
    info->n_kv_heads = c->n_kv_heads;
    info->head_dim = c->head_dim;
    info->n_vocab = c->n_vocab;
    info->ctx_max = c->ctx_max;
    info->file_bytes = qr_gguf_file_bytes(g);
    info->packed_bytes = m->arena_bytes;
    info->n_params = n_params;
    info->kv_token_bytes = qr_model_block_bytes(m, QR_KV_UNIT) / QR_KV_UNIT;
}

static enum qr_status load(struct qr_model *m, const struct qr_gguf *g, const struct qr_model_conf *conf,
                           struct qr_error *err)
{
    enum qr_status st;
    float *rope_factors = NULL;
    struct weights w;
    if ((st = model_configure(g, &m->family, &m->cfg, err))) return st;
    const struct qr_gguf_tensor *embd = qr_gguf_tensor(g, "token_embd.weight");
    if (!embd || embd->dims[1] > MODEL_VOCAB_MAX) {
        return qr_fail(err, QR_EFORMAT, "model: tensor token_embd.weight: expected 1 to %d rows, %s",
                       MODEL_VOCAB_MAX, embd ? "got more" : "it is missing");
    }
    m->cfg.n_vocab = (int)embd->dims[1];
    m->layers = qr_calloc(QR_MEM_MODEL, (size_t)m->cfg.n_layers, sizeof *m->layers);
    m->inv_freq = qr_calloc(QR_MEM_MODEL, (size_t)m->cfg.d_rot / 2, sizeof *m->inv_freq);
    if (!m->layers || !m->inv_freq)
        return qr_fail(err, QR_ENOMEM, "model: no memory for %d layers", m->cfg.n_layers);
    if ((st = weights_init(&w, g, err))) return st;
    if (!(st = bind(&w, m, &rope_factors)) && !(st = weights_pack(&w, m, conf))) {
        st = model_rope_freqs(&m->cfg, rope_factors, m->inv_freq, err);
        fill_info(m, g, w.n_params);
    }
    weights_fini(&w);
    return st;
}

enum qr_status qr_model_load(const struct qr_gguf *g, const struct qr_model_conf *conf, struct qr_model **out,
                             struct qr_error *err)
{
    struct qr_model *m = qr_calloc(QR_MEM_MODEL, 1, sizeof *m);
    if (!m) return qr_fail(err, QR_ENOMEM, "model: no memory");
    m->activations = conf->activations;
    m->info.kvtype = conf->kvtype                        ? conf->kvtype
                     : conf->activations == QR_ACT_F32 ? QR_KV_F32
                                                       : QR_KV_BF16;
    enum qr_status st = load(m, g, conf, err);
    if (st) {
        qr_model_free(&m);
        return st;
    }
    *out = m;
    return QR_OK;
}

void qr_model_free(struct qr_model **mp)
{
    struct qr_model *m = *mp;
    if (!m) return;
    if (m->arena) qr_pages_free(QR_MEM_MODEL, m->arena, m->arena_bytes);
    qr_free(m->layers);
    qr_free(m->inv_freq);
    qr_free(m);
    *mp = NULL;
}

const struct qr_model_info *qr_model_info(const struct qr_model *m)
{
    return &m->info;
}

size_t qr_model_block_bytes(const struct qr_model *m, int block_size)
{
    size_t units = (size_t)m->cfg.n_layers * (size_t)m->cfg.n_kv_heads * (size_t)(block_size / QR_KV_UNIT);
    return units * qr_kv_unit_bytes(m->info.kvtype, m->cfg.head_dim);
}
