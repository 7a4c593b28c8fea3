#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/mem.h"
#include "base/printable.h"
#include "cmd/cmd.h"
#include "conf/paths.h"
#include "kern/isa.h"
#include "sched/policy.h"

int cmd_fail(int code, const struct qr_error *err)
{
    fprintf(stderr, "quire: %s\n", err->msg);
    return code;
}

const char *cmd_bytes(char out[16], double bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    int u = 0;
    while (bytes >= 1000 && u < 4) bytes /= 1000, u++;
    snprintf(out, 16, bytes < 100 && u ? "%.1f %s" : "%.0f %s", bytes, units[u]);
    return out;
}

enum qr_status cmd_server_url(const struct qr_conf *c, const char *url, char *out, size_t cap, struct qr_error *err)
{
    bool v6 = strchr(c->host, ':') != NULL;
    const char *host = strcmp(c->host, "0.0.0.0") == 0 ? "127.0.0.1" : strcmp(c->host, "::") == 0 ? "::1" : c->host;
    if (url && (c->origin[QR_OPT_host] == QR_FROM_FLAG || c->origin[QR_OPT_port] == QR_FROM_FLAG))
        return qr_fail(err, QR_EINVAL, "expected a URL, or --host and --port; got both");
    if (url)
        snprintf(out, cap, "%s", url);
    else
        snprintf(out, cap, "http://%s%.200s%s:%d", v6 ? "[" : "", host, v6 ? "]" : "", (int)c->port);
    qr_printable_line(out);
    return QR_OK;
}

void cmd_progress(void *arg, uint64_t done, uint64_t total)
{
    static uint64_t last_ns, first_ns;
    uint64_t now = qr_clock_wall()->now_ns(qr_clock_wall());
    if (!first_ns) first_ns = now;
    bool slow = now - first_ns > 300000000u; // a quick load prints nothing
    if (!isatty(STDERR_FILENO) || !slow || (now - last_ns < 100000000u && done < total)) return;
    last_ns = now;
    char a[16], b[16];
    fprintf(stderr, "\rloading %s of %s%s", cmd_bytes(a, (double)done), cmd_bytes(b, (double)total),
            done < total ? "   " : "\r\033[K");
}

static enum qr_status set_level(const char *name, struct qr_error *err)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    for (int i = 0; i < 4; i++)
        if (strcmp(name, names[i]) == 0) return qr_log_set_level((enum qr_log_level)i), QR_OK;
    return qr_fail_param(err, QR_EINVAL, "log-level",
                         "--log-level: expected error, warn, info or debug, got \"%.40s\"", name);
}

bool cmd_read_all(FILE *f, size_t bytes_max, struct qr_buf *out)
{
    char part[4096];
    for (size_t n; out->len <= bytes_max && (n = fread(part, 1, sizeof part, f)) > 0;)
        qr_buf_add(out, part, n);
    return !ferror(f) && !out->failed && out->len <= bytes_max;
}

// Model files carry templates of up to about 20 kB.
enum { TEMPLATE_BYTES_MAX = 1 << 20 };

// The value is a file's name, or the template itself when it holds Jinja's brackets.
static enum qr_status read_template(const char *value, char **out, struct qr_error *err)
{
    if (strstr(value, "{%") || strstr(value, "{{")) {
        *out = qr_strdup(QR_MEM_MISC, value);
        return *out ? QR_OK : qr_fail(err, QR_ENOMEM, "out of memory");
    }
    FILE *f = fopen(value, "r");
    if (!f)
        return qr_fail_param(err, QR_ENOTFOUND, "chat-template", "--chat-template: cannot read %.120s",
                             value);
    struct qr_buf b = {0};
    bool whole = cmd_read_all(f, TEMPLATE_BYTES_MAX, &b);
    fclose(f);
    if (!whole || b.len == 0 || memchr(b.data, 0, b.len)) {
        qr_buf_fini(&b);
        return qr_fail_param(err, QR_EIO, "chat-template",
                             "--chat-template: %.120s: expected a text file of 1 byte to 1 MiB", value);
    }
    *out = b.data;
    return QR_OK;
}

static enum qr_status check_ranges(const struct qr_conf *c, struct qr_error *err)
{
    _Static_assert(QR_LOGPROBS_MAX == 20, "conf/ranges.def says so too");
    if (c->block_size % 16)
        return qr_fail_param(err, QR_EINVAL, "block-size",
                             "--block-size: expected a multiple of 16, got %lld", (long long)c->block_size);
    if (!(c->kv_idle_release >= 0 && c->kv_idle_release <= 1e9))
        return qr_fail_param(err, QR_EINVAL, "kv-idle-release",
                             "--kv-idle-release: expected 0 to 1e9 seconds, got %g", c->kv_idle_release);
    if (!(c->gpu_memory_utilization > 0 && c->gpu_memory_utilization <= 1))
        return qr_fail_param(err, QR_EINVAL, "gpu-memory-utilization",
                             "--gpu-memory-utilization: expected above 0, up to 1, got %g",
                             c->gpu_memory_utilization);
    return QR_OK;
}

static enum qr_status set_step_budget(struct cmd_setup *s, const struct qr_conf *c, struct qr_error *err)
{
    const char *text = c->step_budget_ms;
    char *end;
    s->lib.step_budget_ns = UINT64_MAX;
    if (strcmp(text, "auto") == 0) return QR_OK;
    double ms = strtod(text, &end);
    if (end == text || *end || !(ms >= 0 && ms <= 1e6))
        return qr_fail_param(err, QR_EINVAL, "step-budget-ms",
                             "--step-budget-ms: expected auto, 0 or a number of milliseconds, got \"%.40s\"", text);
    s->lib.step_budget_ns = (uint64_t)(ms * 1e6);
    return QR_OK;
}

