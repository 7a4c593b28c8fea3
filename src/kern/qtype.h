/* Weight types as files store them, and their exact meaning as float32.
 *
 * Owns: the table that kern/qtypes.def lists. Refuses to know: files, models.
 * Threads: pure functions. Lifetime: static.
 * Source of every layout: the GGUF specification; agreement with the `gguf` Python package is tested bit for
 * bit. */
#ifndef QR_KERN_QTYPE_H
#define QR_KERN_QTYPE_H

#include <stddef.h>
#include <stdint.h>

enum qr_qtype {
#define QR_QTYPE(name, id, elems, bytes, packed) QR_Q_##name = id,
#include "kern/qtypes.def"
#undef QR_QTYPE
};

// Formats that kernels compute with (DESIGN 5). U4G32 is U4G32M without minima (the value 0 is nibble 8).
enum qr_wfmt { QR_W_U4G32, QR_W_U4G32M, QR_W_U4K, QR_W_I8G32, QR_W_I6G16, QR_W_BF16, QR_W_F32, QR_W_COUNT };

struct qr_qtype_traits {
    const char *name; // "Q4_K"
    enum qr_qtype id;
    int block_elems, block_bytes;
    enum qr_wfmt packed;
    // dst[0..n) = values of n elements, n a multiple of block_elems.
    void (*unpack)(const void *src, float *dst, size_t n);
};

// NULL for an id that quire does not read.
const struct qr_qtype_traits *qr_qtype(uint32_t gguf_id);
const char *qr_wfmt_name(enum qr_wfmt fmt);

#endif
