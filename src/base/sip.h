/* SipHash-2-4 with 128 bits of output (Aumasson and Bernstein, 2012): a keyed hash that who does not know the key
 * cannot make collide.
 *
 * Owns: nothing. Refuses to know: what is hashed. Threads: any. Lifetime: none. */
#ifndef QR_BASE_SIP_H
#define QR_BASE_SIP_H

#include <stddef.h>
#include <stdint.h>

// The hash of n bytes under a key of 16 bytes, as two numbers.
void qr_sip128(const uint64_t key[2], const void *p, size_t n, uint64_t out[2]);

#endif
