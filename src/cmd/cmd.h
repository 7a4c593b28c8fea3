/* The program's verbs: each a file, each a function of argc and argv that returns the exit code.
 *
 * Owns: the terminal and the exit code; the only room that ends the process. Refuses to know: how anything
 * works inside. Threads: main. Lifetime: the process. Exit codes: 0 done, 1 it failed (one line on standard
 * error says why), 2 the command line is wrong. */
#ifndef QR_CMD_CMD_H
#define QR_CMD_CMD_H

#include "base/buf.h"
#include "base/status.h"
#include "conf/conf.h"
#include "lib/lib.h"

struct cmd_verb {
    const char *name;
    int (*run)(int argc, char **argv); // argv[0] is the verb
    const char *summary;
};

int cmd_serve(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_replay(const struct qr_conf *conf); // what `quire sim --replay` does
int cmd_top(int argc, char **argv);
int cmd_sim(int argc, char **argv);
int cmd_plan(int argc, char **argv);

// Prints "quire: message" and returns code, so that a verb can `return cmd_fail(1, &err)`.
int cmd_fail(int code, const struct qr_error *err);

// What serve, run and bench share: options to a lib configuration. Strings point into conf, model and buffers of
// *out. The model is the first argument, where there is one.
struct cmd_setup {
    struct qr_lib_conf lib;
    char model[4096];
    char *template_text; // owned, NULL when the model's own is used
    int cpus[1024];
};
enum qr_status cmd_setup_init(struct cmd_setup *out, const struct qr_conf *conf,
                              struct qr_error *err) QR_MUST_CHECK;
// The part of it that concerns preemption and tiers (tiers.c).
enum qr_status cmd_setup_tiers(struct cmd_setup *s, const struct qr_conf *c, struct qr_error *err) QR_MUST_CHECK;
void cmd_setup_fini(struct cmd_setup *s);

// Appends all of f. False when reading or memory failed, or there is more than bytes_max.
bool cmd_read_all(FILE *f, size_t bytes_max, struct qr_buf *out) QR_MUST_CHECK;

// Where a server is: url if it is given (not NULL), else --host and --port, where an address that means any is this
// machine's own. QR_EINVAL: both were said.
enum qr_status cmd_server_url(const struct qr_conf *c, const char *url, char *out, size_t cap,
                              struct qr_error *err) QR_MUST_CHECK;

// "1.2 GB", "98.4 MB": for people. Returns out.
const char *cmd_bytes(char out[16], double bytes);
// A load progress line on a terminal, drawn at most ten times a second; done == total ends it.
void cmd_progress(void *arg, uint64_t done, uint64_t total);

#endif
