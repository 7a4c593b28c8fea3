/* UTF-8, byte by byte.
 *
 * Owns: the rule for what is a character and where a broken one ends. Refuses to know: tokens.
 * Threads: plain values. Lifetime: the caller's stack.
 *
 * A broken sequence ends before the first byte that cannot continue it, and each such stretch becomes one
 * U+FFFD: the rule of WHATWG, Python and Rust, so that decoding in pieces equals decoding at once. */
#ifndef QR_TEXT_UTF8_INTERNAL_H
#define QR_TEXT_UTF8_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

// Bytes of the character that lead begins: 1 to 4, or 0 when no character begins so.
static inline int utf8_need(uint8_t lead)
{
    if (lead < 0x80) return 1;
    if (lead < 0xc2) return 0; // a continuation, or an overlong form
    if (lead < 0xe0) return 2;
    if (lead < 0xf0) return 3;
    return lead < 0xf5 ? 4 : 0;
}

// Whether byte may follow lead as its second byte: shuts out overlong forms, surrogates and code points above
// U+10FFFF.
static inline bool utf8_second(uint8_t lead, uint8_t byte)
{
    switch (lead) {
    case 0xe0: return byte >= 0xa0 && byte < 0xc0;
    case 0xed: return byte >= 0x80 && byte < 0xa0;
    case 0xf0: return byte >= 0x90 && byte < 0xc0;
    case 0xf4: return byte >= 0x80 && byte < 0x90;
    default: return byte >= 0x80 && byte < 0xc0;
    }
}

#endif
