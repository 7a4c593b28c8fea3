/* A picture of the block pool: every block's state, every live sequence and its block table.
 *
 * Owns: the record. Refuses to know: how it is drawn. Threads: the engine's thread fills it, readers have
 * copies. Lifetime: a value whose arrays belong to whoever made it; a copy is one allocation. */
#ifndef QR_CORE_INSPECT_H
#define QR_CORE_INSPECT_H

#include <stdint.h>

#include "core/req.h"
#include "core/snapshot.h"

#define QR_INSPECT_WAITING_MAX 256 // waiting requests that a picture lists

struct qr_inspect_seq {
    qr_req_id id;
    uint64_t arrival_ns, fair_key;
    int32_t choice, priority;
    int32_t running; // 1: it has a slot; 0: it waits
    int32_t n_prompt, n_ids, n_computed;
    int32_t n_preemptions;
    uint32_t first_block, n_blocks; // its table, into tables[]
};

struct qr_inspect {
    struct qr_snapshot snapshot;
    uint64_t now_ns; // when it was taken, on the engine's clock
    int32_t n_seqs, seqs_max;
    uint32_t n_tables, tables_max;
    uint32_t n_states; // blocks below this one were used at least once
    struct qr_inspect_seq *seqs;
    uint32_t *tables;
    // (n_states) '-' free, 'c' free but cached, '1' to '9' references, '+' more
    char *states;
};

#endif
