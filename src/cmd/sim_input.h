/* What sim and plan take in alike: the sizes of a model, a cost table, memory for KV.
 *
 * Owns: the reading of a .gguf file's sizes, and words about what was read. Refuses to know: what is simulated or
 * planned. Threads: main. Lifetime: values. */
#ifndef QR_CMD_SIM_INPUT_H
#define QR_CMD_SIM_INPUT_H

#include "conf/conf.h"
#include "sim/cost.h"
#include "sim/model.h"
#include "sim/workload.h"

// Beside weights and KV: what a process needs to start, as measured.
#define CMD_PROCESS_GIB 0.02
#define CMD_BLOCKS_MAX 1e9 // of a simulated pool

// A name of sim/models.def, a config.json, a .gguf file, or the name of a cached one. QR_ENOTFOUND lists all names.
enum qr_status cmd_sim_model(const char *name, struct qr_sim_model *out, struct qr_error *err) QR_MUST_CHECK;
// Reads --costs, and says where a table is known to be far off.
enum qr_status cmd_sim_costs(const char *path, struct qr_sim_table *out, struct qr_error *err) QR_MUST_CHECK;
// Before anything is computed: whether the file that --flag writes can be written, and is none that sim and plan read.
enum qr_status cmd_sim_check_output(const struct qr_conf *c, const char *flag, const char *path, struct qr_error *err) QR_MUST_CHECK;
// What a copied block costs beside table `t`: what its file says, else by a machine that was named, else as within
// this machine's memory.
uint64_t cmd_sim_copy_ns(const struct qr_sim_table *t, bool is_named, double block_bytes);
// Says where a table is of another model, or of another machine than the one whose name this is (NULL: of any).
void cmd_sim_say_costs(const char *path, const struct qr_sim_table *t, const char *model, const char *machine);
// --num-prompts; 0: nobody said it. QR_EINVAL: out of range.
enum qr_status cmd_sim_num_prompts(const struct qr_conf *c, int64_t *out, struct qr_error *err) QR_MUST_CHECK;
// --max-model-len, else the model's. QR_EINVAL: longer than the model takes.
enum qr_status cmd_sim_max_len(const struct qr_conf *c, const struct qr_sim_model *m, int32_t *out, struct qr_error *err) QR_MUST_CHECK;
// Whether KV memory that was given as bytes or blocks is there at all. QR_ETOOBIG names the flag. QR_OK where nothing
// was given.
enum qr_status cmd_sim_kv_fits(const struct qr_conf *c, const struct qr_sim_model *m, const struct qr_sim_hardware *h,
                               int32_t n_tokens, double block_bytes, struct qr_error *err) QR_MUST_CHECK;
// "no", "step" or a number of steps, as --check has it: 0, 1 or the number.
enum qr_status cmd_sim_check(const char *text, uint64_t *out, struct qr_error *err) QR_MUST_CHECK;
// Says which columns of a workload stand for nothing; "": none.
void cmd_say_unused(const char *workload, const char *unused);

#endif
