/* Hashing and counter-based random numbers: pure functions.
 *
 * Owns: nothing. Refuses to know: what is hashed. Threads: any. Lifetime: none. */
#ifndef QR_BASE_HASH_H
#define QR_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

// The finaliser of splitmix64 (Steele, Lea, Flood 2014): a bijection that spreads every input bit.
static inline uint64_t qr_mix64(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

// FNV-1a over bytes, then mixed. Not for hostile keys.
static inline uint64_t qr_hash_bytes(uint64_t seed, const void *p, size_t n)
{
    const unsigned char *b = p;
    uint64_t h = 0xCBF29CE484222325u ^ seed;
    for (size_t i = 0; i < n; i++) h = (h ^ b[i]) * 0x100000001B3u;
    return qr_mix64(h);
}

// Four lanes of whole words, then the rest: some bytes a cycle, for sums over large blocks. Not for hostile data.
static inline uint64_t qr_hash_words(uint64_t seed, const void *p, size_t n)
{
    const unsigned char *b = p;
    uint64_t lane[4] = {seed, seed + 1, seed + 2, seed + 3}, h = n;
    for (; n >= sizeof lane; b += sizeof lane, n -= sizeof lane) {
        uint64_t w[4];
        __builtin_memcpy(w, b, sizeof w);
        for (int i = 0; i < 4; i++) {
            lane[i] = (lane[i] ^ w[i]) * 0x9E3779B97F4A7C15u;
            lane[i] ^= lane[i] >> 29;
        }
    }
    for (int i = 0; i < 4; i++) h = qr_mix64(h ^ lane[i]);
    return qr_hash_bytes(h, b, n);
}

// Counter-based: the same (seed, stream, counter) gives the same number whatever was asked before (DESIGN
// N5).
static inline uint64_t qr_rand_u64(uint64_t seed, uint64_t stream, uint64_t counter)
{
    return qr_mix64(qr_mix64(qr_mix64(seed) ^ stream) ^ counter);
}

// Uniform in [0, 1) with 53 bits.
static inline double qr_rand_unit(uint64_t seed, uint64_t stream, uint64_t counter)
{
    return (double)(qr_rand_u64(seed, stream, counter) >> 11) * 0x1.0p-53;
}

#endif
