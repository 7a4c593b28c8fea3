#include "base/sip.h"

#include <string.h>

static uint64_t rotl(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

static void rounds(uint64_t v[4], int n)
{
    for (; n > 0; n--) {
        v[0] += v[1], v[1] = rotl(v[1], 13) ^ v[0], v[0] = rotl(v[0], 32);
        v[2] += v[3], v[3] = rotl(v[3], 16) ^ v[2];
        v[0] += v[3], v[3] = rotl(v[3], 21) ^ v[0];
        v[2] += v[1], v[1] = rotl(v[1], 17) ^ v[2], v[2] = rotl(v[2], 32);
    }
}

static uint64_t word(const unsigned char *p, size_t n)
{
    uint64_t w = 0;
    for (size_t i = 0; i < n; i++) w |= (uint64_t)p[i] << 8 * i;
    return w;
}

static void absorb(uint64_t v[4], uint64_t w)
{
    v[3] ^= w;
    rounds(v, 2);
    v[0] ^= w;
}

void qr_sip128(const uint64_t key[2], const void *p, size_t n, uint64_t out[2])
{
    const unsigned char *b = p;
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575u, key[1] ^ 0x646f72616e646f6du ^ 0xee, key[0] ^ 0x6c7967656e657261u,
                     key[1] ^ 0x7465646279746573u};
    size_t left = n;
    for (; left >= 8; b += 8, left -= 8) absorb(v, word(b, 8));
    absorb(v, word(b, left) | (uint64_t)n << 56);
    v[2] ^= 0xee;
    rounds(v, 4);
    out[0] = v[0] ^ v[1] ^ v[2] ^ v[3];
    v[1] ^= 0xdd;
    rounds(v, 4);
    out[1] = v[0] ^ v[1] ^ v[2] ^ v[3];
}
