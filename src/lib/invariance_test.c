/* What a request gets is a function of the request alone: the same tokens and the same log-probabilities, to the last bit,
 * whatever else the engine does. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/test.h"
#include "lib/ask_internal.h"

#define NO_MODEL "no tiny models: python tests/tiny-model/make.py BUILD/tiny"

enum { N = 32, SHARED = 70 }; // requests; tokens that every second prompt begins with

static struct qr_lib_conf plain(void)
{
    return (struct qr_lib_conf){.max_num_seqs = N, .max_num_batched_tokens = 512, .block_size = 16, .kv_bytes = 64 << 20,
                                .n_threads = 1};
}

// Prompts of 1 to 300 tokens, every way to choose, penalties whose counts must survive.
static void make_ask(struct ask *a, uint64_t i)
{
    uint64_t h = qr_rand_u64(91, 0, i);
    bool shares = i % 2 == 0;
    int32_t n_prompt = shares ? SHARED + (int32_t)(h % 230) : 1 + (int32_t)(h % 120);
    ask_init(a, i, n_prompt, 24 + (int32_t)(h >> 8 & 31));
    for (int32_t k = 0; shares && k < SHARED; k++) a->prompt[k] = 3 + k * 7 % 500;
    struct qr_sampling *s = &a->gen.req.sampling;
    s->temperature = i % 3 ? 0.7f + (float)(i % 4) * 0.2f : 0;
    if (i % 5 == 1) s->top_p = 0.85f;
    if (i % 5 == 2) s->top_k = 20;
    if (i % 7 == 3) s->repetition = 1.2f, s->presence = 0.2f;
    s->n_logprobs = i % 4 == 0 ? 4 : 0;
}

static void expect_same(const struct ask *got, const struct ask *right, const char *way)
{
    bool same = got->n_ids == right->n_ids && !memcmp(got->ids, right->ids, (size_t)right->n_ids * sizeof right->ids[0]) &&
                !memcmp(got->logprobs, right->logprobs, (size_t)right->n_ids * sizeof right->logprobs[0]) &&
                !strcmp(got->text, right->text);
    if (same) return;
    int at = 0;
    while (at < right->n_ids && got->ids[at] == right->ids[at] && !memcmp(&got->logprobs[at], &right->logprobs[at], 4)) at++;
    fail_msg("%s: a request of %d prompt tokens differs from its solo run at token %d: id %d, logprob %a, expected %d, %a", way,
             right->n_prompt, at, got->ids[at], (double)got->logprobs[at], right->ids[at], (double)right->logprobs[at]);
}

struct way {
    const char *name;
    int budget, threads, block_size;
    uint32_t n_blocks; // 0: enough
    bool prefix, alone;
    enum qr_preempt_mode mode;
    uint64_t preempt_every;
};

static struct qr_lib_conf conf_of(const struct way *w, struct qr_lib_conf base)
{
    if (w->budget) base.max_num_batched_tokens = w->budget;
    if (w->budget && w->budget < N) base.max_num_seqs = w->budget;
    if (w->threads) base.n_threads = w->threads;
    if (w->block_size) base.block_size = w->block_size;
    if (w->n_blocks) base.n_blocks = w->n_blocks, base.max_model_len = (int32_t)w->n_blocks * 16;
    base.prefix_caching = w->prefix;
    base.preempt_mode = w->mode;
    base.preempt_every = w->preempt_every;
    if (w->mode == QR_PREEMPT_SWAP) base.swap_bytes = 64 << 20;
    return base;
}

// Twice with a cache: the second time every prompt is found, and of the first the shared beginnings.
static void run_way(const char *model, const struct way *w, struct qr_lib_conf base, const struct ask *right, struct ask *got)
{
    struct qr_lib_conf conf = conf_of(w, base);
    conf.trace = ask_gate;
    struct qr_lib *lib = ask_open_lib(model, &conf);
    for (int round = 0; round <= w->prefix; round++) {
        for (uint64_t i = 0; i < N; i++) make_ask(&got[i], i);
        if (w->alone)
            for (int i = 0; i < N; i++) ask_serve(lib, &got[i], 1);
        else
            ask_serve_at_once(lib, got, N);
        for (int i = 0; i < N; i++) {
            expect_same(&got[i], &right[i], w->name);
            if (round == 1 && w->n_blocks == 0) assert_int_equal(got[i].last.n_cached, got[i].n_prompt - 1);
        }
    }
    struct qr_snapshot s;
    qr_lib_snapshot(lib, &s);
    if (w->n_blocks || w->preempt_every) assert_true(s.n_preemptions > 0);
    if (w->mode == QR_PREEMPT_SWAP) assert_true(s.n_swaps > 0);
    if (w->mode == QR_PREEMPT_RECOMPUTE) assert_int_equal(s.n_swaps, 0);
    qr_lib_close(&lib);
}

static const struct way ways[] = {
    {.name = "alone, 2 threads", .threads = 2, .alone = true},
    {.name = "a batch of 32"},
    {.name = "a batch of 32, 2 threads", .threads = 2},
    {.name = "steps of 16 tokens", .budget = 16},
    {.name = "steps of 64 tokens, 2 threads", .budget = 64, .threads = 2},
    {.name = "steps of 2,048 tokens", .budget = 2048, .threads = 2},
    {.name = "blocks of 128", .block_size = 128, .budget = 100},
    {.name = "a small pool, recomputed", .n_blocks = 64, .mode = QR_PREEMPT_RECOMPUTE, .threads = 2},
    {.name = "a small pool, swapped", .n_blocks = 64, .mode = QR_PREEMPT_SWAP, .threads = 2},
    {.name = "preempted in every third step, recomputed", .mode = QR_PREEMPT_RECOMPUTE, .preempt_every = 3},
    {.name = "preempted in every third step, swapped", .mode = QR_PREEMPT_SWAP, .preempt_every = 3, .threads = 2},
    {.name = "cached prompts", .prefix = true, .threads = 2},
    {.name = "cached prompts, one by one", .prefix = true, .alone = true},
    {.name = "cached prompts in a small pool, steps of 64", .prefix = true, .n_blocks = 64, .budget = 64, .mode = QR_PREEMPT_SWAP},
};

static void check_model(const char *model, struct qr_lib_conf base)
{
    struct ask *right = malloc(N * sizeof *right), *got = malloc(N * sizeof *got);
    struct qr_lib *lib = ask_open_lib(model, &base);
    for (uint64_t i = 0; i < N; i++) {
        make_ask(&right[i], i);
        ask_serve(lib, &right[i], 1);
    }
    qr_lib_close(&lib);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) run_way(model, &ways[i], base, right, got);
    free(right);
    free(got);
}

static bool has_models(void)
{
    struct qr_lib_conf conf = plain();
    struct qr_lib *lib = ask_open_lib("tiny", &conf);
    bool has = lib;
    qr_lib_close(&lib);
    return has;
}

QR_TEST(invariance_of_answers_to_everything_else)
{
    if (!has_models()) QR_SKIP(NO_MODEL);
    check_model("tiny", plain());
}

QR_TEST(invariance_with_exact_numerics_and_int8_kv)
{
    if (!has_models()) QR_SKIP(NO_MODEL);
    struct qr_lib_conf base = plain();
    base.exact = true;
    base.kvtype = QR_KV_INT8;
    check_model("llama-mixed", base);
}

// The next turn of a conversation: what was said, what was answered, and 20 tokens more.
static void next_turn(struct ask *next, const struct ask *before, uint64_t seed)
{
    int32_t n = before->n_prompt + before->n_ids;
    ask_init(next, seed, n + 20, 20);
    memcpy(next->prompt, before->prompt, (size_t)before->n_prompt * sizeof before->prompt[0]);
    memcpy(next->prompt + before->n_prompt, before->ids, (size_t)before->n_ids * sizeof before->ids[0]);
    next->gen.req.sampling.temperature = seed % 2 ? 0.9f : 0;
}

// With exact numerics a cached answer is as good as a computed prompt: turn by turn, beside others, against runs without
// a cache.
QR_TEST(invariance_with_exact_numerics_to_cached_answers)
{
    enum { TALKS = 8, TURNS = 4 };
    if (!has_models()) QR_SKIP(NO_MODEL);
    struct ask *with = malloc(TALKS * sizeof *with), *without = malloc(TALKS * sizeof *without), *next = malloc(sizeof *next);
    struct qr_lib_conf base = plain(), cached = base;
    base.exact = cached.exact = true;
    cached.prefix_caching = true;
    cached.n_threads = 2;
    cached.max_num_batched_tokens = 64;
    struct qr_lib *off = ask_open_lib("tiny", &base), *on = ask_open_lib("tiny", &cached);
    for (uint64_t i = 0; i < TALKS; i++) {
        ask_init(&with[i], i, 30 + 11 * (int32_t)i, 30);
        without[i] = with[i];
    }
    for (int turn = 0; turn < TURNS; turn++) {
        ask_serve(on, with, TALKS);
        for (int i = 0; i < TALKS; i++) {
            ask_serve(off, &without[i], 1);
            expect_same(&with[i], &without[i], "a cached answer");
            // All of the turn before but the token that was drawn last, which has no K and V.
            if (turn > 0) assert_true(with[i].last.n_cached >= with[i].n_prompt - 21);
            next_turn(next, &without[i], (uint64_t)(i + turn));
            with[i] = without[i] = *next;
        }
    }
    struct qr_snapshot s;
    qr_lib_snapshot(on, &s);
    assert_true(s.n_cache_hits > TALKS * (TURNS - 1) * 50);
    qr_lib_close(&off);
    qr_lib_close(&on);
    free(with);
    free(without);
    free(next);
}
