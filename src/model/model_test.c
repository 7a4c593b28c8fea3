#define _GNU_SOURCE // memmem
/* Forward passes on the tiny models of tests/tiny-model/make.py: against transformers' logits, and against
 * themselves in other batches, chunks, threads and blocks. */
#include "model/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/test.h"
#include "kern/isa.h"
#include "model/rig_internal.h"

#define TOLERANCE 1e-4f // of the largest |logit|: the f32 path against transformers; measured: 4e-6

static const char *tiny(const char *name)
{
    char file[96];
    snprintf(file, sizeof file, "tiny/%s.gguf", name);
    return qr_test_build_path(file);
}

#define NEED_TINY()                                                                                          \
    if (access(tiny("tiny"), R_OK)) QR_SKIP("no tiny models: python tests/tiny-model/make.py BUILD/tiny")

static void make_ids(int32_t *ids, int n, uint64_t seed)
{
    for (int i = 0; i < n; i++) ids[i] = (int32_t)(3 + qr_rand_u64(seed, 0, (uint64_t)i) % 500);
}

// The largest difference of a case's kept logits, relative to the largest |logit| of the row.
static float case_error(const struct rig_case *c, const float *logits, int n_vocab)
{
    float worst = 0;
    for (int i = 0; i < c->n_rows; i++) {
        const float *row = logits + (size_t)c->rows[i].pos * (size_t)n_vocab;
        for (int j = 0; j < c->rows[i].n; j++) {
            float e = fabsf(row[c->rows[i].id[j]] - c->rows[i].logit[j]) / c->rows[i].max;
            if (!(e <= worst)) worst = e; // NaN too
        }
    }
    return worst;
}

// Runs every case of the tiny golden file on a path; n_prompt < 0 keeps the case's.
static void compare_tiny(enum qr_activations act, enum qr_kvtype kvtype, int n_prompt, float tolerance)
{
    FILE *f = fopen("tests/vectors/tiny_golden.txt", "r");
    struct rig_case *c = malloc(sizeof *c);
    int n_cases = 0;
    float worst = 0;
    assert_non_null(f);
    while (rig_next_case(f, c)) {
        struct rig r;
        rig_open(&r, &(struct rig_conf){tiny(c->name), act, 2, 16, 512, kvtype});
        float *logits = malloc((size_t)c->n_ids * (size_t)r.n_vocab * sizeof *logits);
        rig_run(&r, c->ids, c->n_ids, n_prompt < 0 ? c->n_prompt : n_prompt, 512, logits);
        float e = case_error(c, logits, r.n_vocab);
        if (!(e <= tolerance))
            fail_msg("%s: logits differ by %g of the largest, %g allowed", c->name, (double)e,
                     (double)tolerance);
        if (e > worst) worst = e;
        free(logits);
        rig_close(&r);
        n_cases++;
    }
    assert_true(n_cases >= 26);
    printf("tiny models: logits within %.1e of the largest\n", (double)worst);
    free(c);
    fclose(f);
}

QR_TEST(model_f32_logits_equal_transformers_for_every_type_and_variant)
{
    NEED_TINY();
    compare_tiny(QR_ACT_F32, QR_KV_AUTO, -1, TOLERANCE);
}

// Random weights are harsher than a trained model's; the tolerances say that nothing is wrong, not how good
// it is.
QR_TEST(model_fast_prompt_logits_are_near_transformers)
{
    NEED_TINY();
    compare_tiny(QR_ACT_FAST, QR_KV_AUTO, -1, 0.04f);
}

// With everything else in float32 a KV type's own loss is what is left.
QR_TEST(model_kv_types_cost_what_their_bits_do)
{
    static const float tolerance[QR_KV_COUNT] = {
        [QR_KV_BF16] = 0.02f, [QR_KV_F16] = 0.005f, [QR_KV_F32] = TOLERANCE, [QR_KV_INT8] = 0.2f, [QR_KV_FP8] = 0.4f};
    NEED_TINY();
    for (enum qr_kvtype t = QR_KV_AUTO + 1; t < QR_KV_COUNT; t++)
        for (int n_prompt = -1; n_prompt <= 1; n_prompt += 2) compare_tiny(QR_ACT_F32, t, n_prompt, tolerance[t]);
}

