/* The whole system in one process, on a tiny random model: what a request gets must not depend on its
 * company. */
#include "lib/lib.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/test.h"
#include "lib/ask_internal.h"
#include "lib/lib_internal.h"

#define NO_MODEL "no tiny models: python tests/tiny-model/make.py BUILD/tiny"

static struct qr_lib_conf small(void)
{
    return (struct qr_lib_conf){
        .max_num_seqs = 64, .max_num_batched_tokens = 512, .block_size = 16, .kv_bytes = 64 << 20};
}

// Lengths, ways of choosing and penalties by number.
static void mixed_ask(struct ask *a, uint64_t i)
{
    uint64_t h = qr_rand_u64(77, 0, i);
    ask_init(a, i, 1 + (int32_t)(h % 160), 4 + (int32_t)(h >> 8 & 15) + (h >> 20 & 1 ? 40 : 0));
    struct qr_sampling *s = &a->gen.req.sampling;
    s->temperature = i % 3 ? 0.5f + (float)(i % 5) * 0.3f : 0;
    if (i % 4 == 1) s->top_p = 0.8f;
    if (i % 4 == 2) s->top_k = 12;
    if (i % 5 == 3) s->min_p = 0.03f;
    if (i % 6 == 4) s->repetition = 1.2f, s->frequency = 0.2f, s->presence = 0.3f;
    if (i % 7 == 5) s->n_logprobs = 3;
}

static void assert_same(const struct ask *a, const struct ask *b)
{
    assert_int_equal(a->n_ids, b->n_ids);
    assert_memory_equal(a->ids, b->ids, (size_t)a->n_ids * sizeof a->ids[0]);
    assert_memory_equal(a->logprobs, b->logprobs, (size_t)a->n_ids * sizeof a->logprobs[0]);
    assert_string_equal(a->text, b->text);
    assert_int_equal(a->last.finish, b->last.finish);
}

static void wait_for_idle(struct qr_lib *lib, struct qr_snapshot *s)
{
    for (int i = 0; i < 1000000; i++) {
        qr_lib_snapshot(lib, s);
        if (s->n_running == 0 && s->n_waiting == 0 && s->n_blocks_used == 0) return;
        sched_yield();
    }
    fail_msg("still %d running, %d waiting, %u blocks", s->n_running, s->n_waiting, s->n_blocks_used);
}

QR_TEST(lib_describes_what_it_opened)
{
    struct qr_lib_conf conf = small();
    struct qr_lib *lib = ask_open_lib("tiny", &conf);
    if (!lib) QR_SKIP(NO_MODEL);
    const struct qr_lib_info *i = qr_lib_info(lib);
    assert_string_equal(i->served_name, "tiny");
    assert_string_equal(i->model.arch, "llama");
    assert_int_equal(i->max_model_len, 2048);
    assert_int_equal(i->bos, 1);
    assert_int_equal(i->eos, 2);
    assert_int_equal(i->n_blocks, (64 << 20) / i->block_bytes);
    assert_true(i->has_template && qr_lib_template(lib));
    assert_int_equal(qr_tokenizer_size(qr_lib_tokenizer(lib)), i->model.n_vocab);
    assert_int_equal(qr_lib_kv_resident_bytes(lib), 0);
    qr_lib_close(&lib);
    assert_null(lib);
}

QR_TEST(lib_answers_do_not_depend_on_company)
{
    enum { N = 64 };
    struct qr_lib_conf conf = small();
    struct qr_lib *lib = ask_open_lib("tiny", &conf);
    if (!lib) QR_SKIP(NO_MODEL);
    struct ask *many = malloc(N * sizeof *many), *one = malloc(sizeof *one);
    for (uint64_t i = 0; i < N; i++) mixed_ask(&many[i], i);
    ask_serve(lib, many, N);
    for (uint64_t i = 0; i < N; i++) {
        mixed_ask(one, i);
        ask_serve(lib, one, 1);
        assert_same(&many[i], one);
        assert_int_equal(one->last.finish, QR_FINISH_LENGTH);
        assert_int_equal(one->last.n_generated, one->gen.req.sampling.max_tokens);
        assert_true(one->last.arrival_ns <= one->last.scheduled_ns &&
                    one->last.scheduled_ns < one->last.first_token_ns);
    }
    struct qr_snapshot s;
    wait_for_idle(lib, &s);
    assert_int_equal(s.n_finished_length, 2 * N);
    qr_lib_close(&lib);

    // On other numbers of threads, with other blocks and smaller steps.
    for (int threads = 1; threads <= 3; threads++) {
        conf.n_threads = threads, conf.block_size = 16 << threads,
        conf.max_num_batched_tokens = 62 + threads * 2;
        lib = ask_open_lib("tiny", &conf);
        for (uint64_t i = (uint64_t)threads; i < N; i += 7) {
            mixed_ask(one, i);
            ask_serve(lib, one, 1);
            assert_same(&many[i], one);
        }
        qr_lib_close(&lib);
    }
    free(many);
    free(one);
}

