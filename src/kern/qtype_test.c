#include "kern/qtype.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"

// tests/vectors/quants.bin, made by mkquants.py beside it from the gguf Python package.
QR_TEST(qtype_unpacks_like_gguf_bit_for_bit)
{
    FILE *f = fopen("tests/vectors/quants.bin", "rb");
    assert_non_null(f);
    uint32_t head[2];
    assert_int_equal(fread(head, 1, 8, f), 8);
    assert_memory_equal(head, "QRQV", 4);
    assert_int_equal(head[1], 15);
    for (uint32_t t = 0; t < head[1]; t++) {
        uint32_t rec[3];
        assert_int_equal(fread(rec, 1, 12, f), 12);
        const struct qr_qtype_traits *tr = qr_qtype(rec[0]);
        assert_non_null(tr);
        assert_int_equal((size_t)rec[1] / tr->block_elems * tr->block_bytes, rec[2]);
        uint8_t *raw = qr_malloc(QR_MEM_MISC, rec[2]);
        float *want = qr_malloc(QR_MEM_MISC, rec[1] * sizeof *want);
        float *got = qr_malloc(QR_MEM_MISC, rec[1] * sizeof *got);
        assert_int_equal(fread(raw, 1, rec[2], f), rec[2]);
        assert_int_equal(fread(want, sizeof *want, rec[1], f), rec[1]);
        tr->unpack(raw, got, rec[1]);
        for (uint32_t i = 0; i < rec[1]; i++)
            if (memcmp(got + i, want + i, 4) != 0)
                fail_msg("%s value %u: %a, not %a", tr->name, i, got[i], want[i]);
        qr_free(raw);
        qr_free(want);
        qr_free(got);
    }
    fclose(f);
}

QR_TEST(qtype_unknown_ids_are_null)
{
    assert_null(qr_qtype(4)); // Q4_2, withdrawn from the format
    assert_null(qr_qtype(0xFFFFFFFFu));
    assert_string_equal(qr_qtype(12)->name, "Q4_K");
}
