/* What the numbers in a cached block depend on, as one hash. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "kern/isa.h"
#include "lib/lib_internal.h"

// Of a large file so many pieces are read, evenly spread, and its size: another model differs in all of them.
#define PIECES 256
#define PIECE_BYTES ((size_t)16 << 10)

// whole: every byte counts.
static enum qr_status hash_file(const char *path, bool whole, uint64_t h[2], struct qr_error *err)
{
    FILE *f = fopen(path, "rb");
    char *piece = qr_malloc(QR_MEM_MISC, PIECE_BYTES);
    bool ok = f && piece && fseeko(f, 0, SEEK_END) == 0;
    off_t bytes = ok ? ftello(f) : 0;
    off_t step = whole ? (off_t)PIECE_BYTES : bytes / PIECES > (off_t)PIECE_BYTES ? bytes / PIECES : (off_t)PIECE_BYTES;
    h[0] = qr_mix64(h[0] ^ (uint64_t)bytes);
    for (off_t at = 0; ok && at < bytes; at += step) {
        ok = fseeko(f, at, SEEK_SET) == 0;
        size_t n = ok ? fread(piece, 1, PIECE_BYTES, f) : 0;
        ok = ok && !ferror(f);
        h[0] = qr_hash_words(h[0], piece, n);
        h[1] = qr_hash_words(h[1] ^ h[0], piece, n);
    }
    if (f) fclose(f);
    qr_free(piece);
    return ok ? QR_OK : qr_fail(err, QR_EIO, "prefix cache: cannot read %.150s to know what its blocks are good for", path);
}

enum qr_status lib_identity(const struct qr_lib_conf *conf, const struct qr_lib_info *info, uint64_t out[2],
                            struct qr_error *err)
{
    uint64_t facts[] = {qr_isa_active(), (uint64_t)conf->activations, (uint64_t)info->model.kvtype, conf->exact,
                        (uint64_t)info->block_size, info->block_bytes};
    out[0] = qr_hash_words(3, facts, sizeof facts);
    out[1] = qr_hash_words(4, facts, sizeof facts);
    enum qr_status st = hash_file("/proc/self/exe", true, out, err);
    return st == QR_OK ? hash_file(conf->model_path, false, out, err) : st;
}
