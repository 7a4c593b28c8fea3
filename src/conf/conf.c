#include "conf/conf.h"

#include <ctype.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/mem.h"

enum kind { STR, INT, SIZE, REAL, BOOL, LIST };

struct opt {
    enum kind kind;
    const char *group; // the title that opens a group, on its first option
    const char *flag, *alias, *dflt;
    int verbs;
    const char *meta, *help;
    size_t at; // offset of the field in struct qr_conf
};

struct text { // owned strings form a list
    struct text *next;
    char s[];
};

#define S QR_VERB_S
#define R QR_VERB_R
#define B QR_VERB_B
#define BS QR_VERB_BENCH_serve
#define BP QR_VERB_BENCH_ppl
#define BK QR_VERB_BENCH_kernels
#define BT QR_VERB_BENCH_throughput
#define BL QR_VERB_BENCH_latency
#define BE QR_VERB_BENCH_step
#define E (BP | BT | BL | BE)
#define M QR_VERB_M
#define P QR_VERB_P
#define T QR_VERB_T
static const struct opt opts[] = {
#define QR_GROUP(title)
#define QR_OPT(kind, field, flag, alias, dflt, verbs, meta, help)                                            \
    {kind, NULL, flag, alias, dflt, verbs, meta, help, offsetof(struct qr_conf, field)},
#include "conf/options.def"
#undef QR_OPT
#undef QR_GROUP
};
// The same list with group titles in it, for help: an index into opts, or a title.
static const struct {
    const char *title;
    int i;
} help_rows[] = {
#define QR_GROUP(title) {title, -1},
#define QR_OPT(kind, field, flag, alias, dflt, verbs, meta, help) {NULL, QR_OPT_##field},
#include "conf/options.def"
#undef QR_OPT
#undef QR_GROUP
};
static const struct range {
    int opt, verbs;
    int64_t lo, hi;
} ranges[] = {
#define QR_RANGE(field, verbs, lo, hi) {QR_OPT_##field, verbs, lo, hi},
#include "conf/ranges.def"
#undef QR_RANGE
};
#undef S
#undef R
#undef B
#undef BS
#undef BP
#undef BK
#undef BT
#undef BL
#undef BE
#undef E
#undef M
#undef P
#undef T

static const struct {
    const char *flag;
    int takes_value;
    const char *why;
} foreign[] = {
#define QR_FOREIGN(flag, value, why) {flag, value, why},
#include "conf/foreign.def"
#undef QR_FOREIGN
};

enum { N_FOREIGN = sizeof foreign / sizeof foreign[0], N_LONG = 2 * QR_OPT_COUNT + 2 * N_FOREIGN + 64 };
enum { VAL_OPT = 1000, VAL_NO = 2000, VAL_FOREIGN = 3000, VAL_HELP = 4000 };

static char *keep(struct qr_conf *c, const char *s, size_t n)
{
    struct text *t = qr_malloc(QR_MEM_MISC, sizeof *t + n + 1);
    if (!t) return NULL;
    memcpy(t->s, s, n);
    t->s[n] = 0;
    t->next = c->texts;
    c->texts = t;
    return t->s;
}

static enum qr_status strs_add(struct qr_conf *c, struct qr_strs *l, const char *s, size_t n)
{
    const char **v = qr_realloc(QR_MEM_MISC, l->v, sizeof *v * (size_t)(l->n + 1));
    if (!v) return QR_ENOMEM;
    l->v = v;
    l->v[l->n] = keep(c, s, n);
    return l->v[l->n++] ? QR_OK : QR_ENOMEM;
}

static bool parse_bool(const char *s, bool *out)
{
    static const char *const yes[] = {"yes", "true", "1", "on"}, *const no[] = {"no", "false", "0", "off"};
    for (int i = 0; i < 4; i++) {
        if (strcasecmp(s, yes[i]) == 0) return *out = true;
        if (strcasecmp(s, no[i]) == 0) return *out = false, true;
    }
    return false;
}

