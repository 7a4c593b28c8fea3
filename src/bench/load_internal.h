/* What the kinds of load share while one is made.
 *
 * Owns: the load under way. Refuses to know: options of other kinds. Threads: one owner. Lifetime: a call of
 * bench_load_make. */
#ifndef QR_BENCH_LOAD_INTERNAL_H
#define QR_BENCH_LOAD_INTERNAL_H

#include "bench/load.h"
#include "bench/mt.h"

struct load_maker {
    const struct qr_conf *conf;
    struct bench_mt mt;
    uint32_t seed;
    struct bench_ids range;
    struct bench_load *load;
    size_t items_cap;
    uint64_t ids_cap;
};

// Adds a request with room for its ids, which the caller fills. NULL: no memory.
int32_t *load_add(struct load_maker *m, int32_t n_prompt, int32_t n_out);
void load_draw_ids(struct load_maker *m, int32_t *ids, int64_t n);
enum qr_status load_no_memory(const struct load_maker *m, struct qr_error *err);
// Of --workload (load_workload.c).
enum qr_status load_workload(struct load_maker *m, struct qr_error *err) QR_MUST_CHECK;

#endif
