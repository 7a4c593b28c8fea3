/* Prefix caching: a request begins with the blocks that others left, and leaves its own to be found.
 *
 * A sequence stands at a place of the index, behind its last full block that is registered there. A block is
 * registered when its last token has been computed; the partly filled one when its sequence leaves.
 *
 * Class D are the rows of generated tokens; of a prompt, those that were taken over from another turn's answer.
 * The request's bitmap remembers these, so that after a preemption they are found, or computed, as class D
 * again, and the answer goes on with the bits that it began with. */
#include <string.h>

#include "base/assert.h"
#include "sched/sched_internal.h"

static bool is_d(const struct qr_sched *s, const struct qr_sched_req *r, int32_t pos)
{
    return s->conf.exact || pos >= r->req->n_prompt || (r->prompt_d[pos / 8] >> pos % 8 & 1);
}

const uint32_t *sched_tokens_at(const struct qr_sched *s, const struct qr_sched_req *r, const struct qr_seq *q,
                                int32_t from, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        s->tokens[i] = (uint32_t)qr_seq_id(r, q, from + i) | (is_d(s, r, from + i) ? QR_KV_CLASS_D : 0);
    return s->tokens;
}

/* ==== A new request finds. ==== */

// A prompt that is scored needs every row.
static bool reads(const struct qr_sched_req *r)
{
    bool scores = r->req->sampling.n_prompt_logprobs >= 0 && r->n_scored < r->req->n_prompt - 1;
    return !r->req->no_cache_read && !scores && r->tier == QR_TIER_POOL;
}

// What may be taken over at most: the last token is computed for its logits.
static int32_t readable(struct qr_sched_req *r)
{
    if (!reads(r)) return 0;
    return r->n_live == 1 ? qr_sched_req_leader(r)->n_ids - 1 : r->req->n_prompt - 1;
}

const struct sched_hit *sched_find(const struct qr_sched *s, struct qr_sched_req *r)
{
    struct sched_hit *h = s->hit;
    *h = (struct sched_hit){.r = r};
    if (!s->prefix) return h;
    int32_t bs = s->conf.block_size, most = readable(r);
    const struct qr_seq *q = qr_sched_req_leader(r);
    // Who goes on after a preemption has the classes that it had, so that it says what it would have said.
    bool strict = r->n_preemptions > 0;
    h->place = qr_kv_prefix_root(s->prefix, r->req->tenant);
    while (h->n_tokens + bs <= most) {
        qr_block_id id = qr_kv_prefix_next(s->prefix, &h->place, sched_tokens_at(s, r, q, h->n_tokens, bs), strict);
        if (id == QR_BLOCK_NONE) break;
        s->hit_ids[h->n_full++] = id;
        h->n_busy += qr_kv_pool_refs(s->pool, id) > 0;
        h->n_tokens += bs;
    }
    sched_spill_find(s, r, h, most, strict);
    if (h->n_tier > 0) return h; // what is partly filled hangs behind blocks of the pool only
    int32_t rest = most - h->n_tokens < bs ? most - h->n_tokens : bs;
    if (rest <= 0) return h;
    s->hit_ids[h->n_full] = qr_kv_prefix_part(s->prefix, &h->place, sched_tokens_at(s, r, q, h->n_tokens, rest), rest,
                                              strict, &h->n_part);
    h->n_tokens += h->n_part;
    return h;
}

void sched_find_full(const struct qr_sched *s)
{
    s->hit->n_tokens -= s->hit->n_part;
    s->hit->n_part = 0;
}

// The tokens of the i-th block of a hit.
static const uint32_t *hit_tokens(const struct qr_sched *s, const struct sched_hit *h, int32_t i)
{
    int32_t n;
    bool spilled = i >= h->n_full && h->n_tier > 0;
    return spilled ? sched_spill_tokens(s, i - h->n_full) : qr_kv_prefix_tokens(s->prefix, s->hit_ids[i], &n);
}