QR_TEST(lib_preempts_and_keeps_the_answer)
{
    enum { N = 8, BLOCKS = 24 };
    struct qr_lib_conf conf = small();
    struct ask *many = malloc(N * sizeof *many), *one = malloc(sizeof *one);
    conf.n_blocks = BLOCKS; // each request needs 15
    conf.trace = ask_gate;
    struct qr_lib *lib = ask_open_lib("tiny", &conf);
    if (!lib) QR_SKIP(NO_MODEL);
    assert_int_equal(qr_lib_info(lib)->max_model_len, BLOCKS * 16);
    for (uint64_t i = 0; i < N; i++) {
        ask_init(&many[i], i, 70, 170);
        many[i].gen.req.sampling.temperature = i % 2 ? 0.9f : 0;
        many[i].gen.req.sampling.frequency = i % 4 == 3 ? 0.5f : 0;
    }
    ask_serve_at_once(lib, many, N);
    struct qr_snapshot s;
    wait_for_idle(lib, &s);
    assert_true(s.n_preemptions > 0);
    int32_t preempted = 0;
    for (uint64_t i = 0; i < N; i++) {
        preempted += many[i].last.n_preemptions;
        *one = many[i];
        one->n_ids = 0, one->n_text = 0, one->finished = false;
        ask_serve(lib, one, 1);
        assert_same(&many[i], one);
    }
    assert_int_equal(preempted, s.n_preemptions);
    qr_lib_close(&lib);
    free(many);
    free(one);
}

QR_TEST(lib_cancel_frees_blocks)
{
    enum { N = 6 };
    struct qr_lib_conf conf = small();
    struct qr_lib *lib = ask_open_lib("tiny", &conf);
    if (!lib) QR_SKIP(NO_MODEL);
    struct ask *asks = malloc(N * sizeof *asks);
    for (uint64_t i = 0; i < N; i++) {
        ask_init(&asks[i], i, 100, 1500);
        asks[i].cancel_after = 3 + 2 * (int32_t)i;
    }
    ask_serve(lib, asks, N);
    for (int i = 0; i < N; i++) {
        assert_int_equal(asks[i].last.finish, QR_FINISH_ABORT);
        assert_true(asks[i].n_ids < 1500);
    }
    struct qr_snapshot s;
    wait_for_idle(lib, &s);
    assert_int_equal(s.n_finished_abort, N);
    qr_lib_cancel(lib, asks[0].id); // ended long ago: nothing happens
    qr_lib_cancel(lib, 123456);
    struct qr_gen_event ev;
    assert_int_equal(qr_lib_next(lib, &ev, 1), QR_AGAIN);
    qr_lib_close(&lib);
    free(asks);
}

QR_TEST(lib_close_ends_live_requests)
{
    struct qr_lib_conf conf = small();
    struct qr_lib *lib = ask_open_lib("tiny", &conf);
    if (!lib) QR_SKIP(NO_MODEL);
    struct ask *a = malloc(sizeof *a);
    size_t before = qr_mem_live_bytes(QR_MEM_REQ);
    ask_init(a, 1, 50, 1900);
    a->gen.req.prompt = a->prompt;
    for (int i = 0; i < 5; i++) assert_int_equal(qr_lib_submit(lib, &a->gen, &a->id, NULL), QR_OK);
    struct qr_gen_event ev;
    assert_int_equal(qr_lib_next(lib, &ev, 20000), QR_OK);
    qr_lib_close(&lib);
    assert_true(qr_mem_live_bytes(QR_MEM_REQ) < before);
    free(a);
}

struct steady {
    int n_choices, n_gen;
    bool warm;      // the prompts are cached
    bool preempted; // within the window
};

