#include "base/sip.h"

#include <string.h>

#include "base/test.h"

// The vectors of the authors' reference implementation: the key is 00 01 .. 0f, the input 00 01 .. n-1.
QR_TEST(sip_equals_the_reference)
{
    static const struct {
        size_t n;
        unsigned char out[16];
    } want[] = {
        {0, {0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93}},
        {1, {0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc, 0x45}},
    };
    unsigned char in[64];
    uint64_t key[2], out[2];
    for (int i = 0; i < 64; i++) in[i] = (unsigned char)i;
    memcpy(key, in, sizeof key);
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        qr_sip128(key, in, want[i].n, out);
        assert_memory_equal(out, want[i].out, sizeof out);
    }
}
