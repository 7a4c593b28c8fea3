#include "lib/lib.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/machine.h"
#include "base/mem.h"
#include "kern/kern.h"
#include "kv/store.h"
#include "lib/lib_internal.h"
#include "sched/policy.h"

// The part of the start that runs beside the packing of weights.
struct text_start {
    const struct qr_gguf *gguf;
    const char *given_template;
    struct qr_tokenizer *tok;
    struct qr_template *tmpl;
    enum qr_status status;
    struct qr_error err;
};

static void *start_text(void *arg)
{
    struct text_start *t = arg;
    t->status = lib_make_tokenizer(t->gguf, &t->tok, &t->err);
    if (t->status == QR_OK) t->status = lib_make_template(t->gguf, t->given_template, &t->tmpl, &t->err);
    return NULL;
}

static enum qr_status load(struct qr_lib *lib, const struct qr_gguf *g, const struct qr_lib_conf *conf,
                           struct qr_error *err)
{
    struct text_start text = {.gguf = g, .given_template = conf->chat_template};
    struct qr_model_conf mc = {.activations = conf->activations,
                               .kvtype = conf->kvtype,
                               .workers = lib->workers,
                               .progress = conf->progress,
                               .progress_arg = conf->progress_arg};
    pthread_t thread;
    bool beside = pthread_create(&thread, NULL, start_text, &text) == 0;
    enum qr_status st = qr_model_load(g, &mc, &lib->model, err);
    if (beside)
        pthread_join(thread, NULL);
    else
        start_text(&text);
    lib->tok = text.tok;
    lib->tmpl = text.tmpl;
    if (st != QR_OK) return st;
    if (text.status != QR_OK && err) *err = text.err;
    return text.status;
}

static enum qr_status start_workers(struct qr_lib *lib, const struct qr_lib_conf *conf, struct qr_error *err)
{
    struct qr_workers_conf wc = {.n_threads = conf->n_threads > 0 ? conf->n_threads : qr_machine_cpus(),
                                 .cpus = conf->cpus,
                                 .n_cpus = conf->cpus ? conf->n_cpus : 0,
                                 .spin_us = 50};
    lib->info.n_threads = wc.n_threads;
    return qr_workers_new(&wc, &lib->workers, err);
}

// An estimate of the floats that a step of n tokens keeps, by the model's shapes: it only keeps the pool from
// taking their room.
static uint64_t step_bytes(const struct qr_model_info *m, int32_t n_tokens)
{
    uint64_t row =
        8 * (uint64_t)m->d_model + 3 * (uint64_t)m->d_ff + 3 * (uint64_t)m->n_heads * (uint64_t)m->head_dim;
    return (uint64_t)n_tokens * row * sizeof(float) + ((uint64_t)32 << 20);
}

// vAttention maps pages of 2 MiB, the smallest that a GPU's driver gives; so do our huge pages.
#define VIRTUAL_PAGE_BYTES (2u << 20)

static uint32_t page_blocks(const struct qr_lib_info *info)
{
    return info->block_bytes < VIRTUAL_PAGE_BYTES ? (uint32_t)(VIRTUAL_PAGE_BYTES / info->block_bytes) : 1;
}

// What the tiers beside the pool take of memory is not the pool's.
static enum qr_status size_tiers(struct qr_lib_info *info, const struct qr_lib_conf *conf, struct lib_memory *memory,
                                 struct lib_tiers *tiers, struct qr_error *err)
{
    struct lib_tier_bytes bytes = {.swap_ram = conf->swap_bytes,
                                   .swap_file = conf->swap_file_bytes,
                                   .prefix_ram = conf->prefix_ram_bytes,
                                   .prefix_file = conf->prefix_file_bytes};
    enum qr_status st = lib_size_tiers(memory, &bytes, tiers, err);
    if (st != QR_OK) return st;
    memory->used_bytes += ((uint64_t)tiers->n_ram + tiers->n_staging + tiers->n_prefix_ram) * info->block_bytes;
    info->n_prefix_ram_blocks = tiers->n_prefix_ram;
    info->n_prefix_file_blocks = tiers->n_prefix_file;
    info->n_swap_blocks = tiers->n_ram;
    info->n_swap_file_blocks = tiers->n_file;
    info->n_staging_blocks = tiers->n_staging;
    return QR_OK;
}

