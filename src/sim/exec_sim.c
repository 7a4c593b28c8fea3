#include "sim/exec_sim.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/mem.h"

struct slot {
    const struct qr_sampling *sampling; // NULL: closed
    int32_t choice, n_prompt, n_ids, cap;
    int32_t *ids;   // (cap) everything this sequence is known to consist of
    uint64_t *past; // (cap) past[p] is the hash of ids[0 .. p]
};

struct sim_io {
    struct qr_io io;
    uint64_t due; // poll
};

struct exec_sim {
    struct qr_exec face;
    struct qr_exec_sim_conf conf;
    struct slot *slots; // (n_slots)
    // (blocks of the tier, block_size) the hash of the history that was written there; 0: never
    uint64_t *shadow[QR_TIERS];
    uint64_t *writers;  // (n_blocks) step << 16 | row + 1 of the last write
    struct qr_out_row *rows; // (n_tokens_max + n_slots)
    struct qr_top *tops; // (n_tokens_max + n_slots, QR_LOGPROBS_MAX), then (n_slots, QR_CANDIDATES_MAX)
    struct sim_io *ios; // (n_file) under way
    int32_t n_ios;
    uint64_t i_poll, n_ios_ever;
    struct qr_exec_result result;
    qr_ticket last;
};

static uint32_t tier_blocks(const struct qr_exec_sim_conf *c, int tier)
{
    return tier == QR_TIER_POOL ? c->n_blocks : tier == QR_TIER_RAM ? c->n_ram + c->n_staging + c->n_prefix_ram
                                                        : c->n_file + c->n_prefix_file;
}

static struct exec_sim *sim_of(struct qr_exec *x)
{
    return (struct exec_sim *)x;
}

static void sim_info(struct qr_exec *x, struct qr_exec_info *out)
{
    const struct qr_exec_sim_conf *c = &sim_of(x)->conf;
    *out = (struct qr_exec_info){.n_slots = c->n_slots,
                                 .n_tokens_max = c->n_tokens_max,
                                 .block_size = c->block_size,
                                 .n_blocks = c->n_blocks,
                                 .tier_slots = {[QR_TIER_RAM] = c->n_ram, [QR_TIER_FILE] = c->n_file},
                                 .n_staging = c->n_staging,
                                 .prefix_slots = {[QR_TIER_RAM] = c->n_prefix_ram, [QR_TIER_FILE] = c->n_prefix_file},
                                 .prefix_key = {1, 2},
                                 .n_groups = 1,
                                 .n_vocab = c->n_vocab,
                                 .ctx_max = c->ctx_max};
    out->block_bytes[0] = c->block_bytes ? c->block_bytes : (uint64_t)c->block_size;
}

static void slot_append(struct slot *s, int32_t id)
{
    QR_ASSERT(s->n_ids < s->cap);
    uint64_t before = s->n_ids > 0 ? s->past[s->n_ids - 1] : 0;
    s->ids[s->n_ids] = id;
    s->past[s->n_ids] = qr_mix64(before ^ qr_mix64((uint64_t)id + 1)) | 1; // never 0
    s->n_ids++;
}

static enum qr_status sim_seq_open(struct qr_exec *x, int32_t i_slot, const struct qr_sampling *sampling,
                                   int32_t choice, const int32_t *ids, int32_t n_prompt, int32_t n_ids)
{
    struct exec_sim *e = sim_of(x);
    QR_ASSERT(i_slot >= 0 && i_slot < e->conf.n_slots && !e->slots[i_slot].sampling);
    QR_ASSERT(n_prompt >= 1 && n_ids >= n_prompt && n_ids <= n_prompt + sampling->max_tokens);
    int64_t cap = (int64_t)n_prompt + sampling->max_tokens;
    QR_ASSERT(cap <= e->conf.ctx_max);
    struct slot s = {.choice = choice, .n_prompt = n_prompt, .cap = (int32_t)cap};
    s.past = qr_malloc(QR_MEM_EXEC, (size_t)cap * (sizeof *s.past + sizeof *s.ids));
    if (!s.past) return QR_ENOMEM;
    s.ids = (int32_t *)(s.past + cap);
    for (int32_t i = 0; i < n_ids; i++) slot_append(&s, ids[i]);
    s.sampling = sampling;
    e->slots[i_slot] = s;
    return QR_OK;
}

static void sim_seq_close(struct qr_exec *x, int32_t i_slot)
{
    struct slot *s = &sim_of(x)->slots[i_slot];
    QR_ASSERT(i_slot >= 0 && i_slot < sim_of(x)->conf.n_slots && s->sampling);
    qr_free(s->past);
    *s = (struct slot){0};
}

