#include "exec/exec_local.h"

#include <stdbool.h>
#include <string.h>
#include <sys/random.h>

#include "base/assert.h"
#include "base/mem.h"
#include "exec/kvmem.h"
#include "sample/sample.h"

// Logits computed at a time take about this much, where rows want all of them. All rows of a step in one pass read the
// head's weights once, so it is generous; a vocabulary of 150,000 still gets 27 rows.
#define LOGIT_BYTES ((size_t)16 << 20)
#define HEAD_ROWS_MAX 256 // of a pass: beyond it weights read once more cost nothing beside the products

struct exec_local {
    struct qr_exec face;
    struct qr_exec_local_conf conf;
    struct qr_exec_info info;
    struct qr_forward *forward;
    struct kvmem kv;
    struct tiers tiers;
    struct qr_sampler **samplers; // (n_slots), NULL: closed
    int32_t n_head_rows, n_logit_rows; // of a pass of the head
    uint8_t *work; // (n_workers) scratch of the samplers
    size_t work_bytes;
    struct qr_out_row *rows;       // (n_tokens_max): a token of the batch gives at most one
    struct qr_logit_row *wanted;   // (n_tokens_max) what each row takes, and from where
    struct qr_sampler **row_owner; // (n_tokens_max)
    struct qr_top *tops; // (n_tokens_max, QR_LOGPROBS_MAX), then (n_slots, QR_CANDIDATES_MAX)
    // of the step that runs
    const struct qr_batch *batch;
    int32_t pass_first, n_rows;
    int32_t first_copy; // of the phase
    qr_ticket ticket;
    uint64_t elapsed_ns, copy_ns;
    bool pinned;
};

static struct exec_local *local_of(struct qr_exec *x)
{
    return (struct exec_local *)x;
}

static void local_info(struct qr_exec *x, struct qr_exec_info *out)
{
    *out = local_of(x)->info;
}

static enum qr_status local_seq_open(struct qr_exec *x, int32_t slot, const struct qr_sampling *sampling,
                                     int32_t choice, const int32_t *ids, int32_t n_prompt, int32_t n_ids)
{
    struct exec_local *l = local_of(x);
    QR_ASSERT(slot >= 0 && slot < l->conf.n_slots && !l->samplers[slot]);
    return qr_sampler_new(sampling, choice, l->info.n_vocab, ids, n_prompt, n_ids, &l->samplers[slot]);
}

static void local_seq_close(struct qr_exec *x, int32_t slot)
{
    struct exec_local *l = local_of(x);
    QR_ASSERT(slot >= 0 && slot < l->conf.n_slots);
    qr_sampler_free(&l->samplers[slot]);
}

// The caller of a sampler that chooses nothing chooses itself, and such a sampler remembers nothing.
static void local_seq_fork(struct qr_exec *x, int32_t from, int32_t to)
{
    struct exec_local *l = local_of(x);
    QR_ASSERT(from != to && l->samplers[from] && l->samplers[to]);
}

static void local_seq_append(struct qr_exec *x, int32_t slot, int32_t token)
{
    QR_ASSERT(local_of(x)->samplers[slot] && token >= 0 && token < local_of(x)->info.n_vocab);
}

static void copy_task(void *arg, int i, int worker)
{
    (void)worker;
    struct exec_local *l = arg;
    tiers_copy(&l->tiers, &qr_batch_copies(l->batch)[l->first_copy + i]);
}

static void copy_blocks(struct exec_local *l, const struct qr_batch *b)
{
    int32_t n;
    for (l->first_copy = 0; l->first_copy < b->n_copies; l->first_copy += n) {
        n = tiers_phase(b, l->first_copy);
        qr_workers_run(l->conf.workers, n, copy_task, l);
    }
}

static void touch_blocks(struct exec_local *l, const struct qr_batch *b)
{
    const struct qr_batch_seq *s = qr_batch_seqs(b);
    tiers_touch(&l->tiers, b);
    for (int32_t i = 0; i < b->n_seqs; i++) {
        const uint32_t *table = qr_batch_table(b) + s[i].first_block;
        int32_t last = (s[i].pos0 + s[i].n_tokens - 1) / l->conf.block_size;
        for (int32_t k = s[i].pos0 / l->conf.block_size; k <= last; k++) kvmem_touch(&l->kv, table[k]);
    }
}

