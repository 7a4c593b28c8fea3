/* A file of KV blocks, and the thread that reads and writes it: for preempted requests, gone with the process, or for
 * cached prefixes, kept for the next one (exec/keep.h).
 *
 * Owns: the file, its lock, one I/O thread and the queue between it and the engine. Refuses to know: whose
 * blocks they are, when to move what. Threads: submit and poll from the engine thread, which never waits for a
 * device here; the I/O thread touches a block's memory between its submit and its poll.
 * Lifetime: _new to _free, which waits for the I/O under way and throws away what waits in the queue.
 *
 * The file is one page that names it, then slots of block_bytes, each at a multiple of a page, so that it can be
 * read and written past the page cache (O_DIRECT), which would keep in memory what just left it. Where the
 * filesystem refuses that, it goes through the page cache. A sum over each block that was written is kept in
 * memory: a block that does not read back as it was written is QR_EFORMAT. */
#ifndef QR_EXEC_TIER_FILE_H
#define QR_EXEC_TIER_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "core/tier.h"
#include "exec/kvmem.h"

struct tier_file;

struct tier_file_conf {
    const char *path;    // created; one that is there must be empty, or one of ours that nobody uses
    const char *flag;    // for messages: the option that named it
    uint32_t n_slots;    // >= 1; the space is taken at once
    struct kvmem *pool;  // reads go to its blocks,
    struct kvmem *ram;   // writes come from its slots
    size_t block_bytes;
    size_t tag_bytes;    // > 0: it is kept, with a tag for each slot
    uint64_t identity[2]; // what its blocks are good for
};
enum qr_status tier_file_new(const struct tier_file_conf *conf, struct tier_file **out,
                             struct qr_error *err) QR_MUST_CHECK;
void tier_file_free(struct tier_file **f); // removes the file, unless it is kept
// Of a file that is kept: what a slot held when it was opened, or NULL; and the key of the hash in its tags.
const void *tier_file_tag(const struct tier_file *f, uint32_t slot);
const uint64_t *tier_file_key(const struct tier_file *f);
// At most n_slots may be under way at once.
void tier_file_submit(struct tier_file *f, const struct qr_io *io, int32_t n);
int32_t tier_file_poll(struct tier_file *f, struct qr_io_done *out, int32_t cap, int timeout_ms);
bool tier_file_is_direct(const struct tier_file *f);

#endif