static void sim_seq_fork(struct qr_exec *x, int32_t from, int32_t to)
{
    const struct slot *a = &sim_of(x)->slots[from];
    struct slot *b = &sim_of(x)->slots[to];
    QR_ASSERT(a != b && a->sampling && a->sampling == b->sampling && a->n_ids <= b->cap);
    memcpy(b->ids, a->ids, (size_t)a->n_ids * sizeof *b->ids);
    memcpy(b->past, a->past, (size_t)a->n_ids * sizeof *b->past);
    b->n_ids = a->n_ids;
}

static void sim_seq_append(struct qr_exec *x, int32_t slot, int32_t token)
{
    struct slot *s = &sim_of(x)->slots[slot];
    QR_ASSERT(s->sampling && s->sampling->n_candidates > 0 && token >= 0 && token < sim_of(x)->conf.n_vocab);
    slot_append(s, token);
}

// The place in a block of position p of a row's sequence.
static size_t place(const struct exec_sim *e, const struct qr_batch *b, const struct qr_batch_seq *q,
                    int32_t p)
{
    int32_t bs = e->conf.block_size;
    return (size_t)qr_batch_table(b)[q->first_block + p / bs] * (size_t)bs + (size_t)(p % bs);
}

// Bit 0 of a history's hash is set; bit 1 says that the row was computed as class D.
#define SHADOW_D ((uint64_t)2)

static bool writes_d(const struct qr_batch_seq *q, int32_t pos)
{
    return pos >= q->n_prompt || q->flags & QR_BATCH_EXACT;
}

// Everything before pos0 must stand where the table says, as this very history wrote it, and generated tokens
// as class D. (A prompt may meet another turn's answer: DESIGN N7.)
static void shadow_read(const struct exec_sim *e, const struct qr_batch *b, const struct qr_batch_seq *q)
{
    const struct slot *s = &e->slots[q->slot];
    for (int32_t p = 0; p < q->pos0; p++) {
        uint64_t got = e->shadow[QR_TIER_POOL][place(e, b, q, p)];
        bool right = ((got ^ s->past[p]) & ~SHADOW_D) == 0;
        if (right && (got & SHADOW_D || p < q->n_prompt)) continue;
        fprintf(stderr, "sim: step %llu: slot %d reads position %d in block %u: %s\n",
                (unsigned long long)b->step, q->slot, p,
                qr_batch_table(b)[q->first_block + p / e->conf.block_size],
                right ? "it was computed as a prompt's"
                : got ? "another history stands there"
                      : "it was never written");
        QR_ASSERT(!"a block does not hold what its table's owner wrote");
    }
}

static void shadow_write(struct exec_sim *e, const struct qr_batch *b, const struct qr_batch_seq *q)
{
    const struct slot *s = &e->slots[q->slot];
    uint64_t writer = b->step << 16 | (uint64_t)(q - qr_batch_seqs(b) + 1);
    for (int32_t p = q->pos0; p < q->pos0 + q->n_tokens; p++) {
        size_t at = place(e, b, q, p);
        uint64_t *last = &e->writers[at / (size_t)e->conf.block_size];
        QR_ASSERT(*last >> 16 != b->step || *last == writer); // two sequences write one block in one step
        *last = writer;
        e->shadow[QR_TIER_POOL][at] = (s->past[p] & ~SHADOW_D) | (writes_d(q, p) ? SHADOW_D : 0);
    }
}

static void shadow_step(struct exec_sim *e, const struct qr_batch *b)
{
    size_t bs = (size_t)e->conf.block_size;
    qr_batch_check(b, e->conf.block_size, e->conf.n_blocks);
    for (int32_t i = 0; i < b->n_copies; i++) {
        const struct qr_batch_copy *c = &qr_batch_copies(b)[i];
        QR_ASSERT(c->src < tier_blocks(&e->conf, c->src_tier) && c->dst < tier_blocks(&e->conf, c->dst_tier));
        memcpy(e->shadow[c->dst_tier] + c->dst * bs, e->shadow[c->src_tier] + c->src * bs,
               bs * sizeof(uint64_t));
    }
    const struct qr_batch_seq *q = qr_batch_seqs(b);
    for (int32_t i = 0; i < b->n_seqs; i++) shadow_read(e, b, &q[i]);
    for (int32_t i = 0; i < b->n_seqs; i++) shadow_write(e, b, &q[i]);
    for (int32_t i = 0; i < b->n_seqs; i++) shadow_read(e, b, &q[i]); // nobody wrote into what another reads
}

