/* What this machine can do at most, measured in the run that compares with it.
 *
 * Owns: nothing. Refuses to know: kernels of the model. Threads: starts its own workers, which have ended when it
 * returns. Lifetime: a call. */
#ifndef QR_BENCH_MACHINE_H
#define QR_BENCH_MACHINE_H

#include <stddef.h>

#include "kern/peak.h"

// Best time of one call of run(arg) on this thread, in ns of its processor time: of 8 rounds of at least 3 ms.
double bench_best_ns(void (*run)(void *arg), void *arg);
// The same for tables of hundreds: of 2 to 8 rounds of at least 1 ms, and no more than 30 ms where 2 rounds are not longer.
double bench_quick_ns(void (*run)(void *arg), void *arg);

#define MACHINE_READS 4
struct bench_machine {
    int n_peaks, n_cores;
    struct qr_peak peaks[QR_PEAKS_MAX];
    double peak_gops[QR_PEAKS_MAX];                // of one core, in 1e9 operations a second
    size_t read_bytes[MACHINE_READS];              // sizes of the buffer: in L1, L2, L3, memory
    double read_gbs[MACHINE_READS];                // of one core
    double read_all_gbs;                           // of all cores at once, from memory
};
void bench_machine_measure(int n_threads, struct bench_machine *out);
// GB/s that one core reads from a buffer of so many bytes: of the smallest measured buffer that is no smaller.
double bench_machine_read(const struct bench_machine *m, size_t bytes);
// 1e9 operations a second of a kind ("bf16"); 0: the machine has none.
double bench_machine_peak(const struct bench_machine *m, const char *kind);
// GB/s that one core reads from memory.
double bench_machine_memory(const struct bench_machine *m);

#endif
