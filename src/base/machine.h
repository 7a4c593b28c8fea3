/* What this machine gives us: processors, memory, and the container's limits on both.
 *
 * Owns: nothing; reads /proc and /sys once per call. Refuses to know: what they are used for.
 * Threads: any. Lifetime: none. */
#ifndef QR_BASE_MACHINE_H
#define QR_BASE_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

// Processors this process may use: affinity mask and cgroup v1/v2 CPU quota (rounded up), at least 1.
int qr_machine_cpus(void);
// Whether the affinity mask lets us run on processor `cpu`.
bool qr_machine_may_use(int cpu);
// The smaller of physical memory and the tightest cgroup v1/v2 memory limit above us, in bytes.
uint64_t qr_machine_memory_bytes(void);
// Bytes of this process that are resident now.
uint64_t qr_machine_rss_bytes(void);
// "AMD EPYC 9R14" or the like; static storage.
const char *qr_machine_cpu_model(void);

#endif