static bool contains(const int32_t *ids, size_t n, int32_t id)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

// The token that follows a history: a pure function of it, the seed and the choice. End tokens come up by
// chance, but not before min_tokens.
static int32_t draw(const struct exec_sim *e, const struct slot *s)
{
    const struct qr_sampling *p = s->sampling;
    uint64_t past = s->past[s->n_ids - 1];
    bool early = s->n_ids - s->n_prompt < p->min_tokens;
    int32_t id = 0;
    for (uint64_t i = 0; i < 64; i++) {
        id = (int32_t)(qr_rand_u64(p->seed, past + (uint64_t)s->choice, i) % (uint64_t)e->conf.n_vocab);
        if (!early || !(contains(p->eos, p->n_eos, id) || contains(p->stop_ids, p->n_stop_ids, id))) break;
    }
    return id;
}

// A row's made-up logprobs: pure in the history that leads to it.
static void add_row(struct exec_sim *e, int32_t i_seq, int32_t pos, uint64_t past, int32_t token,
                    int32_t n_logprobs, bool score)
{
    int32_t i = e->result.n_rows++;
    struct qr_out_row *r = &e->rows[i];
    *r = (struct qr_out_row){
        .i_seq = i_seq, .pos = pos, .token = token, .first_top = i * QR_LOGPROBS_MAX, .is_score = score};
    if (n_logprobs < 0) return;
    r->rank = 1 + (int32_t)(past % 5);
    r->logprob = -(float)(past >> 40) * 0x1p-20f;
    r->n_top = n_logprobs < QR_LOGPROBS_MAX ? n_logprobs : QR_LOGPROBS_MAX;
    for (int32_t k = 0; k < r->n_top; k++)
        e->tops[r->first_top + k] =
            (struct qr_top){(int32_t)((past + (uint64_t)k) % (uint64_t)e->conf.n_vocab), -(float)k};
}

// A beam's made-up candidates: distinct ids that a history leads to, with log-probabilities that fall.
static void add_candidates(struct exec_sim *e, int32_t i_seq, int32_t pos, const struct slot *s)
{
    const struct qr_sampling *p = s->sampling;
    int32_t i = e->result.n_rows++, n_vocab = e->conf.n_vocab, first = e->conf.n_tokens_max + e->conf.n_slots;
    struct qr_out_row *r = &e->rows[i];
    *r = (struct qr_out_row){
        .i_seq = i_seq, .pos = pos, .token = -1, .first_top = first * QR_LOGPROBS_MAX + i_seq * QR_CANDIDATES_MAX};
    r->n_top = p->n_candidates < n_vocab ? p->n_candidates : n_vocab;
    uint64_t past = s->past[s->n_ids - 1];
    uint64_t start = qr_rand_u64(p->seed, past, 0) % (uint64_t)n_vocab;
    float logprob = 0;
    for (int32_t k = 0; k < r->n_top; k++) {
        logprob -= 0.05f + (float)(qr_rand_u64(p->seed, past, (uint64_t)k + 1) >> 48) * 0x1p-16f;
        e->tops[r->first_top + k] = (struct qr_top){(int32_t)((start + (uint64_t)k) % (uint64_t)n_vocab), logprob};
    }
}

static void run_seq(struct exec_sim *e, const struct qr_batch *b, int32_t i)
{
    const struct qr_batch_seq *q = &qr_batch_seqs(b)[i];
    struct slot *s = &e->slots[q->slot];
    const struct qr_sampling *p = s->sampling;
    int32_t to = q->pos0 + q->n_tokens;
    QR_ASSERT(!(q->flags & QR_BATCH_SCORE) || p->n_prompt_logprobs >= 0);
    if (q->flags & QR_BATCH_SCORE)
        for (int32_t pos = q->pos0; pos < to && pos + 1 < s->n_prompt; pos++)
            add_row(e, i, pos, s->past[pos], s->ids[pos + 1], p->n_prompt_logprobs, true);
    if (!(q->flags & QR_BATCH_SAMPLE)) return;
    QR_ASSERT(to == s->n_ids);
    if (p->n_candidates > 0) {
        add_candidates(e, i, to - 1, s);
        return;
    }
    uint64_t past = s->past[to - 1];
    slot_append(s, draw(e, s));
    add_row(e, i, to - 1, past, s->ids[to], p->n_logprobs, false);
}

