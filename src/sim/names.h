/* Names that a file uses, as numbers in the order in which they first come.
 *
 * Owns: a copy of every name. Refuses to know: what is named. Threads: one. Lifetime: zeroed to _fini. */
#ifndef QR_SIM_NAMES_H
#define QR_SIM_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct qr_name {
    uint64_t hash;
    size_t at; // in the text
    int64_t id; // -1: an empty place
};
struct qr_names {
    struct qr_buf text; // each with its NUL
    struct qr_name *places;
    size_t n, cap; // cap: a power of two, or 0
};

// The name's number; *is_new: it came for the first time. -1: no memory.
int64_t qr_names_put(struct qr_names *names, const char *name, bool *is_new);
void qr_names_fini(struct qr_names *names);

#endif
