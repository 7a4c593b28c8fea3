#include <inttypes.h>

#include "base/log.h"
#include "kern/pack.h"
#include "lib/lib_internal.h"

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

static uint64_t blocks_of(int64_t tokens, int32_t block_size)
{
    return (uint64_t)((tokens + block_size - 1) / block_size);
}

static uint64_t capped(uint64_t n_blocks)
{
    return n_blocks < INT32_MAX ? n_blocks : INT32_MAX; // block ids and token counts stay within 31 bits
}

/* The share of memory that is left for blocks. Blocks beyond what max_num_seqs requests of the greatest
 * length can fill would only ever be bookkeeping. */
static enum qr_status from_share(const struct lib_memory *m, int32_t max_model_len, uint64_t *n_blocks,
                                 struct qr_error *err)
{
    uint64_t budget = (uint64_t)((double)m->machine_bytes * m->share), taken = m->used_bytes + m->step_bytes;
    if (budget < taken + m->block_bytes)
        return qr_fail(err, QR_ETOOBIG,
                       "memory: %.0f MiB of %.0f MiB (share %g) is less than weights and process %.0f MiB "
                       "+ a step %.0f MiB "
                       "+ one KV block; raise --gpu-memory-utilization or take a smaller model",
                       mib(budget), mib(m->machine_bytes), m->share, mib(m->used_bytes), mib(m->step_bytes));
    uint64_t fit = (budget - taken) / m->block_bytes;
    uint64_t most = (uint64_t)m->max_num_seqs * blocks_of(max_model_len, m->block_size);
    *n_blocks = capped(fit < most ? fit : most);
    return QR_OK;
}

static enum qr_status too_small(const struct lib_memory *m, int32_t max_model_len, uint64_t n_blocks,
                                struct qr_error *err)
{
    uint64_t need = blocks_of(max_model_len, m->block_size);
    return qr_fail(err, QR_ETOOBIG,
                   "max_model_len %d needs %" PRIu64
                   " KV blocks of %.2f MiB (%.0f MiB); the KV cache has %" PRIu64
                   " (%.0f MiB): estimated maximum model length is %" PRIu64,
                   max_model_len, need, mib(m->block_bytes), mib(need * m->block_bytes), n_blocks,
                   mib(n_blocks * m->block_bytes), n_blocks * (uint64_t)m->block_size);
}

uint64_t lib_weight_bytes(const struct qr_gguf *g)
{
    double bytes = 0;
    for (size_t i = 0; i < qr_gguf_n_tensors(g); i++) {
        const struct qr_gguf_tensor *t = qr_gguf_tensor_at(g, i);
        if (!t->type) continue;
        double n_weights = (double)t->bytes / t->type->block_bytes * t->type->block_elems;
        const struct qr_wfmt_traits *fmt = qr_wfmt(t->type->packed);
        bytes += n_weights * fmt->group_bytes / (QR_PANEL * fmt->group);
    }
    return bytes < 0x1p63 ? (uint64_t)bytes : UINT64_MAX;
}

enum qr_status lib_check_weights(uint64_t weight_bytes, uint64_t machine_bytes, struct qr_error *err)
{
    uint64_t others = (uint64_t)20 << 20; // what else a process needs to start, as measured
    if (weight_bytes <= machine_bytes && machine_bytes - weight_bytes >= others) return QR_OK;
    return qr_fail(
        err, QR_ETOOBIG,
        "memory: the model takes %.0f MiB and the process %.0f MiB; this machine or container gives %.0f MiB",
        mib(weight_bytes), mib(others), mib(machine_bytes));
}

// What was asked for in bytes or blocks is given, and taken as it fills: then the system may end us.
static void warn_of_too_much(const struct lib_memory *m, uint64_t n_blocks)
{
    uint64_t all = m->used_bytes + m->step_bytes + n_blocks * m->block_bytes;
    if (all > m->machine_bytes)
        QR_WARN("lib",
                "weights, a step and a full KV cache are %.0f MiB; this machine or container gives %.0f MiB",
                mib(all), mib(m->machine_bytes));
}

// Memory that blocks pass through on their way to a file: what a request of the greatest length has, within limits.
// A request that finds no room in it is recomputed.
#define STAGING_BYTES_MIN ((uint64_t)64 << 20)
#define STAGING_BYTES_MAX ((uint64_t)256 << 20)