static struct range range_of(int i, int verb)
{
    for (size_t k = 0; k < sizeof ranges / sizeof ranges[0]; k++)
        if (ranges[k].opt == i && (ranges[k].verbs & verb)) return ranges[k];
    return (struct range){i, verb, 0, INT64_MAX};
}

static bool may_be_auto(int i)
{
    return strcmp(opts[i].dflt, "auto") == 0;
}

// Where the default is auto, that and -1 are 0.
static bool parse_int(int i, int verb, const char *s, int64_t *out)
{
    uint64_t u;
    struct range r = range_of(i, verb);
    if (may_be_auto(i) && (strcmp(s, "auto") == 0 || strcmp(s, "-1") == 0)) return *out = 0, true;
    if (!qr_parse_size(s, &u) || (int64_t)u < r.lo || (int64_t)u > r.hi) return false;
    *out = (int64_t)u;
    return true;
}

static void int_wanted(int i, int verb, char *out, size_t cap)
{
    struct range r = range_of(i, verb);
    int n = snprintf(out, cap, "%sa whole number from %lld", may_be_auto(i) ? "auto or " : "", (long long)r.lo);
    if (r.hi < INT64_MAX)
        snprintf(out + n, cap - (size_t)n, " to %lld", (long long)r.hi);
    else
        snprintf(out + n, cap - (size_t)n, " on");
}

static bool parse_real(const char *s, double *out)
{
    char *end;
    *out = strtod(s, &end);
    return end != s && *end == 0 && *out == *out && *out > -1e18 && *out < 1e18;
}

static enum qr_status list_add(struct qr_conf *c, struct qr_strs *l, const char *s)
{
    while (*s) {
        size_t n = strcspn(s, ",");
        if (n && strs_add(c, l, s, n) != QR_OK) return QR_ENOMEM;
        s += n + (s[n] == ',');
    }
    return QR_OK;
}

// Sets option i from text. A list that a weaker origin filled is replaced, one of the same origin grows.
static enum qr_status set(struct qr_conf *c, int verb, int i, const char *s, enum qr_origin from, struct qr_error *err)
{
    const struct opt *o = &opts[i];
    void *field = (char *)c + o->at;
    static const char *const wants[] = {"text", "", "a size such as 512M or 2G", "a number", "yes or no", "a list"};
    bool ok = true;
    switch (o->kind) {
    case STR: ok = (*(const char **)field = keep(c, s, strlen(s))) != NULL; break;
    case INT: ok = parse_int(i, verb, s, field); break;
    case SIZE: ok = qr_parse_size(s, field); break;
    case REAL: ok = parse_real(s, field); break;
    case BOOL: ok = parse_bool(s, field); break;
    case LIST: {
        struct qr_strs *l = field;
        if (c->origin[i] != from) l->n = 0;
        ok = list_add(c, l, s) == QR_OK &&
             (l->n || from != QR_FROM_FLAG); // --api-key "$UNSET" must not mean: no key
        break;
    }
    }
    static const char *const origin[] = {"default", "config file", "environment", "flag"};
    if (!ok) {
        char whole[96];
        int_wanted(i, verb, whole, sizeof whole);
        return qr_fail_param(err, QR_EINVAL, o->flag, "--%s (from the %s): expected %s, got \"%.60s\"", o->flag,
                             origin[from], o->kind == INT ? whole : wants[o->kind], s);
    }
    c->origin[i] = from;
    return QR_OK;
}

static void env_name(const char *flag, char *out, size_t cap)
{
    size_t n = (size_t)snprintf(out, cap, "QUIRE_%s", flag);
    for (size_t i = 0; i < n && i < cap; i++)
        out[i] = out[i] == '-' ? '_' : (char)toupper((unsigned char)out[i]);
}

