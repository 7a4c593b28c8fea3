/* What the simulator knows of a model and of a machine: sizes.
 *
 * Owns: the two lists of names, and the arithmetic of memory. Refuses to know: time, schedulers.
 * Threads: pure functions. Lifetime: values.
 *
 * Adding a model, a machine or a model_type of config.json is one line in models.def, hardware.def or archs.def. */
#ifndef QR_SIM_MODEL_H
#define QR_SIM_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

struct qr_sim_model {
    char name[64];
    int32_t n_layers, hidden, n_heads, n_kv_heads, head_dim, ffn, n_ffn_matrices, n_vocab, n_positions;
    bool tied;
    int32_t ctx_max;
    double bits; // of a weight of the layers' matrices
    double file_bytes; // of all weights as a file has them; 0: by `bits`
    char left_out[160]; // what a file says of the model that these sizes do not count; "": nothing
};
// "a, b, c": all names; and the model_types that a config.json may have.
void qr_sim_model_names(char *out, size_t cap);
void qr_sim_arch_names(struct qr_buf *out);
// By name, or from a Hugging Face config.json where `name` is a path to one. QR_ENOTFOUND lists the names.
enum qr_status qr_sim_model_find(const char *name, struct qr_sim_model *out, struct qr_error *err) QR_MUST_CHECK;
// From the text of a config.json. QR_EFORMAT names the field, what was expected and what came; QR_ENOTSUP names what is
// not modelled.
enum qr_status qr_sim_model_parse(const char *json, size_t bytes, struct qr_sim_model *out,
                                  struct qr_error *err) QR_MUST_CHECK;

int64_t qr_sim_layer_weights(const struct qr_sim_model *m); // in matrices of one layer
int64_t qr_sim_params(const struct qr_sim_model *m);        // all
double qr_sim_layer_bytes(const struct qr_sim_model *m);    // of one layer's matrices
double qr_sim_weight_bytes(const struct qr_sim_model *m);   // all
double qr_sim_kv_bytes(const struct qr_sim_model *m);       // K and V of one token, all layers, 16 bits

struct qr_sim_hardware {
    char name[32];
    double memory_gib, memory_gbs, tflops, pcie_gbs, link_gbs, link_us, layer_us, step_us, row_us;
    double eff_compute, eff_memory;
};
// QR_ENOTFOUND lists the names.
enum qr_status qr_sim_hardware_find(const char *name, struct qr_sim_hardware *out,
                                    struct qr_error *err) QR_MUST_CHECK;
// "this machine", "4 x h100". Returns out.
#define QR_SIM_HARDWARE_TEXT 64
const char *qr_sim_hardware_text(char out[QR_SIM_HARDWARE_TEXT], const struct qr_sim_hardware *h, int32_t n_devices);

struct qr_sim_memory { // bytes, over all devices
    double total, weights, activations, kv;
    int64_t n_slots; // tokens that kv holds
};
// What is left for KV of `share` of n_devices memories, beside the weights and the activations of a step of n_tokens.
// QR_ETOOBIG with the arithmetic when nothing is.
enum qr_status qr_sim_memory(const struct qr_sim_model *m, const struct qr_sim_hardware *h, int32_t n_devices,
                             double share, int32_t n_tokens, struct qr_sim_memory *out,
                             struct qr_error *err) QR_MUST_CHECK;

#endif
