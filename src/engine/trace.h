/* A record of everything that the scheduler was told and what it decided, one line of text each, so that a run
 * can be gone through again: sim/replay.h feeds a scheduler the same lines and compares every decision.
 *
 * Owns: the form of the lines. Refuses to know: files. Threads: the engine's thread. Lifetime: the engine's.
 *
 * A line is a letter and decimal numbers by single spaces:
 *   quire-trace 2
 *   C ...                     the scheduler's configuration (trace_conf), then the policy's name
 *   A id n_prompt max_tokens n_choices priority arrival_ns deadline_ns tenant fair_key no_cache_read scores beams ids...
 *   S epoch fixed row prompt_fixed prompt_row context query_context floor step_ns    a cost table and the budget
 *   U slot hex                a slot of the prefix file and what its tag says, at the start
 *   X token_ns block_ns...    what preempting costs
 *   P now_ns budget           a plan is made
 *   O n hash                  the plan's orders about slots
 *   B step n_seqs n_tokens n_copies hash    the plan as a batch; B 0 0 0 0 0: nothing to compute
 *   D elapsed_ns              the batch was computed
 *   F                         it failed, or a W did
 *   V id n from to...         beams move: choice `to` becomes a child of `from`
 *   Q id n                    the scores of a prompt went out up to position n
 *   T id choice token         a token was drawn
 *   E id choice n_kept        a sequence ended, with so many tokens that count (0: all)
 *   J n                       background I/O was started
 *   I kind file mem status    ... and ended
 *   R                         the prefix cache was reset
 *   W n_copies                a round of cached prefixes on their way to the file, at the end or before M
 *   Z                         its copies were made
 *   M trimmed                 the idle pool was to be given back; 1: it was */
#ifndef QR_ENGINE_TRACE_H
#define QR_ENGINE_TRACE_H

#include <stdint.h>

#include "core/batch.h"
#include "sched/sched.h"

#define QR_TRACE_HEAD "quire-trace 2"

// Hashes of decisions: equal for equal bytes.
uint64_t qr_trace_batch_hash(const struct qr_batch *b);
uint64_t qr_trace_orders_hash(const struct qr_plan *plan);

// Numbers of a C line, in order.
enum { QR_TRACE_CONF_NUMBERS = 19 + 3 * QR_TIERS };
void qr_trace_conf_pack(const struct qr_sched_conf *c, uint64_t out[QR_TRACE_CONF_NUMBERS]);
void qr_trace_conf_unpack(const uint64_t in[QR_TRACE_CONF_NUMBERS], struct qr_sched_conf *out); // not the policy

#endif
