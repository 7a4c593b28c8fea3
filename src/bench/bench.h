/* Measurements: one file each, one line each in bench.def, under `quire bench`.
 *
 * Owns: what is measured and how it is printed. Refuses to know: the terminal's other verbs, how options are parsed.
 * Threads: the caller's; what a measurement starts has ended when it returns. Lifetime: a call. */
#ifndef QR_BENCH_BENCH_H
#define QR_BENCH_BENCH_H

#include <stdio.h>

#include "base/status.h"
#include "conf/conf.h"
#include "lib/lib.h"

enum bench_model { BENCH_WITHOUT, BENCH_MAYBE, BENCH_WITH };

struct bench_args {
    const struct qr_conf *conf;      // options; conf->args is what follows the measurement's name
    const struct qr_lib_conf *lib;   // of the model, which is conf->args.v[0]; NULL: none was given
    FILE *out;                       // results; anything else goes to standard error
};

struct bench_entry {
    const char *name;
    enum bench_model model;
    int verb; // whose options it takes, of conf/conf.h
    const char *args, *summary;
    enum qr_status (*run)(const struct bench_args *a, struct qr_error *err); // QR_EINVAL: the command line is wrong
    const char *help;                                                       // paragraphs under the usage line
};

// NULL: no measurement is called so.
const struct bench_entry *qr_bench_find(const char *name);
const struct bench_entry *qr_bench_list(size_t *n);

#endif