QR_TEST(model_fast_generated_logits_are_near_transformers)
{
    NEED_TINY();
    compare_tiny(QR_ACT_FAST, QR_KV_AUTO, 1, 0.04f);
}

#define N_IDS 90
#define N_PROMPT 53 // splits units of 16, and chunks of 16 and 37

// Logits of all positions under a configuration.
static float *all_logits(const char *name, const struct rig_conf *conf, int chunk)
{
    int32_t ids[N_IDS];
    struct rig r;
    make_ids(ids, N_IDS, 7);
    struct rig_conf full = *conf;
    full.path = tiny(name);
    full.n_tokens = 128;
    rig_open(&r, &full);
    float *out = malloc(N_IDS * (size_t)r.n_vocab * sizeof *out);
    rig_run(&r, ids, N_IDS, N_PROMPT, chunk, out);
    rig_close(&r);
    return out;
}

#define LOGITS_BYTES (N_IDS * 509 * sizeof(float)) // the vocabulary of every tiny model

static void expect_same_bits(const char *name, const struct rig_conf *conf, int chunk, const float *expected,
                             const char *what)
{
    float *got = all_logits(name, conf, chunk);
    for (int i = 0; i < N_IDS * 509; i++)
        if (memcmp(&got[i], &expected[i], sizeof *got))
            fail_msg("%s, %s: position %d differs", name, what, i / 509);
    free(got);
}

QR_TEST(model_bits_do_not_depend_on_chunks_threads_or_block_size)
{
    static const char *const names[] = {"tiny", "llama-mixed", "llama-q4_1", "qwen2", "qwen2-low"};
    enum { N_NAMES = sizeof names / sizeof *names };
    NEED_TINY();
    for (int act = QR_ACT_FAST; act <= QR_ACT_F32; act++) {
        // Every family by its own KV type, the first by all of them.
        for (size_t i = 0; i < N_NAMES + QR_KV_COUNT - 1; i++) {
            struct rig_conf conf = {
                .activations = (enum qr_activations)act, .n_threads = 1, .block_size = 16};
            const char *name = names[i < N_NAMES ? i : 0];
            if (i >= N_NAMES) conf.kvtype = (enum qr_kvtype)(i - N_NAMES + 1);
            float *expected = all_logits(name, &conf, N_IDS);
            expect_same_bits(name, &conf, 1, expected, "chunks of 1");
            expect_same_bits(name, &conf, 16, expected, "chunks of 16");
            expect_same_bits(name, &conf, 37, expected, "chunks of 37");
            conf.n_threads = 2;
            expect_same_bits(name, &conf, N_IDS, expected, "2 threads");
            expect_same_bits(name, &conf, 1, expected, "2 threads, chunks of 1");
            conf.n_threads = 3;
            conf.block_size = 32;
            expect_same_bits(name, &conf, 37, expected, "blocks of 32");
            conf.block_size = 128;
            expect_same_bits(name, &conf, 21, expected, "blocks of 128");
            free(expected);
        }
    }
}

#define N_SEQS 8

