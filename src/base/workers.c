#define _GNU_SOURCE
#include "base/workers.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

#define THREADS_MAX 1024
// The caller waits this many spins longer than an idle worker: a sleep in mid-step costs a wake of tens of
// microseconds.
#define CALLER_SPINS 20

struct worker {
    struct qr_workers *pool;
    pthread_t thread;
    int index;
};

/* The tasks of a phase are dealt out as one range a worker, each published by a single store to the worker's
 * `claim` = end << 32 | next task. Whoever adds 1 and gets next < end owns that task; the phase cannot end
 * before it is done, so fn and arg stay put for it. Who has emptied its own range takes from the others', so
 * a core that is stolen delays one task. A late worker that still looks for work of the phase before finds
 * either nothing or a task of the new one: there is nothing of a phase that it may have kept.
 *
 * A range of one's own keeps the counter in one's own cache (moving a line between cores takes a quarter of
 * a microsecond and more), and gives a worker the same rows, panels and heads from layer to layer. */
struct claim {
    _Alignas(64) _Atomic uint64_t word;
};

struct qr_workers {
    int n;
    int spin_us;
    bool crowded; // more threads than cores: spinning would hold the core that the awaited thread needs
    bool pinned;
    cpu_set_t first_cpu;
    struct worker *threads; // n - 1: worker 0 is the caller
    void *memory;           // the allocation that holds this struct at a multiple of 64 bytes
    int n_started;

    struct claim *claims; // n
    void *claims_memory;
    _Alignas(64) qr_task_fn *fn;
    void *arg;
    _Alignas(64) atomic_int pending; // tasks of this phase not yet done; a futex of the caller
    atomic_int caller_sleeps;
    _Alignas(64) _Atomic uint32_t phase; // a futex of the workers
    atomic_int n_sleeping;
    atomic_bool stop;
};

