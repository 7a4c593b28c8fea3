#include "core/batch.h"

#include <stdbool.h>
#include <string.h>

#include "base/assert.h"

// Every part starts on an 8-byte border.
static size_t up8(size_t n)
{
    return (n + 7) & ~(size_t)7;
}

struct parts {
    size_t seqs_at, ids_at, table_at, copies_at, bytes;
};

static struct parts parts_of(const struct qr_batch_caps *c)
{
    struct parts p;
    p.seqs_at = up8(sizeof(struct qr_batch));
    p.ids_at = p.seqs_at + up8((size_t)c->n_seqs * sizeof(struct qr_batch_seq));
    p.table_at = p.ids_at + up8((size_t)c->n_tokens * sizeof(int32_t));
    p.copies_at = p.table_at + up8((size_t)c->n_table * sizeof(uint32_t));
    p.bytes = p.copies_at + up8((size_t)c->n_copies * sizeof(struct qr_batch_copy));
    return p;
}

size_t qr_batch_bytes(const struct qr_batch_caps *caps)
{
    return parts_of(caps).bytes;
}

struct qr_batch *qr_batch_init(void *mem, const struct qr_batch_caps *caps)
{
    QR_ASSERT(((uintptr_t)mem & 7) == 0);
    struct parts p = parts_of(caps);
    QR_ASSERT(p.bytes <= UINT32_MAX);
    struct qr_batch *b = mem;
    memset(b, 0, p.seqs_at); // padding too: equal batches are equal bytes
    b->bytes = (uint32_t)p.bytes;
    b->seqs_at = (uint32_t)p.seqs_at;
    b->ids_at = (uint32_t)p.ids_at;
    b->table_at = (uint32_t)p.table_at;
    b->copies_at = (uint32_t)p.copies_at;
    return b;
}

static void check_part(const struct qr_batch *b, uint32_t at, int32_t n, size_t bytes_each, uint32_t end)
{
    QR_ASSERT((at & 7) == 0 && at >= sizeof *b && end <= b->bytes);
    QR_ASSERT(n >= 0 && at + (uint64_t)n * bytes_each <= end);
}

static void check_seq(const struct qr_batch *b, const struct qr_batch_seq *s, int block_size,
                      uint32_t n_blocks)
{
    QR_ASSERT(s->slot >= 0 && s->n_tokens >= 1 && s->pos0 >= 0 && s->n_prompt >= 1);
    QR_ASSERT(s->first_id >= 0 && (int64_t)s->first_id + s->n_tokens <= b->n_tokens);
    QR_ASSERT(s->first_block >= 0 && s->n_blocks >= 1 && (int64_t)s->first_block + s->n_blocks <= b->n_table);
    QR_ASSERT((int64_t)s->n_blocks * block_size >= (int64_t)s->pos0 + s->n_tokens);
    QR_ASSERT((s->flags & ~(uint32_t)(QR_BATCH_SAMPLE | QR_BATCH_SCORE | QR_BATCH_EXACT)) == 0);
    for (int32_t i = 0; i < s->n_tokens; i++) QR_ASSERT(qr_batch_ids(b)[s->first_id + i] >= 0);
    for (int32_t i = 0; i < s->n_blocks; i++) QR_ASSERT(qr_batch_table(b)[s->first_block + i] < n_blocks);
}

static bool same_place(uint32_t a, uint16_t a_tier, uint32_t b, uint16_t b_tier)
{
    return a == b && a_tier == b_tier;
}

// Phases in order, and within one no copy reads or writes what another writes: they may run in any order.
static void check_copies(const struct qr_batch *b, uint32_t n_blocks)
{
    const struct qr_batch_copy *c = qr_batch_copies(b);
    for (int32_t i = 0; i < b->n_copies; i++) {
        QR_ASSERT(c[i].src_tier < QR_TIERS && c[i].dst_tier < QR_TIERS);
        QR_ASSERT(c[i].src_tier == QR_TIER_POOL || c[i].dst_tier == QR_TIER_POOL);
        QR_ASSERT(c[i].src_tier != QR_TIER_POOL || c[i].src < n_blocks);
        QR_ASSERT(c[i].dst_tier != QR_TIER_POOL || c[i].dst < n_blocks);
        QR_ASSERT(!same_place(c[i].src, c[i].src_tier, c[i].dst, c[i].dst_tier));
        int phase = qr_batch_copy_phase(&c[i]);
        QR_ASSERT(i == 0 || qr_batch_copy_phase(&c[i - 1]) <= phase);
        for (int32_t j = i + 1; j < b->n_copies && qr_batch_copy_phase(&c[j]) == phase; j++) {
            QR_ASSERT(!same_place(c[j].dst, c[j].dst_tier, c[i].dst, c[i].dst_tier));
            QR_ASSERT(!same_place(c[j].dst, c[j].dst_tier, c[i].src, c[i].src_tier));
            QR_ASSERT(!same_place(c[j].src, c[j].src_tier, c[i].dst, c[i].dst_tier));
        }
    }
}

void qr_batch_check(const struct qr_batch *b, int block_size, uint32_t n_blocks)
{
    QR_ASSERT(block_size >= 1);
    check_part(b, b->seqs_at, b->n_seqs, sizeof(struct qr_batch_seq), b->ids_at);
    check_part(b, b->ids_at, b->n_tokens, sizeof(int32_t), b->table_at);
    check_part(b, b->table_at, b->n_table, sizeof(uint32_t), b->copies_at);
    check_part(b, b->copies_at, b->n_copies, sizeof(struct qr_batch_copy), b->bytes);
    const struct qr_batch_seq *s = qr_batch_seqs(b);
    int64_t n_tokens = 0;
    for (int32_t i = 0; i < b->n_seqs; i++) {
        check_seq(b, &s[i], block_size, n_blocks);
        n_tokens += s[i].n_tokens;
        for (int32_t j = 0; j < i; j++) QR_ASSERT(s[j].slot != s[i].slot);
    }
    QR_ASSERT(n_tokens == b->n_tokens);
    check_copies(b, n_blocks);
}