// Decodes and counts calls for memory between two moments, both after the last prompt and before the first end.
static void count_steady(struct qr_lib_conf *conf, const struct steady *w)
{
    enum { N = 4, FROM = 40 };
    struct qr_lib *lib = ask_open_lib("tiny", conf);
    struct ask *asks = malloc(N * sizeof *asks);
    struct qr_snapshot from = {0}, to = {0};
    uint64_t calls = 0, calls_after = 0;
    int seen = 0, n_all = N * w->n_choices, n_cached = 0;
    for (int i = 0; w->warm && i < N; i++) {
        ask_init(&asks[i], (uint64_t)i, 50, 1);
        ask_serve(lib, &asks[i], 1);
    }
    for (int i = 0; i < N; i++) {
        ask_init(&asks[i], (uint64_t)i, 50, w->n_gen);
        struct qr_sampling *s = &asks[i].gen.req.sampling;
        s->temperature = i ? 1 : 0, s->n_logprobs = i == 1 ? 5 : -1, s->top_p = i == 2 ? 0.9f : 1;
        if (i == 3) s->repetition = 1.1f, s->frequency = 0.1f;
        asks[i].gen.req.prompt = asks[i].prompt;
        asks[i].gen.req.n_choices = w->n_choices;
        assert_int_equal(qr_lib_submit(lib, &asks[i].gen, &asks[i].id, NULL), QR_OK);
    }
    for (int left = n_all; left > 0;) {
        struct qr_gen_event ev;
        assert_int_equal(qr_lib_next(lib, &ev, 20000), QR_OK);
        if (ev.finish != QR_FINISH_NONE) left--;
        if (ev.n_cached > n_cached) n_cached = ev.n_cached;
        if (++seen == FROM * n_all) {
            qr_lib_snapshot(lib, &from);
            calls = qr_mem_calls();
        }
        if (seen == (w->n_gen - FROM) * n_all) {
            calls_after = qr_mem_calls();
            qr_lib_snapshot(lib, &to);
        }
    }
    assert_int_equal(n_cached > 0, w->warm);
    assert_true(to.n_steps > from.n_steps + (uint64_t)(w->n_gen - 2 * FROM) / 2);
    // Who comes back opens its slot anew: a sampler, and of one request in four the counts for its penalties.
    uint64_t n_swaps = to.n_swaps - from.n_swaps;
    assert_int_equal(n_swaps > 0, w->preempted);
    assert_true(calls_after - calls <= n_swaps + n_swaps / 4 + (w->preempted ? 2 * N : 0));
    qr_lib_close(&lib);
    free(asks);
}

QR_TEST(lib_steps_allocate_nothing_whatever_decodes)
{
    struct qr_lib_conf conf = small();
    struct qr_lib *lib = ask_open_lib("tiny", &conf);
    if (!lib) QR_SKIP(NO_MODEL);
    qr_lib_close(&lib);
    count_steady(&conf, &(struct steady){.n_choices = 3, .n_gen = 400});
    conf.kvtype = QR_KV_INT8;
    conf.prefix_caching = true;
    count_steady(&conf, &(struct steady){.n_choices = 3, .n_gen = 400, .warm = true});
    conf.swap_bytes = 64 << 20;
    conf.preempt_every = 20;
    conf.preempt_mode = QR_PREEMPT_SWAP;
    count_steady(&conf, &(struct steady){.n_choices = 1, .n_gen = 400, .warm = true, .preempted = true});
}

QR_TEST(lib_steps_allocate_nothing)
{
    enum { N = 4, TOKENS = 1000 };
    struct qr_lib_conf conf = small();
    struct qr_lib *lib = ask_open_lib("tiny", &conf);
    if (!lib) QR_SKIP(NO_MODEL);
    struct ask *asks = malloc(N * sizeof *asks);
    uint64_t calls = 0;
    int seen = 0;
    for (int i = 0; i < N; i++) {
        ask_init(&asks[i], (uint64_t)i, 20, TOKENS + 50);
        struct qr_sampling *s = &asks[i].gen.req.sampling;
        s->temperature = i ? 1 : 0, s->n_logprobs = i == 1 ? 5 : -1, s->top_p = i == 2 ? 0.9f : 1;
        if (i == 3) s->repetition = 1.1f, s->frequency = 0.1f;
        asks[i].gen.req.prompt = asks[i].prompt;
        assert_int_equal(qr_lib_submit(lib, &asks[i].gen, &asks[i].id, NULL), QR_OK);
    }
    for (int left = N; left > 0;) {
        struct qr_gen_event ev;
        assert_int_equal(qr_lib_next(lib, &ev, 20000), QR_OK);
        if (ev.finish != QR_FINISH_NONE) left--;
        if (++seen == 40 * N) calls = qr_mem_calls();
        if (seen == TOKENS * N) assert_int_equal(qr_mem_calls(), calls);
    }
    qr_lib_close(&lib);
    free(asks);
}

