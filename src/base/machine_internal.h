/* base/machine.h over another root folder than "/", so that tests can lay out a container of their own.
 *
 * Owns: nothing. Refuses to know: whether the root is real. Threads: any. Lifetime: none. */
#ifndef QR_BASE_MACHINE_INTERNAL_H
#define QR_BASE_MACHINE_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

// `root` goes before every path: "" is this machine. `n_affinity` is what the affinity mask allows.
int machine_cpus_at(const char *root, int n_affinity);
uint64_t machine_memory_at(const char *root);
void machine_cpu_model_at(const char *root, char *out, size_t cap);

#endif
