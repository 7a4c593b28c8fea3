/* A step makes no system call but the one that wakes the reader: counted from outside, by tracing a child that decodes.
 * A lock that nobody waits for makes none; one that is waited for is a futex call. */
#include <linux/ptrace.h> // struct ptrace_syscall_info, which <sys/ptrace.h> may lack
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/test.h"
#include "lib/ask_internal.h"

// After it: its words are linux/ptrace.h's.
long ptrace(int request, ...);

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

enum { SEQS = 4, STEPS = 1000, BEFORE = 50, LAG = 200, TOKENS = BEFORE + STEPS + LAG, TRIES = 5 };
// The child says where it is by writing so many bytes to no file; the buffer's address is what it says.
enum { MARK_BEGIN = 0x51000001, MARK_END = 0x51000002, MARK_STEPS = 0x51000003 };
enum { EXIT_NO_MODEL = 3, EXIT_FAILED = 4 };

/* ==== The child: four sequences decode; its main thread reads. ==== */

static void mark(unsigned word, uint64_t n)
{
    (void)!syscall(SYS_write, -1, n, word);
}

static uint64_t steps_of(struct qr_lib *lib)
{
    struct qr_snapshot s;
    qr_lib_snapshot(lib, &s);
    return s.n_steps;
}

static void decode(int n_threads)
{
    struct qr_lib_conf conf = {.max_num_seqs = 8, .max_num_batched_tokens = 64, .block_size = 16, .kv_bytes = 16 << 20,
                               .n_threads = n_threads};
    char path[4096];
    struct qr_lib *lib = NULL;
    snprintf(path, sizeof path, "%s", qr_test_build_path("tiny/tiny.gguf"));
    conf.model_path = path;
    if (access(path, R_OK) != 0) _exit(EXIT_NO_MODEL);
    qr_log_set_level(QR_LOG_ERROR);
    if (qr_lib_open(&conf, &lib, NULL) != QR_OK) _exit(EXIT_FAILED);
    struct ask *asks = malloc(SEQS * sizeof *asks);
    for (int i = 0; i < SEQS; i++) {
        ask_init(&asks[i], (uint64_t)i, 20, TOKENS);
        asks[i].gen.req.sampling.temperature = i % 2 ? 1 : 0;
        asks[i].gen.req.prompt = asks[i].prompt;
        if (qr_lib_submit(lib, &asks[i].gen, &asks[i].id, NULL) != QR_OK) _exit(EXIT_FAILED);
    }
    for (int n = 0, left = SEQS; left > 0;) {
        struct qr_gen_event ev;
        if (qr_lib_next(lib, &ev, 20000) != QR_OK) _exit(EXIT_FAILED);
        left -= ev.finish != QR_FINISH_NONE;
        if (++n == BEFORE * SEQS) mark(MARK_BEGIN, steps_of(lib));
        if (n != (BEFORE + STEPS) * SEQS) continue;
        mark(MARK_END, 0); // first: asking for a picture may make the engine wait for the asker
        mark(MARK_STEPS, steps_of(lib));
    }
    qr_lib_close(&lib);
    _exit(0);
}

/* ==== The parent: counts what threads named as ours ask of the system between the marks. ==== */

struct count {
    uint64_t wakes, sleeps, yields, n_steps;
    int other; // the first other call, by number, and whose; -1: none
    char other_thread[32];
    bool counting, ended;
    bool saw_engine, saw_worker;
    bool held_up; // the outbox was full: the engine slept until its reader went on
};

static void name_of(pid_t tid, char out[32])
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/comm", (int)tid, (int)tid);
    FILE *f = fopen(path, "r");
    if (!f || !fgets(out, 32, f)) out[0] = 0;
    if (f) fclose(f);
    out[strcspn(out, "\n")] = 0;
}

