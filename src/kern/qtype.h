/* Weight types as files store them, and their exact meaning as float32.
 *
 * Owns: the table that kern/qtypes.def lists. Refuses to know: files, models.
 * Threads: pure functions. Lifetime: static.
 * Source of every layout: the GGUF specification; agreement with the `gguf` Python package is tested bit for
 * bit. */
#ifndef QR_KERN_QTYPE_H
#define QR_KERN_QTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum qr_qtype {
#define QR_QTYPE(name, id, elems, bytes, packed) QR_Q_##name = id,
#include "kern/qtypes.def"
#undef QR_QTYPE
};

// Formats that kernels compute with: kern/wfmts.def.
enum qr_wfmt {
#define QR_WFMT_INT(NAME, ...) QR_W_##NAME,
#define QR_WFMT(NAME, ...) QR_W_##NAME,
#include "kern/wfmts.def"
    QR_W_COUNT
};

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

struct qr_wfmt_traits {
    const char *name;       // "u4g32"
    int group, group_bytes; // k is a multiple of the group; bytes of a group of a panel
    int sub;                // k that share an integer scale; 0 in float formats
    bool minima;
};
const struct qr_wfmt_traits *qr_wfmt(enum qr_wfmt fmt);

#endif
