/* Options: flag > QUIRE_<FLAG> > --config file > default, and where each value came from.
 *
 * Owns: the parsed values and their texts. The only room that reads the environment.
 * Refuses to know: what an option does.
 * Threads: immutable once parsed. Lifetime: qr_conf_parse to qr_conf_free.
 * Adding an option is one line in conf/options.def. */
#ifndef QR_CONF_CONF_H
#define QR_CONF_CONF_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

// The program's verbs that take options, one bit each: serve, run, sim, plan, top, and what bench measures.
enum {
    QR_VERB_S = 1,
    QR_VERB_R = 2,
    QR_VERB_M = 4,
    QR_VERB_P = 8,
    QR_VERB_T = 16,
    QR_VERB_BENCH_serve = 32,
    QR_VERB_BENCH_ppl = 64,
    QR_VERB_BENCH_kernels = 128,
    QR_VERB_BENCH_throughput = 256,
    QR_VERB_BENCH_latency = 512,
    QR_VERB_BENCH_step = 1024,
    QR_VERB_B = QR_VERB_BENCH_serve | QR_VERB_BENCH_ppl | QR_VERB_BENCH_kernels | QR_VERB_BENCH_throughput |
                QR_VERB_BENCH_latency | QR_VERB_BENCH_step // bench, whatever it measures
};
enum qr_origin { QR_FROM_DEFAULT, QR_FROM_FILE, QR_FROM_ENV, QR_FROM_FLAG };

struct qr_strs {
    const char **v;
    int n;
};

#define QR_CTYPE_STR const char *
#define QR_CTYPE_INT int64_t
#define QR_CTYPE_SIZE uint64_t
#define QR_CTYPE_REAL double
#define QR_CTYPE_BOOL bool
#define QR_CTYPE_LIST struct qr_strs

enum qr_opt_id {
#define QR_GROUP(title)
#define QR_OPT(kind, field, flag, alias, dflt, verbs, meta, help) QR_OPT_##field,
#include "conf/options.def"
#undef QR_OPT
#undef QR_GROUP
    QR_OPT_COUNT
};

struct qr_conf {
#define QR_GROUP(title)
#define QR_OPT(kind, field, flag, alias, dflt, verbs, meta, help) QR_CTYPE_##kind field;
#include "conf/options.def"
#undef QR_OPT
#undef QR_GROUP
    enum qr_origin origin[QR_OPT_COUNT];
    struct qr_strs args; // what is not an option: model, prompt
    bool help;           // --help was given
    void *texts;         // owned strings
};

// verb: one bit of QR_VERB_*, or QR_VERB_B. argv[0] is the verb itself. QR_EINVAL names the option, what was expected and
// a near miss.
enum qr_status qr_conf_parse(int verb, int argc, char **argv, struct qr_conf *out,
                             struct qr_error *err) QR_MUST_CHECK;
void qr_conf_free(struct qr_conf *c);
const char *qr_conf_flag(enum qr_opt_id id); // without its dashes
// The options of a verb, grouped, with defaults and environment names.
void qr_conf_help(int verb, FILE *out);
// "port=9000 (flag) host=0.0.0.0 (env); by default max-num-seqs=128 ...": every value in force, and where it
// is from. Keys are shown as "set".
void qr_conf_print_effective(const struct qr_conf *c, int verb, char *out, size_t cap);

// "2G", "512M", "1k" = 1000, "1K" = 1024, "25.6k": bytes or counts. False when malformed or over 2^63.
bool qr_parse_size(const char *text, uint64_t *out);
// "0-3,8" into at most cap processor numbers; -1 when malformed.
int qr_parse_cpu_list(const char *text, int *cpus, int cap);

#endif
