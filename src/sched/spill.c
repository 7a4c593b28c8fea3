/* Cached prefixes beyond the pool: what the pool evicts goes to memory and to a file, and a prompt that begins as an
 * earlier one did gets it back. */
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "sched/sched_internal.h"

// Slots of the tiers begin behind those of preempted requests and their staging memory.
static uint32_t ram_at(const struct qr_sched *s)
{
    return s->conf.n_slots[QR_TIER_RAM] + s->conf.n_staging;
}

static uint32_t file_at(const struct qr_sched *s)
{
    return s->conf.n_slots[QR_TIER_FILE];
}

enum qr_status sched_spill_new(struct qr_sched *s, int32_t n_blocks_max)
{
    const struct qr_sched_conf *c = &s->conf;
    if (!s->prefix || c->n_prefix[QR_TIER_RAM] + c->n_prefix[QR_TIER_FILE] == 0) return QR_OK;
    struct qr_kv_spill_conf sc = {.n_blocks = c->n_blocks,
                                  .block_size = c->block_size,
                                  .n_ram = c->n_prefix[QR_TIER_RAM],
                                  .n_file = c->n_prefix[QR_TIER_FILE],
                                  .key = {c->prefix_key[0], c->prefix_key[1]}};
    s->tier_hits = qr_malloc(QR_MEM_SCHED, (size_t)n_blocks_max * sizeof *s->tier_hits);
    if (!s->tier_hits || qr_kv_spill_new(&sc, &s->spill) != QR_OK) return QR_ENOMEM;
    qr_kv_prefix_attach(s->prefix, s->spill);
    return QR_OK;
}

static struct qr_kv_store *store_of(const struct qr_sched *s, enum qr_tier tier)
{
    return tier == QR_TIER_RAM ? qr_kv_spill_ram(s->spill) : qr_kv_spill_file(s->spill);
}

void sched_spill_register(struct qr_sched *s, const struct qr_sched_req *r, qr_block_id parent, qr_block_id id,
                          const uint32_t *tokens)
{
    if (!s->spill) return;
    struct qr_kv_key before = parent == QR_BLOCK_NONE ? qr_kv_spill_root(s->spill, r->req->tenant)
                                                      : qr_kv_spill_key(s->spill, parent);
    qr_kv_spill_register(s->spill, id, &before, tokens);
}

/* ==== Coming back. ==== */

// The next block of the prompt, in the nearest tier that has it.
static bool find_next(const struct qr_sched *s, struct qr_kv_key *at, const uint32_t *want, bool strict,
                      struct sched_tier_hit *out)
{
    for (int t = QR_TIER_RAM; t < QR_TIERS; t++) {
        qr_slot_id slot = qr_kv_store_find(store_of(s, (enum qr_tier)t), at, want, strict);
        if (slot == QR_SLOT_NONE) continue;
        *out = (struct sched_tier_hit){(enum qr_tier)t, slot};
        *at = qr_kv_store_tag(store_of(s, out->tier), slot)->behind;
        return true;
    }
    return false;
}

void sched_spill_find(const struct qr_sched *s, struct qr_sched_req *r, struct sched_hit *h, int32_t most, bool strict)
{
    if (!s->spill) return;
    int32_t bs = s->conf.block_size;
    const struct qr_seq *q = qr_sched_req_leader(r);
    struct qr_kv_key at = h->n_full > 0 ? qr_kv_spill_key(s->spill, s->hit_ids[h->n_full - 1])
                                        : qr_kv_spill_root(s->spill, r->req->tenant);
    while (h->n_tokens + bs <= most) {
        struct sched_tier_hit *hit = &s->tier_hits[h->n_tier];
        if (!find_next(s, &at, sched_tokens_at(s, r, q, h->n_tokens, bs), strict, hit)) break;
        // Somebody else is reading it: soon it is in the pool for both.
        if (hit->tier == QR_TIER_FILE && sched_io_is_busy(s, file_at(s) + hit->slot)) h->must_wait = true;
        h->n_tier++;
        h->n_tokens += bs;
    }
}

const uint32_t *sched_spill_tokens(const struct qr_sched *s, int32_t i_hit)
{
    const struct sched_tier_hit *hit = &s->tier_hits[i_hit];
    return qr_kv_store_tag(store_of(s, hit->tier), hit->slot)->tokens;
}

