/* What a step costs.
 *
 * Owns: three ways to say it: a roofline of a model on a machine, a measured table, recorded times.
 * Refuses to know: batches' contents beyond these sums, schedulers.
 * Threads: a cost belongs to one executor; recorded times advance as they are asked for.
 * Lifetime: a value; recorded times are borrowed. */
#ifndef QR_SIM_COST_H
#define QR_SIM_COST_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "core/batch.h"
#include "core/costs.h"
#include "sim/model.h"

struct qr_sim_load { // sums over a batch
    struct qr_work work;
    int64_t n_prompt_rows;  // prompt tokens computed (class P)
    int64_t row_context;    // over generated rows: positions that each attends to
    int64_t prompt_context; // over prompt rows: the same
    int64_t n_samples;      // rows whose logits are computed
    int64_t n_copies;       // blocks copied, of them
    int64_t n_moves;        // from tier to tier
};
void qr_sim_load_of(const struct qr_batch *b, struct qr_sim_load *out);

struct qr_sim_roofline {
    struct qr_sim_model model;
    struct qr_sim_hardware hardware;
    int32_t n_devices;  // tensor parallel
    int32_t block_size; // tokens, for copies
};

#define QR_SIM_COPY_BY_HARDWARE UINT64_MAX
enum qr_sim_cost_kind { QR_SIM_TABLE, QR_SIM_ROOFLINE, QR_SIM_RECORDED };
struct qr_sim_cost {
    enum qr_sim_cost_kind kind;
    struct qr_costs table; // as `quire bench step --costs FILE` measures it (core/costs.h)
    uint64_t copy_ns;      // of a block, beside the table; QR_SIM_COPY_BY_HARDWARE: as the roofline has it
    struct qr_sim_roofline roofline;
    const uint64_t *recorded_ns; // (n_recorded), one a step
    size_t n_recorded, i_recorded;
};

// The nanoseconds of a step's copies, and of all else. Recorded times hold the copies; they
// are handed out in order, and past their end the last one repeats.
uint64_t qr_sim_copy_ns(const struct qr_sim_cost *c, const struct qr_sim_load *load);
uint64_t qr_sim_cost_ns(struct qr_sim_cost *c, const struct qr_sim_load *load);
double qr_sim_roofline_copy_s(const struct qr_sim_roofline *r, const struct qr_sim_load *load);
double qr_sim_roofline_s(const struct qr_sim_roofline *r, const struct qr_sim_load *load);
// A table for whoever plans by one: the cost itself, or a line through two points of it in each direction.
struct qr_costs qr_sim_cost_guess(const struct qr_sim_cost *c);

struct qr_sim_table { // a file of one (qr_costs_read), and what it says of it
    struct qr_costs costs;
    char model[64], processor[64];  // that it was measured with; "": it does not say
    double error_median, error_max; // by what share of a step it is off; 0: it does not say
    bool has_copy;
    uint64_t copy_ns; // of a block, if it says so ("copy_ns")
};
enum qr_status qr_sim_table_read(const char *path, struct qr_sim_table *out, struct qr_error *err) QR_MUST_CHECK;

#endif
