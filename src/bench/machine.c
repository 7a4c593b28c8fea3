#include "bench/machine.h"

#include <string.h>
#include <time.h>

#include "base/machine.h"
#include "base/mem.h"
#include "base/workers.h"
#include "kern/isa.h"

// Of the second-level cache, of a shared third level, and beyond both on every machine that we know.
static const size_t sizes[MACHINE_READS] = {16 << 10, 512 << 10, 8 << 20, (size_t)256 << 20};
#define PEAK_ROUNDS 20000
#define ROUND_NS 3e6
#define N_ROUNDS 8
// Of hundreds of measurements: a table in seconds.
#define QUICK_ROUND_NS 1e6
#define QUICK_NS 30e6

// Of one thread its own time counts: on a machine that does something else too, only caches and memory are shared then.
static uint64_t now_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static double best_of(void (*run)(void *arg), void *arg, clockid_t clock, double round_ns, double total_ns)
{
    double best = 1e30, spent = 0;
    int calls = 1;
    for (int round = 0; round < N_ROUNDS && (round < 2 || spent < total_ns);) {
        uint64_t t0 = now_ns(clock);
        for (int i = 0; i < calls; i++) run(arg);
        double ns = (double)(now_ns(clock) - t0);
        spent += ns;
        if (ns < round_ns && calls < 1 << 24) {
            calls *= 2;
            continue;
        }
        round++;
        if (ns / calls < best) best = ns / calls;
    }
    return best;
}

double bench_best_ns(void (*run)(void *arg), void *arg)
{
    return best_of(run, arg, CLOCK_THREAD_CPUTIME_ID, ROUND_NS, 1e30);
}

double bench_quick_ns(void (*run)(void *arg), void *arg)
{
    return best_of(run, arg, CLOCK_THREAD_CPUTIME_ID, QUICK_ROUND_NS, QUICK_NS);
}

struct reading {
    const uint8_t *p;
    size_t bytes;
    uint32_t isa;
    struct qr_workers *workers;
    int n_parts;
};
static volatile uint64_t sink;

static void read_one(void *arg)
{
    const struct reading *r = arg;
    sink = qr_peak_read(r->isa, r->p, r->bytes);
}

static void read_part(void *arg, int i, int worker)
{
    const struct reading *r = arg;
    size_t part = r->bytes / (size_t)r->n_parts / 512 * 512;
    sink = qr_peak_read(r->isa, r->p + part * (size_t)i, part);
}

static void read_all(void *arg)
{
    const struct reading *r = arg;
    qr_workers_run(r->workers, r->n_parts, read_part, arg);
}

static void run_peak(void *arg)
{
    ((const struct qr_peak *)arg)->run(PEAK_ROUNDS);
}

void bench_machine_measure(int n_threads, struct bench_machine *m)
{
    uint32_t isa = qr_isa_active();
    *m = (struct bench_machine){.n_cores = n_threads > 0 ? n_threads : qr_machine_cpus()};
    m->n_peaks = qr_peaks(isa, m->peaks);
    for (int i = 0; i < m->n_peaks; i++)
        m->peak_gops[i] = m->peaks[i].ops * PEAK_ROUNDS / bench_best_ns(run_peak, &m->peaks[i]);
    size_t bytes = sizes[MACHINE_READS - 1];
    uint8_t *p = qr_pages_alloc(QR_MEM_MISC, bytes);
    if (!p) return; // no bandwidths then
    memset(p, 1, bytes); // pages that were never written are all one page
    for (int i = 0; i < MACHINE_READS; i++) {
        struct reading r = {.p = p, .bytes = sizes[i], .isa = isa};
        m->read_bytes[i] = sizes[i];
        m->read_gbs[i] = (double)sizes[i] / bench_best_ns(read_one, &r);
    }
    struct qr_workers_conf conf = {.n_threads = m->n_cores, .spin_us = 50};
    struct reading all = {.p = p, .bytes = bytes, .isa = isa, .n_parts = m->n_cores * 64};
    if (qr_workers_new(&conf, &all.workers, NULL) == QR_OK)
        m->read_all_gbs = (double)bytes / best_of(read_all, &all, CLOCK_MONOTONIC, ROUND_NS, 1e30);
    qr_workers_free(&all.workers);
    qr_pages_free(QR_MEM_MISC, p, bytes);
}

double bench_machine_read(const struct bench_machine *m, size_t bytes)
{
    int i = 0;
    while (i < MACHINE_READS - 1 && m->read_bytes[i] < bytes) i++;
    return m->read_gbs[i];
}

double bench_machine_peak(const struct bench_machine *m, const char *kind)
{
    for (int i = 0; i < m->n_peaks; i++)
        if (strcmp(m->peaks[i].name, kind) == 0) return m->peak_gops[i];
    return 0;
}

double bench_machine_memory(const struct bench_machine *m)
{
    return m->read_gbs[MACHINE_READS - 1];
}