static void want_row(struct exec_local *l, int32_t i_seq, int32_t i, const struct qr_batch_seq *s, bool score)
{
    int32_t r = l->n_rows++;
    QR_ASSERT(r < l->conf.n_tokens_max);
    l->row_owner[r] = l->samplers[s->slot];
    l->wanted[r] = (struct qr_logit_row){
        .i_seq = i_seq, .i = i, .want = score ? QR_LOGIT_ALL : qr_sampler_wants(l->row_owner[r], s->pos0 + i + 1)};
    l->rows[r] = (struct qr_out_row){
        .i_seq = i_seq, .pos = s->pos0 + i, .is_score = score, .first_top = r * QR_LOGPROBS_MAX};
    if (!score && qr_sampler_n_candidates(l->row_owner[r]) > 0)
        l->rows[r].first_top = l->conf.n_tokens_max * QR_LOGPROBS_MAX + i_seq * QR_CANDIDATES_MAX;
}

static void list_rows(struct exec_local *l, const struct qr_batch *b)
{
    const struct qr_batch_seq *s = qr_batch_seqs(b);
    l->n_rows = 0;
    for (int32_t i = 0; i < b->n_seqs; i++) {
        QR_ASSERT(s[i].slot >= 0 && s[i].slot < l->conf.n_slots && l->samplers[s[i].slot]);
        if (s[i].flags & QR_BATCH_SCORE) {
            for (int32_t k = 0; k < s[i].n_tokens && s[i].pos0 + k + 1 < s[i].n_prompt; k++)
                want_row(l, i, k, &s[i], true);
        }
        if (s[i].flags & QR_BATCH_SAMPLE) want_row(l, i, s[i].n_tokens - 1, &s[i], false);
    }
}

static void row_task(void *arg, int i, int worker)
{
    struct exec_local *l = arg;
    int32_t r = l->pass_first + i;
    void *work = l->work + (size_t)worker * l->work_bytes;
    struct qr_out_row *row = &l->rows[r];
    struct qr_top *top = &l->tops[row->first_top];
    if (l->wanted[r].want != QR_LOGIT_ALL) {
        struct qr_logit_peak peak = qr_model_peak(l->forward, i);
        qr_sampler_take(l->row_owner[r], &peak, row);
        return;
    }
    float *logits = qr_model_logit_row(l->forward, i);
    if (row->is_score) {
        int32_t id = qr_sampler_prompt_id(l->row_owner[r], row->pos + 1);
        QR_ASSERT(id >= 0);
        qr_sample_score(logits, l->info.n_vocab, id, qr_sampler_n_prompt_logprobs(l->row_owner[r]), work, row,
                        top);
    } else {
        qr_sampler_next(l->row_owner[r], row->pos + 1, logits, work, row, top);
    }
}

// How many rows from `first` on the head takes at once.
static int32_t pass_rows(const struct exec_local *l, int32_t first)
{
    int32_t n = 0, n_all = 0;
    for (; first + n < l->n_rows && n < l->n_head_rows; n++) {
        n_all += l->wanted[first + n].want == QR_LOGIT_ALL;
        if (n_all > l->n_logit_rows) break;
    }
    return n;
}

static enum qr_status local_submit(struct qr_exec *x, const struct qr_batch *b, qr_ticket *out)
{
    struct exec_local *l = local_of(x);
    struct qr_clock *clock = qr_clock_wall();
    uint64_t start = clock->now_ns(clock);
    QR_ASSERT(b->n_tokens <= l->conf.n_tokens_max && b->n_seqs <= l->conf.n_slots);
    if (!l->pinned) qr_workers_pin_caller(l->conf.workers);
    l->pinned = true;
    l->batch = b;
    touch_blocks(l, b);
    copy_blocks(l, b);
    l->copy_ns = b->n_copies > 0 ? clock->now_ns(clock) - start : 0;
    list_rows(l, b);
    if (b->n_tokens > 0) qr_model_forward(l->conf.model, l->forward, b, l->kv.base, l->conf.block_size);
    for (int32_t r = 0, n; r < l->n_rows; r += n) {
        n = pass_rows(l, r);
        qr_model_logits(l->conf.model, l->forward, b, l->wanted + r, n);
        l->pass_first = r;
        uint64_t begin = qr_phase_begin(l->conf.phases);
        qr_workers_run(l->conf.workers, n, row_task, l);
        qr_phase_end(l->conf.phases, QR_PHASE_SAMPLE, begin);
    }
    l->batch = NULL;
    l->elapsed_ns = clock->now_ns(clock) - start;
    *out = ++l->ticket;
    return QR_OK;
}

