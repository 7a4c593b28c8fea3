/* Text of files and clients, made fit for one line of a terminal or a log.
 *
 * Owns: which characters are harmless there. Refuses to know: who prints.
 * Threads: pure functions. Lifetime: the caller's bytes.
 *
 * Not printable are control characters (an escape sequence can drive a terminal), line and paragraph
 * separators, marks that reorder what stands around them, and bytes that are not UTF-8. */
#ifndef QR_BASE_PRINTABLE_H
#define QR_BASE_PRINTABLE_H

#include <stddef.h>

// Bytes of the printable character that s begins with, of n bytes; 0 where it begins with none.
size_t qr_printable_char(const char *s, size_t n);

// Replaces in place, up to the NUL: a newline or tab by a space, every other byte that is not printable by
// '?'.
void qr_printable_line(char *s);

#endif