static enum qr_status blocks_of_option(const char *flag, uint64_t bytes, uint64_t block_bytes, uint32_t *out,
                                       struct qr_error *err)
{
    uint64_t n = bytes / block_bytes;
    if (bytes > 0 && (n == 0 || n > INT32_MAX / 8))
        return qr_fail_param(err, QR_EINVAL, flag,
                             "--%s of %" PRIu64 " bytes: expected room for 1 to %d KV blocks of %" PRIu64 " bytes", flag,
                             bytes, INT32_MAX / 8, block_bytes);
    *out = (uint32_t)n;
    return QR_OK;
}

enum qr_status lib_size_tiers(const struct lib_memory *m, const struct lib_tier_bytes *bytes, struct lib_tiers *out,
                              struct qr_error *err)
{
    *out = (struct lib_tiers){0};
    // A slot of the file is a whole number of pages.
    uint64_t slot_bytes = (m->block_bytes + 4095) / 4096 * 4096;
    const struct {
        const char *flag;
        uint64_t bytes, each;
        uint32_t *n;
    } rows[] = {{"swap-space", bytes->swap_ram, m->block_bytes, &out->n_ram},
                {"swap-file-size", bytes->swap_file, slot_bytes, &out->n_file},
                {"prefix-cache-ram", bytes->prefix_ram, m->block_bytes, &out->n_prefix_ram},
                {"prefix-cache-file-size", bytes->prefix_file, slot_bytes, &out->n_prefix_file}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        enum qr_status st = blocks_of_option(rows[i].flag, rows[i].bytes, rows[i].each, rows[i].n, err);
        if (st != QR_OK) return st;
    }
    uint64_t n_files = (uint64_t)out->n_file + out->n_prefix_file;
    if (n_files == 0) return QR_OK;
    uint64_t longest = blocks_of(m->max_model_len > 0 ? m->max_model_len : m->ctx_max, m->block_size) * m->block_bytes;
    uint64_t staging = longest < STAGING_BYTES_MIN   ? STAGING_BYTES_MIN
                     : longest > STAGING_BYTES_MAX ? STAGING_BYTES_MAX
                                                   : longest;
    uint64_t n = staging / m->block_bytes > 0 ? staging / m->block_bytes : 1;
    out->n_staging = (uint32_t)(n < n_files ? n : n_files);
    return QR_OK;
}

enum qr_status lib_size_pool(const struct lib_memory *m, struct lib_pool *out, struct qr_error *err)
{
    if (m->block_size < 16 || m->block_size > 128 || m->block_size % 16 != 0)
        return qr_fail_param(err, QR_EINVAL, "block_size",
                             "block_size must be 16 to 128 and a multiple of 16, got %d", m->block_size);
    if (m->max_model_len < 0 || m->max_model_len > m->ctx_max)
        return qr_fail_param(err, QR_EINVAL, "max_model_len",
                             "max_model_len %d: the model takes 1 to %d tokens", m->max_model_len,
                             m->ctx_max);
    int32_t len = m->max_model_len > 0 ? m->max_model_len : m->ctx_max;
    uint64_t n_blocks = m->n_blocks;
    if (n_blocks == 0 && m->kv_bytes > 0)
        n_blocks = capped(m->kv_bytes / m->block_bytes);
    else if (n_blocks == 0) {
        enum qr_status st = from_share(m, len, &n_blocks, err);
        if (st != QR_OK) return st;
    }
    n_blocks = capped(n_blocks);
    if (n_blocks < blocks_of(len, m->block_size)) {
        // A count of blocks is asked for by who wants little: the length follows it unless it was asked for
        // too.
        if (m->n_blocks == 0 || m->max_model_len > 0) return too_small(m, len, n_blocks, err);
        len = (int32_t)n_blocks * m->block_size;
        QR_WARN("lib", "max_model_len is %d: what %" PRIu64 " KV blocks hold (the model takes %d)", len,
                n_blocks, m->ctx_max);
    }
    warn_of_too_much(m, n_blocks);
    *out = (struct lib_pool){.n_blocks = (uint32_t)n_blocks, .max_model_len = len};
    return QR_OK;
}
