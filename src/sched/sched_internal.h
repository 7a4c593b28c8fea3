/* The scheduler's record, shared by sched.c, prefix.c (keeping) and plan.c, share.c,
 * admit.c and preempt.c (deciding).
 *
 * Owns: nothing. Refuses to know: callers. Threads: the engine thread. Lifetime: qr_sched_new to
 * qr_sched_free. */
#ifndef QR_SCHED_INTERNAL_H
#define QR_SCHED_INTERNAL_H

#include "kv/pool.h"
#include "kv/table.h"
#include "kv/spill.h"
#include "kv/tier.h"
#include "sched/queue.h"
#include "sched/sched.h"

// Prompt rows are computed in tiles of 16, so a chunk of another size wastes the rest of its last tile.
#define SCHED_CHUNK 16

#define SCHED_YIELDS_MAX 4

struct sched_turn { // where the round of generating sequences stands: the last one that had its turn
    struct qr_sched_req at; // its place in the order only: by now it may be gone
    int32_t choice;
};

struct sched_pick { // a sequence that could generate in this step
    struct qr_sched_req *r;
    struct qr_seq *seq;
};

// What the index has for a waiting request; found anew whenever it is looked at.
struct sched_hit {
    const struct qr_sched_req *r; // whose
    struct qr_kv_place place;     // behind the full blocks
    int32_t n_tokens;             // in all
    int32_t n_full;               // blocks: hit_ids[0 .. n_full)
    int32_t n_tier;               // blocks behind those, in other tiers: tier_hits[0 .. n_tier)
    bool must_wait;               // for one of them, which is on its way to somebody else
    int32_t n_part;               // tokens of hit_ids[n_full], which is copied; 0: none
    uint32_t n_busy;              // full blocks that somebody holds: to hold them too costs nothing
};

struct sched_time { // the step's budget in time (budget.c)
    struct qr_costs costs;
    uint64_t budget_ns; // 0: none; QR_STEP_AUTO
    struct qr_work work; // of this plan: rows that generate, and what prompts were given
    uint64_t left_ns;    // of this plan, for prompts; UINT64_MAX: no limit
    int32_t n_waited;   // steps without a prompt row, while prompts could use one
    bool is_open;       // pieces of prompts may go, not only rests
    bool is_forced;     // patience ended
    bool is_spent;      // something was given to prompts
};

struct sched_tier_hit { // a block of a prompt that waits in a tier
    enum qr_tier tier;
    qr_slot_id slot;
};

struct sched_counts { // only grow
    uint64_t n_prompt_tokens, n_recomputed_tokens, n_preemptions, n_preempted_tokens;
    uint64_t n_yields; // preemptions for a better class
    uint64_t n_steps, n_step_tokens, n_step_seqs, waste_slots, waste_of_slots;
    struct qr_kv_slots kv; // sums over steps
    uint64_t n_entries, n_unshared; // the same: entries of tables, and different blocks in them
    uint64_t n_steps_of[QR_STEP_SIZES]; // by the step's tokens, as in the snapshot
    uint64_t n_cache_queries, n_cache_hits, n_cache_generated; // tokens, as in the snapshot
    uint64_t n_cache_hits_of[QR_TIERS];
    uint64_t n_lost; // tokens that did not come back from the file
    uint64_t n_swaps, n_blocks_out[QR_TIERS], n_blocks_in[QR_TIERS];
};

struct sched_io { // of a slot of the file
    struct qr_sched_req *owner; // NULL: gone
    struct qr_io io;
    uint32_t at; // in flight[]
};

