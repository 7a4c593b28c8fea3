/* What a step costs, as data: a table of seven numbers, and the sums over a batch that it is applied to (DESIGN 4).
 *
 * Owns: the table, its JSON, the arithmetic. Refuses to know: who measures, who plans.
 * Threads, lifetime: values. A table is never changed in place: a better one has a later epoch, and whoever
 * plans is handed it between two steps, so that a record of the tables explains every plan.
 *
 *   step = max(floor, fixed + row * generated rows) + context * positions
 *        + prompt_fixed (if there is a prompt row) + prompt_row * prompt rows, each sequence's rounded up to 16
 *        + query_context * (prompt rows * the positions that the last of them attends to), by sequence
 *
 * A step of few rows takes as long as memory takes to give the weights, the floor; one of many as long as the
 * arithmetic. */
#ifndef QR_CORE_COSTS_H
#define QR_CORE_COSTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"
#include "base/status.h"
#include "core/batch.h"

#define QR_COST_TILE 16 // prompt rows are computed in tiles of so many

#define QR_COST_MAX ((uint64_t)1 << 40) // of each number of a table: 18 minutes, a position's a second
#define QR_STEP_NS_MAX ((uint64_t)1 << 59) // of a step: 18 years

struct qr_costs {
    uint64_t epoch; // 0: no table
    uint64_t fixed_ns, row_ns, prompt_fixed_ns, prompt_row_ns;
    uint64_t context_ps, query_context_ps;
    uint64_t floor_ns;
};

// The terms of the sum, in ns; a position's as well.
enum qr_cost_term {
    QR_COST_FIXED,
    QR_COST_ROW,
    QR_COST_PROMPT_FIXED,
    QR_COST_PROMPT_ROW,
    QR_COST_CONTEXT,
    QR_COST_QUERY_CONTEXT,
    QR_COST_FLOOR,
    QR_COST_TERMS
};

struct qr_work {
    int64_t n_rows;        // generated tokens (class D)
    int64_t n_prompt_tile; // prompt tokens, rounded up to whole tiles
    int64_t context;       // over sequences: positions when the step has ended
    int64_t query_context; // over sequences: prompt rows * positions of the last
};

// Adds a sequence with n_prompt prompt tokens that computes positions pos0 .. pos0 + n_tokens - 1.
void qr_work_add(struct qr_work *w, int32_t n_prompt, int32_t pos0, int32_t n_tokens);
void qr_work_of(const struct qr_batch *b, struct qr_work *out);
uint64_t qr_costs_ns(const struct qr_costs *c, const struct qr_work *w); // QR_STEP_NS_MAX at most

// n times a number of a table; QR_STEP_NS_MAX at most.
uint64_t qr_cost_times(uint64_t n, uint64_t cost);

// Whether the floor says what w's rows take, and not their number.
bool qr_costs_floor_rules(const struct qr_costs *c, const struct qr_work *w);
// How often each term stands in the sum of a step with work w: either the floor, or fixed and rows.
void qr_work_counts(const struct qr_work *w, bool floor_rules, double counts[QR_COST_TERMS]);
void qr_costs_terms(const struct qr_costs *c, double ns[QR_COST_TERMS]);
struct qr_costs qr_costs_of_terms(const double ns[QR_COST_TERMS], uint64_t epoch); // rounded; fixed is 1 at least

// {"epoch": 1, "fixed_ns": ...}, all keys; reading takes whole numbers from 0 (fixed_ns, epoch: 1) to QR_COST_MAX, no epoch as epoch 1
// and no floor_ns as 0. *out is written only on success; `where` stands before a message.
void qr_costs_put(const struct qr_costs *c, struct qr_json_writer *w); // the keys but epoch, into an open object
void qr_costs_write(const struct qr_costs *c, struct qr_json_writer *w);
enum qr_status qr_costs_read(qr_json *v, const char *where, struct qr_costs *out,
                             struct qr_error *err) QR_MUST_CHECK;
// One number by itself, as a file may have beside its table: from `least` to QR_COST_MAX, else QR_EFORMAT.
enum qr_status qr_cost_read(qr_json *v, const char *name, int64_t least, const char *where, uint64_t *out,
                            struct qr_error *err) QR_MUST_CHECK;

#endif
