#define _GNU_SOURCE
#include "base/workers.h"

#include <float.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/test.h"

#define TASKS_MAX 512

struct count_job {
    atomic_int runs[TASKS_MAX];
    atomic_int busy[64]; // by worker: two tasks of one worker never run at once
    int n_workers;
    atomic_int faults;
    int plain[TASKS_MAX]; // written without atomics: the end of a phase must order them
};

static void count_task(void *arg, int i, int worker)
{
    struct count_job *j = arg;
    if (worker < 0 || worker >= j->n_workers || atomic_fetch_add(&j->busy[worker], 1) != 0)
        atomic_fetch_add(&j->faults, 1);
    atomic_fetch_add(&j->runs[i], 1);
    j->plain[i] += i + 1;
    atomic_fetch_sub(&j->busy[worker], 1);
}

static void run_phases(int n_threads, int spin_us, int n_phases)
{
    static struct count_job job;
    memset(&job, 0, sizeof job);
    job.n_workers = n_threads;
    struct qr_workers *w = NULL;
    struct qr_workers_conf conf = {.n_threads = n_threads, .spin_us = spin_us};
    assert_int_equal(qr_workers_new(&conf, &w, NULL), QR_OK);
    assert_int_equal(qr_workers_count(w), n_threads);
    uint64_t calls = qr_mem_calls();
    int expected[TASKS_MAX] = {0};
    for (int p = 0; p < n_phases; p++) {
        int n = (int)(qr_rand_u64(1, (uint64_t)n_threads, (uint64_t)p) % (p % 8 == 0 ? TASKS_MAX + 1 : 5));
        qr_workers_run(w, n, count_task, &job);
        for (int i = 0; i < n; i++) expected[i]++;
        for (int i = 0; i < n; i += 7) assert_int_equal(job.plain[i], expected[i] * (i + 1));
    }
    assert_int_equal(qr_mem_calls(), calls);
    for (int i = 0; i < TASKS_MAX; i++) assert_int_equal(atomic_load(&job.runs[i]), expected[i]);
    assert_int_equal(atomic_load(&job.faults), 0);
    qr_workers_free(&w);
    assert_null(w);
}

QR_TEST(workers_run_every_task_once)
{
    run_phases(1, 50, 200);
    run_phases(2, 50, 3000);
    run_phases(4, 50, 1000);
}

QR_TEST(workers_that_never_spin_are_woken)
{
    run_phases(2, 0, 1500);
    run_phases(3, 1, 1500);
}

QR_TEST(workers_are_correct_when_oversubscribed)
{
    run_phases(16, 50, 300);
    run_phases(48, 50, 60);
}

QR_TEST(workers_null_runs_in_order_on_the_caller)
{
    static struct count_job job;
    memset(&job, 0, sizeof job);
    job.n_workers = 1;
    qr_workers_run(NULL, 20, count_task, &job);
    for (int i = 0; i < 20; i++) assert_int_equal(job.plain[i], i + 1);
    assert_int_equal(qr_workers_count(NULL), 1);
}

struct meet_job {
    atomic_int here;
};

// Task 0 ends only when task 1 runs: they are on two threads at once.
static void meet_task(void *arg, int i, int worker)
{
    (void)i;
    (void)worker;
    struct meet_job *j = arg;
    atomic_fetch_add(&j->here, 1);
    while (atomic_load(&j->here) < 2) sched_yield();
}

QR_TEST(workers_run_tasks_side_by_side)
{
    struct qr_workers *w = NULL;
    assert_int_equal(qr_workers_new(&(struct qr_workers_conf){.n_threads = 2, .spin_us = 50}, &w, NULL),
                     QR_OK);
    for (int r = 0; r < 50; r++) {
        struct meet_job j = {0};
        qr_workers_run(w, 2, meet_task, &j);
    }
    qr_workers_free(&w);
}

struct denormal_job {
    atomic_int kept;
};

static void denormal_task(void *arg, int i, int worker)
{
    (void)i;
    (void)worker;
    struct denormal_job *j = arg;
    volatile float least = FLT_MIN, tiny = 1e-40f;
    volatile float half = least * 0.5f, sum = tiny + 0.0f;
    if (half != 0.0f || sum != 0.0f) atomic_fetch_add(&j->kept, 1);
}

QR_TEST(workers_flush_denormals)
{
#if defined(__x86_64__) || defined(__aarch64__)
    struct qr_workers *w = NULL;
    assert_int_equal(qr_workers_new(&(struct qr_workers_conf){.n_threads = 3, .spin_us = 50}, &w, NULL),
                     QR_OK);
    struct denormal_job j = {0};
    qr_workers_run(w, 300, denormal_task, &j);
    assert_int_equal(atomic_load(&j.kept), 0);
    qr_workers_free(&w);
#else
    QR_SKIP("no flush-to-zero mode known for this machine");
#endif
}

QR_TEST(workers_refuse_bad_numbers)
{
    struct qr_workers *w = NULL;
    struct qr_error err;
    assert_int_equal(qr_workers_new(&(struct qr_workers_conf){.n_threads = 0}, &w, &err), QR_EINVAL);
    int cpu = -3;
    struct qr_workers_conf conf = {.n_threads = 1, .cpus = &cpu, .n_cpus = 1};
    assert_int_equal(qr_workers_new(&conf, &w, &err), QR_EINVAL);
    assert_non_null(strstr(err.msg, "-3"));
    assert_null(w);
}

static void cpu_task(void *arg, int i, int worker)
{
    (void)i;
    cpu_set_t mine;
    if (worker > 0 && sched_getaffinity(0, sizeof mine, &mine) == 0 && CPU_COUNT(&mine) != 1)
        atomic_fetch_add((atomic_int *)arg, 1);
}

QR_TEST(workers_pin_all_but_the_caller)
{
    cpu_set_t mine, after;
    assert_int_equal(sched_getaffinity(0, sizeof mine, &mine), 0);
    int first = 0;
    while (!CPU_ISSET(first, &mine)) first++;
    struct qr_workers *w = NULL;
    struct qr_workers_conf conf = {.n_threads = 3, .cpus = &first, .n_cpus = 1, .spin_us = 50};
    assert_int_equal(qr_workers_new(&conf, &w, NULL), QR_OK);
    atomic_int loose = 0;
    for (int r = 0; r < 20; r++) qr_workers_run(w, 40, cpu_task, &loose);
    assert_int_equal(atomic_load(&loose), 0);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&mine, &after));
    qr_workers_pin_caller(w);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_int_equal(CPU_COUNT(&after), 1);
    sched_setaffinity(0, sizeof mine, &mine);
    qr_workers_free(&w);
}