// Eight sequences of different lengths and classes advance together by uneven steps, each row equal to its
// solo run.
QR_TEST(model_bits_do_not_depend_on_the_batch)
{
    static const char *const names[] = {"tiny", "llama-mixed", "qwen2-low"};
    int32_t ids[N_SEQS][N_IDS];
    uint32_t table[N_SEQS][8];
    NEED_TINY();
    for (size_t k = 0; k < sizeof names / sizeof *names + QR_KV_COUNT - 1; k++) {
        struct rig r;
        const char *name = names[k < sizeof names / sizeof *names ? k : 0];
        rig_open(&r, &(struct rig_conf){.path = tiny(name),
                                        .n_threads = 2,
                                        .block_size = 16,
                                        .n_tokens = 512,
                                        .kvtype = (enum qr_kvtype)(k < 3 ? 0 : k - 2)});
        size_t row = (size_t)r.n_vocab;
        float *solo = malloc(N_SEQS * N_IDS * row * sizeof *solo);
        int n[N_SEQS], n_prompt[N_SEQS], pos[N_SEQS] = {0};
        for (int i = 0; i < N_SEQS; i++) {
            n[i] = N_IDS - 9 * i;
            n_prompt[i] = 1 + (i * 29) % n[i];
            make_ids(ids[i], n[i], 100 + (uint64_t)i);
            rig_scatter(table[i], 6, 6 * (uint32_t)(N_SEQS - 1 - i));
            rig_run(&r, ids[i], n[i], n_prompt[i], N_IDS, solo + (size_t)i * N_IDS * row);
        }
        memset(r.pool, 0xFF, r.pool_bytes);
        for (uint64_t step = 0;; step++) {
            struct rig_seq seqs[N_SEQS];
            struct qr_logit_row rows[N_SEQS];
            int who[N_SEQS], n_seqs = 0;
            for (int i = 0; i < N_SEQS; i++) {
                int take = (int)(qr_rand_u64(5, step, (uint64_t)i) % 12);
                if (take > n[i] - pos[i]) take = n[i] - pos[i];
                if (take == 0) continue;
                seqs[n_seqs] = (struct rig_seq){ids[i], n_prompt[i], pos[i], take, table[i], 6};
                rows[n_seqs] = (struct qr_logit_row){.i_seq = n_seqs, .i = take - 1};
                who[n_seqs++] = i;
                pos[i] += take;
            }
            if (n_seqs == 0 && step > 100) break;
            if (n_seqs == 0) continue;
            rig_step(&r, seqs, n_seqs);
            qr_model_logits(r.m, r.f, r.batch, rows, n_seqs);
            for (int j = 0; j < n_seqs; j++) {
                const float *want = solo + ((size_t)who[j] * N_IDS + (size_t)pos[who[j]] - 1) * row;
                if (memcmp(qr_model_logit_row(r.f, j), want, row * sizeof *want))
                    fail_msg("%s: sequence %d at %d differs from its solo run", name, who[j],
                             pos[who[j]] - 1);
            }
        }
        free(solo);
        rig_close(&r);
    }
}

// The peak of a row in memory, by the tiles that the head keeps of it.
static struct qr_logit_peak peak_of(const float *x, int n)
{
    struct qr_logit_tile tiles[8];
    for (int t = 0; t < qr_logit_tiles(n); t++) {
        int first = t * QR_LOGIT_TILE, len = n - first < QR_LOGIT_TILE ? n - first : QR_LOGIT_TILE;
        qr_logit_tile(x + first, len, first, true, &tiles[t]);
    }
    return qr_logit_merge(tiles, qr_logit_tiles(n), true);
}

static void check_wanted(const struct rig *r, const struct qr_logit_row *rows, int n, const float *each)
{
    qr_model_logits(r->m, r->f, r->batch, rows, n);
    for (int i = 0; i < n; i++, each += r->n_vocab) {
        if (rows[i].want == QR_LOGIT_ALL) {
            assert_memory_equal(qr_model_logit_row(r->f, i), each, (size_t)r->n_vocab * sizeof *each);
            continue;
        }
        struct qr_logit_peak p = qr_model_peak(r->f, i), q = peak_of(each, r->n_vocab);
        if (rows[i].want == QR_LOGIT_PEAK) q.norm = 0;
        assert_int_equal(p.id, q.id);
        assert_true(p.max == q.max && p.norm == q.norm);
    }
}

QR_TEST(model_gives_each_row_what_it_wants)
{
    int32_t ids[64];
    uint32_t table[4];
    NEED_TINY();
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        struct rig r;
        rig_open(&r, &(struct rig_conf){tiny("llama-mixed"), QR_ACT_FAST, n_threads, 16, 64, QR_KV_AUTO});
        assert_true(qr_logit_tiles(r.n_vocab) > 1 && r.n_vocab % 16 != 0);
        make_ids(ids, 64, 3);
        rig_scatter(table, 4, 0);
        struct rig_seq s = {ids, 40, 0, 64, table, 4}; // rows 40.. are class D
        rig_step(&r, &s, 1);
        float *each = malloc(32 * (size_t)r.n_vocab * sizeof *each);
        struct qr_logit_row rows[32];
        for (uint64_t seed = 0; seed < 30; seed++) {
            int n = seed % 3 ? 1 + (int)(seed * 7 % 32) : 32;
            for (int i = 0; i < n; i++) {
                uint64_t h = qr_rand_u64(seed, 0, (uint64_t)i);
                rows[i] = (struct qr_logit_row){.i = (int32_t)(h % 64)};
                qr_model_logits(r.m, r.f, r.batch, &rows[i], 1);
                memcpy(each + i * r.n_vocab, qr_model_logit_row(r.f, 0), (size_t)r.n_vocab * sizeof *each);
                rows[i].want = seed % 5 ? (enum qr_logit_want)((h >> 8) % 3) : QR_LOGIT_ALL;
            }
            check_wanted(&r, rows, n, each);
        }
        free(each);
        rig_close(&r);
    }
}

