#include "kern/kern.h"

#include <assert.h>
#include <string.h>

#include "base/test.h"

static const char *const slots[] = {
#define QR_KERNEL(name, ret, params, tol) #name,
#include "kern/kernels.def"
#undef QR_KERNEL
};
#define N_SLOTS (sizeof slots / sizeof *slots)

QR_TEST(kern_fill_leaves_no_slot_empty)
{
    for (uint32_t mask = 0; mask < 1u << QR_ISA_COUNT; mask = mask * 2 + 1) {
        struct qr_kern k;
        memset(&k, 0, sizeof k);
        qr_kern_fill(&k, mask);
        void *p[N_SLOTS];
        static_assert(sizeof p == sizeof k, "the table is pointers only");
        memcpy(p, &k, sizeof p);
        for (size_t i = 0; i < N_SLOTS; i++) assert_non_null(p[i]);
    }
}

QR_TEST(kern_origin_follows_the_mask)
{
    struct qr_kern ref, k;
    qr_kern_fill(&ref, 0);
    for (uint32_t mask = 0; mask < 1u << QR_ISA_COUNT; mask = mask * 2 + 1) {
        qr_kern_fill(&k, mask);
#define QR_KERNEL(name, ret, params, tol)                                                                    \
    assert_int_equal(k.name == ref.name, !strcmp(qr_kern_origin(#name, mask), "ref"));
#include "kern/kernels.def"
#undef QR_KERNEL
    }
}

QR_TEST(kern_table_follows_the_limit)
{
    struct qr_kern want;
    struct qr_error err;
    assert_int_equal(qr_isa_limit("ref", &err), QR_OK);
    qr_kern_fill(&want, 0);
    assert_memory_equal(qr_kern(), &want, sizeof want);
    assert_int_equal(qr_isa_limit("auto", &err), QR_OK);
    qr_kern_fill(&want, qr_isa_active());
    assert_memory_equal(qr_kern(), &want, sizeof want);
}
