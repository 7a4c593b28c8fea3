/* libFuzzer target: any bytes are a GGUF file that opens or is refused; an open one is read in full. `make
 * fuzz`. */
#include "fmt/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static volatile uint64_t sink;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct qr_gguf *g;
    struct qr_error err;
    uint64_t sum = 0;
    if (qr_gguf_open_mem(data, bytes, &g, &err) != QR_OK) return 0;
    for (size_t i = 0; i < qr_gguf_n_kvs(g); i++) {
        const struct qr_gguf_kv *kv = qr_gguf_kv_at(g, i);
        for (size_t j = 0; j < kv->key.bytes; j++) sum += (uint8_t)kv->key.data[j];
        for (uint64_t j = 0; j < kv->n; j++) {
            if (kv->elem != QR_GGUF_STR) {
                sum += (uint64_t)qr_gguf_arr_i64(kv, j);
            } else if (kv->strs[j].bytes > 0) {
                sum += (uint8_t)kv->strs[j].data[0] + (uint8_t)kv->strs[j].data[kv->strs[j].bytes - 1];
            }
        }
    }
    for (size_t i = 0; i < qr_gguf_n_tensors(g); i++) {
        const struct qr_gguf_tensor *t = qr_gguf_tensor_at(g, i);
        if (t->data) sum += (uint64_t)t->data[0] + t->data[t->bytes - 1];
    }
    sink = sum;
    qr_gguf_free(&g);
    return 0;
}