static void price(struct exec_sim *e, const struct qr_batch *b, struct qr_exec_result *r)
{
    struct qr_sim_load load;
    struct qr_sim_cost table = {.kind = QR_SIM_TABLE, .table = e->conf.costs, .copy_ns = e->conf.copy_ns};
    struct qr_sim_cost *c = e->conf.cost ? e->conf.cost : &table;
    qr_sim_load_of(b, &load);
    r->copy_ns = qr_sim_copy_ns(c, &load);
    r->elapsed_ns = r->copy_ns + qr_sim_cost_ns(c, &load);
}

static enum qr_status sim_submit(struct qr_exec *x, const struct qr_batch *b, qr_ticket *out)
{
    struct exec_sim *e = sim_of(x);
    QR_ASSERT(b->n_tokens <= e->conf.n_tokens_max && b->n_seqs <= e->conf.n_slots);
    for (int32_t i = 0; i < b->n_seqs; i++) {
        const struct qr_batch_seq *q = &qr_batch_seqs(b)[i];
        const struct slot *s = &e->slots[q->slot];
        QR_ASSERT(s->sampling && s->n_prompt == q->n_prompt && q->pos0 + q->n_tokens <= s->n_ids);
        QR_ASSERT(memcmp(qr_batch_ids(b) + q->first_id, s->ids + q->pos0,
                         (size_t)q->n_tokens * sizeof(int32_t)) == 0);
    }
    if (e->conf.shadow) shadow_step(e, b);
    e->result = (struct qr_exec_result){.rows = e->rows, .tops = e->tops};
    price(e, b, &e->result);
    for (int32_t i = 0; i < b->n_seqs; i++) run_seq(e, b, i);
    *out = ++e->last;
    return QR_OK;
}

static enum qr_status sim_wait(struct qr_exec *x, qr_ticket t, struct qr_exec_result *out)
{
    struct exec_sim *e = sim_of(x);
    QR_ASSERT(t == e->last);
    struct qr_clock *c = e->conf.clock;
    if (c && c->advance_ns) c->advance_ns(c, e->result.elapsed_ns);
    *out = e->result;
    return QR_OK;
}

// What was written is gone: a read of it is caught.
static uint64_t *shadow_of(struct exec_sim *e, int tier, uint32_t id)
{
    QR_ASSERT(id < tier_blocks(&e->conf, tier));
    return e->shadow[tier] + (size_t)id * (size_t)e->conf.block_size;
}

// What is about to be overwritten reads as never written.
static void sim_io_submit(struct qr_exec *x, const struct qr_io *io, int32_t n)
{
    struct exec_sim *e = sim_of(x);
    size_t bytes = (size_t)e->conf.block_size * sizeof(uint64_t);
    for (int32_t i = 0; i < n; i++) {
        QR_ASSERT((uint32_t)e->n_ios < e->conf.n_file + e->conf.n_prefix_file);
        for (int32_t k = 0; k < e->n_ios; k++) QR_ASSERT(e->ios[k].io.file != io[i].file);
        uint64_t delay = qr_mix64(e->n_ios_ever++) % (uint64_t)(e->conf.io_delay + 1);
        e->ios[e->n_ios++] = (struct sim_io){io[i], e->i_poll + delay};
        if (!e->conf.shadow) continue;
        bool write = io[i].kind == QR_IO_WRITE;
        memset(write ? shadow_of(e, QR_TIER_FILE, io[i].file) : shadow_of(e, QR_TIER_POOL, io[i].mem), 0, bytes);
    }
}

// Bytes move at the very end, so that an end that was not left alone shows.
static enum qr_status sim_io_end(struct exec_sim *e, const struct qr_io *io)
{
    int32_t every = e->conf.io_fail_every;
    if (every > 0 && qr_mix64(e->n_ios_ever ^ e->i_poll << 20 ^ io->file) % (uint64_t)every == 0) return QR_EIO;
    if (!e->conf.shadow) return QR_OK;
    uint64_t *file = shadow_of(e, QR_TIER_FILE, io->file);
    uint64_t *mem = shadow_of(e, io->kind == QR_IO_WRITE ? QR_TIER_RAM : QR_TIER_POOL, io->mem);
    bool write = io->kind == QR_IO_WRITE;
    memcpy(write ? file : mem, write ? mem : file, (size_t)e->conf.block_size * sizeof(uint64_t));
    return QR_OK;
}