// Notes which prompt tokens are class D for good: those that another turn generated, where the request itself
// would have computed P.
static void note_classes(struct qr_sched *s, struct qr_sched_req *r, const struct sched_hit *h)
{
    int32_t bs = s->conf.block_size, n_prompt = r->req->n_prompt;
    if (r->n_preemptions > 0) return; // what it found is of the classes that were noted
    for (int32_t pos = 0; pos < h->n_tokens && pos < n_prompt && !s->conf.exact; pos++) {
        if (!(hit_tokens(s, h, pos / bs)[pos % bs] & QR_KV_CLASS_D)) continue;
        r->prompt_d[pos / 8] |= (uint8_t)(1 << pos % 8);
        r->found.n_generated++;
    }
}

// A prompt token counts as a hit when it was never computed for this request before.
void sched_count_found(struct qr_sched *s, struct qr_sched_req *r)
{
    const struct qr_sched_found f = r->found;
    struct qr_seq *q = qr_sched_req_leader(r);
    int32_t n_prompt = r->req->n_prompt, to = f.n_tokens < n_prompt ? f.n_tokens : n_prompt;
    r->found = (struct qr_sched_found){0};
    if (q->n_seen < f.n_tokens) q->n_seen = f.n_tokens;
    s->counts.n_cache_generated += (uint64_t)f.n_generated;
    for (int t = 0; t < QR_TIERS; t++) s->counts.n_cache_hits_of[t] += (uint64_t)f.n_of[t];
    if (to <= r->n_prompt_seen) return;
    s->counts.n_cache_hits += (uint64_t)(to - r->n_prompt_seen);
    r->n_cached += to - r->n_prompt_seen;
    r->n_prompt_seen = to;
}

void sched_adopt(struct qr_sched *s, struct qr_sched_req *r)
{
    struct sched_hit *h = s->hit;
    if (!s->prefix || r->tier != QR_TIER_POOL) return;
    QR_ASSERT(h->r == r);
    struct qr_seq *q = qr_sched_req_leader(r);
    r->found = (struct qr_sched_found){.n_tokens = h->n_tokens};
    if (r->n_preemptions == 0 && reads(r)) s->counts.n_cache_queries += (uint64_t)r->req->n_prompt;
    note_classes(s, r, h);
    for (int32_t i = 0; i < h->n_full + (h->n_part > 0); i++)
        qr_kv_table_share(s->tables, q->slot, s->hit_ids[i]);
    sched_spill_adopt(s, r, q, h);
    q->n_computed = h->n_tokens;
    q->place = h->place;
    q->n_indexed = h->n_full;
    if (!r->loading) sched_count_found(s, r);
    h->r = NULL;
}

int32_t sched_one_class(const struct qr_sched *s, const struct qr_sched_req *r, int32_t from, int32_t n,
                        bool *all_d)
{
    *all_d = s->conf.exact;
    if (*all_d || from >= r->req->n_prompt) return n;
    int32_t k = 1;
    *all_d = is_d(s, r, from);
    while (k < n && from + k < r->req->n_prompt && is_d(s, r, from + k) == *all_d) k++;
    return from + k == r->req->n_prompt ? n : k; // generated ones are class D by themselves
}

/* ==== A running request leaves. ==== */

// Registers the full blocks of the first n tokens. When the place went stale, because a block of another
// sequence that stood for an equal one of ours was evicted, it begins at the root again.
static void index_to(struct qr_sched *s, struct qr_sched_req *r, struct qr_seq *q, int32_t n)
{
    int32_t bs = s->conf.block_size;
    const qr_block_id *ids = qr_kv_table_ids(s->tables, q->slot);
    if (q->n_indexed > n / bs || !qr_kv_prefix_holds(s->prefix, &q->place)) {
        q->place = qr_kv_prefix_root(s->prefix, r->req->tenant);
        q->n_indexed = 0;
    }
    for (; q->n_indexed < n / bs; q->n_indexed++) {
        const uint32_t *tokens = sched_tokens_at(s, r, q, q->n_indexed * bs, bs);
        qr_block_id parent = q->place.block;
        if (qr_kv_prefix_add(s->prefix, &q->place, tokens, bs, ids[q->n_indexed]))
            sched_spill_register(s, r, parent, ids[q->n_indexed], tokens);
    }
}

void sched_index(struct qr_sched *s, struct qr_sched_req *r, struct qr_seq *q)
{
    if (!s->prefix || qr_kv_prefix_is_old(s->prefix, &q->place)) return;
    index_to(s, r, q, q->n_computed);
}