static void futex_wait(void *word, uint32_t seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(void *word, int n)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static inline void cpu_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

void qr_workers_fp_mode(void)
{
#if defined(__x86_64__)
    unsigned csr = __builtin_ia32_stmxcsr();
    if ((csr & 0x8040) != 0x8040) __builtin_ia32_ldmxcsr(csr | 0x8040); // FTZ, DAZ
#elif defined(__aarch64__)
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    if (!(fpcr & (1u << 24))) __asm__ volatile("msr fpcr, %0" ::"r"(fpcr | (1u << 24)));
#endif
}

static bool has_task(uint64_t claim)
{
    return (uint32_t)claim < (uint32_t)(claim >> 32);
}

// Claims and runs tasks until none is left: its own, then those of the workers after it.
static void work(struct qr_workers *w, int index)
{
    int done = 0;
    for (int i = 0; i < w->n; i++) {
        _Atomic uint64_t *word = &w->claims[(index + i) % w->n].word;
        while (has_task(atomic_load_explicit(word, memory_order_relaxed))) {
            uint64_t c = atomic_fetch_add_explicit(word, 1, memory_order_acq_rel);
            if (!has_task(c)) break;
            w->fn(w->arg, (int)(uint32_t)c, index);
            done++;
        }
    }
    if (done == 0) return;
    int before = atomic_fetch_sub(&w->pending, done);
    if (before == done && atomic_load(&w->caller_sleeps)) futex_wake(&w->pending, 1);
}

static uint64_t now_ns(void)
{
    struct qr_clock *c = qr_clock_wall();
    return c->now_ns(c);
}

// Spins until the worker has a task, the pool stops, or spin_us have passed. True: there is something to do.
static bool spin_for_task(struct qr_workers *w, int index)
{
    uint64_t end = 0;
    for (unsigned i = 0;; i++) {
        if (has_task(atomic_load_explicit(&w->claims[index].word, memory_order_relaxed))) return true;
        if (atomic_load_explicit(&w->stop, memory_order_relaxed)) return true;
        if (w->crowded) return false;
        cpu_pause();
        if (i % 64 == 0) {
            uint64_t t = now_ns();
            if (end == 0) end = t + (uint64_t)w->spin_us * 1000;
            if (t >= end) return false;
        }
    }
}

static void sleep_for_task(struct qr_workers *w, int index)
{
    // The phase is read before the claim is looked at: a phase that begins after that changes the futex's
    // word.
    uint32_t seen = atomic_load(&w->phase);
    atomic_fetch_add(&w->n_sleeping, 1);
    if (!has_task(atomic_load(&w->claims[index].word)) && !atomic_load(&w->stop)) futex_wait(&w->phase, seen);
    atomic_fetch_sub(&w->n_sleeping, 1);
}

static void *worker_main(void *arg)
{
    struct worker *me = arg;
    struct qr_workers *w = me->pool;
    pthread_setname_np(pthread_self(), "quire-worker");
    qr_workers_fp_mode();
    while (!atomic_load(&w->stop)) {
        if (spin_for_task(w, me->index))
            work(w, me->index);
        else
            sleep_for_task(w, me->index);
    }
    return NULL;
}

static bool start_threads(struct qr_workers *w, const struct qr_workers_conf *conf)
{
    sigset_t all, before;
    sigfillset(&all); // signals belong to the program's main thread
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 1; i < w->n; i++) {
        struct worker *t = &w->threads[i - 1];
        *t = (struct worker){.pool = w, .index = i};
        if (pthread_create(&t->thread, NULL, worker_main, t) != 0) break;
        w->n_started++;
        if (conf->n_cpus > 0) {
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(conf->cpus[i % conf->n_cpus], &one);
            pthread_setaffinity_np(t->thread, sizeof one, &one); // a CPU that is not ours: the thread floats
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return w->n_started == w->n - 1;
}

static bool is_crowded(const struct qr_workers_conf *conf)
{
    cpu_set_t mine;
    if (sched_getaffinity(0, sizeof mine, &mine) != 0) return true;
    int n = CPU_COUNT(&mine);
    if (conf->n_cpus > 0 && conf->n_cpus < n) n = conf->n_cpus;
    return conf->n_threads > n;
}

enum qr_status qr_workers_new(const struct qr_workers_conf *conf, struct qr_workers **out,
                              struct qr_error *err)
{
    if (conf->n_threads < 1 || conf->n_threads > THREADS_MAX)
        return qr_fail(err, QR_EINVAL, "threads: expected 1 to %d, got %d", THREADS_MAX, conf->n_threads);
    for (int i = 0; i < conf->n_cpus; i++)
        if (conf->cpus[i] < 0 || conf->cpus[i] >= CPU_SETSIZE)
            return qr_fail(err, QR_EINVAL, "CPU list: expected 0 to %d, got %d", CPU_SETSIZE - 1,
                           conf->cpus[i]);
    void *memory = qr_calloc(QR_MEM_EXEC, 1, sizeof(struct qr_workers) + 63);
    struct worker *threads = qr_calloc(QR_MEM_EXEC, (size_t)conf->n_threads, sizeof *threads);
    void *claims = qr_calloc(QR_MEM_EXEC, (size_t)conf->n_threads + 1, sizeof(struct claim));
    if (!memory || !threads || !claims) {
        qr_free(memory);
        qr_free(claims);
        qr_free(threads);
        return qr_fail(err, QR_ENOMEM, "threads: no memory for %d workers", conf->n_threads);
    }
    struct qr_workers *w = (struct qr_workers *)(((uintptr_t)memory + 63) & ~(uintptr_t)63);
    w->memory = memory;
    w->claims_memory = claims;
    w->claims = (struct claim *)(((uintptr_t)claims + 63) & ~(uintptr_t)63);
    w->n = conf->n_threads;
    w->spin_us = conf->spin_us;
    w->threads = threads;
    w->crowded = conf->spin_us <= 0 || is_crowded(conf);
    if (conf->n_cpus > 0) {
        w->pinned = true;
        CPU_ZERO(&w->first_cpu);
        CPU_SET(conf->cpus[0], &w->first_cpu);
    }
    if (!start_threads(w, conf)) {
        int got = w->n_started + 1;
        qr_workers_free(&w);
        return qr_fail(err, QR_ENOMEM, "threads: the system gave %d of %d", got, conf->n_threads);
    }
    *out = w;
    return QR_OK;
}

void qr_workers_free(struct qr_workers **workers)
{
    struct qr_workers *w = *workers;
    if (!w) return;
    atomic_store(&w->stop, true);
    atomic_fetch_add(&w->phase, 1);
    futex_wake(&w->phase, INT_MAX);
    for (int i = 0; i < w->n_started; i++) pthread_join(w->threads[i].thread, NULL);
    qr_free(w->threads);
    qr_free(w->claims_memory);
    qr_free(w->memory);
    *workers = NULL;
}

int qr_workers_count(const struct qr_workers *w)
{
    return w ? w->n : 1;
}

void qr_workers_pin_caller(const struct qr_workers *w)
{
    if (w && w->pinned) pthread_setaffinity_np(pthread_self(), sizeof w->first_cpu, &w->first_cpu);
}

// Waits for tasks that others still run: spins, then yields between looks, then sleeps.
static void await_others(struct qr_workers *w)
{
    uint64_t start = 0, spin_ns = (uint64_t)(w->spin_us > 0 ? w->spin_us : 0) * 1000;
    for (unsigned i = 0; atomic_load_explicit(&w->pending, memory_order_acquire) != 0; i++) {
        cpu_pause();
        if (i % 64 != 63) continue;
        uint64_t t = now_ns();
        if (start == 0) start = t;
        if (w->crowded || t - start > spin_ns) sched_yield();
        if (t - start > CALLER_SPINS * spin_ns) break;
    }
    int left;
    while ((left = atomic_load_explicit(&w->pending, memory_order_acquire)) != 0) {
        atomic_store(&w->caller_sleeps, 1);
        futex_wait(&w->pending, (uint32_t)left);
        atomic_store(&w->caller_sleeps, 0);
    }
}

// Ranges that differ by one task at most; the first workers have the longer ones.
static void deal(struct qr_workers *w, int n_tasks)
{
    uint64_t next = 0;
    for (int i = 0; i < w->n; i++) {
        uint64_t end = next + (uint64_t)(n_tasks / w->n + (i < n_tasks % w->n));
        atomic_store_explicit(&w->claims[i].word, end << 32 | next, memory_order_release);
        next = end;
    }
}

void qr_workers_run(struct qr_workers *w, int n_tasks, qr_task_fn *fn, void *arg)
{
    qr_workers_fp_mode();
    if (!w || w->n == 1 || n_tasks <= 1) {
        for (int i = 0; i < n_tasks; i++) fn(arg, i, 0);
        return;
    }
    w->fn = fn;
    w->arg = arg;
    atomic_store_explicit(&w->pending, n_tasks, memory_order_relaxed);
    deal(w, n_tasks);
    atomic_fetch_add(&w->phase, 1);
    if (atomic_load(&w->n_sleeping) > 0) futex_wake(&w->phase, INT_MAX);
    work(w, 0);
    await_others(w);
}