// "expected auto, fcfs, ...": the names of all policies.
static enum qr_status set_policy(struct cmd_setup *s, const struct qr_conf *c, struct qr_error *err)
{
    const char *name = c->scheduling_policy;
    if (strcmp(name, "auto") == 0) name = c->api_key.n > 1 ? "fair" : "fcfs";
    s->lib.policy = qr_policy_find(name);
    if (!(c->queue_timeout >= 0 && c->queue_timeout <= 1e6))
        return qr_fail_param(err, QR_EINVAL, "queue-timeout",
                             "--queue-timeout: expected 0 to 1000000 seconds, got %g", c->queue_timeout);
    s->lib.queue_timeout_ns = (uint64_t)(c->queue_timeout * 1e9);
    s->lib.max_queued_reqs = (int32_t)c->max_num_queued_reqs;
    s->lib.max_queued_tokens = c->max_num_queued_tokens;
    if (s->lib.policy) return QR_OK;
    char names[128] = "auto";
    for (size_t i = 0; qr_policy_at(i); i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", qr_policy_at(i + 1) ? ", " : " or ",
                 qr_policy_at(i)->name);
    return qr_fail_param(err, QR_EINVAL, "scheduling-policy", "--scheduling-policy: expected %s, got \"%.40s\"",
                         names, c->scheduling_policy);
}

static enum qr_status set_processor(struct cmd_setup *s, const struct qr_conf *c, struct qr_error *err)
{
    enum qr_status st = qr_isa_limit(c->isa, err);
    if (st != QR_OK) return st;
    s->lib.n_threads = (int32_t)c->threads;
    if (!c->cpu_list[0]) return QR_OK;
    s->lib.n_cpus = qr_parse_cpu_list(c->cpu_list, s->cpus, sizeof s->cpus / sizeof s->cpus[0]);
    s->lib.cpus = s->cpus;
    if (s->lib.n_cpus <= 0)
        return qr_fail_param(err, QR_EINVAL, "cpu-list",
                             "--cpu-list: expected processors such as 0-3,8, got \"%.40s\"", c->cpu_list);
    for (int i = 0; i < s->lib.n_cpus; i++)
        if (!qr_machine_may_use(s->cpus[i]))
            return qr_fail_param(err, QR_EINVAL, "cpu-list",
                                 "--cpu-list: processor %d is not one that we may use", s->cpus[i]);
    if (!s->lib.n_threads) s->lib.n_threads = s->lib.n_cpus;
    return QR_OK;
}

enum qr_status cmd_setup_init(struct cmd_setup *s, const struct qr_conf *c, struct qr_error *err)
{
    *s = (struct cmd_setup){0};
    enum qr_status st = set_level(c->log_level, err);
    if (st == QR_OK) st = check_ranges(c, err);
    if (st == QR_OK) st = set_processor(s, c, err);
    if (st == QR_OK) st = set_policy(s, c, err);
    if (st == QR_OK) st = set_step_budget(s, c, err);
    if (st == QR_OK && c->args.n > 0) st = qr_paths_find_model(c->args.v[0], s->model, sizeof s->model, err);
    if (st == QR_OK && c->chat_template[0]) st = read_template(c->chat_template, &s->template_text, err);
    if (st == QR_OK) st = qr_kv_layout_parse(c->kv_layout, &s->lib.layout, err);
    if (st != QR_OK) return st;
    if (strcmp(c->activations, "f32") == 0)
        s->lib.activations = QR_ACT_F32;
    else if (strcmp(c->activations, "fast") != 0)
        return qr_fail_param(err, QR_EINVAL, "activations",
                             "--activations: expected fast or f32, got \"%.40s\"", c->activations);
    struct qr_error why = {0};
    if (qr_kvtype_parse(c->kv_cache_dtype, &s->lib.kvtype, &why) != QR_OK)
        return qr_fail_param(err, QR_EINVAL, "kv-cache-dtype", "--kv-cache-dtype: %.150s", why.msg);
    s->lib.exact = strcmp(c->numerics, "exact") == 0;
    if (!s->lib.exact && strcmp(c->numerics, "fast") != 0)
        return qr_fail_param(err, QR_EINVAL, "numerics", "--numerics: expected fast or exact, got \"%.40s\"",
                             c->numerics);
    s->lib.prefix_caching = c->enable_prefix_caching;
    if ((st = cmd_setup_tiers(s, c, err)) != QR_OK) return st;
    s->lib.model_path = s->model;
    s->lib.chat_template = s->template_text;
    s->lib.served_name = c->served_model_name.n ? c->served_model_name.v[0] : NULL;
    s->lib.max_model_len = (int32_t)c->max_model_len;
    s->lib.max_num_seqs = (int32_t)c->max_num_seqs;
    s->lib.max_num_batched_tokens = (int32_t)c->max_num_batched_tokens;
    s->lib.block_size = (int32_t)c->block_size;
    s->lib.kv_bytes = c->kv_cache_memory_bytes;
    s->lib.n_blocks = (uint32_t)c->num_gpu_blocks_override;
    s->lib.memory_share = c->gpu_memory_utilization;
    s->lib.kv_idle_release_ns = (uint64_t)(c->kv_idle_release * 1e9);
    s->lib.progress = cmd_progress;
    return QR_OK;
}

void cmd_setup_fini(struct cmd_setup *s)
{
    qr_free(s->template_text);
    s->template_text = NULL;
}