static int32_t sim_io_poll(struct qr_exec *x, struct qr_io_done *out, int32_t cap, int timeout_ms)
{
    struct exec_sim *e = sim_of(x);
    int32_t n = 0;
    uint64_t soonest = UINT64_MAX;
    for (int32_t i = 0; i < e->n_ios; i++)
        if (e->ios[i].due < soonest) soonest = e->ios[i].due;
    e->i_poll++;
    if (timeout_ms != 0 && e->n_ios > 0 && soonest > e->i_poll) e->i_poll = soonest;
    for (int32_t i = 0; i < e->n_ios && n < cap;) {
        if (e->ios[i].due > e->i_poll) {
            i++;
            continue;
        }
        out[n++] = (struct qr_io_done){e->ios[i].io, sim_io_end(e, &e->ios[i].io), 1000};
        e->ios[i] = e->ios[--e->n_ios];
    }
    return n;
}

static const void *sim_tier_tag(struct qr_exec *x, uint32_t i)
{
    return NULL; // its file begins empty
}

static void sim_trim(struct qr_exec *x)
{
    struct exec_sim *e = sim_of(x);
    if (!e->conf.shadow) return;
    for (int t = 0; t < QR_TIERS; t++)
        memset(e->shadow[t], 0,
               (size_t)tier_blocks(&e->conf, t) * (size_t)e->conf.block_size * sizeof(uint64_t));
    memset(e->writers, 0, e->conf.n_blocks * sizeof *e->writers);
}

static void sim_close(struct qr_exec *x)
{
    struct exec_sim *e = sim_of(x);
    for (int32_t i = 0; e->slots && i < e->conf.n_slots; i++) qr_free(e->slots[i].past);
    qr_free(e->slots);
    for (int t = 0; t < QR_TIERS; t++) qr_free(e->shadow[t]);
    qr_free(e->writers);
    qr_free(e->ios);
    qr_free(e->rows);
    qr_free(e->tops);
    qr_free(e);
}

static enum qr_status new_shadow(struct exec_sim *e)
{
    for (int t = 0; t < QR_TIERS; t++) {
        size_t n = (size_t)tier_blocks(&e->conf, t) * (size_t)e->conf.block_size;
        e->shadow[t] = qr_calloc(QR_MEM_EXEC, n + 1, sizeof(uint64_t));
        if (!e->shadow[t]) return QR_ENOMEM;
    }
    e->writers = qr_calloc(QR_MEM_EXEC, e->conf.n_blocks, sizeof *e->writers);
    return e->writers ? QR_OK : QR_ENOMEM;
}

static const struct qr_exec_ops sim_ops = {.info = sim_info,
                                           .seq_open = sim_seq_open,
                                           .seq_close = sim_seq_close,
                                           .seq_fork = sim_seq_fork,
                                           .seq_append = sim_seq_append,
                                           .submit = sim_submit,
                                           .wait = sim_wait,
                                           .io_submit = sim_io_submit,
                                           .io_poll = sim_io_poll,
                                           .tier_tag = sim_tier_tag,
                                           .trim = sim_trim,
                                           .close = sim_close};

enum qr_status qr_exec_sim_new(const struct qr_exec_sim_conf *conf, struct qr_exec **out,
                               struct qr_error *err)
{
    if (conf->n_slots < 1 || conf->n_tokens_max < 1 || conf->block_size < 1 || conf->n_vocab < 2 ||
        conf->ctx_max < 1 || conf->n_blocks < 1)
        return qr_fail(err, QR_EINVAL,
                       "the simulated executor needs at least 1 slot, token, block and position, 2 ids");
    struct exec_sim *e = qr_calloc(QR_MEM_EXEC, 1, sizeof *e);
    if (!e) return qr_fail(err, QR_ENOMEM, "no memory for the simulated executor");
    size_t n_rows = (size_t)conf->n_tokens_max + (size_t)conf->n_slots;
    e->face.ops = &sim_ops;
    e->conf = *conf;
    e->slots = qr_calloc(QR_MEM_EXEC, (size_t)conf->n_slots, sizeof *e->slots);
    e->rows = qr_malloc(QR_MEM_EXEC, n_rows * sizeof *e->rows);
    size_t n_tops = n_rows * QR_LOGPROBS_MAX + (size_t)conf->n_slots * QR_CANDIDATES_MAX;
    e->tops = qr_malloc(QR_MEM_EXEC, n_tops * sizeof *e->tops);
    e->ios = qr_malloc(QR_MEM_EXEC, ((size_t)conf->n_file + conf->n_prefix_file + 1) * sizeof *e->ios);
    if (!e->slots || !e->rows || !e->tops || !e->ios || (conf->shadow && new_shadow(e) != QR_OK)) {
        sim_close(&e->face);
        return qr_fail(err, QR_ENOMEM, "no memory for the simulated executor (%u blocks, %d slots)",
                       conf->n_blocks, conf->n_slots);
    }
    *out = &e->face;
    return QR_OK;
}