static enum qr_status from_env(struct qr_conf *c, int verb, struct qr_error *err)
{
    for (int i = 0; i < QR_OPT_COUNT; i++) {
        char name[80];
        env_name(opts[i].flag, name, sizeof name);
        const char *v = getenv(name);
        if (!v || !(opts[i].verbs & verb) || c->origin[i] > QR_FROM_ENV) continue;
        enum qr_status s = set(c, verb, i, v, QR_FROM_ENV, err);
        if (s != QR_OK) return s;
    }
    return QR_OK;
}

// Two verbs may use a word differently: the verb's own option comes before another's.
static int find_flag(int verb, const char *name, size_t n)
{
    int other = -1;
    for (int i = 0; i < QR_OPT_COUNT; i++) {
        const char *names[2] = {opts[i].flag, opts[i].alias};
        for (int j = 0; j < 2; j++)
            if (strlen(names[j]) == n && n && strncmp(names[j], name, n) == 0) {
                if (opts[i].verbs & verb) return i;
                other = i;
            }
    }
    return other;
}

static char *trim(char *s)
{
    while (isspace((unsigned char)*s)) s++;
    size_t n = strlen(s);
    while (n && isspace((unsigned char)s[n - 1])) s[--n] = 0;
    if (n >= 2 && (s[0] == '"' || s[0] == '\'') && s[n - 1] == s[0]) {
        s[n - 1] = 0;
        s++;
    }
    return s;
}

static enum qr_status file_line(struct qr_conf *c, int verb, const char *path, int line_no, char *line,
                                struct qr_error *err)
{
    char *s = trim(line);
    if (*s == 0 || *s == '#' || strcmp(s, "---") == 0) return QR_OK;
    char *colon = strchr(s, ':');
    if (!colon) return qr_fail(err, QR_EFORMAT, "%.80s:%d: expected `flag: value`", path, line_no);
    *colon = 0;
    char *name = trim(s), *value = trim(colon + 1);
    for (char *p = name; *p; p++)
        if (*p == '_') *p = '-';
    int i = find_flag(verb, name, strlen(name));
    if (i < 0) return qr_fail(err, QR_EINVAL, "%.80s:%d: no option is called \"%.40s\"", path, line_no, name);
    if (c->origin[i] > QR_FROM_FILE || !(opts[i].verbs & verb)) return QR_OK;
    return set(c, verb, i, value, QR_FROM_FILE, err);
}

static enum qr_status from_file(struct qr_conf *c, int verb, struct qr_error *err)
{
    if (!c->config[0]) return QR_OK;
    FILE *f = fopen(c->config, "r");
    if (!f) return qr_fail_param(err, QR_ENOTFOUND, "config", "--config: cannot read %.120s", c->config);
    char line[4096];
    enum qr_status s = QR_OK;
    for (int n = 1; s == QR_OK && fgets(line, sizeof line, f); n++) {
        // A line that was cut, or holds a NUL, does not end in a newline; only the last line of a file may
        // lack one.
        size_t bytes = strlen(line);
        if ((bytes == 0 || line[bytes - 1] != '\n') && !feof(f))
            s = qr_fail_param(err, QR_EFORMAT, "config",
                              "%.80s:%d: expected text in lines of at most %zu bytes", c->config, n,
                              sizeof line - 2);
        else
            s = file_line(c, verb, c->config, n, line, err);
    }
    if (s == QR_OK && ferror(f))
        s = qr_fail_param(err, QR_EIO, "config", "--config: cannot read %.120s", c->config);
    fclose(f);
    return s;
}

