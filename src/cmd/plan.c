/* quire plan: settings and a number of machines for a load and a latency target. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/words.h"
#include "bench/report.h"
#include "cmd/cmd.h"
#include "cmd/sim_input.h"
#include "conf/paths.h"
#include "sim/plan.h"

#define DEFAULT_TARGET "ttft:5000 tpot:200"
static const int32_t all_seqs[] = {16, 32, 64, 128, 256, 512};
static const int32_t all_tokens[] = {512, 1024, 2048, 4096, 8192};
static const int32_t tokens_here[] = {256, 512, 1024, 2048};

struct planning { // out of the options
    struct qr_sim_model model;
    struct qr_sim_cost cost;
    struct qr_sim_memory memory; // beside the smallest steps
    struct qr_plan_conf plan;
    bool here, guessed; // this machine; nobody measured it
    const char *target;
    struct qr_sim_table table; // of --costs
    int n_threads;
};

static void help(void)
{
    printf("usage: quire plan MODEL --workload FILE|LENGTHS --request-rate N --goodput \"ttft:500 tpot:60\" [options]\n\n"
           "Finds how to serve MODEL so that of 100 requests --target-percentile keep --goodput: the smallest number of\n"
           "replicas (each a machine with its share of the load), --max-num-seqs, --max-num-batched-tokens, memory; what to\n"
           "expect then, which limit binds, and the simulations that were compared. The same options give the same plan.\n"
           "MODEL is a .gguf file or the name of one in ~/.cache/quire/models, a name that quire sim knows (opt-13b,\n"
           "llama-3-8b, ...), or a Hugging Face config.json. Without --hardware it plans for machines like this one: by a\n"
           "measured table of step costs (--costs), else by a guess.\n\n"
           "  quire bench step smollm2-135m-instruct --costs costs.json\n"
           "  quire plan smollm2-135m-instruct --costs costs.json --workload 160/200 --request-rate 3 --goodput \"ttft:500 tpot:60\"\n"
           "  quire plan llama-3-8b --hardware l4 --workload 512/128 --request-rate 2 --goodput \"ttft:1000\" --json -\n\n"
           "A file of requests is CSV: a line \"arrival_s,input_tokens,output_tokens\", then one for each request; src/sim/README.md\n"
           "(Workload files) has all columns.\n");
    qr_conf_help(QR_VERB_P, stdout);
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

static enum qr_status set_target(const struct qr_conf *c, struct planning *p, struct qr_error *err)
{
    struct bench_limits l;
    p->target = c->goodput[0] ? c->goodput : DEFAULT_TARGET;
    enum qr_status st = bench_limits_parse(p->target, &l, err);
    if (st != QR_OK) return st;
    if (!l.any) return qr_fail(err, QR_EINVAL, "--goodput: expected milliseconds such as \"ttft:500 tpot:50\", got \"%.40s\"", c->goodput);
    if (!(c->target_percentile >= 1 && c->target_percentile <= 100))
        return qr_fail(err, QR_EINVAL, "--target-percentile: expected 1 to 100, of 100 requests, got %g", c->target_percentile);
    p->plan.limits = (struct qr_plan_limits){.ttft_s = l.ms[BENCH_TTFT] * 1e-3,
                                             .tpot_s = l.ms[BENCH_TPOT] * 1e-3,
                                             .e2el_s = l.ms[BENCH_E2EL] * 1e-3,
                                             .percentile = c->target_percentile};
    return QR_OK;
}

// The engine's defaults, as `quire serve` has them.
static enum qr_status set_engine(const struct qr_conf *c, struct planning *p, struct qr_error *err)
{
    struct qr_sim_run_conf *r = &p->plan.run;
    char *end;
    enum qr_status st = range("block-size", c->block_size, 1, 65536, err);
    if (st == QR_OK) st = cmd_sim_max_len(c, &p->model, &r->max_model_len, err);
    if (st == QR_OK) st = range("max-num-seqs", c->max_num_seqs, 1, 65536, err);
    if (st == QR_OK) st = range("max-num-batched-tokens", c->max_num_batched_tokens, 1, 1 << 20, err);
    if (st == QR_OK) st = range("shared-prefix", c->shared_prefix, 0, QR_SIM_TOKENS_MAX, err);
    if (st == QR_OK) st = range("threads", c->threads, 0, 1024, err);
    if (st != QR_OK) return st;
    r->step_budget_ns = UINT64_MAX;
    if (strcmp(c->step_budget_ms, "auto") != 0) {
        double ms = strtod(c->step_budget_ms, &end);
        if (end == c->step_budget_ms || *end || !(ms >= 0 && ms <= 1e6))
            return qr_fail(err, QR_EINVAL, "--step-budget-ms: expected auto, 0 or a number of milliseconds, got \"%.40s\"",
                           c->step_budget_ms);
        r->step_budget_ns = (uint64_t)(ms * 1e6);
    }
    r->block_size = (int32_t)c->block_size;
    r->n_vocab = p->model.n_vocab;
    r->layout = QR_KV_PAGED, r->batching = QR_BATCHING_CONTINUOUS, r->page_blocks = 1;
    r->prefix_caching = c->enable_prefix_caching;
    r->preempt_mode = QR_PREEMPT_AUTO;
    r->n_choices = 1, r->shared_tokens = (int32_t)c->shared_prefix;
    r->seed = (uint64_t)c->seed;
    r->block_bytes = (uint64_t)(r->block_size * qr_sim_kv_bytes(&p->model));
    r->cost = &p->cost;
    return QR_OK;
}

// The table that the server itself begins with, for as many threads as it would take here.
static struct qr_costs guess_here(struct planning *p)
{
    const struct qr_sim_model *m = &p->model;
    struct qr_lib_info info = {.n_threads = p->n_threads,
                               .block_size = p->plan.run.block_size,
                               .block_bytes = p->plan.run.block_bytes,
                               .model = {.n_layers = m->n_layers,
                                         .d_model = m->hidden,
                                         .d_ff = m->ffn,
                                         .n_heads = m->n_heads,
                                         .n_kv_heads = m->n_kv_heads,
                                         .head_dim = m->head_dim,
                                         .n_vocab = m->n_vocab,
                                         .packed_bytes = (uint64_t)qr_sim_weight_bytes(m)}};
    return qr_lib_guess_costs(&info);
}

static enum qr_status set_costs(const struct qr_conf *c, struct planning *p, struct qr_error *err)
{
    enum qr_status st = cmd_sim_costs(c->costs, &p->table, err);
    if (st != QR_OK) return st;
    p->cost.table = p->table.costs;
    cmd_sim_say_costs(c->costs, &p->table, p->model.name, p->here ? qr_machine_cpu_model() : c->hardware);
    return QR_OK;
}

static enum qr_status set_machine(const struct qr_conf *c, struct planning *p, struct qr_error *err)
{
    struct qr_sim_roofline *m = &p->cost.roofline;
    p->here = !is_set(c, QR_OPT_hardware);
    p->n_threads = c->threads ? (int)c->threads : qr_machine_cpus();
    enum qr_status st = range("tensor-parallel-size", c->tensor_parallel_size, 1, p->here ? 1 : 1024, err);
    if (st != QR_OK) return st;
    m->model = p->model;
    m->n_devices = (int32_t)c->tensor_parallel_size;
    m->block_size = p->plan.run.block_size;
    if (p->model.n_heads % m->n_devices)
        return qr_fail(err, QR_EINVAL, "--tensor-parallel-size: expected a divisor of the model's %d heads, got %d",
                       p->model.n_heads, m->n_devices);
    if (p->here)
        m->hardware = (struct qr_sim_hardware){.name = "this machine", .memory_gib = (double)qr_machine_memory_bytes() * 0x1p-30};
    else
        st = qr_sim_hardware_find(c->hardware, &m->hardware, err);
    if (st != QR_OK) return st;
    p->cost.kind = p->here || c->costs[0] ? QR_SIM_TABLE : QR_SIM_ROOFLINE;
    p->guessed = p->here && !c->costs[0];
    if (c->origin[QR_OPT_threads] == QR_FROM_FLAG && !p->guessed)
        return qr_fail(err, QR_EINVAL, "--threads: expected neither --hardware nor --costs beside it: it is for a guess of what this "
                                       "machine's steps take");
    if (p->guessed) p->cost.table = guess_here(p);
    st = c->costs[0] ? set_costs(c, p, err) : QR_OK;
    p->cost.copy_ns = cmd_sim_copy_ns(&p->table, !p->here, (double)p->plan.run.block_bytes);
    return st;
}

// KV blocks beside steps of n_tokens.
static enum qr_status blocks_for(const struct qr_conf *c, struct planning *p, int32_t n_tokens, uint32_t *out, struct qr_error *err)
{
    const struct qr_sim_run_conf *r = &p->plan.run;
    struct qr_sim_hardware h = p->cost.roofline.hardware;
    if (p->here) h.memory_gib -= CMD_PROCESS_GIB;
    enum qr_status st = qr_sim_memory(&p->model, &h, p->cost.roofline.n_devices, c->gpu_memory_utilization, n_tokens, &p->memory, err);
    if (st == QR_OK) st = cmd_sim_kv_fits(c, &p->model, &h, n_tokens, (double)r->block_bytes, err);
    if (st != QR_OK) return st;
    double bytes = c->kv_cache_memory_bytes ? (double)c->kv_cache_memory_bytes : p->memory.kv;
    double n = c->num_gpu_blocks_override > 0 ? (double)c->num_gpu_blocks_override : floor(bytes / (double)r->block_bytes);
    double longest = ceil((double)r->max_model_len / r->block_size), most = longest * p->plan.seqs[p->plan.n_seqs - 1];
    if (n < longest)
        return qr_fail(err, QR_ETOOBIG,
                       "memory: a request of --max-model-len %d needs %.0f KV blocks, %.3g GB; there are %.0f, %.3g GB: %s has %.3g GB, of "
                       "which %.2f may be used, weights take %.3g GB; the longest that fits is %.0f",
                       r->max_model_len, longest, longest * (double)r->block_bytes * 1e-9, n, n * (double)r->block_bytes * 1e-9, h.name,
                       p->memory.total * 1e-9, c->gpu_memory_utilization, p->memory.weights * 1e-9, n * r->block_size);
    n = fmin(n, CMD_BLOCKS_MAX), most = fmin(most, CMD_BLOCKS_MAX);
    *out = (uint32_t)(n < most || c->num_gpu_blocks_override > 0 ? n : most);
    return QR_OK;
}

// What is chosen from, and what was set already.
static enum qr_status set_choices(const struct qr_conf *c, struct planning *p, struct qr_error *err)
{
    struct qr_plan_conf *l = &p->plan;
    const int32_t *tokens = p->here ? tokens_here : all_tokens;
    int n_tokens = p->here ? sizeof tokens_here / sizeof *tokens_here : sizeof all_tokens / sizeof *all_tokens;
    int32_t given = (int32_t)c->max_num_batched_tokens;
    if (!(c->gpu_memory_utilization > 0 && c->gpu_memory_utilization <= 1))
        return qr_fail(err, QR_EINVAL, "--gpu-memory-utilization: expected above 0, up to 1, got %g", c->gpu_memory_utilization);
    if (is_set(c, QR_OPT_max_num_batched_tokens)) tokens = &given, n_tokens = 1;
    l->n_seqs = is_set(c, QR_OPT_max_num_seqs) ? 1 : (int32_t)(sizeof all_seqs / sizeof *all_seqs);
    memcpy(l->seqs, all_seqs, sizeof all_seqs);
    if (l->n_seqs == 1) l->seqs[0] = (int32_t)c->max_num_seqs;
    for (int i = 0; i < n_tokens; i++) {
        l->steps[i].n_tokens = tokens[i];
        enum qr_status st = blocks_for(c, p, tokens[i], &l->steps[i].n_blocks, err);
        if (st != QR_OK && i == 0) return st;
        if (st != QR_OK) break; // memory holds no larger steps
        l->n_steps = i + 1;
    }
    // This machine's memory is better given to the pool.
    l->n_ram = p->here ? 0 : l->steps[0].n_blocks;
    return QR_OK;
}

static enum qr_status set_load(const struct qr_conf *c, struct planning *p, struct qr_error *err)
{
    struct qr_sim_workload_conf *w = &p->plan.load;
    *w = (struct qr_sim_workload_conf){.source = c->workload,
                                       .burstiness = c->burstiness,
                                       .shared_tokens = (int32_t)c->shared_prefix,
                                       .seed = (uint64_t)c->seed};
    if (!c->workload[0]) return qr_fail(err, QR_EINVAL, "--workload: expected a file of requests, or lengths such as 512/128");
    if (qr_path_is_std(c->workload))
        return qr_fail(err, QR_EINVAL, "--workload: a plan reads it several times: expected a file, got standard input");
    enum qr_status st = cmd_sim_num_prompts(c, &w->n_requests, err);
    if (st != QR_OK || !is_set(c, QR_OPT_request_rate)) return st; // a trace says when
    char *end;
    w->rate = strtod(c->request_rate, &end);
    if (*end || end == c->request_rate || !(w->rate > 0 && w->rate <= 1e9))
        return qr_fail(err, QR_EINVAL, "--request-rate: expected requests a second, above 0 (all at once is no rate to plan for), "
                                       "got \"%.40s\"", c->request_rate);
    return QR_OK;
}

static void progress(void *arg, int n_runs, int32_t n_replicas)
{
    char at[32] = "one request at a time";
    if (!isatty(STDERR_FILENO)) return;
    if (n_replicas > 0) snprintf(at, sizeof at, "%d replicas", n_replicas);
    fprintf(stderr, "\rplanning: %d simulations, %s \033[K", n_runs, at);
}

static void print_costs(const struct qr_sim_table *t, const char *path)
{
    printf("What steps cost is measured: %s", path);
    if (t->model[0] && t->processor[0]) printf(" (%s on %s)", t->model, t->processor);
    if (t->error_median > 0)
        printf(", off by %.1f %% (median), %.1f %% at most, of the steps it was measured by", 100 * t->error_median, 100 * t->error_max);
    printf(".\n");
}

static void print_head(const struct planning *p, const struct qr_conf *c)
{
    const struct qr_sim_roofline *m = &p->cost.roofline;
    char a[16], b[16], d[16];
    printf("%s: %s of weights, %.0f bytes of KV a token; ", p->model.name, cmd_bytes(a, qr_sim_weight_bytes(&p->model)),
           qr_sim_kv_bytes(&p->model));
    printf("%s with %s of memory, %s left for KV\n",
           p->here ? qr_machine_cpu_model() : qr_sim_hardware_text((char[QR_SIM_HARDWARE_TEXT]){0}, &m->hardware, m->n_devices),
           cmd_bytes(b, p->memory.total), cmd_bytes(d, p->memory.kv));
    if (p->guessed)
        printf("What steps cost is a guess by the model's shapes and %d threads: quire bench step MODEL --costs FILE measures it.\n",
               p->n_threads);
    else if (c->costs[0])
        print_costs(&p->table, c->costs);
    else
        printf("What steps cost is a roofline of %.0f GB/s and %.0f TFLOPS.\n", m->hardware.memory_gbs, m->hardware.tflops);
    printf("Target: %g %% of requests keep \"%s\"%s.\n\n", p->plan.limits.percentile, p->target,
           c->goodput[0] ? "" : " (nothing was asked for with --goodput)");
}

static enum qr_status print_json(const struct planning *p, const struct qr_conf *c, const struct qr_plan *plan, struct qr_error *err)
{
    struct qr_buf b = {0};
    struct qr_json_writer w;
    const struct {
        const char *key, *v;
    } words[] = {{"model", p->model.name},
                 {"hardware", p->cost.roofline.hardware.name},
                 {"costs", c->costs[0] ? c->costs : p->guessed ? "guess" : "roofline"},
                 {"workload", c->workload}};
    qr_jw_init(&w, &b);
    qr_jw_obj(&w);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) qr_jw_key(&w, words[i].key), qr_jw_str(&w, words[i].v);
    qr_jw_key(&w, "memory_bytes");
    qr_jw_double(&w, p->memory.total);
    qr_jw_key(&w, "weight_bytes");
    qr_jw_double(&w, p->memory.weights);
    qr_jw_key(&w, "kv_memory_bytes");
    qr_jw_double(&w, p->memory.kv);
    if (p->table.error_median > 0) {
        qr_jw_key(&w, "costs_error_median");
        qr_jw_double(&w, p->table.error_median);
        qr_jw_key(&w, "costs_error_max");
        qr_jw_double(&w, p->table.error_max);
    }
    qr_plan_json(&p->plan, plan, &w);
    qr_jw_obj_end(&w);
    bool to_stdout = qr_path_is_std(c->json);
    FILE *f = to_stdout ? stdout : fopen(c->json, "w");
    enum qr_status st = f && !b.failed ? QR_OK : qr_fail(err, QR_EIO, "--json: cannot write %.150s", c->json);
    if (f && !b.failed) fprintf(f, "%s\n", b.data);
    bool bad = f && ferror(f);
    if (f && !to_stdout && (fclose(f) != 0 || bad)) st = qr_fail(err, QR_EIO, "--json: writing %.150s failed", c->json);
    qr_buf_fini(&b);
    return st;
}

static enum qr_status plan(struct planning *p, const struct qr_conf *c, struct qr_error *err)
{
    struct qr_plan result;
    qr_log_set_level(QR_LOG_WARN); // the engine's lines are about a clock that nobody has
    p->plan.progress = progress;
    enum qr_status st = qr_plan_make(&p->plan, &result, err);
    if (isatty(STDERR_FILENO)) fprintf(stderr, "\r\033[K");
    if (st != QR_OK) return st;
    cmd_say_unused(c->workload, result.unused);
    if (result.n_unfit > 0)
        fprintf(stderr, "quire: %.120s: %" PRIu64 " of %s can never fit and are in no figure, first: %s\n", c->workload, result.n_unfit,
                qr_count((char[QR_COUNT_BYTES]){0}, result.n_load, "request"), result.unfit_why);
    if (c->json[0]) st = print_json(p, c, &result, err);
    if (st == QR_OK && !qr_path_is_std(c->json)) print_head(p, c), qr_plan_print(&p->plan, &result, stdout);
    qr_plan_free(&result);
    return st;
}

int cmd_plan(int argc, char **argv)
{
    struct qr_error err = {0};
    struct qr_conf conf;
    static struct planning p;
    if (qr_conf_parse(QR_VERB_P, argc, argv, &conf, &err) != QR_OK) return cmd_fail(2, &err);
    int rc = 0;
    if (conf.help) {
        help();
    } else if (conf.args.n != 1) {
        fprintf(stderr, "quire: plan takes one model: a .gguf file, a name such as llama-3-8b, or a config.json (quire plan --help)\n");
        rc = 2;
    } else {
        enum qr_status st = cmd_sim_check_output(&conf, "json", conf.json, &err);
        if (st == QR_OK) st = cmd_sim_model(conf.args.v[0], &p.model, &err);
        if (st == QR_OK) st = set_target(&conf, &p, &err);
        if (st == QR_OK) st = set_load(&conf, &p, &err);
        if (st == QR_OK) st = set_engine(&conf, &p, &err);
        if (st == QR_OK) st = set_machine(&conf, &p, &err);
        if (st == QR_OK) st = set_choices(&conf, &p, &err);
        if (st == QR_OK) st = plan(&p, &conf, &err);
        if (st != QR_OK) rc = cmd_fail(st == QR_EINVAL ? 2 : 1, &err);
    }
    qr_conf_free(&conf);
    return rc;
}
