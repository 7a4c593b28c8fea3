/* A growable byte buffer.
 *
 * Owns: its bytes. Refuses to know: encodings. Threads: one owner at a time.
 * Lifetime: {0} is an empty buffer; qr_buf_fini frees it.
 *
 * Running out of memory sets `failed` and every later call does nothing, so a writer checks once at its end.
 */
#ifndef QR_BASE_BUF_H
#define QR_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct qr_buf {
    char *data;      // always followed by a NUL that `len` does not count, once anything was written
    size_t len, cap; // bytes
    bool failed;
};

bool qr_buf_reserve(struct qr_buf *b, size_t more); // room for `more` further bytes; false when failed
void qr_buf_add(struct qr_buf *b, const void *p, size_t n);
void qr_buf_str(struct qr_buf *b, const char *s);
void qr_buf_char(struct qr_buf *b, char c);
void qr_buf_printf(struct qr_buf *b, const char *fmt, ...) QR_PRINTF(2, 3);
void qr_buf_clear(struct qr_buf *b); // keeps the memory, forgets the failure
void qr_buf_fini(struct qr_buf *b);

#endif
