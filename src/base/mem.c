#define _GNU_SOURCE
#include "base/mem.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"

// The tag sits in a header before the block, so that qr_free can account without being told.
struct mem_head {
    uint64_t bytes;
    uint64_t tag;
};
_Static_assert(sizeof(struct mem_head) == 16, "keeps malloc's 16-byte alignment");

#define HUGE_BYTES ((size_t)2 << 20)

static atomic_size_t live_bytes[QR_MEM_TAGS];
static atomic_uint_fast64_t n_calls;
static atomic_uint_fast64_t fail_next, fail_every;

static bool injected_failure(void)
{
    uint64_t at = atomic_load_explicit(&fail_next, memory_order_relaxed);
    uint64_t call = atomic_fetch_add(&n_calls, 1) + 1;
    if (at == 0 || call < at) return false;
    uint64_t every = atomic_load_explicit(&fail_every, memory_order_relaxed);
    return every ? (call - at) % every == 0 : call == at;
}

void qr_mem_fail_at(uint64_t n, uint64_t every)
{
    atomic_store(&fail_every, every);
    atomic_store(&fail_next, n ? atomic_load(&n_calls) + n : 0);
}

void *qr_malloc(enum qr_mem_tag tag, size_t bytes)
{
    QR_ASSERT(tag < QR_MEM_TAGS);
    if (injected_failure() || bytes > PTRDIFF_MAX - sizeof(struct mem_head)) return NULL;
    struct mem_head *h = malloc(sizeof *h + bytes);
    if (!h) return NULL;
    h->bytes = bytes;
    h->tag = tag;
    atomic_fetch_add_explicit(&live_bytes[tag], bytes, memory_order_relaxed);
    return h + 1;
}

void *qr_calloc(enum qr_mem_tag tag, size_t count, size_t bytes)
{
    size_t all;
    if (__builtin_mul_overflow(count, bytes, &all)) return NULL;
    void *p = qr_malloc(tag, all);
    if (p) memset(p, 0, all);
    return p;
}

void *qr_realloc(enum qr_mem_tag tag, void *p, size_t bytes)
{
    if (!p) return qr_malloc(tag, bytes);
    struct mem_head *old = (struct mem_head *)p - 1;
    QR_ASSERT(old->tag == tag);
    if (injected_failure() || bytes > PTRDIFF_MAX - sizeof *old) return NULL;
    size_t before = old->bytes;
    struct mem_head *h = realloc(old, sizeof *h + bytes);
    if (!h) return NULL;
    h->bytes = bytes;
    atomic_fetch_add_explicit(&live_bytes[tag], bytes - before, memory_order_relaxed);
    return h + 1;
}

char *qr_strdup(enum qr_mem_tag tag, const char *s)
{
    size_t n = strlen(s) + 1;
    char *p = qr_malloc(tag, n);
    if (p) memcpy(p, s, n);
    return p;
}

void qr_free(void *p)
{
    if (!p) return;
    struct mem_head *h = (struct mem_head *)p - 1;
    QR_ASSERT(h->tag < QR_MEM_TAGS);
    atomic_fetch_sub_explicit(&live_bytes[h->tag], h->bytes, memory_order_relaxed);
    free(h);
}

void *qr_pages_alloc(enum qr_mem_tag tag, size_t bytes)
{
    if (bytes == 0 || bytes > PTRDIFF_MAX - 2 * HUGE_BYTES) return NULL;
    size_t want = (bytes + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1);
    uint8_t *p = mmap(NULL, want + HUGE_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return NULL;
    uint8_t *a = (uint8_t *)(((uintptr_t)p + HUGE_BYTES - 1) & ~(uintptr_t)(HUGE_BYTES - 1));
    if (a > p) munmap(p, (size_t)(a - p));
    uint8_t *end = p + want + HUGE_BYTES;
    if (end > a + want) munmap(a + want, (size_t)(end - (a + want)));
    madvise(a, want, MADV_HUGEPAGE);
    atomic_fetch_add_explicit(&live_bytes[tag], want, memory_order_relaxed);
    return a;
}

void qr_pages_free(enum qr_mem_tag tag, void *p, size_t bytes)
{
    if (!p) return;
    size_t want = (bytes + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1);
    munmap(p, want);
    atomic_fetch_sub_explicit(&live_bytes[tag], want, memory_order_relaxed);
}

void qr_pages_release(void *p, size_t bytes)
{
    QR_ASSERT(((uintptr_t)p & 4095) == 0 && (bytes & 4095) == 0);
    if (bytes) madvise(p, bytes, MADV_DONTNEED);
}

size_t qr_mem_live_bytes(enum qr_mem_tag tag)
{
    return atomic_load_explicit(&live_bytes[tag], memory_order_relaxed);
}

const char *qr_mem_tag_name(enum qr_mem_tag tag)
{
    static const char *const names[QR_MEM_TAGS] = {"misc", "model", "kv", "sched", "request", "exec", "http"};
    return tag < QR_MEM_TAGS ? names[tag] : "?";
}

uint64_t qr_mem_calls(void)
{
    return atomic_load(&n_calls);
}
