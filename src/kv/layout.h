/* How the blocks of a sequence lie in the pool, and what is set aside for it: one of the six vtables.
 *
 * Owns: the choice of ids and of when they are taken. Refuses to know: requests, policies, bytes.
 * Threads: the engine thread; the pure functions from any.
 * Lifetime: kv/table makes it and ends it; all memory is taken at _new.
 *
 * Paged is no object: kv/table does it itself, from the pool, block by block. The others are what paging is
 * compared with (Kwon et al., SOSP 2023, 6.1): a contiguous layout hands a sequence one run of consecutive
 * ids when it is admitted, and executors, which read through block tables, run the same kernels on it.
 *
 *   paged              blocks one by one, anywhere, shared where contents are
 *   contiguous-max     a run for the longest sequence that the model takes
 *   contiguous-pow2    a run for the prompt and for the answer's length rounded up to a power of two
 *   contiguous-oracle  a run for the prompt and for exactly the answer (max_tokens)
 *   virtual            an address range for the longest sequence, backed by pages of several blocks as it grows
 *
 * Runs come from a buddy allocator, so their sizes are powers of two. A sequence never outgrows its run: it
 * covers max_tokens. Only paged shares blocks. */
#ifndef QR_KV_LAYOUT_H
#define QR_KV_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "kv/pool.h"

enum qr_kv_layout_kind {
    QR_KV_PAGED,
    QR_KV_CONTIGUOUS_MAX,
    QR_KV_CONTIGUOUS_POW2,
    QR_KV_CONTIGUOUS_ORACLE,
    QR_KV_VIRTUAL,
    QR_KV_LAYOUTS
};
const char *qr_kv_layout_name(enum qr_kv_layout_kind kind); // as in the list above
// QR_EINVAL lists the names.
enum qr_status qr_kv_layout_parse(const char *name, enum qr_kv_layout_kind *out,
                                  struct qr_error *err) QR_MUST_CHECK;
static inline bool qr_kv_layout_is_contiguous(enum qr_kv_layout_kind kind)
{
    return kind >= QR_KV_CONTIGUOUS_MAX && kind <= QR_KV_CONTIGUOUS_ORACLE;
}

struct qr_kv_layout_conf {
    enum qr_kv_layout_kind kind;
    int32_t n_tables;
    int32_t block_size; // tokens
    int32_t max_len;    // tokens of the longest sequence
    uint32_t n_blocks;
    uint32_t page_blocks; // of a page of QR_KV_VIRTUAL; >= 1
};

// A sequence that asks to be admitted, in tokens.
struct qr_kv_want {
    int32_t n_prompt;
    int32_t n_known; // prompt, and generated before a preemption
    int32_t n_total; // at most ever: prompt and max_tokens
};

// Blocks that a sequence holds from its admission on, what the allocator rounds up included. Pure.
uint32_t qr_kv_layout_claim(const struct qr_kv_layout_conf *c, const struct qr_kv_want *w);
// Of these, what rounding up does not add (contiguous layouts). Pure.
uint32_t qr_kv_layout_asked(const struct qr_kv_layout_conf *c, const struct qr_kv_want *w);
// Most such sequences that an empty pool takes at once. Pure.
uint32_t qr_kv_layout_capacity(const struct qr_kv_layout_conf *c, const struct qr_kv_want *w);

// What a table holds of the pool, in blocks: whole, and the part that rounding up made useless.
struct qr_kv_held {
    uint32_t n_blocks, n_rounding;
};

struct qr_kv_layout;
struct qr_kv_layout_ops {
    // Whether n such sequences may begin now, when running ones will still take n_outstanding blocks for
    // tokens that they know, and n_spare growth steps are kept free.
    bool (*room)(const struct qr_kv_layout *l, const struct qr_kv_want *w, uint32_t n, uint32_t n_outstanding,
                 uint32_t n_spare);
    void (*admit)(struct qr_kv_layout *l, int32_t i_table, const struct qr_kv_want *w); // room said yes
    void (*leave)(struct qr_kv_layout *l, int32_t i_table); // its entries are unreferenced already
    // Blocks, of n_free, that growing a table from `from` to `to` entries takes.
    uint32_t (*need)(const struct qr_kv_layout *l, int32_t i_table, int32_t from, int32_t to);
    uint32_t (*n_free)(const struct qr_kv_layout *l);
    // The block for entry `at`, the table's next one, with one reference. need() fitted n_free().
    qr_block_id (*take)(struct qr_kv_layout *l, int32_t i_table, int32_t at);
    struct qr_kv_held (*held)(const struct qr_kv_layout *l, int32_t i_table);
    void (*check)(const struct qr_kv_layout *l); // aborts
    void (*free)(struct qr_kv_layout *l);
};
struct qr_kv_layout {
    const struct qr_kv_layout_ops *ops;
}; // first member of every layout

// Any kind but paged. The pool is borrowed, must be untouched, and is given blocks only by this from now on.
enum qr_status qr_kv_layout_new(struct qr_kv_pool *pool, const struct qr_kv_layout_conf *conf,
                                struct qr_kv_layout **out) QR_MUST_CHECK;
enum qr_status kv_contiguous_new(struct qr_kv_pool *pool, const struct qr_kv_layout_conf *conf,
                                 struct qr_kv_layout **out) QR_MUST_CHECK;
enum qr_status kv_virtual_new(struct qr_kv_pool *pool, const struct qr_kv_layout_conf *conf,
                              struct qr_kv_layout **out) QR_MUST_CHECK;

#endif