static void take_call(struct count *c, pid_t tid)
{
    struct ptrace_syscall_info i;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, tid, sizeof i, &i) <= 0 || i.op != PTRACE_SYSCALL_INFO_ENTRY) return;
    uint64_t word = i.entry.nr == SYS_write ? i.entry.args[2] : 0;
    if (word >= MARK_BEGIN && word <= MARK_STEPS) {
        c->counting = word == MARK_BEGIN;
        c->ended = word == MARK_STEPS;
        if (word != MARK_END) c->n_steps = i.entry.args[1] - c->n_steps;
        return;
    }
    char name[32];
    name_of(tid, name);
    bool engine = strcmp(name, "quire-engine") == 0, worker = strcmp(name, "quire-worker") == 0;
    c->saw_engine |= engine;
    c->saw_worker |= worker;
    if (!c->counting || (!engine && !worker)) return;
    if (i.entry.nr == SYS_futex)
        c->sleeps++;
    else if (i.entry.nr == SYS_sched_yield)
        c->yields++;
    else if (i.entry.nr == SYS_write && i.entry.args[2] == 8 && engine)
        c->wakes++;
    else if (i.entry.nr == SYS_clock_nanosleep && engine)
        c->held_up = true;
    else if (c->other < 0) {
        c->other = (int)i.entry.nr;
        snprintf(c->other_thread, sizeof c->other_thread, "%s", name);
    }
}

// Until the child has ended. Returns its status of wait.
static int trace(pid_t child, struct count *c)
{
    int status = 0;
    for (pid_t tid; (tid = waitpid(-1, &status, __WALL)) > 0;) {
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (tid == child) return status;
            continue;
        }
        int sig = WSTOPSIG(status);
        if (sig == (SIGTRAP | 0x80)) take_call(c, tid);
        // Stops that tracing makes are not signals of the child's.
        bool own = sig == (SIGTRAP | 0x80) || sig == SIGTRAP || sig == SIGSTOP || status >> 16 != 0;
        ptrace(PTRACE_SYSCALL, tid, NULL, own ? 0L : (long)sig);
    }
    return status;
}

// False: this system lets nobody trace.
static bool count_calls(int n_threads, struct count *c, int *status)
{
    fflush(stdout);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(EXIT_FAILED);
        raise(SIGSTOP);
        decode(n_threads);
    }
    *c = (struct count){.other = -1};
    assert_int_equal(waitpid(child, status, __WALL), child);
    if (!WIFSTOPPED(*status)) return false;
    long options = PTRACE_O_TRACECLONE | PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL;
    struct ptrace_syscall_info i;
    bool can = ptrace(PTRACE_SETOPTIONS, child, NULL, options) == 0 &&
               ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof i, &i) > 0;
    if (!can) {
        kill(child, SIGKILL);
        waitpid(child, status, __WALL);
        return false;
    }
    ptrace(PTRACE_SYSCALL, child, NULL, 0L);
    *status = trace(child, c);
    return true;
}

static void check_quiet(int n_threads, const struct count *c)
{
    printf("%d threads: %llu steps, %llu wakes of the reader; waits of threads for each other, which tracing makes longer: "
           "%llu futex calls, %llu yields\n", n_threads, (unsigned long long)c->n_steps, (unsigned long long)c->wakes,
           (unsigned long long)c->sleeps, (unsigned long long)c->yields);
    assert_true(c->saw_engine && c->saw_worker == (n_threads > 1));
    if (c->other >= 0) fail_msg("a step made system call %d, in thread \"%s\"", c->other, c->other_thread);
    assert_true(c->wakes <= c->n_steps + 1);
    if (n_threads == 1) assert_int_equal(c->sleeps + c->yields, 0);
}

// Of a run in which the reader kept up. On a busy machine it may not, and then other steps than its tokens' were counted.
static bool is_of_use(const struct count *c)
{
    return c->ended && !c->held_up && c->n_steps >= STEPS - LAG && c->n_steps <= STEPS + LAG + BEFORE;
}

QR_TEST(quiet_steps_make_no_system_call_but_the_wake)
{
    if (SANITIZED) QR_SKIP("sanitizers make system calls of their own");
    for (int n_threads = 1; n_threads <= 2; n_threads++) {
        struct count c;
        int status = 0, tries = 0;
        do {
            if (!count_calls(n_threads, &c, &status)) QR_SKIP("tracing is refused here");
            if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_NO_MODEL)
                QR_SKIP("no tiny models: python tests/tiny-model/make.py BUILD/tiny");
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        } while (!is_of_use(&c) && c.other < 0 && ++tries < TRIES);
        if (tries == TRIES) QR_SKIP("too busy a machine: the reader does not keep up");
        check_quiet(n_threads, &c);
    }
}