QR_TEST(model_stores_no_logits_where_peaks_are_wanted)
{
    int32_t ids[64];
    uint32_t table[4];
    struct rig r;
    NEED_TINY();
    rig_open(&r, &(struct rig_conf){tiny("tiny"), QR_ACT_FAST, 2, 16, 64, QR_KV_AUTO});
    make_ids(ids, 64, 3);
    rig_scatter(table, 4, 0);
    rig_step(&r, &(struct rig_seq){ids, 40, 0, 64, table, 4}, 1);
    struct qr_logit_row rows[32];
    for (int i = 0; i < 32; i++) rows[i] = (struct qr_logit_row){.i = i * 2, .want = QR_LOGIT_PEAK_NORM};
    qr_model_logits(r.m, r.f, r.batch, &(struct qr_logit_row){0}, 1);
    float *logits = qr_model_logit_row(r.f, 0);
    size_t bytes = 32 * (size_t)r.n_vocab * sizeof *logits;
    memset(logits, 0x5a, bytes);
    qr_model_logits(r.m, r.f, r.batch, rows, 32);
    for (size_t i = 0; i < bytes; i++) assert_int_equal(((uint8_t *)logits)[i], 0x5a);
    rig_close(&r);
}

QR_TEST(model_allocates_nothing_in_a_step)
{
    int32_t ids[64];
    uint32_t table[4];
    struct rig r;
    NEED_TINY();
    rig_open(&r, &(struct rig_conf){tiny("llama-mixed"), QR_ACT_FAST, 2, 16, 64, QR_KV_AUTO});
    make_ids(ids, 64, 3);
    rig_scatter(table, 4, 0);
    uint64_t before = qr_mem_calls();
    rig_step(&r, &(struct rig_seq){ids, 40, 0, 63, table, 4}, 1);
    rig_step(&r, &(struct rig_seq){ids, 40, 63, 1, table, 4}, 1);
    qr_model_logits(r.m, r.f, r.batch, &(struct qr_logit_row){0}, 1);
    assert_int_equal(qr_mem_calls(), before);
    rig_close(&r);
}

// Products of class D are bit-equal everywhere; attention and prompt products are within their tolerances.
QR_TEST(model_instruction_sets_agree)
{
    NEED_TINY();
    static const char *const sets[] = {"ref", "avx2", "avx512", "neon", "dotprod"};
    struct rig_conf conf = {.activations = QR_ACT_F32, .n_threads = 1, .block_size = 16};
    float *expected = all_logits("llama-mixed", &conf, N_IDS);
    float max = 0;
    for (int i = 0; i < N_IDS * 509; i++) max = fmaxf(max, fabsf(expected[i]));
    for (size_t s = 0; s < sizeof sets / sizeof *sets; s++) {
        struct qr_error err;
        if (qr_isa_limit(sets[s], &err)) continue; // this machine lacks it
        float *got = all_logits("llama-mixed", &conf, N_IDS);
        for (int i = 0; i < N_IDS * 509; i++)
            if (!(fabsf(got[i] - expected[i]) <= TOLERANCE * max))
                fail_msg("%s: position %d differs", sets[s], i / 509);
        free(got);
    }
    assert_int_equal(qr_isa_limit("auto", NULL), QR_OK);
    free(expected);
}

/* ==== Loading. ==== */

struct bytes {
    uint8_t *data;
    size_t n;
};

static struct bytes read_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    struct bytes b = {.n = (size_t)ftell(f)};
    rewind(f);
    b.data = malloc(b.n);
    assert_int_equal(fread(b.data, 1, b.n, f), b.n);
    fclose(f);
    return b;
}

