#include "base/printable.h"

#include <stdint.h>
#include <string.h>

// The code point of the UTF-8 character at s and its length; 0 bytes where there is none.
static size_t decode(const unsigned char *s, size_t n, uint32_t *code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (n == 0) return 0;
    size_t bytes = s[0] < 0x80    ? 1
                   : s[0] >= 0xF8 ? 0
                   : s[0] >= 0xF0 ? 4
                   : s[0] >= 0xE0 ? 3
                   : s[0] >= 0xC0 ? 2
                                  : 0;
    if (bytes == 0 || bytes > n) return 0;
    uint32_t c = bytes == 1 ? s[0] : s[0] & (0x7Fu >> bytes);
    for (size_t i = 1; i < bytes; i++) {
        if ((s[i] & 0xC0) != 0x80) return 0;
        c = c << 6 | (s[i] & 0x3Fu);
    }
    if (c < least[bytes] || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) return 0;
    *code = c;
    return bytes;
}

static int harmless(uint32_t c)
{
    return c >= 0x20 && (c < 0x7F || c > 0x9F) && c != 0x200E && c != 0x200F && c != 0x061C &&
           !(c >= 0x2028 && c <= 0x202E) && !(c >= 0x2066 && c <= 0x2069) && c != 0xFEFF;
}

size_t qr_printable_char(const char *s, size_t n)
{
    uint32_t c;
    size_t bytes = decode((const unsigned char *)s, n, &c);
    return bytes && harmless(c) ? bytes : 0;
}

void qr_printable_line(char *s)
{
    for (size_t n = strlen(s), i = 0; i < n;) {
        size_t bytes = qr_printable_char(s + i, n - i);
        if (!bytes) s[i] = s[i] == '\n' || s[i] == '\t' ? ' ' : '?';
        i += bytes ? bytes : 1;
    }
}
