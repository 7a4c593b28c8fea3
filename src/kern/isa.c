#include "kern/isa.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

static const char *const names[QR_ISA_COUNT + 1] = { // one more: an architecture may have none
#define QR_ISA(name, flags) #name,
#include "kern/isa.def"
#undef QR_ISA
};

// The strongest set that kernels may use, as a mask; all ones until a limit is set.
static uint32_t limit_mask = ~0u;

#if defined(__x86_64__)

struct cpu {
    unsigned ecx1;       // leaf 1
    unsigned ebx7, ecx7, edx7; // leaf 7, subleaf 0
    unsigned eax71;      // leaf 7, subleaf 1
    uint64_t xcr0;       // register state that the operating system saves
};

static inline bool bit(uint64_t word, int i)
{
    return (word >> i) & 1;
}

static struct cpu cpu_read(void)
{
    struct cpu c = {0};
    unsigned a, b, cx, d;
    if (!__get_cpuid(1, &a, &b, &c.ecx1, &d)) return c;
    if (__get_cpuid_count(7, 0, &a, &c.ebx7, &c.ecx7, &c.edx7) && a >= 1)
        __get_cpuid_count(7, 1, &c.eax71, &b, &cx, &d);
    if (bit(c.ecx1, 27)) { // OSXSAVE: xgetbv may be executed
        uint32_t lo, hi;
        __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
        c.xcr0 = (uint64_t)hi << 32 | lo;
    }
    return c;
}

/* Tiles are 8 kB of registers that the system saves only for a process that asked (Linux 5.16 or later). The process has
 * the permission from then on, threads that it starts later too; asked before there are any (kern/isa.h), it cannot fail
 * for a thread whose signal stack is too small. */
static bool tiles_permitted(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0;
}

/* A set needs its instructions and a system that saves its registers: xmm and ymm are bits 1 and 2 of XCR0,
 * the mask registers and both parts of zmm are bits 5, 6 and 7, tiles are bits 17 and 18. A virtual machine may give one without the
 * other. */
static bool cpu_has(const struct cpu *c, enum qr_isa isa)
{
    switch (isa) {
    case QR_ISA_avx2:
        return (c->xcr0 & 0x6) == 0x6 && bit(c->ecx1, 12) && bit(c->ecx1, 28) && bit(c->ecx1, 29) &&
               bit(c->ebx7, 5); // FMA, AVX, F16C, AVX2
    case QR_ISA_avx512:
        return (c->xcr0 & 0xe0) == 0xe0 && bit(c->ebx7, 16) && bit(c->ebx7, 17) && bit(c->ebx7, 30) &&
               bit(c->ebx7, 31); // F, DQ, BW, VL
    case QR_ISA_avx512vnni: return bit(c->ecx7, 11);
    case QR_ISA_avx512bf16: return bit(c->eax71, 5);
    case QR_ISA_amx: // BF16, TILE, INT8
        return (c->xcr0 & 0x60000) == 0x60000 && bit(c->edx7, 22) && bit(c->edx7, 24) && bit(c->edx7, 25) &&
               tiles_permitted();
    default: return false;
    }
}

#elif defined(__aarch64__)

struct cpu {
    unsigned long hwcap, hwcap2;
};

static struct cpu cpu_read(void)
{
    return (struct cpu){getauxval(AT_HWCAP), getauxval(AT_HWCAP2)};
}

// What the system says of the processor: Linux's own bits, whose names older headers lack.
static bool cpu_has(const struct cpu *c, enum qr_isa isa)
{
    enum { ASIMD = 1, ASIMDDP = 20, I8MM = 13, BF16 = 14 };
    switch (isa) {
    case QR_ISA_neon: return c->hwcap >> ASIMD & 1;
    case QR_ISA_dotprod: return c->hwcap >> ASIMDDP & 1;
    case QR_ISA_i8mm: return c->hwcap2 >> I8MM & 1;
    case QR_ISA_bf16: return c->hwcap2 >> BF16 & 1;
    default: return false;
    }
}

#else

struct cpu {
    char none;
};

static struct cpu cpu_read(void)
{
    return (struct cpu){0};
}

static bool cpu_has(const struct cpu *c, enum qr_isa isa)
{
    return false;
}

#endif

uint32_t qr_isa_detected(void)
{
    static uint32_t found = ~0u; // every thread computes the same value
    uint32_t mask = __atomic_load_n(&found, __ATOMIC_RELAXED);
    if (mask != ~0u) return mask;
    struct cpu c = cpu_read();
    mask = 0;
    for (int i = 0; i < QR_ISA_COUNT && cpu_has(&c, (enum qr_isa)i); i++) mask |= 1u << i;
    __atomic_store_n(&found, mask, __ATOMIC_RELAXED);
    return mask;
}

uint32_t qr_isa_active(void)
{
    return qr_isa_detected() & limit_mask;
}

const char *qr_isa_name(enum qr_isa isa)
{
    return (unsigned)isa < QR_ISA_COUNT ? names[isa] : "ref";
}

enum qr_status qr_isa_limit(const char *name, struct qr_error *err)
{
    uint32_t found = qr_isa_detected(); // also for "auto": this call comes before threads start
    if (!strcmp(name, "auto")) {
        limit_mask = ~0u;
        return QR_OK;
    }
    if (!strcmp(name, "ref")) {
        limit_mask = 0;
        return QR_OK;
    }
    for (int i = 0; i < QR_ISA_COUNT; i++) {
        if (strcmp(name, names[i])) continue;
        if (!qr_isa_has(found, (enum qr_isa)i))
            return qr_fail(err, QR_ENOTSUP, "--isa: this processor or its system has no %s", name);
        limit_mask = (2u << i) - 1;
        return QR_OK;
    }
    char list[128] = "auto, ref";
    for (int i = 0; i < QR_ISA_COUNT; i++) {
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, ", %s", names[i]);
    }
    return qr_fail(err, QR_EINVAL, "--isa: expected one of %s, got \"%.40s\"", list, name);
}
