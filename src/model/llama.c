/* Llama and its kin (Mistral, SmolLM2, TinyLlama): RMS norms before attention and MLP, rotary positions on
 * neighbouring pairs (GGUF stores Q and K so), grouped-query attention, SwiGLU. Biases where the file has
 * them. */
#include "model/layers.h"

static enum qr_status configure(const struct qr_gguf *g, struct model_config *cfg, struct qr_error *err)
{
    cfg->rope_neox = false;
    return QR_OK;
}

static enum qr_status bind_layer(struct weights *w, struct qr_model *m, int i)
{
    return layers_bind_decoder(w, m, i, WEIGHTS_OPTIONAL);
}

const struct model_family model_llama = {"llama", configure, bind_layer, layers_run_decoder};
