/* From logits to a token, per sequence.
 *
 * Owns: the penalty counts of a sequence. Refuses to know: batches, models, text.
 * Threads: one thread per sequence state at a time; different states at once.
 * Lifetime: _new when a sequence opens, _free when it closes.
 *
 * Order, as vLLM's: raw log-probabilities are read first (reports are of the raw distribution), then allowed
 * ids, bad words, min_tokens mask, logit bias, penalties (repetition, frequency, presence), temperature,
 * min_p, top_k, top_p, draw. Random numbers are counter-based on (seed, choice, position): the same token
 * whatever shares the batch (DESIGN N5). */
#ifndef QR_SAMPLE_SAMPLE_H
#define QR_SAMPLE_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "core/exec.h"
#include "core/req.h"
#include "kern/logits.h"

struct qr_sampler;

// ids[0..n_ids): prompt (n_prompt) and tokens generated before a preemption. sampling outlives the sampler.
enum qr_status qr_sampler_new(const struct qr_sampling *sampling, int32_t choice, int32_t n_vocab,
                              const int32_t *ids, int32_t n_prompt, int32_t n_ids,
                              struct qr_sampler **out) QR_MUST_CHECK;
void qr_sampler_free(struct qr_sampler **s);

// Chooses the token at position pos (>= n_prompt) and counts it; with n_candidates it chooses none (-1), and top
// (that many) gets the likeliest of the raw distribution, largest first, equal ones by id.
// Otherwise: logits has n_vocab floats, which masks, bias and penalties change in place. work is the caller's scratch of
// qr_sample_work_bytes(n_vocab). row gets token, logprob, rank; top (QR_LOGPROBS_MAX) the n_top largest. logprob and rank
// are computed only if the request asks for logprobs.
void qr_sampler_next(struct qr_sampler *s, int32_t pos, float *logits, void *work, struct qr_out_row *row,
                     struct qr_top *top);
// What the token at position pos takes: a peak where the likeliest token of the raw row is chosen and no other is reported.
enum qr_logit_want qr_sampler_wants(const struct qr_sampler *s, int32_t pos);
// What qr_sampler_next does with a row that has this peak, where no more than that is wanted.
void qr_sampler_take(const struct qr_sampler *s, const struct qr_logit_peak *peak, struct qr_out_row *row);
// Scores a given token: fills logprob, rank and top without choosing or counting.
void qr_sample_score(const float *logits, int32_t n_vocab, int32_t token, int32_t n_top, void *work,
                     struct qr_out_row *row, struct qr_top *top);
size_t qr_sample_work_bytes(int32_t n_vocab);
// The prompt's id at position p, for scoring; -1 past the prompt.
int32_t qr_sampler_prompt_id(const struct qr_sampler *s, int32_t p);
int32_t qr_sampler_n_prompt_logprobs(const struct qr_sampler *s);
int32_t qr_sampler_n_candidates(const struct qr_sampler *s);

#endif