// Of n positions, those of the prompt that were never computed or found for this request.
static int32_t new_of_prompt(const struct qr_sched_req *r, int32_t from, int32_t n)
{
    int32_t to = from + n < r->req->n_prompt ? from + n : r->req->n_prompt;
    if (from < r->n_prompt_seen) from = r->n_prompt_seen;
    return to > from ? to - from : 0;
}

void sched_spill_adopt(struct qr_sched *s, struct qr_sched_req *r, struct qr_seq *q, const struct sched_hit *h)
{
    int32_t bs = s->conf.block_size;
    // All are pinned before a block is taken for the first: that may evict, and what is evicted needs slots too.
    for (int32_t i = 0; i < h->n_tier; i++)
        qr_kv_store_pin(store_of(s, s->tier_hits[i].tier), s->tier_hits[i].slot);
    for (int32_t i = 0; i < h->n_tier; i++) {
        const struct sched_tier_hit *hit = &s->tier_hits[i];
        qr_block_id id = qr_kv_table_grow(s->tables, q->slot);
        r->found.n_of[hit->tier] += new_of_prompt(r, (h->n_full + i) * bs, bs);
        if (hit->tier == QR_TIER_RAM) {
            s->ins[s->n_ins++] = (struct qr_batch_copy){ram_at(s) + hit->slot, id, QR_TIER_RAM, QR_TIER_POOL};
            continue;
        }
        sched_io_start(s, r, &(struct qr_io){QR_IO_READ, file_at(s) + hit->slot, id, NULL});
        qr_kv_store_unpin(store_of(s, QR_TIER_FILE), hit->slot);
        r->loading = true;
    }
}

/* ==== Going out. ==== */

// Where the block waits for its way to the file; QR_SLOT_NONE: nowhere.
static uint32_t staged(struct qr_sched *s, const struct qr_kv_spilled *o)
{
    if (o->ram != QR_SLOT_NONE) return ram_at(s) + o->ram;
    qr_slot_id slot = qr_kv_tier_take(s->staging);
    if (slot == QR_SLOT_NONE) return slot;
    uint32_t mem = s->conf.n_slots[QR_TIER_RAM] + slot;
    s->outs[s->n_outs++] = (struct qr_batch_copy){o->block, mem, QR_TIER_POOL, QR_TIER_RAM};
    return mem;
}

void sched_spill_orders(struct qr_sched *s)
{
    if (!s->spill) return;
    uint32_t n;
    const struct qr_kv_spilled *o = qr_kv_spill_orders(s->spill, &n);
    struct qr_kv_store *file = store_of(s, QR_TIER_FILE);
    for (; n > 0; n--, o++) {
        if (o->ram != QR_SLOT_NONE)
            s->outs[s->n_outs++] = (struct qr_batch_copy){o->block, ram_at(s) + o->ram, QR_TIER_POOL, QR_TIER_RAM};
        if (o->file == QR_SLOT_NONE) continue;
        uint32_t mem = staged(s, o);
        if (mem == QR_SLOT_NONE)
            qr_kv_store_drop(file, o->file);
        else
            sched_io_start(s, NULL, &(struct qr_io){QR_IO_WRITE, file_at(s) + o->file, mem,
                                                    qr_kv_store_tag(file, o->file)});
        qr_kv_store_unpin(file, o->file); // the I/O has its own pin
    }
    qr_kv_spill_clear(s->spill);
}

static void settle_outs(struct qr_sched *s, bool made)
{
    struct qr_kv_store *ram = store_of(s, QR_TIER_RAM);
    for (uint32_t i = 0; i < s->n_outs; i++) {
        if (s->outs[i].dst < ram_at(s)) continue;
        qr_slot_id slot = s->outs[i].dst - ram_at(s);
        if (made)
            qr_kv_store_ready(ram, slot);
        else
            qr_kv_store_drop(ram, slot);
        qr_kv_store_unpin(ram, slot);
    }
}

void sched_spill_failed(struct qr_sched *s)
{
    if (s->spill) settle_outs(s, false);
}

