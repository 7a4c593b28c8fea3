/* What greedy decoding wants of a row of logits: where its largest value is, and the logarithm of the sum of its
 * exponentials. Both are found tile by tile, so that the row need never be in memory as a whole.
 *
 * Owns: the cut of a row into tiles, and the order in which they are merged. Refuses to know: who computes logits and who
 * chooses tokens. Threads: pure functions. Lifetime: none.
 *
 * Tiles begin at multiples of QR_LOGIT_TILE whoever computes them, so a row has the same peak to the last bit from a head
 * that keeps its tiles and from a row in memory (DESIGN N5). */
#ifndef QR_KERN_LOGITS_H
#define QR_KERN_LOGITS_H

#include <stdbool.h>
#include <stdint.h>

// 24 panels: whole steps of kernels that take 2, 3 or 4 at once, and with a batch of rows a tile lies in the second-level
// cache beside its weights.
#define QR_LOGIT_TILE 384

// What is wanted of a row. Who wants its peak alone needs no logits.
enum qr_logit_want { QR_LOGIT_ALL, QR_LOGIT_PEAK, QR_LOGIT_PEAK_NORM };

static inline int32_t qr_logit_tiles(int32_t n)
{
    return (n + QR_LOGIT_TILE - 1) / QR_LOGIT_TILE;
}

struct qr_logit_tile {
    float max;  // NaN where there is nothing else
    int32_t id; // of it in the row: ties go to the lowest, NaN never wins
    float sum;  // of exp(x - max), or of exp(x) where max is NaN or -infinity
};
// The tile x[0..n) whose first value has the id first_id. Without with_sum its sum is 0.
void qr_logit_tile(const float *x, int n, int32_t first_id, bool with_sum, struct qr_logit_tile *out);

struct qr_logit_peak {
    float max;   // as in a tile, of the whole row
    int32_t id;
    double norm; // logarithm of the sum of exp(x); 0 without with_sum
};
// Of a row's tiles, in order; n >= 1.
struct qr_logit_peak qr_logit_merge(const struct qr_logit_tile *tiles, int n, bool with_sum);

#endif