QR_TEST(lib_refuses_what_cannot_be)
{
    struct qr_lib_conf conf = small();
    struct qr_lib *lib = ask_open_lib("tiny", &conf);
    if (!lib) QR_SKIP(NO_MODEL);
    struct ask *a = malloc(sizeof *a);
    struct qr_error err = {0};
    qr_req_id id = 0;
    ask_init(a, 1, 600, 1449); // one token more than the model's 2,048
    a->gen.req.prompt = a->prompt;
    assert_int_equal(qr_lib_submit(lib, &a->gen, &id, &err), QR_ETOOBIG);
    assert_non_null(strstr(err.msg, "2048"));
    a->prompt[3] = 509;
    a->gen.req.sampling.max_tokens = 5;
    assert_int_equal(qr_lib_submit(lib, &a->gen, &id, &err), QR_EINVAL);
    a->gen.req.n_choices = 0;
    assert_int_equal(qr_lib_submit(lib, &a->gen, &id, &err), QR_EINVAL);
    a->gen.req.n_choices = 1;
    struct qr_text_span empty = {"", 0};
    a->gen.stops = &empty, a->gen.n_stops = 1;
    assert_int_not_equal(qr_lib_submit(lib, &a->gen, &id, &err), QR_OK);
    struct qr_gen_event ev;
    assert_int_equal(qr_lib_next(lib, &ev, 0), QR_AGAIN);
    qr_lib_close(&lib);
    free(a);
    conf.model_path = "/nonexistent/model.gguf";
    assert_int_equal(qr_lib_open(&conf, &lib, &err), QR_ENOTFOUND);
    assert_null(lib);
}

QR_TEST(lib_open_survives_failing_memory)
{
    struct qr_lib_conf conf = small();
    struct qr_lib *lib = ask_open_lib("tiny", &conf);
    if (!lib) QR_SKIP(NO_MODEL);
    qr_lib_close(&lib);
    char path[4096];
    snprintf(path, sizeof path, "%s", qr_test_build_path("tiny/tiny.gguf"));
    conf.model_path = path, conf.n_threads = 2;
    size_t model_bytes = qr_mem_live_bytes(QR_MEM_MODEL), kv_bytes = qr_mem_live_bytes(QR_MEM_KV);
    // The tokenizer is built beside the weights, so which allocation is the n-th varies; every one may fail
    // all the same.
    for (uint64_t n = 1; n < 400; n = n * 9 / 8 + 1) {
        struct qr_error err = {0};
        qr_mem_fail_at(n, 0);
        enum qr_status st = qr_lib_open(&conf, &lib, &err);
        qr_mem_fail_at(0, 0);
        if (st == QR_OK)
            qr_lib_close(&lib);
        else
            assert_true(err.msg[0] != 0);
        assert_null(lib);
    }
    assert_int_equal(qr_mem_live_bytes(QR_MEM_MODEL), model_bytes);
    assert_int_equal(qr_mem_live_bytes(QR_MEM_KV), kv_bytes);
}

QR_TEST(lib_weighs_a_file_as_its_packing_will)
{
    static const char *const names[] = {"llama-f16",  "llama-q4_1", "llama-q5_0", "llama-q5_1",
                                        "llama-q5_k", "llama-q6_k", "tiny"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct qr_lib_conf conf = small();
        struct qr_lib *lib = ask_open_lib(names[i], &conf);
        if (!lib) QR_SKIP(NO_MODEL);
        struct qr_gguf *g = NULL;
        char file[64];
        snprintf(file, sizeof file, "tiny/%s.gguf", names[i]);
        assert_int_equal(qr_gguf_open(qr_test_build_path(file), &g, NULL), QR_OK);
        double packed = (double)qr_lib_info(lib)->model.packed_bytes, guess = (double)lib_weight_bytes(g);
        assert_true(guess > 0.85 * packed && guess < 1.15 * packed);
        qr_gguf_free(&g);
        qr_lib_close(&lib);
    }
}
