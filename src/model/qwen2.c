/* Qwen2 and Qwen2.5: as Llama, but Q, K and V have biases and rotary pairs lie half a head apart. */
#include "model/layers.h"

static enum qr_status configure(const struct qr_gguf *g, struct model_config *cfg, struct qr_error *err)
{
    cfg->rope_neox = true;
    return QR_OK;
}

static enum qr_status bind_layer(struct weights *w, struct qr_model *m, int i)
{
    return layers_bind_decoder(w, m, i, WEIGHTS_REQUIRED);
}

const struct model_family model_qwen2 = {"qwen2", configure, bind_layer, layers_run_decoder};
