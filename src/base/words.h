/* Numbers of things, in words.
 *
 * Owns: when a noun has an s. Refuses to know: nouns that want more than one. Threads: pure. Lifetime: the caller's bytes. */
#ifndef QR_BASE_WORDS_H
#define QR_BASE_WORDS_H

#include <stdint.h>

#define QR_COUNT_BYTES 48

// "1 request", "2 requests". Returns out.
const char *qr_count(char out[QR_COUNT_BYTES], uint64_t n, const char *noun);

#endif
