#include "exec/kvmem.h"

#include <stdatomic.h>

#include "base/assert.h"
#include "base/mem.h"

enum qr_status kvmem_init(struct kvmem *m, uint32_t n_blocks, size_t block_bytes)
{
    size_t bytes;
    *m = (struct kvmem){.block_bytes = block_bytes, .n_blocks = n_blocks};
    if (__builtin_mul_overflow((size_t)n_blocks, block_bytes, &bytes)) return QR_ENOMEM;
    m->base = qr_pages_alloc(QR_MEM_KV, bytes);
    m->touched = qr_calloc(QR_MEM_EXEC, bytes / KVMEM_EXTENT + 1, 1);
    if (m->base && m->touched) return QR_OK;
    kvmem_fini(m);
    return QR_ENOMEM;
}

void kvmem_fini(struct kvmem *m)
{
    qr_pages_free(QR_MEM_KV, m->base, (size_t)m->n_blocks * m->block_bytes);
    qr_free(m->touched);
    *m = (struct kvmem){0};
}

void kvmem_touch(struct kvmem *m, uint32_t block)
{
    QR_ASSERT(block < m->n_blocks);
    size_t first = (size_t)block * m->block_bytes / KVMEM_EXTENT;
    size_t last = ((size_t)(block + 1) * m->block_bytes - 1) / KVMEM_EXTENT;
    for (size_t e = first; e <= last; e++) {
        if (m->touched[e]) continue;
        m->touched[e] = 1;
        atomic_fetch_add_explicit(&m->n_resident, 1, memory_order_relaxed);
    }
}

void kvmem_trim(struct kvmem *m)
{
    size_t bytes = (size_t)m->n_blocks * m->block_bytes, n_extents = bytes / KVMEM_EXTENT + 1;
    for (size_t e = 0; e < n_extents; e++) {
        if (!m->touched[e]) continue;
        m->touched[e] = 0;
        size_t at = e * KVMEM_EXTENT, n = bytes - at < KVMEM_EXTENT ? bytes - at : KVMEM_EXTENT;
        qr_pages_release(m->base + at, (n + 4095) & ~(size_t)4095);
        atomic_fetch_sub_explicit(&m->n_resident, 1, memory_order_relaxed);
    }
}

uint64_t kvmem_resident_bytes(const struct kvmem *m)
{
    return atomic_load_explicit(&m->n_resident, memory_order_relaxed) * KVMEM_EXTENT;
}
