/* The bytes of the KV pool: n_blocks runs of block_bytes, side by side.
 *
 * Owns: the address space, reserved at once and backed by memory in extents of 2 MiB as blocks are first
 * written. Refuses to know: who holds a block, what is inside one. Threads: the engine thread;
 * kvmem_resident_bytes from any. Lifetime: _init to _fini. */
#ifndef QR_EXEC_KVMEM_H
#define QR_EXEC_KVMEM_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define KVMEM_EXTENT ((size_t)2 << 20)

struct kvmem {
    uint8_t *base;
    size_t block_bytes;
    uint32_t n_blocks;
    uint8_t *touched;            // one byte an extent
    _Atomic uint64_t n_resident; // extents
};

enum qr_status kvmem_init(struct kvmem *m, uint32_t n_blocks, size_t block_bytes) QR_MUST_CHECK;
void kvmem_fini(struct kvmem *m);
// Says that a block is about to be written.
void kvmem_touch(struct kvmem *m, uint32_t block);
// Gives all extents back to the system. No block holds anything that will be read again.
void kvmem_trim(struct kvmem *m);
uint64_t kvmem_resident_bytes(const struct kvmem *m);

#endif