static enum qr_status local_wait(struct qr_exec *x, qr_ticket t, struct qr_exec_result *out)
{
    struct exec_local *l = local_of(x);
    if (t != l->ticket) return QR_EINVAL;
    *out = (struct qr_exec_result){
        .elapsed_ns = l->elapsed_ns, .copy_ns = l->copy_ns, .n_rows = l->n_rows, .rows = l->rows, .tops = l->tops};
    return QR_OK;
}

static void local_io_submit(struct qr_exec *x, const struct qr_io *io, int32_t n)
{
    tiers_io_submit(&local_of(x)->tiers, io, n);
}

static int32_t local_io_poll(struct qr_exec *x, struct qr_io_done *out, int32_t cap, int timeout_ms)
{
    return tiers_io_poll(&local_of(x)->tiers, out, cap, timeout_ms);
}

static const void *local_tier_tag(struct qr_exec *x, uint32_t i)
{
    return tier_file_tag(local_of(x)->tiers.kept, i);
}

static void local_trim(struct qr_exec *x)
{
    kvmem_trim(&local_of(x)->kv);
    tiers_trim(&local_of(x)->tiers);
}

static void local_close(struct qr_exec *x)
{
    struct exec_local *l = local_of(x);
    if (l->samplers)
        for (int32_t i = 0; i < l->conf.n_slots; i++) qr_sampler_free(&l->samplers[i]);
    qr_forward_free(&l->forward);
    tiers_fini(&l->tiers);
    kvmem_fini(&l->kv);
    qr_free(l->samplers);
    qr_free(l->work);
    qr_free(l->rows);
    qr_free(l->wanted);
    qr_free(l->row_owner);
    qr_free(l->tops);
    qr_free(l);
}

static const struct qr_exec_ops local_ops = {
    .info = local_info,
    .seq_open = local_seq_open,
    .seq_close = local_seq_close,
    .seq_fork = local_seq_fork,
    .seq_append = local_seq_append,
    .submit = local_submit,
    .wait = local_wait,
    .io_submit = local_io_submit,
    .io_poll = local_io_poll,
    .tier_tag = local_tier_tag,
    .trim = local_trim,
    .close = local_close,
};

static void size_head(struct exec_local *l)
{
    const struct qr_exec_local_conf *conf = &l->conf;
    int32_t most = conf->n_slots > 16 ? conf->n_slots : 16;
    if (most > HEAD_ROWS_MAX) most = HEAD_ROWS_MAX;
    if (most > conf->n_tokens_max) most = conf->n_tokens_max;
    size_t fit = LOGIT_BYTES / ((size_t)l->info.n_vocab * sizeof(float));
    if (fit < 8) fit = 8;
    l->n_head_rows = most;
    l->n_logit_rows = fit < (size_t)most ? (int32_t)fit : most;
}

