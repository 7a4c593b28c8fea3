/* Block tables: for each sequence, the blocks that hold its tokens, in order.
 *
 * Owns: one table per executor slot, and the references that its entries hold on the pool's blocks.
 * Refuses to know: token ids, requests, bytes. A copy-on-write comes back as an order for the executor.
 * Threads: the engine thread.
 * Lifetime: all memory is reserved at _new (touched only as tables grow); nothing is allocated afterwards.
 *
 * Position p of a sequence stands in entry p / block_size. Rules:
 *   1. Before tokens from .. to-1 are written, qr_kv_table_extend makes their blocks this table's alone.
 *   2. An entry before the last is never written again (K5), so forks share it for good.
 *   3. A table is dropped from its tail (K6): on the free list heads outlive tails.
 *   4. A cached block is never written: who adopted one that is partly filled copies it first. It stays pinned,
 *      one reference beside the tables', until the copy is made. */
#ifndef QR_KV_TABLE_H
#define QR_KV_TABLE_H

#include <stdint.h>
#include <stdio.h>

#include "base/status.h"
#include "core/batch.h"
#include "kv/layout.h"
#include "kv/pool.h"
#include "kv/prefix.h"

struct qr_kv_tables;

struct qr_kv_tables_conf {
    int32_t n_tables;     // slots
    int32_t n_blocks_max; // entries of one table
    int32_t block_size;   // tokens
    struct qr_kv_prefix *prefix;   // borrowed; NULL: nothing is cached
    enum qr_kv_layout_kind layout; // and for those that are not paged:
    int32_t max_len;               // tokens of the longest sequence
    uint32_t page_blocks;          // of QR_KV_VIRTUAL; 0 is 1
};

// The pool is borrowed and outlives the tables.
enum qr_status qr_kv_tables_new(struct qr_kv_pool *pool, const struct qr_kv_tables_conf *conf,
                                struct qr_kv_tables **out) QR_MUST_CHECK;
void qr_kv_tables_free(struct qr_kv_tables **t);

int32_t qr_kv_table_len(const struct qr_kv_tables *t, int32_t i_table);
const qr_block_id *qr_kv_table_ids(const struct qr_kv_tables *t, int32_t i_table);

// Admission, where the layout is not paged: whether n_seqs such sequences may begin (layout.h: room), and the
// setting aside for the empty table of one. Paged tables need neither; admit does nothing there.
bool qr_kv_tables_room(const struct qr_kv_tables *t, const struct qr_kv_want *want, uint32_t n_seqs,
                       uint32_t n_outstanding, uint32_t n_spare);
void qr_kv_table_admit(struct qr_kv_tables *t, int32_t i_table, const struct qr_kv_want *want);
// Blocks that extend may still take in all.
uint32_t qr_kv_tables_n_free(const struct qr_kv_tables *t);
// Whether tables may share blocks, and what a table holds of the pool.
bool qr_kv_tables_share(const struct qr_kv_tables *t);
struct qr_kv_held qr_kv_table_held(const struct qr_kv_tables *t, int32_t i_table);

// Blocks that extend would take from the pool so that positions from .. to-1 can be written.
uint32_t qr_kv_table_need(const struct qr_kv_tables *t, int32_t i_table, int32_t from, int32_t to);
// Makes positions from .. to-1 writable. Returns how many copies (0 or 1) the executor must make first, with
// the order in *copy; -1, and nothing is changed, when the pool has not enough free blocks. Everything before
// `from` has been written.
int qr_kv_table_extend(struct qr_kv_tables *t, int32_t i_table, int32_t from, int32_t to,
                       struct qr_batch_copy *copy) QR_MUST_CHECK;
// Lets the empty table `to` share the blocks that hold the first n_tokens of `from`.
void qr_kv_table_fork(struct qr_kv_tables *t, int32_t from, int32_t to, int32_t n_tokens);
// For a table that is filled again from another tier, or begins with cached blocks: appends a fresh block, of
// which the pool has one, or shares one that another table holds or that is cached.
qr_block_id qr_kv_table_grow(struct qr_kv_tables *t, int32_t i_table);
void qr_kv_table_share(struct qr_kv_tables *t, int32_t i_table, qr_block_id id);
// The copies that extend ordered are made, or never will be.
void qr_kv_tables_unpin(struct qr_kv_tables *t);
// Empties a table, tail first.
void qr_kv_table_drop(struct qr_kv_tables *t, int32_t i_table);

// K3, with n_pins references on blocks that no table holds; aborts.
void qr_kv_tables_check(const struct qr_kv_tables *t, uint64_t n_pins);
void qr_kv_tables_dump(const struct qr_kv_tables *t, FILE *f);

// Blocks that hold n_tokens.
static inline int32_t qr_kv_blocks_for(int32_t n_tokens, int32_t block_size)
{
    return (n_tokens + block_size - 1) / block_size;
}

#endif
