/* GGUF v2 and v3 files, memory-mapped.
 *
 * Owns: the mapping and the directory of keys and tensors. Refuses to know: what a key means, how weights
 * compute. Threads: immutable once opened; any number may read. Lifetime: views (strings, tensor data) live
 * until qr_gguf_free.
 *
 * A file is hostile until proven: every length, offset, count and alignment is checked against the file's
 * size with overflow-checked arithmetic before use. Errors name the byte offset, what was expected and what
 * came. */
#ifndef QR_FMT_GGUF_H
#define QR_FMT_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kern/qtype.h"

struct qr_gguf;

enum qr_gguf_type { // GGUF value types, by their numbers in the file
    QR_GGUF_U8,
    QR_GGUF_I8,
    QR_GGUF_U16,
    QR_GGUF_I16,
    QR_GGUF_U32,
    QR_GGUF_I32,
    QR_GGUF_F32,
    QR_GGUF_BOOL,
    QR_GGUF_STR,
    QR_GGUF_ARR,
    QR_GGUF_U64,
    QR_GGUF_I64,
    QR_GGUF_F64,
    QR_GGUF_TYPES
};

struct qr_gguf_str {
    const char *data;
    size_t bytes;
}; // not NUL-terminated

struct qr_gguf_kv {
    struct qr_gguf_str key;
    enum qr_gguf_type type;
    enum qr_gguf_type elem;         // of an array; arrays of arrays are refused
    uint64_t n;                     // elements of an array, else 1
    const uint8_t *data;            // the value's bytes
    const struct qr_gguf_str *strs; // n strings, for a string or an array of strings; NULL otherwise
};

struct qr_gguf_tensor {
    struct qr_gguf_str name;
    uint32_t type_id;                   // as in the file
    const struct qr_qtype_traits *type; // NULL: a type that quire cannot compute with
    int n_dims;
    uint64_t dims[4];    // dims[0] is the row length; unused ones are 1
    const uint8_t *data; // NULL when type is NULL
    uint64_t bytes, file_offset;
};

enum qr_status qr_gguf_open(const char *path, struct qr_gguf **out, struct qr_error *err) QR_MUST_CHECK;
// Over bytes in memory that outlive it (fuzzing, tests).
enum qr_status qr_gguf_open_mem(const void *data, size_t bytes, struct qr_gguf **out,
                                struct qr_error *err) QR_MUST_CHECK;
void qr_gguf_free(struct qr_gguf **g);

int qr_gguf_version(const struct qr_gguf *g);
uint64_t qr_gguf_file_bytes(const struct qr_gguf *g);
size_t qr_gguf_n_kvs(const struct qr_gguf *g);
const struct qr_gguf_kv *qr_gguf_kv_at(const struct qr_gguf *g, size_t i);
const struct qr_gguf_kv *qr_gguf_find(const struct qr_gguf *g, const char *key); // NULL when absent
size_t qr_gguf_n_tensors(const struct qr_gguf *g);
const struct qr_gguf_tensor *qr_gguf_tensor_at(const struct qr_gguf *g, size_t i);
const struct qr_gguf_tensor *qr_gguf_tensor(const struct qr_gguf *g, const char *name); // NULL when absent

// Scalars. False when the key is absent; a value of another type or out of range is also false. Any integer
// type fits u64 if not negative.
bool qr_gguf_u64(const struct qr_gguf *g, const char *key, uint64_t *out);
bool qr_gguf_f64(const struct qr_gguf *g, const char *key, double *out); // floats and integers
bool qr_gguf_bool(const struct qr_gguf *g, const char *key, bool *out);
bool qr_gguf_str(const struct qr_gguf *g, const char *key, struct qr_gguf_str *out);
// Element i of a numeric array as double or int64 (asserts i < n and a numeric element type).
double qr_gguf_arr_f64(const struct qr_gguf_kv *kv, uint64_t i);
int64_t qr_gguf_arr_i64(const struct qr_gguf_kv *kv, uint64_t i);

// Drops the file pages under a tensor from memory: its values were packed and will not be read again.
void qr_gguf_drop(const struct qr_gguf *g, const struct qr_gguf_tensor *t);

#endif
