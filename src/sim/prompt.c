#include "sim/prompt.h"

#include <string.h>

#include "base/hash.h"

enum { TEXT_SHARED = 1, TEXT_BLOCK, TEXT_OWN };

// n ids of one of many endless texts, from position `at` on.
static void text(uint64_t seed, uint64_t kind, uint64_t which, int32_t at, int32_t n, int32_t n_vocab, int32_t *ids)
{
    uint64_t base = qr_rand_u64(seed, kind, which);
    for (int32_t i = 0; i < n; i++)
        ids[i] = (int32_t)(((qr_mix64(base + (uint64_t)(at + i)) >> 32) * (uint64_t)n_vocab) >> 32);
}

void qr_sim_prompt(const struct qr_sim_workload *w, int64_t i, int32_t shared_tokens, const struct qr_sim_context *context,
                   uint64_t seed, int32_t n_vocab, int32_t *ids)
{
    const struct qr_sim_item *it = &w->items[i];
    int32_t n = it->n_prompt, at = shared_tokens < n ? shared_tokens : n;
    text(seed, TEXT_SHARED, 0, 0, at, n_vocab, ids);
    if (context && context->n_ids <= n) {
        memcpy(ids, context->ids, (size_t)context->n_ids * sizeof *ids);
        at = context->n_ids;
    }
    for (size_t h = 0; h < it->n_hashes && at < n; h++) {
        int32_t room = n - at, len = room < w->hash_tokens ? room : w->hash_tokens;
        text(seed, TEXT_BLOCK, w->hashes[it->first_hash + h], 0, len, n_vocab, ids + at);
        at += len;
    }
    text(seed, TEXT_OWN, (uint64_t)i, at, n - at, n_vocab, ids + at);
}
