/* Selection over a row of logits without sorting it.
 *
 * Owns: the layout of the caller's scratch. Refuses to know: requests, penalties.
 * Threads: pure functions; scratch belongs to one call. Lifetime: the call.
 *
 * A vocabulary of 150,000 is looked at with vector loops only: the row is cut into chunks of 64 whose largest
 * values bound what a selection may skip, and into blocks of 512 whose sums of exponentials say where a draw
 * falls. Results depend on values and ids alone, never on pivots or on the instruction set. */
#ifndef QR_SAMPLE_INTERNAL_H
#define QR_SAMPLE_INTERNAL_H

#include <stdint.h>
#include <string.h>

#include "core/exec.h"
#include "kern/logits.h"

#define SAMPLE_CHUNK 64 // of the kernel chunk_max
#define SAMPLE_BLOCK 512

struct sample_work {
    float *raw;    // (n) the logits as the model gave them, when they are changed and still needed
    struct qr_logit_tile *tiles; // of the row that is reported
    float *maxima; // (n / 64) largest of each chunk
    float *sums;   // (n / 512) sum of exponentials of each block
    int32_t *ids;  // (n) candidates, ids ascending
    float *values; // (n) of the candidates
    float *exps;   // (n) exponentials of the candidates
};

struct sample_work sample_work_at(void *mem, int32_t n);

// Values in the order of floats as unsigned integers.
static inline uint32_t sample_key(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u ^ (u >> 31 ? 0xffffffffu : 0x80000000u);
}

// The k-th largest of n values (1 <= k <= n), equal values counted apart.
float sample_kth_largest(const float *x, int32_t n, int32_t k);
// The candidates x >= floor into w->ids and w->values, skipping chunks by w->maxima. Returns their number.
int32_t sample_collect(const float *x, int32_t n, float floor, struct sample_work *w);
// The k-th largest of a whole row; uses w->maxima (filled), w->ids and w->values.
float sample_kth_of_row(const float *x, int32_t n, int32_t k, struct sample_work *w);
// The k largest of a row, largest first, equal values by ascending id; fills w->maxima. Returns how many (NaN
// is never one).
int32_t sample_top(const float *x, int32_t n, int32_t k, struct sample_work *w, struct qr_top *top);

// What top_p keeps of n candidates: value > cut, and of those equal to it the first n_equal. Candidates are
// taken from the largest down while the mass before them is below `mass`; the largest is always kept.
struct sample_nucleus {
    float cut;
    int32_t n_equal;
};
struct sample_nucleus sample_top_p(const float *values, const float *exps, int32_t n, double mass);

// As the model's head finds it for rows that it does not store.
struct qr_logit_peak sample_peak(const float *x, int32_t n, struct sample_work *w);

#endif