static int fill_long_options(int verb, struct option *l, char (*no)[64])
{
    int n = 0;
    for (int i = 0; i < QR_OPT_COUNT; i++) {
        if (!(opts[i].verbs & verb)) continue;
        int arg = opts[i].kind == BOOL ? no_argument : required_argument;
        l[n++] = (struct option){opts[i].flag, arg, NULL, VAL_OPT + i};
        if (opts[i].alias[0]) l[n++] = (struct option){opts[i].alias, arg, NULL, VAL_OPT + i};
        if (opts[i].kind != BOOL) continue;
        snprintf(no[i], sizeof no[i], "no-%s", opts[i].flag);
        l[n++] = (struct option){no[i], no_argument, NULL, VAL_NO + i};
    }
    for (int i = 0; i < N_FOREIGN; i++)
        l[n++] = (struct option){foreign[i].flag, foreign[i].takes_value ? required_argument : no_argument,
                                 NULL, VAL_FOREIGN + i};
    l[n++] = (struct option){"help", no_argument, NULL, VAL_HELP};
    QR_ASSERT(n < N_LONG);
    l[n] = (struct option){0};
    return n;
}

// Letters to insert, drop, change or swap with a neighbour so that typed[0..n) becomes name (optimal string
// alignment).
static size_t edit_distance(const char *typed, size_t n, const char *name)
{
    enum { LEN = 40 };
    size_t m = strlen(name), row[3][LEN + 1];
    if (n > LEN || m > LEN) return LEN;
    for (size_t j = 0; j <= m; j++) row[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            bool same = typed[i - 1] == name[j - 1];
            size_t d = last[j - 1] + !same;
            if (last[j] + 1 < d) d = last[j] + 1;
            if (now[j - 1] + 1 < d) d = now[j - 1] + 1;
            bool swapped = i > 1 && j > 1 && typed[i - 1] == name[j - 2] && typed[i - 2] == name[j - 1];
            if (swapped && before[j - 2] + 1 < d) d = before[j - 2] + 1;
            now[j] = d;
        }
    }
    return row[n % 3][m];
}

// The option nearest to what was typed, for "did you mean"; NULL when none is near.
static const char *near_miss(int verb, const char *typed)
{
    size_t n = strcspn(typed, "="), best = n / 3 + 1; // a third of the letters may be wrong
    const char *name = NULL;
    for (int i = 0; i < QR_OPT_COUNT; i++) {
        size_t d = opts[i].verbs & verb ? edit_distance(typed, n, opts[i].flag) : best;
        if (d < best) best = d, name = opts[i].flag;
    }
    return name;
}

static const char *verb_name(int verbs)
{
    static const char *const names[] = {"serve",     "run",           "sim",              "plan",          "top",       "bench serve",
                                        "bench ppl", "bench kernels", "bench throughput", "bench latency", "bench step"};
    return verbs == QR_VERB_B ? "bench" : names[__builtin_ctz((unsigned)verbs)];
}

// The verb that has an option of exactly this name, when the one at hand does not.
static const char *other_verb(int verb, const char *typed)
{
    int i = find_flag(verb, typed, strcspn(typed, "="));
    if (i < 0 || opts[i].verbs & verb) return NULL;
    bool of_bench = verb & QR_VERB_B && opts[i].verbs & QR_VERB_B; // rather another measurement's than another verb's
    return verb_name(of_bench ? opts[i].verbs & QR_VERB_B : opts[i].verbs);
}

static enum qr_status unknown_flag(int verb, const char *arg, int code, struct qr_error *err)
{
    if (code == ':') return qr_fail(err, QR_EINVAL, "%.60s needs a value", arg);
    const char *typed = arg + strspn(arg, "-"), *other = other_verb(verb, typed);
    if (other)
        return qr_fail(err, QR_EINVAL, "%.60s is an option of quire %s, not of quire %s", arg, other,
                       verb_name(verb));
    const char *near = near_miss(verb, typed);
    if (near)
        return qr_fail(err, QR_EINVAL, "unknown option %.60s; did you mean --%s? (--help lists all)", arg,
                       near);
    return qr_fail(err, QR_EINVAL, "unknown option %.60s (--help lists all)", arg);
}