static enum qr_status start_engine(struct qr_lib *lib, const struct qr_lib_conf *conf, struct qr_error *err)
{
    struct qr_lib_info *info = &lib->info;
    struct lib_memory memory = {.max_model_len = conf->max_model_len,
                                .max_num_seqs = info->max_num_seqs,
                                .block_size = info->block_size,
                                .kv_bytes = conf->kv_bytes,
                                .n_blocks = conf->n_blocks,
                                .share = conf->memory_share > 0 ? conf->memory_share : 0.9,
                                .ctx_max = info->model.ctx_max,
                                .block_bytes = info->block_bytes,
                                .machine_bytes = qr_machine_memory_bytes(),
                                .used_bytes = qr_machine_rss_bytes(),
                                .step_bytes = step_bytes(&info->model, info->max_num_batched_tokens)};
    struct lib_pool pool;
    struct lib_tiers tiers;
    enum qr_status st = size_tiers(info, conf, &memory, &tiers, err);
    if (st != QR_OK) return st;
    st = lib_size_pool(&memory, &pool, err);
    if (st != QR_OK) return st;
    info->n_blocks = pool.n_blocks;
    info->max_model_len = pool.max_model_len;
    info->kv_bytes = pool.n_blocks * info->block_bytes;
    struct qr_exec_local_conf xc = {.model = lib->model,
                                    .workers = lib->workers,
                                    .n_slots = info->max_num_seqs,
                                    .n_tokens_max = info->max_num_batched_tokens,
                                    .block_size = info->block_size,
                                    .n_blocks = info->n_blocks,
                                    .phases = conf->phases,
                                    .tiers = {.n_ram = tiers.n_ram,
                                              .n_staging = tiers.n_staging,
                                              .n_file = tiers.n_file,
                                              .path = conf->swap_file,
                                              .n_prefix_ram = tiers.n_prefix_ram,
                                              .n_prefix_file = tiers.n_prefix_file,
                                              .prefix_path = conf->prefix_file,
                                              .prefix_tag_bytes = qr_kv_tag_bytes(info->block_size)}};
    if (tiers.n_prefix_file > 0 && (st = lib_identity(conf, info, xc.tiers.prefix_identity, err)) != QR_OK) return st;
    if ((st = qr_exec_local_new(&xc, &lib->exec, err)) != QR_OK) return st;
    struct qr_engine_conf ec = {.max_num_seqs = info->max_num_seqs,
                                .max_num_batched_tokens = info->max_num_batched_tokens,
                                .max_model_len = info->max_model_len,
                                .inbox_capacity = LIB_INBOX,
                                .outbox_capacity = LIB_OUTBOX,
                                .clock = qr_clock_wall(),
                                .prefix_caching = info->prefix_caching,
                                .prefix_seed = qr_clock_wall()->now_ns(qr_clock_wall()),
                                .exact = conf->exact,
                                .kv_idle_release_ns = conf->kv_idle_release_ns,
                                .policy = conf->policy,
                                .max_queued_reqs = conf->max_queued_reqs,
                                .max_queued_tokens = conf->max_queued_tokens,
                                .queue_timeout_ns = conf->queue_timeout_ns,
                                .costs = qr_lib_guess_costs(info),
                                .step_budget_ns = conf->step_budget_ns,
                                .trace = conf->trace,
                                .trace_arg = conf->trace_arg,
                                .check_every_step = conf->check_every_step,
                                .layout = conf->layout,
                                .page_blocks = page_blocks(info),
                                .preempt_mode = conf->preempt_mode,
                                .preempt_every = conf->preempt_every};
    if ((st = qr_engine_new(&ec, lib->exec, &lib->engine, err)) != QR_OK) return st;
    return qr_engine_start(lib->engine) == QR_OK
               ? QR_OK
               : qr_fail(err, QR_ENOMEM, "engine: its thread did not start");
}

static void name_model(struct qr_lib *lib, const struct qr_lib_conf *conf)
{
    const char *slash = strrchr(conf->model_path, '/'), *base = slash ? slash + 1 : conf->model_path;
    size_t n = strlen(base);
    if (n > 5 && strcmp(base + n - 5, ".gguf") == 0) n -= 5;
    if (conf->served_name)
        snprintf(lib->info.served_name, sizeof lib->info.served_name, "%s", conf->served_name);
    else
        snprintf(lib->info.served_name, sizeof lib->info.served_name, "%.*s", (int)(n < 127 ? n : 127), base);
}

// An id that metadata names and the vocabulary has, else -1.
static int32_t known_id(const struct qr_lib *lib, int32_t id)
{
    return id < qr_tokenizer_size(lib->tok) ? id : -1;
}