void sched_spill_settle(struct qr_sched *s)
{
    if (!s->spill) return;
    struct qr_kv_store *ram = store_of(s, QR_TIER_RAM);
    settle_outs(s, true);
    for (uint32_t i = 0; i < s->n_ins; i++)
        if (s->ins[i].src >= ram_at(s)) qr_kv_store_unpin(ram, s->ins[i].src - ram_at(s));
}

bool sched_spill_owns_mem(const struct qr_sched *s, uint32_t mem)
{
    return mem >= ram_at(s);
}

bool sched_spill_owns_file(const struct qr_sched *s, uint32_t file)
{
    return file >= file_at(s);
}

void sched_spill_pin(struct qr_sched *s, const struct qr_io *io)
{
    qr_kv_store_pin(store_of(s, QR_TIER_FILE), io->file - file_at(s));
    if (io->kind == QR_IO_WRITE && io->mem >= ram_at(s)) qr_kv_store_pin(store_of(s, QR_TIER_RAM), io->mem - ram_at(s));
}

void sched_spill_unpin(struct qr_sched *s, const struct qr_io *io, bool arrived)
{
    struct qr_kv_store *file = store_of(s, QR_TIER_FILE);
    qr_slot_id slot = io->file - file_at(s);
    if (!arrived)
        qr_kv_store_drop(file, slot);
    else if (io->kind == QR_IO_WRITE)
        qr_kv_store_ready(file, slot);
    qr_kv_store_unpin(file, slot);
    if (io->kind == QR_IO_WRITE && io->mem >= ram_at(s))
        qr_kv_store_unpin(store_of(s, QR_TIER_RAM), io->mem - ram_at(s));
}

/* ==== The ends of a process. ==== */

bool qr_sched_import(struct qr_sched *s, uint32_t slot, const void *tag)
{
    return s->spill && qr_kv_store_import(store_of(s, QR_TIER_FILE), slot, tag);
}

bool qr_sched_flush(struct qr_sched *s)
{
    if (!s->spill || s->conf.n_prefix[QR_TIER_FILE] == 0) return false;
    uint32_t n_touched = qr_kv_pool_n_touched(s->pool), room = qr_kv_tier_n_free(s->staging);
    for (; s->i_flush < n_touched && room > 0; s->i_flush++) {
        if (!qr_kv_pool_is_cached(s->pool, s->i_flush)) continue;
        int32_t n;
        const uint32_t *tokens = qr_kv_prefix_tokens(s->prefix, s->i_flush, &n);
        if (n == s->conf.block_size && qr_kv_spill_save(s->spill, s->i_flush, tokens)) room--;
    }
    return s->i_flush < n_touched || room < qr_kv_tier_n_free(s->staging);
}

void qr_sched_flushed(struct qr_sched *s)
{
    sched_settle(s);
}

void sched_spill_reset(struct qr_sched *s, bool file_too)
{
    if (!s->spill) return;
    qr_kv_store_reset(store_of(s, QR_TIER_RAM));
    if (file_too) qr_kv_store_reset(store_of(s, QR_TIER_FILE));
}

void sched_check_spill(const struct qr_sched *s)
{
    if (!s->spill) return;
    uint64_t n_ram = 0, n_file = 0;
    uint32_t n_orders;
    const struct qr_kv_spilled *o = qr_kv_spill_orders(s->spill, &n_orders);
    qr_kv_spill_check(s->spill);
    for (uint32_t i = 0; i < n_orders; i++) {
        n_ram += o[i].ram != QR_SLOT_NONE;
        n_file += o[i].file != QR_SLOT_NONE;
    }
    for (uint32_t i = 0; i < s->n_outs; i++) n_ram += s->outs[i].dst >= ram_at(s);
    for (uint32_t i = 0; i < s->n_ins; i++) n_ram += s->ins[i].src >= ram_at(s);
    for (uint32_t i = 0; i < s->n_flight; i++) {
        const struct qr_io *io = &s->ios[s->flight[i]].io;
        if (io->file < file_at(s)) continue;
        n_file++;
        n_ram += io->kind == QR_IO_WRITE && io->mem >= ram_at(s);
    }
    QR_ASSERT(qr_kv_store_pin_sum(store_of(s, QR_TIER_RAM)) == n_ram);
    QR_ASSERT(qr_kv_store_pin_sum(store_of(s, QR_TIER_FILE)) == n_file);
}
