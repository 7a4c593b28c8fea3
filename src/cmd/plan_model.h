/* Sizes of a model out of whatever names one.
 *
 * Owns: the reading of a .gguf file's sizes. Refuses to know: what is planned. Threads: pure. Lifetime: values. */
#ifndef QR_CMD_PLAN_MODEL_H
#define QR_CMD_PLAN_MODEL_H

#include "sim/model.h"

// A name of sim/models.def, a config.json, a .gguf file, or the name of a cached one.
enum qr_status cmd_plan_model(const char *name, struct qr_sim_model *out, struct qr_error *err) QR_MUST_CHECK;

#endif
