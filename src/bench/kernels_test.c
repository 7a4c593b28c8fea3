#include "bench/kernels_internal.h"

#include <string.h>

#include "base/test.h"
#include "kern/isa.h"

static struct kernels_product product(enum qr_class cls, enum qr_wfmt fmt, int rows, double ns)
{
    static struct qr_gemm_impl impl;
    impl = (struct qr_gemm_impl){.cls = cls, .fmt = fmt, .isa = 0}; // a set, not portable C
    return (struct kernels_product){.impl = &impl, .n = 32, .k = 256, .rows = rows, .ns = ns};
}

QR_TEST(kernels_count_operations_and_bytes)
{
    struct bench_machine m = {.n_peaks = 2, .peaks = {{.name = "int8"}, {.name = "f32"}}, .peak_gops = {100, 10}};
    struct kernels_product p = product(QR_CLASS_D, QR_W_I8G32, 4, 1000);
    assert_true(kernels_product_ops(&p) == 65536); // 2 * 4 * 32 * 256
    assert_true(kernels_product_share(&p, &m) == 65.536 / 100);
    // A Q8_0 block of 32 weights has 34 bytes, and so has a packed one.
    assert_true(kernels_product_gbs(&p) == 32 * 256 / 32 * 34 / 1000.0);
    p = product(QR_CLASS_D15, QR_W_I8G32, 4, 1000);
    assert_true(kernels_product_share(&p, &m) == 2 * 65.536 / 100);
    p = product(QR_CLASS_D15, QR_W_F32, 4, 1000); // float weights multiply once
    assert_true(kernels_product_share(&p, &m) == 65.536 / 10);
    m.n_peaks = 0;
    assert_true(kernels_product_share(&p, &m) == 0);
}

QR_TEST(kernels_are_measured_against_what_they_compute_with)
{
#if defined(__x86_64__)
    assert_string_equal(kernels_peak_kind(QR_CLASS_D, QR_W_U4K, QR_ISA_avx2), "int8");
    assert_string_equal(kernels_peak_kind(QR_CLASS_D15, QR_W_U4K, QR_ISA_avx512vnni), "int8");
    assert_string_equal(kernels_peak_kind(QR_CLASS_D, QR_W_BF16, QR_ISA_avx512), "f32");
    assert_string_equal(kernels_peak_kind(QR_CLASS_P, QR_W_U4K, QR_ISA_avx512bf16), "bf16");
    assert_string_equal(kernels_peak_kind(QR_CLASS_P, QR_W_U4K, QR_ISA_avx512), "f32");
    assert_string_equal(kernels_peak_kind(QR_CLASS_F, QR_W_U4K, QR_ISA_avx512), "f32");
    assert_null(kernels_peak_kind(QR_CLASS_D, QR_W_U4K, -1));
    assert_string_equal(kernels_peak_kind(QR_CLASS_P, QR_W_U4K, QR_ISA_amx), "bf16");
    assert_string_equal(kernels_peak_kind(QR_CLASS_D15, QR_W_U4K, QR_ISA_amx), "int8");
#endif
    struct kernels_attention a = {.type = QR_KV_BF16, .isa = "avx512bf16"};
    assert_string_equal(kernels_attention_kind(&a), "bf16");
    a.isa = "avx2";
    assert_string_equal(kernels_attention_kind(&a), "f32");
    a.type = QR_KV_INT8;
    assert_string_equal(kernels_attention_kind(&a), "int8");
    a.isa = "ref";
    assert_null(kernels_attention_kind(&a));
}

QR_TEST(kernels_count_what_attention_reads)
{
    struct kernels_attention a = {.type = QR_KV_BF16, .isa = "avx2", .context = 512, .rows = 1, .n_group = 4, .d = 128};
    assert_true(kernels_attention_bytes(&a) == 512 * 128 * 2 * 2);
    assert_true(kernels_attention_ops(&a) == 4.0 * 128 * 4 * 512);
    a.rows = 16; // they see 497 to 512 tokens
    double seen = 0;
    for (int i = 497; i <= 512; i++) seen += i;
    assert_true(kernels_attention_ops(&a) == 4.0 * 128 * 4 * seen);
}

QR_TEST(kernels_shapes_are_told_apart_once)
{
    static struct kernels_shapes s;
    static const char q[] = "blk.0.attn_q.weight", o[] = "blk.11.attn_output.weight";
    assert_true(kernels_add_shape(&s, q, sizeof q - 1, QR_W_U4K, 64, 64));
    assert_true(kernels_add_shape(&s, o, sizeof o - 1, QR_W_U4K, 64, 64));
    assert_int_equal(s.n, 1);
    assert_int_equal(s.v[0].n_tensors, 2);
    assert_string_equal(s.v[0].name, "attn_q");
    assert_true(kernels_add_shape(&s, o, sizeof o - 1, QR_W_U5K, 64, 64));
    assert_true(kernels_add_shape(&s, "x", 1, QR_W_U4K, 64, 32));
    assert_int_equal(s.n, 3);
    assert_string_equal(s.v[1].name, "attn_output");
    for (int i = 3; i < KERNELS_SHAPES_MAX; i++) assert_true(kernels_add_shape(&s, "x", 1, QR_W_U4K, 16 * i, 96));
    assert_false(kernels_add_shape(&s, "x", 1, QR_W_F32, 1, 1));
    assert_true(kernels_add_shape(&s, "x", 1, QR_W_U4K, 64, 32));
}

QR_TEST(kernels_typical_shapes_have_every_format)
{
    static struct kernels_shapes s;
    kernels_typical_shapes(&s);
    assert_int_equal(s.n, QR_W_COUNT);
    for (int i = 0; i < s.n; i++) {
        assert_int_equal(s.v[i].fmt, i);
        assert_int_equal(s.v[i].k % qr_wfmt(s.v[i].fmt)->group, 0);
    }
    assert_int_equal(s.n_heads % s.n_kv_heads, 0);
}
