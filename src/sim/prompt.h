/* Token ids for simulated prompts: made up, and equal where the workload says that requests share them.
 *
 * Owns: nothing. Refuses to know: engines. Threads: pure functions. Lifetime: none. */
#ifndef QR_SIM_PROMPT_H
#define QR_SIM_PROMPT_H

#include <stdint.h>

#include "sim/workload.h"

struct qr_sim_context { // what a session has said so far
    const int32_t *ids;
    int32_t n_ids;
};
// Writes item i's prompt, n_prompt ids below n_vocab. The first shared_tokens are everybody's; then the session's
// context, where this turn's is at least as long (else the client cut it, and all is new); then blocks by their
// hash ids; what is left belongs to this item alone.
void qr_sim_prompt(const struct qr_sim_workload *w, int64_t i, int32_t shared_tokens, const struct qr_sim_context *context,
                   uint64_t seed, int32_t n_vocab, int32_t *ids);

#endif