static enum qr_status open_all(struct qr_lib *lib, const struct qr_gguf *g, const struct qr_lib_conf *conf,
                               struct qr_error *err)
{
    struct qr_lib_info *info = &lib->info;
    enum qr_status st;
    info->prefix_caching = conf->prefix_caching && conf->layout == QR_KV_PAGED;
    info->max_num_seqs = conf->max_num_seqs > 0 ? conf->max_num_seqs : 64;
    info->max_num_batched_tokens = conf->max_num_batched_tokens > 0 ? conf->max_num_batched_tokens : 512;
    info->block_size = conf->block_size > 0 ? conf->block_size : 16;
    if (info->max_num_batched_tokens < info->max_num_seqs)
        return qr_fail_param(
            err, QR_EINVAL, "max_num_batched_tokens",
            "max_num_batched_tokens %d must be at least max_num_seqs %d: a step gives each sequence a token",
            info->max_num_batched_tokens, info->max_num_seqs);
    const struct qr_policy *policy = conf->policy ? conf->policy : qr_policy_at(0);
    info->policy = policy->name;
    info->takes_priority = policy->takes_priority;
    name_model(lib, conf);
    if ((st = start_workers(lib, conf, err)) != QR_OK || (st = load(lib, g, conf, err)) != QR_OK) return st;
    info->model = *qr_model_info(lib->model);
    info->block_bytes = qr_model_block_bytes(lib->model, info->block_size);
    info->has_template = lib->tmpl != NULL;
    info->bos = known_id(lib, lib_token_id(g, "tokenizer.ggml.bos_token_id"));
    info->eos = known_id(lib, lib_token_id(g, "tokenizer.ggml.eos_token_id"));
    lib->n_eos = lib_find_eos(g, lib->tok, lib->eos);
    return start_engine(lib, conf, err);
}

enum qr_status qr_lib_open(const struct qr_lib_conf *conf, struct qr_lib **out, struct qr_error *err)
{
    struct qr_clock *clock = qr_clock_wall();
    uint64_t start = clock->now_ns(clock);
    struct qr_gguf *g = NULL;
    (void)qr_kern(); // the table of kernels is filled before any thread computes
    struct qr_lib *lib = qr_calloc(QR_MEM_REQ, 1, sizeof *lib);
    if (!lib) return qr_fail(err, QR_ENOMEM, "lib: no memory");
    pthread_mutex_init(&lib->table_lock, NULL);
    enum qr_status st = qr_gguf_open(conf->model_path, &g, err);
    if (st == QR_OK) st = lib_check_weights(lib_weight_bytes(g), qr_machine_memory_bytes(), err);
    if (st == QR_OK) st = open_all(lib, g, conf, err);
    qr_gguf_free(&g);
    if (st != QR_OK) {
        qr_lib_close(&lib);
        return st;
    }
    lib->info.load_ns = clock->now_ns(clock) - start;
    *out = lib;
    return QR_OK;
}

void qr_lib_close(struct qr_lib **handle)
{
    struct qr_lib *lib = *handle;
    if (!lib) return;
    atomic_store(&lib->closing, true);
    while (atomic_load(&lib->n_reading) > 0) sched_yield();
    qr_engine_free(&lib->engine);
    if (lib->exec) lib->exec->ops->close(lib->exec);
    qr_model_free(&lib->model);
    qr_workers_free(&lib->workers);
    lib_free_requests(lib);
    qr_tokenizer_free(&lib->tok);
    qr_template_free(&lib->tmpl);
    qr_buf_fini(&lib->piece);
    qr_buf_fini(&lib->text);
    pthread_mutex_destroy(&lib->table_lock);
    qr_free(lib);
    *handle = NULL;
}

const struct qr_lib_info *qr_lib_info(const struct qr_lib *lib)
{
    return &lib->info;
}

const struct qr_tokenizer *qr_lib_tokenizer(const struct qr_lib *lib)
{
    return lib->tok;
}

const struct qr_template *qr_lib_template(const struct qr_lib *lib)
{
    return lib->tmpl;
}

void qr_lib_snapshot(struct qr_lib *lib, struct qr_snapshot *out)
{
    qr_engine_snapshot(lib->engine, out);
}

void qr_lib_reset_prefix_cache(struct qr_lib *lib)
{
    qr_engine_reset_prefix_cache(lib->engine);
}

struct qr_inspect *qr_lib_inspect(struct qr_lib *lib)
{
    return qr_engine_inspect(lib->engine);
}

struct qr_exec *qr_lib_exec(struct qr_lib *lib)
{
    return lib->exec;
}

uint64_t qr_lib_kv_resident_bytes(struct qr_lib *lib)
{
    return qr_exec_local_kv_bytes(lib->exec);
}