// Loads a file of which `from` was overwritten by `to`, of the same length, `skip` bytes behind the first
// `key`.
static void expect_refused(const char *name, const char *key, size_t skip, const void *to, size_t n,
                           enum qr_status code, const char *part)
{
    struct bytes b = read_file(tiny(name));
    struct qr_error err = {0};
    struct qr_gguf *g = NULL;
    struct qr_model *m = NULL;
    uint8_t *at = memmem(b.data, b.n, key, strlen(key));
    assert_non_null(at);
    memcpy(at + skip, to, n);
    if (qr_gguf_open_mem(b.data, b.n, &g, &err)) fail_msg("%s", err.msg);
    size_t live = qr_mem_live_bytes(QR_MEM_MODEL);
    enum qr_status st = qr_model_load(g, &(struct qr_model_conf){0}, &m, &err);
    if (st != code || !strstr(err.msg, part))
        fail_msg("%s %s: status %d, \"%s\", expected %d, \"%s\"", name, key, st, err.msg, code, part);
    assert_null(m);
    assert_int_equal(qr_mem_live_bytes(QR_MEM_MODEL), live);
    qr_gguf_free(&g);
    free(b.data);
}

QR_TEST(model_refuses_by_name_what_it_does_not_know)
{
    uint32_t zero = 0, seven = 7, future = 9999;
    uint64_t rows = 31;
    NEED_TINY();
    expect_refused("llama-yarn", "yarn", 0, "yarn", 4, QR_ENOTSUP, "RoPE scaling \"yarn\" is not supported");
    expect_refused("tiny", "llama", 0, "gemma", 5, QR_ENOTSUP,
                   "architecture \"gemma\" is not supported; these are: llama, qwen2");
    expect_refused("tiny", "blk.1.attn_k.weight", 0, "blk.1.attn_x.weight", 19, QR_EFORMAT,
                   "tensor blk.1.attn_k.weight is missing");
    expect_refused("llama-rope3", "rope_freqs.weight", 0, "rope_freqz.weight", 17, QR_ENOTSUP,
                   "tensor rope_freqz.weight is not part of a llama model");
    // Behind a tensor's name: the number of dimensions (4 bytes), the dimensions (8 each), the type (4).
    expect_refused("llama-f32", "blk.0.attn_k.weight", 19 + 4 + 8, &rows, 8, QR_EFORMAT,
                   "tensor blk.0.attn_k.weight: expected shape (32, 64), got (31, 64)");
    expect_refused("llama-q4_k", "blk.0.attn_q.weight", 19 + 4 + 16, &future, 4, QR_ENOTSUP,
                   "tensor blk.0.attn_q.weight: type 9999 is not supported");
    expect_refused("tiny", "llama.block_count", 17 + 4, &zero, 4, QR_EFORMAT,
                   "llama.block_count: expected an integer of 1 to 1024");
    expect_refused("tiny", "llama.attention.head_count_kv", 29 + 4, &seven, 4, QR_EFORMAT,
                   "head_count_kv: expected an integer of 1 to 6");
    expect_refused("tiny", "llama.context_length", 0, "llama.context_lengtx", 20, QR_EFORMAT,
                   "llama.context_length is missing");
}

QR_TEST(model_knows_its_numbers)
{
    struct rig r;
    NEED_TINY();
    rig_open(&r, &(struct rig_conf){tiny("llama-q4_k"), QR_ACT_FAST, 1, 32, 64, QR_KV_AUTO});
    const struct qr_model_info *i = qr_model_info(r.m);
    assert_string_equal(i->arch, "llama");
    assert_string_equal(i->name, "llama-q4_k");
    assert_int_equal(i->n_layers, 2);
    assert_int_equal(i->d_model, 256);
    assert_int_equal(i->d_ff, 512);
    assert_int_equal(i->n_heads, 4);
    assert_int_equal(i->n_kv_heads, 1);
    assert_int_equal(i->head_dim, 64);
    assert_int_equal(i->n_vocab, 509);
    assert_int_equal(i->ctx_max, 2048);
    assert_false(i->tied);
    assert_int_equal(i->kvtype, QR_KV_BF16);
    assert_int_equal(i->kv_token_bytes, 2 * 2 * 64 * 2);
    assert_int_equal(qr_model_block_bytes(r.m, 32), 32 * i->kv_token_bytes);
    assert_int_equal(i->n_params,
                     2 * 509 * 256 + 2 * (2 * 256 * 256 + 2 * 64 * 256 + 3 * 512 * 256 + 2 * 256) + 256);
    rig_close(&r);
    rig_open(&r, &(struct rig_conf){tiny("llama-tied"), QR_ACT_F32, 1, 16, 64, QR_KV_AUTO});
    assert_true(qr_model_info(r.m)->tied);
    assert_int_equal(qr_model_info(r.m)->kvtype, QR_KV_F32);
    rig_close(&r);
}