// Tokens behind the end of an answer are not cached: what holds some of them is forgotten, unless it is
// somebody else's too.
static void forget_dropped(struct qr_sched *s, struct qr_sched_req *r, struct qr_seq *q)
{
    int32_t bs = s->conf.block_size, at = 0, n_match = 0;
    struct qr_kv_place place = qr_kv_prefix_root(s->prefix, r->req->tenant);
    for (; at + bs <= q->n_kept; at += bs)
        if (qr_kv_prefix_next(s->prefix, &place, sched_tokens_at(s, r, q, at, bs), true) == QR_BLOCK_NONE) return;
    int32_t n = q->n_ids - at < bs ? q->n_ids - at : bs;
    qr_block_id id = qr_kv_prefix_part(s->prefix, &place, sched_tokens_at(s, r, q, at, n), n, true, &n_match);
    if (id == QR_BLOCK_NONE || at + n_match <= q->n_kept) return;
    int32_t n_has;
    (void)qr_kv_prefix_tokens(s->prefix, id, &n_has);
    bool own = q->slot < 0 ? n_has == n_match // of who waits now, as far as can be told
                           : at / bs < qr_kv_table_len(s->tables, q->slot) &&
                                 qr_kv_table_ids(s->tables, q->slot)[at / bs] == id;
    if (own && qr_kv_pool_refs(s->pool, id) == (q->slot >= 0)) qr_kv_prefix_forget(s->prefix, id);
}

void sched_cache_tail(struct qr_sched *s, struct qr_sched_req *r, struct qr_seq *q)
{
    if (!s->prefix || qr_kv_prefix_is_old(s->prefix, &q->place)) return;
    bool cut = q->n_kept > 0 && q->n_kept < q->n_ids;
    if (cut) forget_dropped(s, r, q);
    // Who did not move since it was admitted has nothing new, and may not even have what it is to load.
    if (q->slot < 0 || q->n_computed == 0 || !r->moved) return;
    int32_t bs = s->conf.block_size, n = cut && q->n_kept < q->n_computed ? q->n_kept : q->n_computed;
    index_to(s, r, q, n);
    int32_t n_part = n % bs;
    if (n_part == 0) return;
    qr_block_id id = qr_kv_table_ids(s->tables, q->slot)[n / bs];
    // One that others hold is theirs to fill.
    if (qr_kv_pool_refs(s->pool, id) > 1 || qr_kv_pool_is_cached(s->pool, id)) return;
    qr_kv_prefix_add(s->prefix, &q->place, sched_tokens_at(s, r, q, n - n_part, n_part), n_part, id);
}

void sched_follow(const struct qr_seq *from, struct qr_seq *to)
{
    to->place = from->place;
    to->n_indexed = from->n_indexed;
}

void qr_sched_reset_prefix(struct qr_sched *s)
{
    if (s->prefix) qr_kv_prefix_reset(s->prefix);
    sched_spill_reset(s, true);
}

/* ==== Checking. ==== */

// Every cached block of a table holds what the sequence has there.
static void check_seq(const struct qr_sched *s, const struct qr_sched_req *r, const struct qr_seq *q)
{
    int32_t bs = s->conf.block_size;
    for (int32_t i = 0; i < qr_kv_table_len(s->tables, q->slot) && i * bs < q->n_computed; i++) {
        qr_block_id id = qr_kv_table_ids(s->tables, q->slot)[i];
        if (!qr_kv_pool_is_cached(s->pool, id)) continue;
        int32_t n_has, n = q->n_computed - i * bs < bs ? q->n_computed - i * bs : bs;
        const uint32_t *has = qr_kv_prefix_tokens(s->prefix, id, &n_has);
        QR_ASSERT(n_has >= n && memcmp(has, sched_tokens_at(s, r, q, i * bs, n), (size_t)n * sizeof *has) == 0);
    }
}

void sched_check_prefix(const struct qr_sched *s)
{
    if (!s->prefix) {
        QR_ASSERT(qr_kv_pool_n_cached(s->pool) == 0);
        return;
    }
    qr_kv_prefix_check(s->prefix);
    for (int32_t i = 0; i < s->n_running; i++)
        for (int32_t j = 0; j < s->running[i]->req->n_choices; j++)
            if (s->running[i]->seqs[j].slot >= 0) check_seq(s, s->running[i], &s->running[i]->seqs[j]);
}
