#include "conf/conf.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool qr_parse_size(const char *text, uint64_t *out)
{
    if (!isdigit((unsigned char)text[0])) return false;
    char *end;
    errno = 0;
    double v = strtod(text, &end);
    bool hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    if (errno || !isfinite(v) || hex) return false;
    double unit = 1;
    switch (*end) {
    case 0: break;
    case 'k': unit = 1e3; break;
    case 'm': unit = 1e6; break;
    case 'g': unit = 1e9; break;
    case 't': unit = 1e12; break;
    case 'K': unit = 0x1p10; break;
    case 'M': unit = 0x1p20; break;
    case 'G': unit = 0x1p30; break;
    case 'T': unit = 0x1p40; break;
    default: return false;
    }
    if (*end) end++;
    if (*end == 'i') end++;
    if (*end == 'B') end++;
    if (*end || v * unit >= 0x1p63) return false;
    if (unit == 1 && v != floor(v)) return false; // half a byte, half a token
    *out = (uint64_t)(v * unit + 0.5);
    // A double holds 53 bits; a seed may have more.
    if (text[strspn(text, "0123456789")] == 0) *out = strtoull(text, NULL, 10);
    return true;
}

int qr_parse_cpu_list(const char *text, int *cpus, int cap)
{
    int n = 0;
    const char *p = text;
    while (*p) {
        char *end;
        if (!isdigit((unsigned char)*p)) return -1;
        long first = strtol(p, &end, 10), last = first;
        if (*end == '-') {
            if (!isdigit((unsigned char)end[1])) return -1;
            last = strtol(end + 1, &end, 10);
        }
        if (first > last || last >= 65536) return -1;
        for (long c = first; c <= last; c++) {
            if (n == cap) return -1;
            cpus[n++] = (int)c;
        }
        if (*end == ',' && end[1])
            end++;
        else if (*end)
            return -1;
        p = end;
    }
    return n;
}
