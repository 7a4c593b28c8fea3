#include "kern/peak.h"

#include <string.h>

#include "kern/isa.h"
#include "kern/peak_internal.h"

#if defined(__x86_64__)
static const struct {
    enum qr_isa isa;
    struct qr_peak peak;
} peaks[] = {
#define QR_PEAK(isa, kind, ops) {QR_ISA_##isa, {#kind, #isa, ops, kern_peak_##kind##_##isa}},
#include "kern/peak.def"
#undef QR_PEAK
};
enum { N_PEAKS = sizeof peaks / sizeof *peaks };
#endif

int qr_peaks(uint32_t isa_mask, struct qr_peak out[QR_PEAKS_MAX])
{
    int n = 0;
#if defined(__x86_64__)
    for (int i = 0; i < N_PEAKS; i++) {
        if (!qr_isa_has(isa_mask, peaks[i].isa)) continue;
        int at = 0;
        while (at < n && strcmp(out[at].name, peaks[i].peak.name) != 0) at++;
        out[at] = peaks[i].peak;
        if (at == n) n++;
    }
#endif
    return n;
}

static uint64_t read_plain(const void *p, size_t bytes)
{
    const uint64_t *x = p;
    uint64_t s[8] = {0};
    for (size_t i = 0; i < bytes / 8; i += 8)
        for (int k = 0; k < 8; k++) s[k] ^= x[i + (size_t)k];
    return s[0] ^ s[1] ^ s[2] ^ s[3] ^ s[4] ^ s[5] ^ s[6] ^ s[7];
}

uint64_t qr_peak_read(uint32_t isa_mask, const void *p, size_t bytes)
{
#if defined(__x86_64__)
    if (qr_isa_has(isa_mask, QR_ISA_avx512)) return kern_peak_read_avx512(p, bytes);
    if (qr_isa_has(isa_mask, QR_ISA_avx2)) return kern_peak_read_avx2(p, bytes);
#endif
    return read_plain(p, bytes);
}
