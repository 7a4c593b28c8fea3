/* quire serve: the server in the foreground until SIGINT or SIGTERM. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/api.h"
#include "base/clock.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "kern/isa.h"

static void help(void)
{
    printf("usage: quire serve MODEL [options]\n\n"
           "Serves MODEL (a .gguf file, or the name of a cached model) over an OpenAI-compatible API:\n"
           "/v1/chat/completions, /v1/completions, /v1/models, /tokenize, /health, /metrics.\n\n"
           "  quire serve smollm2-135m-instruct                       on this machine only, port 8000\n"
           "  quire serve model.gguf --host 0.0.0.0 --api-key SECRET  for the network\n"
           "  quire serve model.gguf --kv-cache-memory-bytes 4G --max-num-seqs 256\n");
    qr_conf_help(QR_VERB_S, stdout);
}

// Streams need descriptors: asks for as many as the system lets us have.
static void raise_descriptor_limit(void)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0) return;
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
}

// Signals are blocked and nobody waits for them yet: a load that takes a minute looks for them as it goes.
static void load_progress(void *arg, uint64_t done, uint64_t total)
{
    sigset_t pending;
    if (sigpending(&pending) == 0 && (sigismember(&pending, SIGTERM) || sigismember(&pending, SIGINT))) {
        QR_INFO("serve", "stopping while the model loads");
        _exit(0); // nothing was promised to anybody, and half a model has nothing to save
    }
    api_progress(arg, done, total);
    cmd_progress(NULL, done, total);
}

// The line that says where, and the line to try it with: by this machine's own address, with a key where one
// is needed.
static void print_where(const struct qr_conf *conf, int port)
{
    bool v6 = strchr(conf->host, ':') != NULL,
         any = strcmp(conf->host, "0.0.0.0") == 0 || strcmp(conf->host, "::") == 0;
    char url[128], key[64] = "";
    snprintf(url, sizeof url, "http://%s%.100s%s:%d", v6 ? "[" : "", conf->host, v6 ? "]" : "", port);
    if (any && !conf->api_key.n)
        QR_WARN("serve", "whoever reaches this machine may use this server: there is no --api-key");
    fprintf(stderr, "listening on %s\n", url);
    if (any) snprintf(url, sizeof url, "http://%s:%d", v6 ? "[::1]" : "127.0.0.1", port);
    if (conf->api_key.n) snprintf(key, sizeof key, "-H 'Authorization: Bearer KEY' ");
    fprintf(stderr,
            "chat with it: curl %s/v1/chat/completions -H 'Content-Type: application/json' %s"
            "-d '{\"messages\":[{\"role\":\"user\",\"content\":\"Hello!\"}],\"temperature\":0}'\n",
            url, key);
}

static void print_start(const struct qr_lib *lib, const struct qr_conf *conf, int port)
{
    const struct qr_lib_info *i = qr_lib_info(lib);
    char a[16], b[16], settings[2048];
    const char *isa = "ref";
    for (int k = 0; k < QR_ISA_COUNT; k++)
        if (qr_isa_has(qr_isa_active(), (enum qr_isa)k)) isa = qr_isa_name((enum qr_isa)k);
    qr_conf_print_effective(conf, QR_VERB_S, settings, sizeof settings);
    QR_INFO("serve", "settings: %s", settings);
    QR_INFO("serve", "%s (%s, %d layers, %s packed) loaded in %.2f s; %d threads, %s", i->served_name,
            i->model.arch, i->model.n_layers, cmd_bytes(a, (double)i->model.packed_bytes),
            (double)i->load_ns * 1e-9, i->n_threads, isa);
    uint64_t tokens = (uint64_t)i->n_blocks * (uint64_t)i->block_size;
    QR_INFO("serve", "CPU KV cache size: %" PRIu64 " tokens (%u blocks of %d, %s, %s, taken as it fills)", tokens,
            i->n_blocks, i->block_size, qr_kvtype_name(i->model.kvtype), cmd_bytes(b, (double)i->kv_bytes));
    if (i->n_swap_blocks > 0)
        QR_INFO("serve",
                "swap space: %s of memory for preempted requests (%u blocks). If it is this node's, "
                "--kv-cache-memory-bytes makes better use of it: what is in the pool need not be preempted.",
                cmd_bytes(a, (double)i->n_swap_blocks * (double)i->block_bytes), i->n_swap_blocks);
    if (i->n_swap_file_blocks > 0)
        QR_INFO("serve", "swap file: %s for preempted requests (%u blocks), by way of %s of memory",
                cmd_bytes(a, (double)i->n_swap_file_blocks * (double)i->block_bytes), i->n_swap_file_blocks,
                cmd_bytes(b, (double)i->n_staging_blocks * (double)i->block_bytes));
    if (i->n_prefix_ram_blocks + i->n_prefix_file_blocks > 0)
        QR_INFO("serve", "cached prefixes beside the pool: %s of memory, %s in a file",
                cmd_bytes(a, (double)i->n_prefix_ram_blocks * (double)i->block_bytes),
                cmd_bytes(b, (double)i->n_prefix_file_blocks * (double)i->block_bytes));
    QR_INFO("serve", "Maximum concurrency for %d tokens per request: %.2fx", i->max_model_len,
            (double)tokens / i->max_model_len);
    print_where(conf, port);
}

static int serve(const struct qr_conf *conf, struct cmd_setup *setup)
{
    struct qr_error err = {0};
    struct api *api = NULL;
    struct qr_lib *lib = NULL;
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals,
                    NULL); // before any thread: all inherit it, and sigwait below takes them
    signal(SIGPIPE, SIG_IGN);
    raise_descriptor_limit();
    struct api_conf ac = {
        .host = conf->host,
        .port = (int)conf->port,
        .keys = conf->api_key.v,
        .n_keys = conf->api_key.n,
        .served_names = conf->served_model_name.v,
        .n_served_names = conf->served_model_name.n,
        .max_logprobs = (int)conf->max_logprobs,
        .body_bytes_max = (size_t)32 << 20,
        .n_workers = 2,
        .default_temperature = -1,
        .seed = (uint64_t)conf->seed,
        .version = QUIRE_VERSION,
    };
    if (api_start(&ac, &api, &err) != QR_OK) return cmd_fail(1, &err);
    setup->lib.progress = load_progress;
    setup->lib.progress_arg = api;
    if (qr_lib_open(&setup->lib, &lib, &err) != QR_OK) {
        api_stop(&api);
        return cmd_fail(1, &err);
    }
    api_ready(api, lib);
    print_start(lib, conf, api_port(api));
    int sig = 0;
    sigwait(&signals, &sig);
    QR_INFO("serve", "stopping (signal %d)", sig);
    api_stop(&api);
    qr_lib_close(&lib);
    return 0;
}

// A record that cannot be written is said once; serving goes on.
static void write_trace(void *arg, const char *line, size_t bytes)
{
    FILE *f = arg;
    bool failed = ferror(f);
    if (!failed && fwrite(line, 1, bytes, f) != bytes) QR_WARN("serve", "--trace-file: writing failed; the record ends here");
}

// Why a file that is there is not to be written over: the path may be mistaken for another flag's. NULL: it may.
static const char *not_ours(int fd, const struct stat *st)
{
    static const char ours[] = "quire-trace ";
    char head[sizeof ours - 1];
    if (!S_ISREG(st->st_mode)) return NULL;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) return "another process uses it";
    if (st->st_size == 0) return NULL;
    bool known = pread(fd, head, sizeof head, 0) == (ssize_t)sizeof head && memcmp(head, ours, sizeof head) == 0;
    return known ? NULL : "a file that is no trace is there; it is left alone";
}

// An earlier record is replaced.
static FILE *open_trace(const char *path, struct qr_error *err)
{
    struct stat st;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    const char *why = NULL;
    FILE *f = NULL;
    if (fd >= 0 && fstat(fd, &st) == 0 && !(why = not_ours(fd, &st)) && (!S_ISREG(st.st_mode) || ftruncate(fd, 0) == 0))
        f = fdopen(fd, "w");
    if (!f) (void)qr_fail(err, QR_EIO, "--trace-file: cannot write %.150s: %s", path, why ? why : strerror(errno));
    if (!f && fd >= 0) close(fd);
    return f;
}

static int serve_traced(const struct qr_conf *conf, struct cmd_setup *setup)
{
    if (!conf->trace_file[0]) return serve(conf, setup);
    struct qr_error err = {0};
    FILE *f = open_trace(conf->trace_file, &err);
    if (!f) return cmd_fail(1, &err);
    setvbuf(f, NULL, _IOFBF, 1 << 20); // a write for every few thousand lines
    setup->lib.trace = write_trace;
    setup->lib.trace_arg = f;
    int rc = serve(conf, setup);
    bool failed = ferror(f);
    if ((fclose(f) != 0 || failed) && rc == 0) {
        (void)qr_fail(&err, QR_EIO, "--trace-file: writing %.150s failed", conf->trace_file);
        rc = cmd_fail(1, &err);
    }
    return rc;
}

int cmd_serve(int argc, char **argv)
{
    struct qr_error err = {0};
    struct qr_conf conf;
    struct cmd_setup setup;
    if (qr_conf_parse(QR_VERB_S, argc, argv, &conf, &err) != QR_OK) return cmd_fail(2, &err);
    int rc = 2;
    if (conf.help) {
        help();
        rc = 0;
    } else if (conf.args.n != 1) {
        fprintf(stderr, "quire: serve takes one model: a .gguf file or a cached name (quire serve --help)\n");
    } else {
        enum qr_status s = cmd_setup_init(&setup, &conf, &err);
        rc = s == QR_OK ? serve_traced(&conf, &setup) : cmd_fail(s == QR_EINVAL ? 2 : 1, &err);
        cmd_setup_fini(&setup);
    }
    qr_conf_free(&conf);
    return rc;
}