struct qr_sched {
    struct qr_sched_conf conf;
    struct qr_kv_pool *pool;
    struct qr_kv_tables *tables;
    struct qr_kv_prefix *prefix; // NULL: off
    struct sched_hit *hit;       // of the request that was asked for last
    qr_block_id *hit_ids;        // (blocks of the longest sequence)
    struct qr_kv_spill *spill;   // NULL: prefixes stay in the pool
    struct sched_tier_hit *tier_hits; // (blocks of the longest sequence)
    qr_block_id i_flush;              // blocks below were looked at
    uint32_t *tokens;            // (block_size) scratch
    struct qr_queue waiting;
    struct qr_sched_req **running; // (max_num_seqs), in serving order
    int32_t n_running;             // requests
    int32_t n_running_seqs;        // slots in use
    int32_t *free_slots;           // (max_num_seqs) a stack, lowest on top at the start
    uint64_t last_order, last_turn;
    uint64_t latest_admitted; // in this plan: the latest arrival of them, 0: none
    struct sched_turn turn;
    struct sched_time time;
    int32_t n_steps_without_prompt; // while one could have used it
    uint64_t i_step;
    bool is_blocked;   // in this step the next waiting request found a slot and no blocks
    bool batch_closed; // QR_BATCHING_STATIC: nobody joins any more
    struct qr_preempt_costs preempt_costs;
    struct qr_kv_tier *tiers[QR_TIERS]; // none for the pool

    uint64_t i_plan;
    int32_t n_forced; // preemptions of the plan that a test asked for
    // The plan's moves between the pool and other tiers; (slots of all tiers) each.
    struct qr_batch_copy *outs, *ins;
    uint32_t n_outs, n_ins;
    // Blocks on their way to or from the file; (its slots) each.
    struct qr_kv_tier *staging;
    struct sched_io *ios;    // by slot of the file
    uint32_t *flight;        // slots of the file whose I/O is not done
    struct qr_io *io_orders; // not handed out yet
    uint32_t n_flight, n_reads, n_io_orders;

    struct qr_plan plan;
    int32_t budget;                    // of the plan
    struct qr_order *orders;           // (2 * max_num_seqs)
    struct qr_preemption *preemptions; // (max_num_seqs)
    struct qr_grant *grants;           // (max_num_seqs)
    struct sched_pick *picks;          // (max_num_seqs)
    void *batch_mem;                   // room for the largest batch, touched as far as batches reach
    struct sched_counts counts;
};

void sched_order(struct qr_sched *s, enum qr_order_kind kind, struct qr_sched_req *r, struct qr_seq *q);
void sched_run(struct qr_sched *s, struct qr_sched_req *r); // from the waiting queue: gives slots
void sched_unrun(struct qr_sched *s,
                 struct qr_sched_req *r);                 // takes it out of running; slots are free already
void sched_release(struct qr_sched *s, struct qr_seq *q); // blocks and slot
void sched_fork(struct qr_sched *s, struct qr_sched_req *r); // when the leader's part is done

// ==== share.c ====

// Whether the sequence is past its prompt with one token to compute.
bool sched_generates(const struct qr_sched_req *r, const struct qr_seq *q);
// One token for every generating sequence; when they are more than cap, the next cap of the round. Returns
// how many.
int32_t sched_share_generating(struct qr_sched *s, int32_t cap);
// The chunk for a sequence that has `remaining` tokens to compute, of `left` in the budget; `alone`: nothing
// else is computed in this step.
int32_t sched_chunk_of(const struct qr_sched *s, const struct qr_sched_req *r, const struct qr_seq *q,
                       int32_t remaining, int32_t left, bool alone);
void sched_share_chunks(struct qr_sched *s, int32_t left, bool alone);
// Whether a prompt could use some of this step.
bool sched_prompt_work(const struct qr_sched *s);

// ==== budget.c ====

// What a prompt's piece costs at least, in rows without context: below it the fixed cost of prompt rows weighs.
#define SCHED_CHUNK_WORTH 128
// What the budget leaves for prompts where it is not given, in rows without context. Simulated with 32 chatting users
// (sim/budget_sim_test.c): 128 rows: p99 between tokens 99 ms instead of 350, median 70 instead of 30, first token
// after 628 ms instead of 305, 1.6 % fewer tokens a second; 256 rows: 162, 31 and 386 ms, and none fewer.
#define SCHED_CHUNK_AUTO 256

