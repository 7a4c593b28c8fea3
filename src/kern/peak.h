/* What one core can do at most: loops that only multiply, from registers, or only read.
 *
 * Owns: the loops. Refuses to know: clocks, what the numbers are compared with.
 * Threads: pure functions. Lifetime: static tables. */
#ifndef QR_KERN_PEAK_H
#define QR_KERN_PEAK_H

#include <stddef.h>
#include <stdint.h>

struct qr_peak {
    const char *name; // "bf16"
    const char *isa;
    double ops; // multiplications and additions of a round
    void (*run)(uint64_t n_rounds);
};
// The fastest loop of each kind that the mask of instruction sets allows. Returns how many.
#define QR_PEAKS_MAX 4
int qr_peaks(uint32_t isa_mask, struct qr_peak out[QR_PEAKS_MAX]);

// Reads bytes (a multiple of 512) once, front to back. Returns something of them, so that nothing is left out.
uint64_t qr_peak_read(uint32_t isa_mask, const void *p, size_t bytes);

#endif
