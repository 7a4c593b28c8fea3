/* quire bench: the measurements of bench/bench.def. */
#include "bench/bench.h"

#include <stdio.h>
#include <string.h>

#include "cmd/cmd.h"
#include "conf/paths.h"

static void help(FILE *out)
{
    size_t n;
    const struct bench_entry *all = qr_bench_list(&n);
    fprintf(out, "usage: quire bench WHAT [MODEL] [options]\n\n"
                 "Measures this machine, a model on it, or a running server. A machine that does something else beside lies:\n"
                 "measure on a quiet one, and compare two servers by turns (--vs), never one after the other.\n\n");
    for (size_t i = 0; i < n; i++) fprintf(out, "  %-11s %-16s %s\n", all[i].name, all[i].args, all[i].summary);
    fprintf(out, "\nquire bench WHAT --help explains one of them.\n");
    qr_conf_help(QR_VERB_B, out);
}

static void help_of(const struct bench_entry *e, FILE *out)
{
    fprintf(out, "usage: quire bench %s %s [options]\n\n%s", e->name, e->args, e->help);
    qr_conf_help(e->verb, out);
}

static int unknown(const char *word)
{
    size_t n;
    const struct bench_entry *all = qr_bench_list(&n);
    char list[128] = "";
    struct qr_error err = {0};
    for (size_t i = 0; i < n; i++) {
        size_t at = strlen(list);
        snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", all[i].name);
    }
    (void)qr_fail(&err, QR_EINVAL, "bench: expected one of %s, got \"%.40s\" (quire bench --help)", list, word);
    return cmd_fail(2, &err);
}

static int run(const struct bench_entry *e, const struct qr_conf *conf, struct qr_error *err)
{
    struct cmd_setup setup = {0};
    bool has_model = e->model != BENCH_WITHOUT && conf->args.n > 0;
    int n_max = e->model == BENCH_WITHOUT ? conf->args.n : 1;
    for (const char *c = e->args; *c && e->model != BENCH_WITHOUT; c++) n_max += *c == ' ';
    if (e->model == BENCH_WITH && !has_model) {
        (void)qr_fail(err, QR_EINVAL, "bench %s: expected a model: a .gguf file, or a name from ~/.cache/quire/models",
                      e->name);
        return cmd_fail(2, err);
    }
    if (conf->args.n > n_max) {
        (void)qr_fail(err, QR_EINVAL, "bench %s: expected %s, got \"%.80s\" too", e->name, e->args, conf->args.v[n_max]);
        return cmd_fail(2, err);
    }
    enum qr_status st = qr_paths_check_writable("json", conf->json, err);
    if (st == QR_OK) st = qr_paths_check_writable("costs", conf->costs, err);
    if (st == QR_OK && e->model != BENCH_WITHOUT) st = cmd_setup_init(&setup, conf, err);
    if (st == QR_OK) {
        struct bench_args a = {.conf = conf, .lib = has_model ? &setup.lib : NULL, .out = stdout};
        st = e->run(&a, err);
    }
    cmd_setup_fini(&setup);
    return st == QR_OK ? 0 : cmd_fail(st == QR_EINVAL ? 2 : 1, err);
}

int cmd_bench(int argc, char **argv)
{
    bool named = argc > 1 && argv[1][0] != '-';
    const struct bench_entry *e = named ? qr_bench_find(argv[1]) : NULL;
    if (named && !e) return unknown(argv[1]);
    struct qr_conf conf;
    struct qr_error err = {0};
    if (qr_conf_parse(e ? e->verb : QR_VERB_B, argc - named, argv + named, &conf, &err) != QR_OK) return cmd_fail(2, &err);
    char url[1024];
    bool has_url = conf.origin[QR_OPT_base_url] != QR_FROM_DEFAULT;
    int rc = 0;
    if (conf.help && e)
        help_of(e, stdout);
    else if (conf.help)
        help(stdout);
    else if (!e) {
        help(stderr);
        rc = 2;
    } else if (cmd_server_url(&conf, has_url ? conf.base_url : NULL, url, sizeof url, &err) != QR_OK)
        rc = cmd_fail(2, &err);
    else {
        conf.base_url = url;
        rc = run(e, &conf, &err);
    }
    qr_conf_free(&conf);
    return rc;
}