// Loads and, where that went well, runs two tokens.
static enum qr_status try_bytes(const uint8_t *data, size_t n, struct qr_error *err)
{
    static const int32_t ids[2] = {1, 2};
    struct rig r = {.block_size = 16, .n_blocks = 1, .caps = {1, 2, 1, 0}};
    uint32_t table[1] = {0};
    enum qr_status st = qr_gguf_open_mem(data, n, &r.g, err);
    if (!st) st = qr_model_load(r.g, &(struct qr_model_conf){0}, &r.m, err);
    if (!st) {
        r.pool = calloc(1, qr_model_block_bytes(r.m, 16));
        r.batch = malloc(qr_batch_bytes(&r.caps));
        assert_int_equal(qr_forward_new(r.m, NULL, &(struct qr_forward_conf){2, 1, 1, 1, NULL}, &r.f), QR_OK);
        if (qr_model_info(r.m)->n_vocab > 2) rig_step(&r, &(struct rig_seq){ids, 1, 0, 2, table, 1}, 1);
        free(r.pool);
        free(r.batch);
    }
    qr_forward_free(&r.f);
    qr_model_free(&r.m);
    qr_gguf_free(&r.g);
    return st;
}

QR_TEST(model_of_a_mutated_file_is_refused_or_runs)
{
    NEED_TINY();
    struct bytes good = read_file(tiny("llama-q4_0"));
    uint8_t *copy = malloc(good.n);
    // The keys of the model come first, then the vocabulary, then the tensors' names and shapes.
    uint8_t *vocab = memmem(good.data, good.n, "tokenizer.ggml.model", 20);
    uint8_t *infos = memmem(good.data, good.n, "token_embd.weight", 17),
            *end = memmem(good.data, good.n, "output_norm.weight", 18);
    size_t n_keys = (size_t)(vocab - good.data), n_infos = (size_t)(end - infos),
           infos_at = (size_t)(infos - good.data);
    int n_ran = 0;
    for (uint64_t seed = 0; seed < 2000; seed++) {
        struct qr_error err = {0};
        memcpy(copy, good.data, good.n);
        for (uint64_t i = 0; i <= qr_rand_u64(seed, 0, 0) % 3; i++) {
            size_t at = (size_t)(qr_rand_u64(seed, 1, i) % (n_keys + n_infos));
            copy[at < n_keys ? at : at - n_keys + infos_at] = (uint8_t)qr_rand_u64(seed, 2, i);
        }
        enum qr_status st = try_bytes(copy, good.n, &err);
        if (st == QR_OK)
            n_ran++;
        else
            assert_true(err.msg[0] && !strchr(err.msg, '\n'));
    }
    assert_in_range(n_ran, 1, 1999);
    free(copy);
    free(good.data);
}

QR_TEST(model_survives_refused_memory)
{
    struct qr_error err;
    struct qr_gguf *g;
    struct qr_model *m = NULL;
    struct qr_forward *f = NULL;
    NEED_TINY();
    assert_int_equal(qr_gguf_open(tiny("tiny"), &g, &err), QR_OK);
    size_t live = qr_mem_live_bytes(QR_MEM_MODEL), exec = qr_mem_live_bytes(QR_MEM_EXEC);
    enum qr_status st = QR_ENOMEM;
    for (uint64_t n = 1; st != QR_OK; n++) {
        assert_true(n < 50);
        qr_mem_fail_at(n, 0);
        st = qr_model_load(g, &(struct qr_model_conf){0}, &m, &err);
        if (st == QR_OK) st = qr_forward_new(m, NULL, &(struct qr_forward_conf){16, 2, 2, 2, NULL}, &f);
        qr_mem_fail_at(0, 0);
        assert_true(st == QR_OK || st == QR_ENOMEM);
        qr_forward_free(&f);
        qr_model_free(&m);
        assert_int_equal(qr_mem_live_bytes(QR_MEM_MODEL), live);
        assert_int_equal(qr_mem_live_bytes(QR_MEM_EXEC), exec);
    }
    qr_gguf_free(&g);
}
