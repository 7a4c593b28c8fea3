/* The pool of compute threads: runs one phase of independent tasks at a time.
 *
 * Owns: its threads, their pinning and their floating-point mode (FTZ and DAZ on, DESIGN N5).
 * Refuses to know: what a task does.
 * Threads: one caller at a time runs phases; the caller works too, as worker 0.
 * Lifetime: _new to _free.
 *
 * Each worker has a range of the tasks and claims them one by one; who is done takes from the others' ranges,
 * so a core that the host steals delays one task, not the phase. The same number of tasks is dealt out in the
 * same way every time: what a worker wrote in one phase it mostly finds in its own cache in the next. A phase
 * costs no allocation and no lock. Between phases workers spin for at most `spin_us`, then sleep; waking them
 * is one system call. */
#ifndef QR_BASE_WORKERS_H
#define QR_BASE_WORKERS_H

#include "base/status.h"

struct qr_workers;

struct qr_workers_conf {
    int n_threads;   // workers in all, the caller included; >= 1
    const int *cpus; // n_cpus logical CPUs: worker i is pinned to cpus[i % n_cpus]; NULL: no pinning
    int n_cpus;
    int spin_us; // 50 is the design's value
};

typedef void qr_task_fn(void *arg, int i_task, int i_worker);

enum qr_status qr_workers_new(const struct qr_workers_conf *conf, struct qr_workers **out,
                              struct qr_error *err) QR_MUST_CHECK;
void qr_workers_free(struct qr_workers **w);
int qr_workers_count(const struct qr_workers *w);

// Runs fn(arg, i, worker) for every i in [0, n_tasks) and returns when all are done. With w == NULL they run
// in order on the calling thread.
void qr_workers_run(struct qr_workers *w, int n_tasks, qr_task_fn *fn, void *arg);

// Pins the calling thread to the first CPU of the list, where one was given. The thread that runs the steps
// asks for it; one that only loads does not, because threads that it starts later would inherit the pin.
void qr_workers_pin_caller(const struct qr_workers *w);

// Sets flush-to-zero and denormals-are-zero for the calling thread, where the machine has them.
void qr_workers_fp_mode(void);

#endif