// Sets option i from optarg. Behind the model a list takes every word up to the next option:
// --served-model-name a b.
static enum qr_status set_flag(struct qr_conf *c, int verb, int i, int argc, char **argv, struct qr_error *err)
{
    enum qr_status s = set(c, verb, i, optarg ? optarg : "yes", QR_FROM_FLAG, err);
    bool apart = optarg && optarg == argv[optind - 1];
    while (s == QR_OK && opts[i].kind == LIST && apart && c->args.n > 0 && optind < argc &&
           argv[optind][0] != '-')
        s = set(c, verb, i, argv[optind++], QR_FROM_FLAG, err);
    return s;
}

static enum qr_status from_flags(struct qr_conf *c, int verb, int argc, char **argv, struct qr_error *err)
{
    struct option longs[N_LONG];
    char no[QR_OPT_COUNT][64];
    fill_long_options(verb, longs, no);
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) // --max_model_len is --max-model-len
        if (strncmp(argv[i], "--", 2) == 0)
            for (char *p = argv[i]; *p && *p != '='; p++)
                if (*p == '_') *p = '-';
    optind = 0; // getopt keeps state; 0 starts afresh
    for (int code; (code = getopt_long(argc, argv, "+:h", longs, NULL)) != -1 || optind < argc;) {
        enum qr_status s = QR_OK;
        if (code == -1) { // an operand; options may follow it
            bool only_operands = optind > 1 && strcmp(argv[optind - 1], "--") == 0;
            s = strs_add(c, &c->args, argv[optind], strlen(argv[optind]));
            optind++;
            while (only_operands && s == QR_OK && optind < argc) {
                s = strs_add(c, &c->args, argv[optind], strlen(argv[optind]));
                optind++;
            }
            if (s != QR_OK) return qr_fail(err, s, "out of memory");
            continue;
        }
        if (code == 'h' || code == VAL_HELP)
            c->help = true;
        else if (code >= VAL_FOREIGN && code < VAL_FOREIGN + N_FOREIGN)
            QR_WARN("conf", "--%s has no effect: %s", foreign[code - VAL_FOREIGN].flag,
                    foreign[code - VAL_FOREIGN].why);
        else if (code >= VAL_NO && code < VAL_NO + QR_OPT_COUNT)
            s = set(c, verb, code - VAL_NO, "no", QR_FROM_FLAG, err);
        else if (code >= VAL_OPT && code < VAL_OPT + QR_OPT_COUNT)
            s = set_flag(c, verb, code - VAL_OPT, argc, argv, err);
        else
            s = optopt && optopt < VAL_OPT
                    ? qr_fail(err, QR_EINVAL, "unknown option -%c (--help lists all)", optopt)
                    : unknown_flag(verb, argv[optind - 1], code, err);
        if (s != QR_OK) return s;
    }
    return QR_OK;
}

enum qr_status qr_conf_parse(int verb, int argc, char **argv, struct qr_conf *out, struct qr_error *err)
{
    *out = (struct qr_conf){0};
    enum qr_status s = QR_OK;
    for (int i = 0; i < QR_OPT_COUNT && s == QR_OK; i++) s = set(out, verb, i, opts[i].dflt, QR_FROM_DEFAULT, err);
    if (s == QR_OK) s = from_flags(out, verb, argc, argv, err);
    if (s == QR_OK) s = from_env(out, verb, err);
    if (s == QR_OK) s = from_file(out, verb, err);
    if (s != QR_OK) qr_conf_free(out);
    return s;
}

void qr_conf_free(struct qr_conf *c)
{
    for (int i = 0; i < QR_OPT_COUNT; i++)
        if (opts[i].kind == LIST) qr_free(((struct qr_strs *)((char *)c + opts[i].at))->v);
    qr_free(c->args.v);
    for (struct text *t = c->texts, *next; t; t = next) {
        next = t->next;
        qr_free(t);
    }
    *c = (struct qr_conf){0};
}

const char *qr_conf_flag(enum qr_opt_id id)
{
    return opts[id].flag;
}

static const struct {
    enum qr_opt_id id;
    int verb;
    const char *text;
} own_defaults[] = {
#define QR_OWN_DEFAULT(field, verb, text) {QR_OPT_##field, verb, text},
#include "conf/defaults.def"
#undef QR_OWN_DEFAULT
};

