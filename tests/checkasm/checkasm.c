#include "checkasm.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "base/hash.h"
#include "kern/isa.h"

#define TURNS 12 // runs of a check; the turn chooses the mix of values and whether denormals are flushed
#define BUFS_MAX 256
#define GUARD 0xa5
#define GUARD_BYTES 64

static struct {
    uint64_t seed;
    bool bench, list;
    const char *only_isa, *versus;
    char **patterns;
    int n_patterns;
} opt = {.seed = 1};

static struct {
    uint64_t stream, next; // of random numbers
    int turn;
    bool failed;
    char why[256];
    const char *name, *isa;
} now;

static struct {
    uint8_t *map, *begin;
    size_t map_bytes;
} bufs[BUFS_MAX];
static int n_bufs;
static int n_cases, n_failures;
static sigjmp_buf on_crash;

static uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint32_t ca_u32(void)
{
    return (uint32_t)(qr_rand_u64(opt.seed, now.stream, now.next++) >> 32);
}

int ca_below(int n)
{
    return (int)(ca_u32() % (uint32_t)n);
}

float ca_unit(void)
{
    return (float)((int)(ca_u32() % 2000001) - 1000000) * 1e-6f;
}

void ca_fill_plain(float *x, size_t n, float top)
{
    for (size_t i = 0; i < n; i++) x[i] = ca_unit() * top;
}

// Turns 0 to 3 are ordinary; later ones sprinkle extremes, more and more of them.
void ca_fill(float *x, size_t n)
{
    static const float odd[] = {0.0f,           -0.0f,  3.4028235e38f, -3.4028235e38f, 1e-45f, -1e-40f,
                                1.1754944e-38f, 1e-30f, 127.0f,        -127.5f,        87.4f,  -87.2f,
                                -88.5f,         88.3f,  INFINITY,      -INFINITY,      NAN,    0.5f,
                                1.5f,           -1e-3f, 1e4f};
    static const float tops[] = {1, 8, 100, 1e-3f};
    int n_odd =
        now.turn < 8 ? 8 : (int)(sizeof odd / sizeof *odd); // infinities and NaN in the last turns only
    ca_fill_plain(x, n, tops[now.turn % 4]);
    if (now.turn < 4) return;
    int every = now.turn % 2 ? 3 : 40;
    for (size_t i = 0; i < n; i++)
        if (ca_below(every) == 0) x[i] = odd[ca_below(n_odd)];
}

static void *buf(size_t bytes, size_t align)
{
    if (n_bufs == BUFS_MAX) abort();
    size_t page = (size_t)sysconf(_SC_PAGESIZE),
           room = (bytes + GUARD_BYTES + align + page - 1) / page * page;
    uint8_t *map = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect(map + room, page, PROT_NONE) != 0) {
        perror("checkasm: memory");
        abort();
    }
    memset(map, GUARD, room);
    uint8_t *p = map + room - (bytes + align - 1) / align * align;
    bufs[n_bufs].map = map;
    bufs[n_bufs].begin = p;
    bufs[n_bufs++].map_bytes = room + page;
    return p;
}

void *ca_buf(size_t bytes)
{
    return buf(bytes, 4);
}

void *ca_buf64(size_t bytes)
{
    return buf(bytes, 64);
}

static void bufs_check_and_free(void)
{
    for (int i = 0; i < n_bufs; i++) {
        for (int j = 1; j <= GUARD_BYTES; j++)
            if (*(bufs[i].begin - j) != GUARD) {
                ca_fail("memory %d bytes before an operand was written", j);
                break;
            }
        munmap(bufs[i].map, bufs[i].map_bytes);
    }
    n_bufs = 0;
}

void ca_fail(const char *fmt, ...)
{
    if (now.failed) return; // the first says enough
    now.failed = true;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(now.why, sizeof now.why, fmt, ap);
    va_end(ap);
}

bool ca_failed(void)
{
    return now.failed;
}

void ca_equal_f32(const char *what, const float *ref, const float *new, size_t n, double tol, double scale)
{
    for (size_t i = 0; i < n; i++) {
        if (!memcmp(&ref[i], &new[i], sizeof *ref) || (isnan(ref[i]) && isnan(new[i]))) continue;
        if (tol > 0 && fabs((double)ref[i] - new[i]) <= tol * (scale + fabs((double)ref[i]))) continue;
        ca_fail("%s[%zu] of %zu: expected %.9g, got %.9g", what, i, n, (double)ref[i], (double)new[i]);
        return;
    }
}

void ca_equal_bytes(const char *what, const void *ref, const void *new, size_t n)
{
    const uint8_t *a = ref, *b = new;
    for (size_t i = 0; i < n; i++)
        if (a[i] != b[i]) {
            ca_fail("%s, byte %zu of %zu: expected %02x, got %02x", what, i, n, a[i], b[i]);
            return;
        }
}

bool ca_benching(void)
{
    return opt.bench && now.turn == 0;
}

void ca_bench(void (*run)(void *arg), void *arg, double work, enum ca_unit_of unit)
{
    double best = 1e30;
    int calls = 1;
    for (int round = 0; round < 12; round++) {
        uint64_t t0 = clock_ns();
        for (int i = 0; i < calls; i++) run(arg);
        double ns = (double)(clock_ns() - t0);
        if (ns < 3e6 && calls < 1 << 24) {
            calls *= 2;
            round--;
        } else if (ns / calls < best)
            best = ns / calls;
    }
    printf("%-32s %-11s %12.1f ns %9.2f %s\n", now.name, now.isa, best, work / best,
           unit == CA_GB ? "GB/s" : "GFLOP/s");
}

