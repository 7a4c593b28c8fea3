#include "kern/pack.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/test.h"

static void fill_random(uint8_t *p, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) p[i] = (uint8_t)qr_rand_u64(seed, 1, i);
}

// n rows of k random bytes of the type, packed; every row reads back as the type's own unpacker gives it.
static void round_trip(enum qr_qtype type, enum qr_wfmt fmt, int n, int k)
{
    const struct qr_qtype_traits *t = qr_qtype(type);
    size_t row_bytes = (size_t)k / t->block_elems * t->block_bytes;
    uint8_t *file = qr_malloc(QR_MEM_MISC, n * row_bytes);
    float *want = qr_malloc(QR_MEM_MISC, k * sizeof *want), *got = qr_malloc(QR_MEM_MISC, k * sizeof *got);
    struct qr_wmat w;
    fill_random(file, n * row_bytes, 7 + type);
    qr_wmat_init(&w, fmt, n, k);
    w.data = qr_pages_alloc(QR_MEM_MISC, qr_wmat_bytes(&w));
    assert_int_equal(w.panel_bytes % 64, 0);
    memset(w.data, 0xA5, qr_wmat_bytes(&w));
    for (int p = 0; p < w.n_panels; p++) {
        const void *rows[QR_PANEL] = {0};
        for (int i = 0; i < QR_PANEL && p * QR_PANEL + i < n; i++)
            rows[i] = file + (p * QR_PANEL + i) * row_bytes;
        qr_pack_panel(&w, p, type, rows);
    }
    for (int r = 0; r < n; r++) {
        t->unpack(file + r * row_bytes, want, k);
        qr_wmat_row(&w, r, got);
        for (int i = 0; i < k; i++)
            if (memcmp(want + i, got + i, 4) != 0)
                fail_msg("%s row %d k %d: %a not %a", t->name, r, i, got[i], want[i]);
    }
    qr_pages_free(QR_MEM_MISC, w.data, qr_wmat_bytes(&w));
    qr_free(file);
    qr_free(want);
    qr_free(got);
}

QR_TEST(pack_rows_read_back_exactly)
{
#define QR_QTYPE(name, id, elems, bytes, packed)                                                             \
    round_trip(QR_Q_##name, QR_W_##packed, 37, elems == 1 ? 33 : 768);
#include "kern/qtypes.def"
#undef QR_QTYPE
}

QR_TEST(pack_f32_holds_every_type)
{
#define QR_QTYPE(name, id, elems, bytes, packed) round_trip(QR_Q_##name, QR_W_F32, 17, 3 * elems);
#include "kern/qtypes.def"
#undef QR_QTYPE
}

QR_TEST(pack_costs_at_most_three_percent_over_the_file)
{
    static const int shape[][2] = {{576, 1536}, {1536, 768}, {49152, 2048}, {4096, 14336}};
#define QR_QTYPE(name, ...) QR_Q_##name,
    static const enum qr_qtype types[] = {
#include "kern/qtypes.def"
    };
#undef QR_QTYPE
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (size_t j = 0; j < sizeof shape / sizeof *shape; j++) {
            const struct qr_qtype_traits *t = qr_qtype(types[i]);
            struct qr_wmat w;
            qr_wmat_init(&w, t->packed, shape[j][0], shape[j][1]);
            double file = (double)shape[j][0] * shape[j][1] / t->block_elems * t->block_bytes;
            if ((double)qr_wmat_bytes(&w) > 1.03 * file) fail_msg("%s: %.4f", t->name, (double)qr_wmat_bytes(&w) / file);
        }
}
