/* Memory, tagged by what it is for.
 *
 * Owns: the count of live bytes per tag, and the failure injector that tests use.
 * Refuses to know: what the bytes mean.
 * Threads: any; counters are atomic.
 * Lifetime: process.
 *
 * Every allocation that lives longer than a function carries a tag, so that it can be said where memory is
 * and a test can say that nothing was taken. Nothing here aborts: NULL means "no memory" and the caller says
 * so. */
#ifndef QR_BASE_MEM_H
#define QR_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum qr_mem_tag {
    QR_MEM_MISC,
    QR_MEM_MODEL, // packed weights and tensor directories
    QR_MEM_KV,    // the block pool
    QR_MEM_SCHED, // bookkeeping of kv and sched
    QR_MEM_REQ,   // requests and their text
    QR_MEM_EXEC,  // activations, logits, scratch
    QR_MEM_HTTP,
    QR_MEM_TAGS
};

void *qr_malloc(enum qr_mem_tag tag, size_t bytes) QR_MUST_CHECK;
void *qr_calloc(enum qr_mem_tag tag, size_t count, size_t bytes) QR_MUST_CHECK; // zeroed; checks overflow
void *qr_realloc(enum qr_mem_tag tag, void *p, size_t bytes) QR_MUST_CHECK;
char *qr_strdup(enum qr_mem_tag tag, const char *s) QR_MUST_CHECK;
void qr_free(void *p); // NULL is fine

// Anonymous pages, zeroed, 2 MiB aligned, huge pages asked for. Reserved address space only until touched.
void *qr_pages_alloc(enum qr_mem_tag tag, size_t bytes) QR_MUST_CHECK;
void qr_pages_free(enum qr_mem_tag tag, void *p, size_t bytes);
// Gives [p, p + bytes) back to the system; it reads as zero afterwards. Both must be 4 KiB multiples.
void qr_pages_release(void *p, size_t bytes);

size_t qr_mem_live_bytes(enum qr_mem_tag tag);
const char *qr_mem_tag_name(enum qr_mem_tag tag);
// Calls to qr_malloc, qr_calloc, qr_realloc and qr_strdup so far: a step test asserts that it does not move.
uint64_t qr_mem_calls(void);

// Tests only: the n-th allocation from now (1 = the next) and every `every`-th after it fail. 0, 0 turns it
// off.
void qr_mem_fail_at(uint64_t n, uint64_t every);

#endif
