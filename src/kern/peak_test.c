#include "kern/peak.h"

#include <string.h>

#include "base/test.h"
#include "kern/isa.h"

// Whatever the set, every word is read exactly once: their sum without carry is the same.
QR_TEST(peak_reads_every_word_once)
{
    static _Alignas(64) uint64_t x[1024];
    uint64_t want = 0;
    for (size_t i = 0; i < 1024; i++) want ^= x[i] = (i + 1) * 0x9e3779b97f4a7c15u;
    for (int i = -1; i < QR_ISA_COUNT; i++) {
        uint32_t mask = (i < 0 ? 0 : (2u << i) - 1) & qr_isa_detected();
        assert_int_equal(qr_peak_read(mask, x, sizeof x), want);
        assert_int_equal(qr_peak_read(mask, x, 512), qr_peak_read(0, x, 512));
    }
}

QR_TEST(peaks_are_one_of_a_kind_and_run)
{
    struct qr_peak p[QR_PEAKS_MAX];
    assert_int_equal(qr_peaks(0, p), 0);
    int n = qr_peaks(qr_isa_detected(), p);
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < i; k++) assert_string_not_equal(p[i].name, p[k].name);
        assert_true(p[i].ops > 0);
        p[i].run(10);
    }
}
