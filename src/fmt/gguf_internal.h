/* The directory of a GGUF file, shared by the reader (gguf.c) and the look-ups (gguf_get.c).
 *
 * Owns: the struct. Refuses to know: meanings. Threads: immutable once opened. Lifetime: one open file. */
#ifndef QR_FMT_GGUF_INTERNAL_H
#define QR_FMT_GGUF_INTERNAL_H

#include "fmt/gguf.h"

struct qr_gguf {
    const uint8_t *data; // the whole file
    uint64_t bytes;
    bool mapped; // data came from mmap
    uint32_t version;
    uint64_t data_at;       // where tensor data begins
    uint32_t alignment;     // of data_at and of every tensor's offset from it
    struct qr_gguf_kv *kvs; // in the file's order
    size_t n_kvs;
    struct qr_gguf_tensor *tensors;
    size_t n_tensors;
    // The names above, sorted by bytes: duplicates are neighbours, and a look-up is a binary search, whatever
    // names a hostile file chooses.
    const struct qr_gguf_str **kv_names, **tensor_names;
};

// Bytes of one value of a scalar type; 0 for strings, arrays and unknown types.
size_t gguf_scalar_bytes(uint32_t type);
// Orders `const struct qr_gguf_str *const *` by bytes, then by length.
int gguf_name_cmp(const void *a, const void *b);

#endif