static void on_signal(int sig)
{
    siglongjmp(on_crash, sig);
}

// Workers flush denormals (N5), tests and tools may not: kernels must agree with portable C either way.
static void flush_denormals(bool on)
{
#if defined(__x86_64__)
    _mm_setcsr(on ? _mm_getcsr() | 0x8040 : _mm_getcsr() & ~0x8040u);
#elif defined(__aarch64__)
    uint64_t fpcr, flush = (uint64_t)1 << 24;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    __asm__ volatile("msr fpcr, %0" ::"r"(on ? fpcr | flush : fpcr & ~flush));
#else
    (void)on;
#endif
}

static bool wanted(const char *name)
{
    for (int i = 0; i < opt.n_patterns; i++)
        if (strstr(name, opt.patterns[i])) return true;
    return opt.n_patterns == 0;
}

void ca_run(const struct ca_case *c, const char *isa)
{
    if (!wanted(c->name)) return;
    if (opt.list) {
        printf("%s %s\n", c->name, isa);
        return;
    }
    now.name = c->name;
    now.isa = isa;
    now.failed = false;
    now.stream = qr_hash_bytes(qr_hash_bytes(0, isa, strlen(isa)), c->name, strlen(c->name));
    now.next = 0;
    n_cases++;
    for (now.turn = 0; now.turn < TURNS && !now.failed; now.turn++) {
        int sig = sigsetjmp(on_crash, 1);
        if (sig == 0) {
            flush_denormals(now.turn % 3 == 1);
            c->check(c);
        } else
            ca_fail("crashed: %s", strsignal(sig));
        flush_denormals(false);
        bufs_check_and_free();
    }
    if (!now.failed) return;
    n_failures++;
    printf("FAIL %s %s: %s\n     again: checkasm --seed %" PRIu64 " --isa %s %s\n", c->name, isa, now.why,
           opt.seed, isa, c->name);
}

static int usage(void)
{
    printf("usage: checkasm [--isa NAME] [--seed N] [--bench] [--list] [word of a kernel's name ...]\n"
           "Compares the kernels of each instruction set of this machine with portable C.\n"
           "  --isa NAME   only this set (ref with --bench times portable C; amx-emu: AMX kernels, emulated)\n"
           "  --seed N     another set of values; 0 takes the clock\n"
           "  --bench      also prints the time of a call\n"
           "  --versus kvtypes|paged   by turns, with at most the set of --isa: each KV type beside bf16; a block\n"
           "               table beside contiguous memory\n"
           "  --list       only names what would run\n");
    return 2;
}

static int options(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--bench"))
            opt.bench = true;
        else if (!strcmp(argv[i], "--list"))
            opt.list = true;
        else if (!strcmp(argv[i], "--seed") && i + 1 < argc)
            opt.seed = strtoull(argv[++i], NULL, 0);
        else if (!strcmp(argv[i], "--isa") && i + 1 < argc)
            opt.only_isa = argv[++i];
        else if (!strcmp(argv[i], "--versus") && i + 1 < argc)
            opt.versus = argv[++i];
        else if (argv[i][0] == '-')
            return usage();
        else {
            opt.patterns = argv + i;
            opt.n_patterns = argc - i;
            break;
        }
    }
    if (opt.seed == 0) opt.seed = clock_ns();
    return 0;
}

int main(int argc, char **argv)
{
    int rc = options(argc, argv);
    if (rc) return rc;
    struct sigaction sa = {.sa_handler = on_signal};
    for (int i = 0; i < 4; i++) sigaction((int[]){SIGSEGV, SIGILL, SIGBUS, SIGFPE}[i], &sa, NULL);
    if (opt.versus) {
        struct qr_error err = {0};
        if (qr_isa_limit(opt.only_isa ? opt.only_isa : "auto", &err) != QR_OK) {
            printf("checkasm: %s\n", err.msg);
            return 2;
        }
        return ca_versus(opt.versus) ? 0 : usage();
    }
    bool ran = false;
    for (int i = -1; i < QR_ISA_COUNT; i++) {
        const char *isa = i < 0 ? "ref" : qr_isa_name((enum qr_isa)i);
        if (opt.only_isa ? strcmp(opt.only_isa, isa) != 0 : i < 0 && !opt.bench) continue;
        uint32_t mask = i < 0 ? 0 : (2u << i) - 1;
        if ((mask & qr_isa_detected()) != mask) {
            printf("SKIP %s: not on this machine\n", isa);
            ran = true;
            continue;
        }
        ran = true;
        ca_slots(mask, isa);
        ca_gemms(mask, isa);
    }
#if defined(__x86_64__)
    uint32_t below = (1u << QR_ISA_amx) - 1; // what surrounds the tiles of a kernel is not emulated
    if ((below & qr_isa_detected()) == below && (!opt.only_isa || !strcmp(opt.only_isa, "amx-emu"))) {
        ran = true;
        ca_slots_emulated("amx-emu");
        ca_gemms_emulated(below, "amx-emu");
    }
#endif
    if (!ran) {
        printf("checkasm: no instruction set is called '%s'\n", opt.only_isa);
        return 2;
    }
    if (!opt.list)
        printf("checkasm: seed %" PRIu64 ", %d kernels, %d failed\n", opt.seed, n_cases, n_failures);
    return n_failures > 0;
}