static enum qr_status allocate(struct exec_local *l, size_t block_bytes)
{
    const struct qr_exec_local_conf *conf = &l->conf;
    size_t n = (size_t)conf->n_tokens_max, n_workers = (size_t)qr_workers_count(conf->workers);
    struct qr_forward_conf fc = {.n_tokens_max = conf->n_tokens_max,
                                 .n_seqs_max = conf->n_slots,
                                 .n_head_rows = l->n_head_rows,
                                 .n_logit_rows = l->n_logit_rows,
                                 .phases = conf->phases};
    l->samplers = qr_calloc(QR_MEM_EXEC, (size_t)conf->n_slots, sizeof *l->samplers);
    l->work_bytes = (qr_sample_work_bytes(l->info.n_vocab) + 63) & ~(size_t)63;
    l->work = qr_malloc(QR_MEM_EXEC, n_workers * l->work_bytes);
    l->rows = qr_calloc(QR_MEM_EXEC, n, sizeof *l->rows);
    l->wanted = qr_calloc(QR_MEM_EXEC, n, sizeof *l->wanted);
    l->row_owner = qr_calloc(QR_MEM_EXEC, n, sizeof *l->row_owner);
    size_t n_tops = n * QR_LOGPROBS_MAX + (size_t)conf->n_slots * QR_CANDIDATES_MAX;
    l->tops = qr_malloc(QR_MEM_EXEC, n_tops * sizeof *l->tops);
    if (!l->samplers || !l->work || !l->rows || !l->wanted || !l->row_owner || !l->tops) return QR_ENOMEM;
    enum qr_status st = kvmem_init(&l->kv, conf->n_blocks, block_bytes);
    return st != QR_OK ? st : qr_forward_new(conf->model, conf->workers, &fc, &l->forward);
}

enum qr_status qr_exec_local_new(const struct qr_exec_local_conf *conf, struct qr_exec **out,
                                 struct qr_error *err)
{
    const struct qr_model_info *mi = qr_model_info(conf->model);
    size_t block_bytes = qr_model_block_bytes(conf->model, conf->block_size);
    if (conf->n_slots < 1 || conf->n_tokens_max < 1 || conf->n_blocks < 1)
        return qr_fail(err, QR_EINVAL,
                       "executor: expected at least 1 sequence, token and block, got %d, %d, %u",
                       conf->n_slots, conf->n_tokens_max, conf->n_blocks);
    struct exec_local *l = qr_calloc(QR_MEM_EXEC, 1, sizeof *l);
    if (!l) return qr_fail(err, QR_ENOMEM, "executor: no memory");
    l->face.ops = &local_ops;
    l->conf = *conf;
    l->info = (struct qr_exec_info){.n_slots = conf->n_slots,
                                    .n_tokens_max = conf->n_tokens_max,
                                    .block_size = conf->block_size,
                                    .n_blocks = conf->n_blocks,
                                    .tier_slots = {[QR_TIER_RAM] = conf->tiers.n_ram, [QR_TIER_FILE] = conf->tiers.n_file},
                                    .n_staging = conf->tiers.n_staging,
                                    .prefix_slots = {[QR_TIER_RAM] = conf->tiers.n_prefix_ram,
                                                     [QR_TIER_FILE] = conf->tiers.n_prefix_file},
                                    .n_groups = 1,
                                    .block_bytes = {block_bytes},
                                    .n_vocab = mi->n_vocab,
                                    .ctx_max = mi->ctx_max};
    size_head(l);
    if (allocate(l, block_bytes) != QR_OK) {
        local_close(&l->face);
        return qr_fail(err, QR_ENOMEM,
                       "executor: no memory for %u blocks of %zu bytes and steps of %d tokens",
                       conf->n_blocks, block_bytes, conf->n_tokens_max);
    }
    enum qr_status st = tiers_init(&l->tiers, &l->kv, &conf->tiers, err);
    if (st != QR_OK) {
        local_close(&l->face);
        return st;
    }
    if (!l->tiers.kept) l->info.prefix_slots[QR_TIER_FILE] = 0;
    if (l->tiers.kept)
        memcpy(l->info.prefix_key, tier_file_key(l->tiers.kept), sizeof l->info.prefix_key);
    else if (conf->tiers.n_prefix_ram > 0 &&
             getrandom(l->info.prefix_key, sizeof l->info.prefix_key, 0) != (ssize_t)sizeof l->info.prefix_key) {
        local_close(&l->face);
        return qr_fail(err, QR_EIO, "executor: the system gave no random key for cached prefixes");
    }
    *out = &l->face;
    return QR_OK;
}

uint64_t qr_exec_local_kv_bytes(const struct qr_exec *x)
{
    return kvmem_resident_bytes(&((const struct exec_local *)x)->kv);
}