// Once the generating rows of a plan are chosen: what they leave of the budget.
void sched_time_begin(struct qr_sched *s);
// At most `left` rows: as many as that pays for where there is no context, a tile at least.
int32_t sched_time_rows(const struct qr_sched *s, int32_t left);
// How many of the next `want` tokens of a sequence it pays for; is_rest: they are all that there are.
int32_t sched_time_limit(const struct qr_sched *s, const struct qr_sched_req *r, const struct qr_seq *q, int32_t want,
                         bool is_rest);
void sched_time_spend(struct qr_sched *s, const struct qr_sched_req *r, const struct qr_seq *q, int32_t n);
void sched_time_end(struct qr_sched *s, bool prompts); // prompts: some could have used this step

// ==== admit.c ====

bool sched_has_room(const struct qr_sched *s, struct qr_sched_req *r); // and leaves its s->hit
// Tokens that a waiting request can compute before its sequences part.
int32_t sched_first_part(const struct qr_sched *s, struct qr_sched_req *r);
// Admits waiting requests in their order while there is room.
void sched_admit(struct qr_sched *s, int32_t left);

// ==== spill.c ====

enum qr_status sched_spill_new(struct qr_sched *s, int32_t n_blocks_max) QR_MUST_CHECK;
// A full block was registered behind another one, or (QR_BLOCK_NONE) at the root.
void sched_spill_register(struct qr_sched *s, const struct qr_sched_req *r, qr_block_id parent, qr_block_id id,
                          const uint32_t *tokens);
// Adds what the tiers have behind the full blocks of the hit, up to `most` tokens.
void sched_spill_find(const struct qr_sched *s, struct qr_sched_req *r, struct sched_hit *h, int32_t most, bool strict);
const uint32_t *sched_spill_tokens(const struct qr_sched *s, int32_t i_hit);
// Takes blocks for that and orders copies and I/O; with I/O the request is loading.
void sched_spill_adopt(struct qr_sched *s, struct qr_sched_req *r, struct qr_seq *q, const struct sched_hit *h);
// Turns what the pool evicted in this plan into copies and I/O.
void sched_spill_orders(struct qr_sched *s);
// The plan's copies were made; and before that, where it is not known: those that left the pool were not.
void sched_spill_settle(struct qr_sched *s);
void sched_spill_failed(struct qr_sched *s);
bool sched_spill_owns_mem(const struct qr_sched *s, uint32_t mem); // a slot of the RAM tier
bool sched_spill_owns_file(const struct qr_sched *s, uint32_t file);
void sched_spill_pin(struct qr_sched *s, const struct qr_io *io);
void sched_spill_unpin(struct qr_sched *s, const struct qr_io *io, bool arrived);
void sched_spill_reset(struct qr_sched *s, bool file_too);
void sched_check_spill(const struct qr_sched *s);

// ==== prefix.c ====

// The tokens of positions from .. from+n-1 as the index keeps them, until the next call.
const uint32_t *sched_tokens_at(const struct qr_sched *s, const struct qr_sched_req *r, const struct qr_seq *q,
                                int32_t from, int32_t n);

// The longest cached prefix of a waiting request, into s->hit; and without its partly filled block.
const struct sched_hit *sched_find(const struct qr_sched *s, struct qr_sched_req *r);
void sched_find_full(const struct qr_sched *s);
// The request, which has slots now, begins with s->hit.
void sched_adopt(struct qr_sched *s, struct qr_sched_req *r);
// All that it began with is there: it counts as found.
void sched_count_found(struct qr_sched *s, struct qr_sched_req *r);
// After a step: full blocks of the sequence can be found from now on.
void sched_index(struct qr_sched *s, struct qr_sched_req *r, struct qr_seq *q);
// Before a sequence gives its blocks up: the last, partly filled one too; of dropped tokens, none.
void sched_cache_tail(struct qr_sched *s, struct qr_sched_req *r, struct qr_seq *q);
// `to` goes on from blocks that `from` has.
void sched_follow(const struct qr_seq *from, struct qr_seq *to);
// How many of n tokens from a position on one row of a batch can stand for: up to where a prompt's recorded
// class changes. *all_d: they are class D, whatever n_prompt says.
int32_t sched_one_class(const struct qr_sched *s, const struct qr_sched_req *r, int32_t from, int32_t n,
                        bool *all_d);