// As the verb's help says it.
static const char *default_of(int i, int verb)
{
    for (size_t k = 0; k < sizeof own_defaults / sizeof *own_defaults; k++)
        if ((int)own_defaults[k].id == i && own_defaults[k].verb == verb) return own_defaults[k].text;
    return opts[i].dflt;
}

void qr_conf_help(int verb, FILE *out)
{
    const char *title = NULL;
    for (size_t r = 0; r < sizeof help_rows / sizeof help_rows[0]; r++) {
        if (help_rows[r].i < 0) {
            title = help_rows[r].title;
            continue;
        }
        const struct opt *o = &opts[help_rows[r].i];
        if (!(o->verbs & verb)) continue;
        if (title) fprintf(out, "\n%s:\n", title);
        title = NULL;
        char left[80];
        snprintf(left, sizeof left, "--%s%s%s", o->flag, o->meta[0] ? " " : "", o->meta);
        fprintf(out, "  %-36s %s", left, o->help);
        const char *dflt = default_of(help_rows[r].i, verb);
        if (dflt[0] && o->kind != BOOL) fprintf(out, " [%s]", dflt);
        if (o->alias[0]) fprintf(out, " (also --%s)", o->alias);
        fputc('\n', out);
    }
    fprintf(out,
            "\nEvery option is also QUIRE_<NAME> in the environment and `name: value` in a --config file. Where a "
            "number's default is\nauto, -1 means the same.\n");
}

// A value as a setting's line shows it; "" where it is not set. Keys stay secret.
static void value_text(const struct qr_conf *c, int i, char *out, size_t cap)
{
    const void *f = (const char *)c + opts[i].at;
    const struct qr_strs *l = f;
    size_t at = 0;
    out[0] = 0;
    switch (opts[i].kind) {
    case STR: snprintf(out, cap, "%.100s", *(const char *const *)f); break;
    case INT: snprintf(out, cap, "%lld", (long long)*(const int64_t *)f); break;
    case SIZE: snprintf(out, cap, "%llu", (unsigned long long)*(const uint64_t *)f); break;
    case REAL: snprintf(out, cap, "%g", *(const double *)f); break;
    case BOOL: snprintf(out, cap, "%s", *(const bool *)f ? "yes" : "no"); break;
    case LIST:
        if (i == QR_OPT_api_key && l->n) snprintf(out, cap, "set");
        for (int k = 0; i != QR_OPT_api_key && k < l->n && at < cap; k++)
            at += (size_t)snprintf(out + at, cap - at, "%s%.60s", k ? "," : "", l->v[k]);
        break;
    }
}

void qr_conf_print_effective(const struct qr_conf *c, int verb, char *out, size_t cap)
{
    static const char *const from[] = {"default", "file", "env", "flag"};
    size_t at = 0, n_set = 0;
    out[0] = 0;
    for (int defaults = 0; defaults < 2; defaults++) {
        if (defaults) at += (size_t)snprintf(out + at, cap - at, "%s", n_set ? "; by default" : "by default");
        for (int i = 0; i < QR_OPT_COUNT && at + 1 < cap; i++) {
            char v[160];
            if (!(opts[i].verbs & verb) || (c->origin[i] == QR_FROM_DEFAULT) != defaults) continue;
            if (defaults)
                snprintf(v, sizeof v, "%s",
                         opts[i].dflt); // as the help says it: auto, not what stands for it
            else
                value_text(c, i, v, sizeof v);
            if (defaults && !v[0]) continue;
            at += (size_t)snprintf(out + at, cap - at, "%s%s=%s", at ? " " : "", opts[i].flag, v);
            if (!defaults && at < cap)
                at += (size_t)snprintf(out + at, cap - at, " (%s)", from[c->origin[i]]), n_set++;
        }
        if (at >= cap) return; // the rest does not fit
    }
}
