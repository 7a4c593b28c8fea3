/* quire sim: the scheduler that serves, on a machine that need not exist. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/words.h"
#include "cmd/cmd.h"
#include "cmd/sim_input.h"
#include "conf/paths.h"
#include "sim/model.h"
#include "sim/report.h"
#include "sim/run.h"
#include "sim/system.h"

#define VIRTUAL_PAGE_BYTES (2u << 20) // what vAttention maps at once

struct plan { // everything that a run needs, out of the options
    struct qr_sim_model model;
    struct qr_sim_memory memory;
    const struct qr_sim_system *system;
    struct qr_sim_cost cost;
    struct qr_sim_workload_conf workload_conf;
    struct qr_sim_workload workload;
    struct qr_sim_run_conf run;
    bool here; // this machine's memory, beside a table of costs
};

static void help(void)
{
    printf("usage: quire sim MODEL --workload FILE|LENGTHS [options]\n\n"
           "Simulates serving MODEL to the workload: the scheduler and the block bookkeeping that serve, under a virtual\n"
           "clock, each step at the cost of a machine that need not be here. The same options give the same figures.\n"
           "MODEL is opt-13b, opt-66b, opt-175b, llama-13b, llama-3-8b, llama-3-70b (both also -awq), smollm2-135m, a .gguf\n"
           "file or the name of one in ~/.cache/quire/models, or a Hugging Face config.json.\n\n"
           "  quire sim opt-13b --workload tools/paper/data/sharegpt.csv.gz --request-rate 2 --num-prompts 2000\n"
           "  quire sim opt-13b --workload tools/paper/data/sharegpt.csv.gz --request-rate 2 --num-prompts 2000 --system orca-max\n"
           "  quire sim llama-3-70b --hardware h100 --tp 4 --workload 512/128 --request-rate 4 --json - --out requests.csv\n"
           "  quire sim llama-3-8b --hardware l4 --workload 200/100*19,6000/100 --request-rate 1\n"
           "  quire sim --replay run.trace --chrome run.json   a run that quire serve --trace-file recorded\n\n"
           "A file of requests is CSV: a line \"arrival_s,input_tokens,output_tokens\", then one for each request as \"0.5,374,44\"; or\n"
           "JSON lines with these keys. src/sim/README.md (Workload files) has all columns: sessions, shared prefixes.\n\n"
           "Systems:\n");
    for (int i = 0; i < qr_sim_system_count(); i++)
        printf("  %-12s %s\n", qr_sim_system_at(i)->name, qr_sim_system_at(i)->what);
    struct qr_buf archs = {0};
    qr_sim_arch_names(&archs);
    printf("\nA config.json's model_type may be: %s.\n", archs.data ? archs.data : "");
    qr_buf_fini(&archs);
    qr_conf_help(QR_VERB_M, stdout);
}

static bool is_set(const struct qr_conf *c, enum qr_opt_id id)
{
    return c->origin[id] != QR_FROM_DEFAULT;
}

static enum qr_status range(const char *flag, int64_t v, int64_t lo, int64_t hi, struct qr_error *err)
{
    if (v >= lo && v <= hi) return QR_OK;
    return qr_fail(err, QR_EINVAL, "--%s: expected %" PRId64 " to %" PRId64 ", got %" PRId64, flag, lo, hi, v);
}

// Presets have none: the systems that they stand for counted tokens.
static enum qr_status set_budget(const struct qr_conf *c, uint64_t *out, struct qr_error *err)
{
    char *end;
    *out = 0;
    if (!is_set(c, QR_OPT_step_budget_ms)) return QR_OK;
    if (strcmp(c->step_budget_ms, "auto") == 0) return *out = UINT64_MAX, QR_OK;
    double ms = strtod(c->step_budget_ms, &end);
    if (end == c->step_budget_ms || *end || !(ms >= 0 && ms <= 1e6))
        return qr_fail(err, QR_EINVAL, "--step-budget-ms: expected auto, 0 or a number of milliseconds, got \"%.40s\"",
                       c->step_budget_ms);
    *out = (uint64_t)(ms * 1e6);
    return QR_OK;
}

// Swapping and sharing are not for every system: what was asked for and does nothing is said.
static void say_what_does_nothing(const struct qr_conf *c, const struct qr_sim_run_conf *r)
{
    bool preempts = !qr_kv_layout_is_contiguous(r->layout) && r->batching != QR_BATCHING_WORST_CASE;
    const char *system = c->sim_system;
    if (!preempts && (c->swap_space > 0 || is_set(c, QR_OPT_preemption_mode)))
        fprintf(stderr, "quire: --%s: not used: %s takes no request that may have to give way later\n",
                c->swap_space > 0 ? "swap-space" : "preemption-mode", system);
    if (r->layout != QR_KV_PAGED && is_set(c, QR_OPT_enable_prefix_caching) && c->enable_prefix_caching)
        fprintf(stderr, "quire: --enable-prefix-caching: not used: layout %s shares no blocks\n", qr_kv_layout_name(r->layout));
}

static enum qr_status set_mode(const char *text, enum qr_preempt_mode *out, struct qr_error *err)
{
    static const char *const names[] = {"auto", "swap", "recompute"};
    static const enum qr_preempt_mode modes[] = {QR_PREEMPT_AUTO, QR_PREEMPT_SWAP, QR_PREEMPT_RECOMPUTE};
    for (int i = 0; i < 3; i++)
        if (strcmp(text, names[i]) == 0) return *out = modes[i], QR_OK;
    return qr_fail(err, QR_EINVAL, "--preemption-mode: expected auto, swap or recompute, got \"%.40s\"", text);
}

// Layout, batching and sizes: the preset, and what was said beside it.
static enum qr_status set_system(const struct qr_conf *c, struct plan *p, struct qr_error *err)
{
    struct qr_sim_run_conf *r = &p->run;
    enum qr_status st = qr_sim_system_find(c->sim_system, &p->system, err);
    if (st != QR_OK) return st;
    int64_t block_size = is_set(c, QR_OPT_block_size) ? c->block_size : p->system->block_size;
    int64_t n_seqs = is_set(c, QR_OPT_max_num_seqs) ? c->max_num_seqs : p->system->max_num_seqs;
    int64_t n_tokens =
        is_set(c, QR_OPT_max_num_batched_tokens) ? c->max_num_batched_tokens : p->system->max_num_batched_tokens;
    st = range("block-size", block_size, 1, 65536, err);
    if (st == QR_OK) st = range("max-num-seqs", n_seqs, 1, 65536, err);
    if (st == QR_OK) st = range("max-num-batched-tokens", n_tokens, 1, 1 << 20, err);
    if (st == QR_OK) st = cmd_sim_max_len(c, &p->model, &r->max_model_len, err);
    if (st == QR_OK) st = range("n", c->n_choices, 1, QR_CHOICES_MAX, err);
    if (st == QR_OK) st = range("beam-width", c->beam_width, 0, QR_CHOICES_MAX, err);
    if (st == QR_OK && c->beam_width > 0 && c->n_choices > 1)
        st = qr_fail(err, QR_EINVAL, "--n: a beam search returns its %" PRId64 " beams; expected --n or --beam-width", c->beam_width);
    if (st == QR_OK) st = range("shared-prefix", c->shared_prefix, 0, QR_SIM_TOKENS_MAX, err);
    if (st == QR_OK) st = cmd_sim_check(c->check, &r->check_every, err);
    if (st == QR_OK) st = set_budget(c, &r->step_budget_ns, err);
    if (st == QR_OK) st = set_mode(c->preemption_mode, &r->preempt_mode, err);
    r->layout = p->system->layout;
    if (st == QR_OK && is_set(c, QR_OPT_kv_layout)) st = qr_kv_layout_parse(c->kv_layout, &r->layout, err);
    r->batching = p->system->batching;
    // TGI 1 had none; where layouts share nothing there is none.
    bool by_default = r->batching != QR_BATCHING_WORST_CASE;
    r->prefix_caching = is_set(c, QR_OPT_enable_prefix_caching) ? c->enable_prefix_caching : by_default;
    r->block_size = (int32_t)block_size, r->max_num_seqs = (int32_t)n_seqs;
    r->max_num_batched_tokens = (int32_t)n_tokens;
    r->n_vocab = p->model.n_vocab;
    r->beam_width = (int32_t)c->beam_width;
    r->n_choices = (int32_t)(c->beam_width > 0 ? c->beam_width : c->n_choices);
    r->shared_tokens = (int32_t)c->shared_prefix;
    r->seed = (uint64_t)c->seed;
    return st;
}

static enum qr_status set_swap(const struct qr_conf *c, struct qr_sim_run_conf *r, double block, struct qr_error *err)
{
    double n = floor((double)c->swap_space / block);
    if (r->preempt_mode == QR_PREEMPT_SWAP && c->swap_space == 0)
        return qr_fail(err, QR_EINVAL, "--preemption-mode swap: swapping preempted requests out needs room for them: --swap-space, as 2G");
    // Other servers count this one in GiB.
    if (c->swap_space > 0 && n < 1)
        return qr_fail(err, QR_EINVAL, "--swap-space: %" PRIu64 " bytes hold no KV block of %.0f; for GiB write %" PRIu64 "G",
                       c->swap_space, block, c->swap_space);
    if (!(n < CMD_BLOCKS_MAX))
        return qr_fail(err, QR_ETOOBIG, "--swap-space: expected less than %g blocks of %.0f bytes, got %.4g GB", CMD_BLOCKS_MAX, block,
                       (double)c->swap_space * 1e-9);
    r->n_ram = (uint32_t)n;
    return QR_OK;
}

// The pool's bytes: as said, or what the machine has left.
static enum qr_status set_pool(const struct qr_conf *c, struct plan *p, struct qr_error *err)
{
    struct qr_sim_run_conf *r = &p->run;
    double block = r->block_size * qr_sim_kv_bytes(&p->model), bytes = (double)c->kv_cache_memory_bytes;
    double n = (double)c->num_gpu_blocks_override;
    if (n == 0 && bytes == 0) bytes = p->memory.kv;
    if (n == 0) n = floor(bytes / block);
    if (!(n >= 1 && n < CMD_BLOCKS_MAX))
        return qr_fail(err, QR_ETOOBIG, "%.0f bytes of KV memory are %.0f blocks of %.0f bytes: expected 1 to 1e9 blocks",
                       bytes, n, block);
    r->n_blocks = (uint32_t)n;
    r->block_bytes = (uint64_t)block;
    enum qr_status st = set_swap(c, r, block, err);
    if (st != QR_OK) return st;
    // vAttention maps K and V of each layer, on each device, apart: a page holds 2 MiB of one of them.
    double row = qr_sim_kv_bytes(&p->model) / (2.0 * p->model.n_layers * p->cost.roofline.n_devices) * r->block_size;
    r->page_blocks = row < VIRTUAL_PAGE_BYTES ? (uint32_t)(VIRTUAL_PAGE_BYTES / row) : 1;
    return QR_OK;
}

static bool gives_memory(const struct qr_conf *c)
{
    return c->kv_cache_memory_bytes > 0 || c->num_gpu_blocks_override > 0;
}

static enum qr_status set_costs(const struct qr_conf *c, struct plan *p, struct qr_error *err)
{
    p->cost.kind = c->costs[0] ? QR_SIM_TABLE : QR_SIM_ROOFLINE;
    if (!c->costs[0]) return QR_OK;
    struct qr_sim_table t;
    enum qr_status st = cmd_sim_costs(c->costs, &t, err);
    if (st != QR_OK) return st;
    const char *memory_of = is_set(c, QR_OPT_hardware) ? c->hardware : gives_memory(c) ? NULL : qr_machine_cpu_model();
    cmd_sim_say_costs(c->costs, &t, p->model.name, memory_of);
    p->cost.table = t.costs;
    p->cost.copy_ns = cmd_sim_copy_ns(&t, is_set(c, QR_OPT_hardware), p->run.block_size * qr_sim_kv_bytes(&p->model));
    return QR_OK;
}

// A table of costs says nothing of memory: that of a machine that is named, or this one's.
static enum qr_status find_machine(const struct qr_conf *c, struct plan *p, struct qr_error *err)
{
    struct qr_sim_hardware *h = &p->cost.roofline.hardware;
    p->here = c->costs[0] && !is_set(c, QR_OPT_hardware);
    if (!p->here) return qr_sim_hardware_find(c->hardware, h, err);
    *h = (struct qr_sim_hardware){.name = "this machine", .memory_gib = (double)qr_machine_memory_bytes() * 0x1p-30 - CMD_PROCESS_GIB};
    return QR_OK;
}

// Memory that was given in bytes is taken at its word where steps were measured on who knows what; elsewhere it must be there.
static enum qr_status set_memory(const struct qr_conf *c, struct plan *p, struct qr_error *err)
{
    const struct qr_sim_roofline *m = &p->cost.roofline;
    bool is_given = gives_memory(c);
    if (p->here && is_given) return QR_OK;
    enum qr_status st = qr_sim_memory(&p->model, &m->hardware, m->n_devices, is_given ? 1 : c->gpu_memory_utilization,
                                      p->run.max_num_batched_tokens, &p->memory, err);
    return st == QR_OK ? cmd_sim_kv_fits(c, &p->model, &m->hardware, p->run.max_num_batched_tokens,
                                         p->run.block_size * qr_sim_kv_bytes(&p->model), err)
                       : st;
}

static enum qr_status set_machine(const struct qr_conf *c, struct plan *p, struct qr_error *err)
{
    struct qr_sim_roofline *m = &p->cost.roofline;
    if (!(c->gpu_memory_utilization > 0 && c->gpu_memory_utilization <= 1))
        return qr_fail(err, QR_EINVAL, "--gpu-memory-utilization: expected above 0, up to 1, got %g",
                       c->gpu_memory_utilization);
    enum qr_status st = set_costs(c, p, err);
    if (st == QR_OK) st = find_machine(c, p, err);
    if (st == QR_OK) st = range("tensor-parallel-size", c->tensor_parallel_size, 1, p->here ? 1 : 1024, err);
    if (st != QR_OK) return st;
    m->model = p->model;
    m->n_devices = (int32_t)c->tensor_parallel_size;
    m->block_size = p->run.block_size;
    if (p->model.n_heads % m->n_devices)
        return qr_fail(err, QR_EINVAL, "--tensor-parallel-size: expected a divisor of the model's %d heads, got %d",
                       p->model.n_heads, m->n_devices);
    st = set_memory(c, p, err);
    return st == QR_OK ? set_pool(c, p, err) : st;
}

static enum qr_status set_workload(const struct qr_conf *c, struct plan *p, struct qr_error *err)
{
    struct qr_sim_workload_conf *w = &p->workload_conf;
    *w = (struct qr_sim_workload_conf){.source = c->workload,
                                       .burstiness = c->burstiness,
                                       .shared_tokens = (int32_t)c->shared_prefix,
                                       .seed = (uint64_t)c->seed};
    if (is_set(c, QR_OPT_request_rate)) {
        char *end;
        w->rate = strtod(c->request_rate, &end);
        if (*end || !(w->rate > 0))
            return qr_fail(err, QR_EINVAL, "--request-rate: expected requests a second, or inf, got \"%.40s\"",
                           c->request_rate);
    }
    if (!c->workload[0])
        return qr_fail(err, QR_EINVAL, "--workload: expected a file of requests, or lengths such as 512/128");
    enum qr_status st = cmd_sim_num_prompts(c, &w->n_requests, err);
    if (st == QR_OK) st = qr_sim_workload_make(w, &p->workload, err);
    p->run.workload = &p->workload;
    p->run.cost = &p->cost;
    if (st == QR_OK) cmd_say_unused(c->workload, p->workload.unused);
    return st;
}

static void progress(void *arg, uint64_t done, uint64_t total)
{
    static uint64_t first_ns, last_ns;
    uint64_t now = qr_clock_wall()->now_ns(qr_clock_wall());
    if (!first_ns) first_ns = now;
    if (!isatty(STDERR_FILENO) || now - first_ns < 1000000000u || (now - last_ns < 200000000u && done < total)) return;
    last_ns = now;
    fprintf(stderr, done < total ? "\rsimulating: %" PRIu64 " of %" PRIu64 " requests   " : "\r\033[K", done, total);
}

static void print_setting(const struct plan *p)
{
    const struct qr_sim_run_conf *r = &p->run;
    const struct qr_sim_roofline *m = &p->cost.roofline;
    char a[16], b[16];
    printf("%s: %s of weights, %.0f bytes of KV a token\n", p->model.name, cmd_bytes(a, qr_sim_weight_bytes(&p->model)),
           qr_sim_kv_bytes(&p->model));
    if (p->cost.kind == QR_SIM_ROOFLINE)
        printf("on %d x %s (%.0f GiB, %.0f GB/s, %.0f TFLOPS), ", m->n_devices, m->hardware.name, m->hardware.memory_gib,
               m->hardware.memory_gbs, m->hardware.tflops);
    else if (p->memory.total > 0)
        printf("as measured, in %s of %s, ", cmd_bytes(a, p->memory.total), p->here ? "this machine's memory" : m->hardware.name);
    else
        printf("as measured, ");
    printf("as %s: layout %s, %u blocks of %d tokens (%s, %.1f k slots)\n\n", p->system->name, qr_kv_layout_name(r->layout),
           r->n_blocks, r->block_size, cmd_bytes(b, (double)r->n_blocks * (double)r->block_bytes),
           (double)r->n_blocks * r->block_size * 1e-3);
}

static void print_json(FILE *f, const struct plan *p, const struct qr_conf *c, const struct qr_sim_summary *s)
{
    struct qr_buf b = {0};
    struct qr_json_writer w;
    const struct qr_sim_run_conf *r = &p->run;
    const struct {
        const char *key, *v;
    } words[] = {{"model", p->model.name}, {"hardware", p->cost.kind == QR_SIM_ROOFLINE ? c->hardware : c->costs},
                 {"system", p->system->name}, {"kv_layout", qr_kv_layout_name(r->layout)}, {"workload", c->workload},
                 {"request_rate", is_set(c, QR_OPT_request_rate) ? c->request_rate : "trace"}};
    const struct {
        const char *key;
        int64_t v;
    } numbers[] = {{"tensor_parallel_size", c->tensor_parallel_size}, {"block_size", r->block_size},
                   {"n_blocks", r->n_blocks}, {"max_num_seqs", r->max_num_seqs},
                   {"max_num_batched_tokens", r->max_num_batched_tokens}, {"max_model_len", r->max_model_len},
                   {"n", r->n_choices}, {"beam_width", r->beam_width}, {"seed", (int64_t)r->seed}};
    qr_jw_init(&w, &b);
    qr_jw_obj(&w);
    qr_jw_key(&w, "config");
    qr_jw_obj(&w);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) qr_jw_key(&w, words[i].key), qr_jw_str(&w, words[i].v);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        qr_jw_key(&w, numbers[i].key), qr_jw_int(&w, numbers[i].v);
    qr_jw_obj_end(&w);
    qr_sim_json(s, &w);
    qr_jw_obj_end(&w);
    fprintf(f, "%s\n", b.data ? b.data : "");
    qr_buf_fini(&b);
}

static enum qr_status check_outputs(const struct qr_conf *c, struct qr_error *err)
{
    if (qr_path_is_std(c->out) && qr_path_is_std(c->json))
        return qr_fail(err, QR_EINVAL, "--out and --json: expected a file for one of them, got standard output for both");
    enum qr_status st = cmd_sim_check_output(c, "out", c->out, err);
    if (st == QR_OK) st = cmd_sim_check_output(c, "json", c->json, err);
    return st == QR_OK ? qr_paths_check_apart("json", c->json, "--out", c->out, err) : st;
}

static enum qr_status write_to(const char *flag, const char *path, FILE **f, struct qr_error *err)
{
    *f = qr_path_is_std(path) ? stdout : fopen(path, "w");
    return *f ? QR_OK : qr_fail(err, QR_EIO, "--%s: cannot write %.150s", flag, path);
}

static enum qr_status written(const char *flag, const char *path, FILE *f, struct qr_error *err)
{
    bool bad = fflush(f) != 0 || ferror(f);
    if (f != stdout) bad |= fclose(f) != 0;
    return bad ? qr_fail(err, QR_EIO, "--%s: writing %.150s failed", flag, path) : QR_OK;
}

// Files first: a full disk is no half success.
static enum qr_status tell(const struct qr_conf *c, const struct plan *p, const struct qr_sim_result *r,
                           const struct qr_sim_summary *s, struct qr_error *err)
{
    FILE *f;
    enum qr_status st = QR_OK;
    if (c->out[0] && (st = write_to("out", c->out, &f, err)) == QR_OK) {
        qr_sim_csv(r, f);
        st = written("out", c->out, f, err);
    }
    if (st == QR_OK && c->json[0] && (st = write_to("json", c->json, &f, err)) == QR_OK) {
        print_json(f, p, c, s);
        st = written("json", c->json, f, err);
    }
    if (st != QR_OK) return st;
    if (r->n_refused)
        fprintf(stderr, "quire: %s can never fit, first: %s\n", qr_count((char[QR_COUNT_BYTES]){0}, r->n_refused, "request"),
                r->refused_why);
    if (!qr_path_is_std(c->out) && !qr_path_is_std(c->json)) print_setting(p), qr_sim_print(s, stdout);
    return QR_OK;
}

static enum qr_status simulate(const struct qr_conf *c, struct plan *p, struct qr_error *err)
{
    struct qr_sim_result result;
    struct qr_sim_summary summary;
    uint64_t begin = qr_clock_wall()->now_ns(qr_clock_wall());
    p->run.progress = progress;
    qr_log_set_level(QR_LOG_WARN); // the engine's lines are about a clock that nobody has
    enum qr_status st = qr_sim_run(&p->run, &result, err);
    if (st != QR_OK) return st;
    double wall = (double)(qr_clock_wall()->now_ns(qr_clock_wall()) - begin) * 1e-9;
    if (result.n_records == 0)
        st = qr_fail(err, QR_ETOOBIG, "no request can be served: %.200s", result.refused_why);
    if (st == QR_OK && qr_sim_summarize(&result, p->run.n_choices, &summary) != QR_OK)
        st = qr_fail(err, QR_ENOMEM, "no memory to sum up %" PRIu64 " requests", result.n_records);
    if (st == QR_OK) st = tell(c, p, &result, &summary, err);
    if (st == QR_OK)
        fprintf(stderr, "simulated %s in %.2f s (%.0f a minute)\n", qr_count((char[QR_COUNT_BYTES]){0}, result.n_records, "request"), wall,
                (double)result.n_records / wall * 60);
    qr_sim_result_free(&result);
    return st;
}

int cmd_sim(int argc, char **argv)
{
    struct qr_error err = {0};
    struct qr_conf conf;
    struct plan p = {0};
    if (qr_conf_parse(QR_VERB_M, argc, argv, &conf, &err) != QR_OK) return cmd_fail(2, &err);
    int rc = 0;
    if (conf.help) {
        help();
    } else if (conf.replay[0]) {
        rc = cmd_replay(&conf);
    } else if (conf.chrome[0]) {
        (void)qr_fail(&err, QR_EINVAL, "--chrome: only with --replay, which has times to show");
        rc = cmd_fail(2, &err);
    } else if (conf.args.n != 1) {
        fprintf(stderr, "quire: sim takes one model: a name such as opt-13b, or a config.json (quire sim --help)\n");
        rc = 2;
    } else {
        enum qr_status st = check_outputs(&conf, &err);
        if (st == QR_OK) st = cmd_sim_model(conf.args.v[0], &p.model, &err);
        if (st == QR_OK) st = set_system(&conf, &p, &err);
        if (st == QR_OK) st = set_machine(&conf, &p, &err);
        if (st == QR_OK) st = set_workload(&conf, &p, &err);
        if (st == QR_OK) say_what_does_nothing(&conf, &p.run);
        if (st == QR_OK) st = simulate(&conf, &p, &err);
        if (st != QR_OK) rc = cmd_fail(st == QR_EINVAL ? 2 : 1, &err);
    }
    qr_sim_workload_free(&p.workload);
    qr_conf_free(&conf);
    return rc;
}