void sched_check_prefix(const struct qr_sched *s);

// ==== preempt.c ====

// Takes all blocks and slots from a running request and queues it again: swapped out or to be recomputed,
// whichever costs less. for_whom NULL: a test asked for it.
void sched_preempt(struct qr_sched *s, struct qr_sched_req *v, struct qr_sched_req *for_whom);
// The preemptions that a test asked for in this plan.
void sched_force(struct qr_sched *s);
// Blocks that must stay free beside what is known to be needed when r is admitted.
uint32_t sched_spare(const struct qr_sched *s, const struct qr_sched_req *r);

// ==== swap.c ====

// Whether a request's n_blocks could go to the tier now.
bool sched_tier_has_room(const struct qr_sched *s, enum qr_tier tier, uint32_t n_blocks);
// Blocks of a running request that hold computed tokens, those that its sequences share once.
uint32_t sched_count_blocks(struct qr_sched *s, struct qr_sched_req *r, enum qr_tier tier);
// Orders copies of them to the tier, which has room, and notes the slots; the tables stay as they are.
void sched_save(struct qr_sched *s, struct qr_sched_req *r, enum qr_tier tier);
// Fills the empty tables of a request that has its slots again, and orders the copies.
void sched_load(struct qr_sched *s, struct qr_sched_req *r);
// A waiting request will be recomputed after all.
void sched_drop_saved(struct qr_sched *s, struct qr_sched_req *r);
// Its blocks are in the pool again: the tier's slots are given back.
void sched_forget_saved(struct qr_sched *s, struct qr_sched_req *r);
// As dropping, for one of its sequences, which ends; a leader's go to the next one.
void sched_end_saved(struct qr_sched *s, struct qr_sched_req *r, struct qr_seq *q);
// The moves ordered so far were made.
void sched_settle(struct qr_sched *s);
void sched_check_saved(const struct qr_sched *s);

// ==== yield.c ====

// Where the policy says so, preempts one running request of a later class for a waiting one that finds no room,
// if it would find room in the end.
void sched_make_way(struct qr_sched *s);
// ==== flight.c ====

enum qr_status sched_flight_new(struct qr_sched *s) QR_MUST_CHECK;
void sched_flight_free(struct qr_sched *s);
// Orders I/O of a block and pins both ends until it is done (K7).
void sched_io_start(struct qr_sched *s, struct qr_sched_req *r, const struct qr_io *io); // r NULL: nobody's
bool sched_io_is_busy(const struct qr_sched *s, uint32_t file); // of that slot of the file
// Writes that were ordered in this plan are taken back.
void sched_io_revoke_writes(struct qr_sched *s);
// Nobody waits for the request's I/O any more.
void sched_io_disown(struct qr_sched *s, const struct qr_sched_req *r);
// Whether blocks are about to come free: they are read into for somebody who does not want them any more.
bool sched_frees_soon(const struct qr_sched *s);
// Running requests whose blocks have all arrived go on; where one did not, it is recomputed.
void sched_land(struct qr_sched *s);
void sched_check_flight(const struct qr_sched *s);

// ==== plan.c ====

// Gives a sequence the blocks for its n_granted tokens, which the pool has, and notes the grant.
void sched_grant(struct qr_sched *s, struct qr_sched_req *r, struct qr_seq *q);

#endif
