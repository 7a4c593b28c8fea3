/* What makes a file of KV blocks outlive its process: a head that says for whom its blocks are good, and a record for
 * each slot that says what it holds.
 *
 * Owns: the records, in memory and in the file. Refuses to know: blocks, what a tag means.
 * Threads: those of who owns the file; keep_tag of slots that nobody writes, from any.
 * Lifetime: _init to _fini; the file's descriptor is the caller's.
 *
 *   +-----------------+----------------------------------+-----------------+
 *   | head (a page)   | records (whole pages)            | slots ...       |
 *   | magic, identity | n_slots of {sum of the block,    |                 |
 *   | key, sizes, sum |   sum of the record, tag}        |                 |
 *   +-----------------+----------------------------------+-----------------+
 *
 * A block is written before its record. After a crash between the two, the old record's sum does not fit the new
 * block, and the block is not used: no order of writes can make a block pass for another. Numbers are as this
 * machine has them; the identity holds what they depend on. */
#ifndef QR_EXEC_KEEP_H
#define QR_EXEC_KEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct keep {
    uint32_t n_slots;
    size_t block_bytes, tag_bytes, record_bytes;
    size_t records_bytes; // whole pages
    uint64_t identity[2], key[2];
    uint8_t *records; // (records_bytes) page-aligned
    uint32_t n_found; // records that were good when the file was opened
};

// Takes the memory of the records; touches no file. QR_ENOMEM.
enum qr_status keep_init(struct keep *k, uint32_t n_slots, size_t block_bytes, size_t tag_bytes,
                         const uint64_t identity[2]) QR_MUST_CHECK;
void keep_fini(struct keep *k);
size_t keep_head_bytes(const struct keep *k); // in front of the slots
// Reads the records of a file of file_bytes. False: it is not whole, not sound, or somebody else's, as *why says:
// then it is begun anew, with a fresh key (keep_begin).
bool keep_read(struct keep *k, int fd, uint64_t file_bytes, uint64_t want_bytes, const char **why);
// Writes an empty head. The descriptor is not yet O_DIRECT.
enum qr_status keep_begin(struct keep *k, int fd) QR_MUST_CHECK;
// Whether a file begins as ours do.
bool keep_is_ours(int fd);

const void *keep_tag(const struct keep *k, uint32_t slot); // NULL: the slot holds nothing
uint64_t keep_sum(const struct keep *k, uint32_t slot);
// Notes what a slot holds now, and gives the pages of the file that say so: to be written at *at.
void keep_note(struct keep *k, uint32_t slot, uint64_t sum, const void *tag, size_t *at, size_t *bytes);

#endif
