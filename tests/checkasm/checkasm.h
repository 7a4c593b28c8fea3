/* Kernel checks: every kernel of every instruction set against portable C, and how fast it is.
 *
 * Owns: the harness (options, seeded values, guarded memory, reports, clocks). Refuses to know: any kernel.
 * Threads: main only. Lifetime: process.
 *
 * A check draws inputs, calls the portable function and the new one on the same bytes, and compares. Memory
 * from ca_buf ends at a page that cannot be touched and begins after a pattern that ca_guards verifies, so
 * reading past the end is a crash, which the harness reports as the check's failure. Memory lives until the
 * check ends. */
#ifndef QR_TESTS_CHECKASM_H
#define QR_TESTS_CHECKASM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Values: the next of the check's own stream, which depends on the seed, the kernel and the instruction set
// alone.
uint32_t ca_u32(void);
int ca_below(int n);              // 0 .. n - 1
float ca_unit(void);              // (-1, 1)
void ca_fill(float *x, size_t n); // ordinary values, or one of the extreme mixes: the check's turn decides
void ca_fill_plain(float *x, size_t n, float top); // within (-top, top)

void *ca_buf(size_t bytes); // ends at the page border; holds the byte 0xa5
// The same where an operand must begin at a multiple of 64: up to 63 bytes before the border may then be
// read.
void *ca_buf64(size_t bytes);

// A failure of this check: where, expected, got. The harness adds the kernel, the instruction set and the
// replay line.
void ca_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
bool ca_failed(void);
// Compare n values; bit for bit (any NaN equals any NaN) with tol 0, else |a - b| <= tol * (scale + |a|).
void ca_equal_f32(const char *what, const float *ref, const float *new, size_t n, double tol, double scale);
void ca_equal_bytes(const char *what, const void *ref, const void *new, size_t n);

// With --bench: calls run(arg) for a few milliseconds and prints the best time; work is bytes or operations a
// call.
enum ca_unit_of { CA_GB, CA_GFLOP };
bool ca_benching(void);
void ca_bench(void (*run)(void *arg), void *arg, double work, enum ca_unit_of unit);

// One kernel: `ref` and `new` are functions of the same type that `check` knows.
typedef void ca_any_fn(void);
struct ca_case {
    const char *name; // of the slot or the function
    ca_any_fn *ref, *new;
    double tol;
    const void *extra; // what else `check` needs
    void (*check)(const struct ca_case *c);
};
// Runs one case under the harness for instruction set `isa` ("ref" for portable C alone).
void ca_run(const struct ca_case *c, const char *isa);

void ca_slots(uint32_t mask, const char *isa); // every slot of kernels.def that `isa` brings
// --versus WHAT: two ways by turns (versus.c). False: no comparison is called so.
bool ca_versus(const char *what);
void ca_gemms(uint32_t mask, const char *isa); // every entry of qr_gemm_list() of `isa`
// Kernels on tiles over emulated tiles; mask has the sets below.
void ca_slots_emulated(const char *isa);
void ca_gemms_emulated(uint32_t mask, const char *isa);

#endif
