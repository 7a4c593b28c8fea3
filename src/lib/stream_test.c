/* Text of live requests: stop strings, end tokens, log-probabilities, seeds. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "lib/ask_internal.h"

#define NO_MODEL "no tiny models: python tests/tiny-model/make.py BUILD/tiny"

static struct qr_lib *open_small(enum qr_activations activations)
{
    struct qr_lib_conf conf = {.max_num_seqs = 16,
                               .max_num_batched_tokens = 256,
                               .block_size = 16,
                               .kv_bytes = 64 << 20,
                               .activations = activations};
    return ask_open_lib("tiny", &conf);
}

static void restart(struct ask *a)
{
    a->n_ids = 0, a->n_text = 0, a->finished = false, a->text[0] = 0;
}

QR_TEST(stream_stop_string_ends_the_text_before_it)
{
    struct qr_lib *lib = open_small(QR_ACT_FAST);
    if (!lib) QR_SKIP(NO_MODEL);
    static struct ask a;
    static char whole[ASK_TEXT_MAX];
    for (uint64_t seed = 0; seed < 6; seed++) {
        ask_init(&a, seed, 12, 60);
        ask_serve(lib, &a, 1);
        memcpy(whole, a.text, sizeof whole);
        assert_int_equal(a.n_ids, 60);
        // Stops of several lengths from the middle of the text lie across token borders in some of them.
        for (size_t len = 1; len <= 9; len += 2) {
            char stop[16] = {0};
            size_t at = strlen(whole) / 2;
            memcpy(stop, whole + at, len);
            size_t first = (size_t)(strstr(whole, stop) - whole);
            for (int include = 0; include < 2; include++) {
                struct qr_text_span stops[2] = {{"never in it", 11}, {stop, len}};
                restart(&a);
                a.gen.stops = stops, a.gen.n_stops = 2, a.gen.include_stop = include;
                ask_serve(lib, &a, 1);
                assert_int_equal(a.n_text, first + (include ? len : 0));
                assert_memory_equal(a.text, whole, a.n_text);
                assert_int_equal(a.last.finish, QR_FINISH_STOP);
                assert_int_equal(a.last.stop_string, 1);
                assert_int_equal(a.last.stop_token, -1);
                assert_int_equal(a.last.n_generated, a.n_ids);
                assert_true(a.n_ids <= 60);
            }
        }
    }
    struct qr_gen_event ev; // nothing of what was generated after a stop comes out
    assert_int_equal(qr_lib_next(lib, &ev, 5), QR_AGAIN);
    qr_lib_close(&lib);
}

QR_TEST(stream_min_tokens_hides_stops)
{
    struct qr_lib *lib = open_small(QR_ACT_FAST);
    if (!lib) QR_SKIP(NO_MODEL);
    static struct ask a;
    static char whole[ASK_TEXT_MAX];
    ask_init(&a, 3, 12, 60);
    struct qr_bias no_end = {2, -100}; // which min_tokens forbids and ignore_eos passes over: never drawn here
    a.gen.req.sampling.bias = &no_end, a.gen.req.sampling.n_bias = 1;
    ask_serve(lib, &a, 1);
    memcpy(whole, a.text, sizeof whole);
    struct qr_text_span stop = {whole + 4, 1}; // a character: it comes early
    restart(&a);
    a.gen.stops = &stop, a.gen.n_stops = 1;
    ask_serve(lib, &a, 1);
    assert_true(a.n_ids < 20 && a.last.finish == QR_FINISH_STOP);
    restart(&a);
    a.gen.req.sampling.min_tokens = 60;
    ask_serve(lib, &a, 1);
    assert_int_equal(a.n_ids, 60);
    assert_string_equal(a.text, whole);
    restart(&a);
    a.gen.req.sampling.min_tokens = 20;
    ask_serve(lib, &a, 1);
    assert_true(a.n_ids > 20);
    assert_memory_equal(a.text, whole, a.n_text);
    qr_lib_close(&lib);
}

QR_TEST(stream_end_tokens_end_it)
{
    struct qr_lib *lib = open_small(QR_ACT_FAST);
    if (!lib) QR_SKIP(NO_MODEL);
    static struct ask a;
    struct qr_bias to_eos = {2, 100}, to_h = {75, 100};
    int32_t stop_id = 75;
    ask_init(&a, 5, 20, 30);
    struct qr_sampling *s = &a.gen.req.sampling;
    s->bias = &to_eos, s->n_bias = 1;
    s->ignore_eos = false;
    ask_serve(lib, &a, 1);
    assert_int_equal(a.n_ids, 1);
    assert_int_equal(a.ids[0], 2);
    assert_int_equal(a.last.finish, QR_FINISH_STOP);
    assert_int_equal(a.last.stop_token, -1);
    assert_int_equal(a.last.n_generated, 1);
    assert_string_equal(a.text, "");
    a.gen.skip_special = false; // still no part of the answer
    restart(&a);
    ask_serve(lib, &a, 1);
    assert_string_equal(a.text, "");
    s->ignore_eos = true;
    restart(&a);
    ask_serve(lib, &a, 1);
    assert_int_equal(a.n_ids, 30);
    assert_int_equal(a.last.finish, QR_FINISH_LENGTH);
    s->ignore_eos = false, s->min_tokens = 7;
    restart(&a);
    ask_serve(lib, &a, 1);
    assert_int_equal(a.n_ids, 8);
    assert_int_equal(a.ids[7], 2);

    ask_init(&a, 5, 20, 30);
    s->bias = &to_h, s->n_bias = 1, s->stop_ids = &stop_id, s->n_stop_ids = 1;
    ask_serve(lib, &a, 1);
    assert_int_equal(a.n_ids, 1);
    assert_int_equal(a.last.stop_token, 75);
    assert_string_equal(a.text, "");
    a.gen.include_stop = true;
    restart(&a);
    ask_serve(lib, &a, 1);
    struct qr_text_span piece = qr_tokenizer_bytes(qr_lib_tokenizer(lib), 75);
    assert_int_equal(a.n_text, piece.bytes);
    assert_memory_equal(a.text, piece.data, piece.bytes);
    qr_lib_close(&lib);
}

QR_TEST(stream_text_is_the_text_of_its_tokens)
{
    struct qr_lib *lib = open_small(QR_ACT_FAST);
    if (!lib) QR_SKIP(NO_MODEL);
    static struct ask a;
    for (uint64_t seed = 0; seed < 12; seed++) {
        // Hot and free of masks: bytes that are no characters appear, and must become U+FFFD as when decoded
        // at once. A character that is not complete at the end is left out instead.
        ask_init(&a, seed, 5, 120);
        a.gen.req.sampling.temperature = 2;
        ask_serve(lib, &a, 1);
        struct qr_buf b = {0};
        assert_int_equal(qr_tokenizer_decode(qr_lib_tokenizer(lib), a.ids, (size_t)a.n_ids, true, &b, NULL),
                         QR_OK);
        if (b.len == a.n_text + 3) {
            assert_memory_equal(b.data + a.n_text, "\xef\xbf\xbd", 3);
            b.len -= 3;
        }
        assert_int_equal(a.n_text, b.len);
        assert_memory_equal(a.text, b.data, b.len);
        qr_buf_fini(&b);
    }
    qr_lib_close(&lib);
}

// The first bytes of an emoji, and then the end.
QR_TEST(stream_a_character_that_the_end_cuts_is_left_out)
{
    struct qr_lib *lib = open_small(QR_ACT_FAST);
    if (!lib) QR_SKIP(NO_MODEL);
    static struct ask a;
    int32_t f0 = -1, h = 75;
    for (int32_t id = 0; id < qr_tokenizer_size(qr_lib_tokenizer(lib)); id++) {
        struct qr_text_span s = qr_tokenizer_bytes(qr_lib_tokenizer(lib), id);
        if (s.bytes == 1 && (unsigned char)s.data[0] == 0xf0) f0 = id;
    }
    assert_true(f0 >= 0);
    struct qr_text_span stop = {"zz", 2};
    for (int k = 0; k < 2; k++) {
        ask_init(&a, 5, 20, 1);
        struct qr_bias to_f0 = {f0, 100};
        a.gen.req.sampling.bias = &to_f0, a.gen.req.sampling.n_bias = 1;
        a.gen.stops = &stop, a.gen.n_stops = (size_t)k; // also where text goes through the search for stop strings
        ask_serve(lib, &a, 1);
        assert_int_equal(a.ids[0], f0);
        assert_int_equal(a.last.finish, QR_FINISH_LENGTH);
        assert_string_equal(a.text, "");
    }
    // In the middle it is an error of the text, and shows.
    ask_init(&a, 5, 20, 2);
    struct qr_bias bias[] = {{f0, 100}, {h, 70}};
    a.gen.req.sampling.bias = bias, a.gen.req.sampling.n_bias = 2;
    a.gen.req.sampling.frequency = 50;
    ask_serve(lib, &a, 1);
    assert_int_equal(a.ids[1], h);
    assert_memory_equal(a.text, "\xef\xbf\xbd", 3);
    assert_true(a.n_text > 3);
    qr_lib_close(&lib);
}

QR_TEST(stream_seeds_choose_the_text)
{
    struct qr_lib *lib = open_small(QR_ACT_FAST);
    if (!lib) QR_SKIP(NO_MODEL);
    static struct ask a[4];
    for (int i = 0; i < 4; i++) {
        ask_init(&a[i], 9, 30, 40);
        a[i].gen.req.sampling.temperature = 1;
        a[i].gen.req.sampling.seed = i < 2 ? 42 : 42 + (uint64_t)i;
    }
    ask_serve(lib, a, 4);
    assert_string_equal(a[0].text, a[1].text);
    assert_string_not_equal(a[0].text, a[2].text);
    assert_string_not_equal(a[2].text, a[3].text);
    qr_lib_close(&lib);
}

/* Generated tokens report the probability that a prompt of the same tokens is scored with. In f32 every row
 * goes the same way, so the two agree closely; and each top list begins with what greedy chose. */
QR_TEST(stream_logprobs_agree_with_scoring)
{
    struct qr_lib *lib = open_small(QR_ACT_F32);
    if (!lib) QR_SKIP(NO_MODEL);
    static struct ask a, b;
    static struct qr_gen_token scored[ASK_PROMPT_MAX];
    ask_init(&a, 4, 300, 40); // longer than a step: scored in chunks
    a.gen.req.sampling.n_logprobs = 0;
    ask_serve(lib, &a, 1);
    ask_init(&b, 4, 340, 0);
    memcpy(b.prompt + 300, a.ids, 40 * sizeof a.ids[0]);
    b.gen.req.sampling.n_prompt_logprobs = 4;
    b.scored = scored;
    ask_serve(lib, &b, 1);
    assert_int_equal(b.n_ids, 0);
    assert_int_equal(b.n_scored, 339);
    assert_int_equal(b.last.finish, QR_FINISH_LENGTH);
    for (int32_t p = 1; p < 340; p++) {
        assert_int_equal(scored[p].id, b.prompt[p]);
        assert_int_equal(scored[p].n_top, 4);
        assert_true(scored[p].rank >= 1 && scored[p].logprob <= 0);
        double mass = 0;
        for (int i = 0; i < 4; i++) {
            if (i > 0) assert_true(scored[p].top[i].logprob <= scored[p].top[i - 1].logprob);
            mass += exp((double)scored[p].top[i].logprob);
        }
        assert_true(mass <= 1.00001);
        if (scored[p].rank <= 4) assert_int_equal(scored[p].top[scored[p].rank - 1].id, scored[p].id);
        if (p < 300) continue;
        assert_int_equal(scored[p].rank, 1);
        assert_true(fabsf(scored[p].logprob - a.logprobs[p - 300]) < 1e-4f);
    }
    qr_lib_close(&lib);
}

QR_TEST(stream_spm_continues_its_prompt)
{
    struct qr_lib_conf conf = {
        .max_num_seqs = 4, .max_num_batched_tokens = 64, .block_size = 16, .kv_bytes = 64 << 20};
    struct qr_lib *lib = ask_open_lib("llama-spm", &conf);
    if (!lib) QR_SKIP(NO_MODEL);
    static struct ask a;
    const struct qr_tokenizer *tok = qr_lib_tokenizer(lib);
    int32_t *ids;
    size_t n;
    assert_int_equal(qr_tokenizer_encode(tok, "the quick brown", 15, QR_ENCODE_ADD_SPECIAL, &ids, &n, NULL),
                     QR_OK);
    assert_int_equal(ids[0], qr_lib_info(lib)->bos); // the file does not say so: SPM begins with BOS
    for (uint64_t seed = 0; seed < 8; seed++) {
        ask_init(&a, seed, (int32_t)n, 40);
        memcpy(a.prompt, ids, n * sizeof *ids);
        a.gen.req.sampling.temperature = 1.5f;
        ask_serve(lib, &a, 1);
        struct qr_buf all = {0};
        assert_int_equal(qr_tokenizer_decode(tok, ids, n, true, &all, NULL), QR_OK);
        size_t before = all.len;
        qr_buf_clear(&all);
        memcpy(a.prompt + n, a.ids, (size_t)a.n_ids * sizeof *ids);
        assert_int_equal(qr_tokenizer_decode(tok, a.prompt, n + (size_t)a.n_ids, true, &all, NULL), QR_OK);
        assert_int_equal(a.n_text, all.len - before);
        assert_memory_equal(a.text, all.data + before, a.n_text);
        qr_buf_fini(&all);
    }
    // After nothing but BOS the answer begins a text: no space before its first word.
    ask_init(&a, 1, 1, 1);
    a.prompt[0] = ids[0];
    struct qr_bias word = {ids[1], 100};
    a.gen.req.sampling.bias = &word, a.gen.req.sampling.n_bias = 1;
    ask_serve(lib, &a, 1);
    assert_true(a.n_text > 0 && a.text[0] != ' ');
    qr_free(ids);
    qr_lib_close(&lib);
}

QR_TEST(stream_choices_have_text_of_their_own)
{
    enum { CHOICES = 5 };
    struct qr_lib *lib = open_small(QR_ACT_FAST);
    if (!lib) QR_SKIP(NO_MODEL);
    static struct ask a;
    static char text[CHOICES][4096];
    int n_finished = 0;
    ask_init(&a, 8, 40, 30);
    a.gen.req.sampling.temperature = 1.2f;
    ask_serve(lib, &a, 1);
    struct qr_text_span stop = {"e", 1};
    for (int with_stop = 0; with_stop < 2; with_stop++) {
        a.gen.req.n_choices = CHOICES, a.gen.req.prompt = a.prompt;
        a.gen.stops = &stop, a.gen.n_stops = (size_t)with_stop;
        assert_int_equal(qr_lib_submit(lib, &a.gen, &a.id, NULL), QR_OK);
        char now[CHOICES][4096] = {{0}};
        for (n_finished = 0; n_finished < CHOICES;) {
            struct qr_gen_event ev;
            assert_int_equal(qr_lib_next(lib, &ev, 20000), QR_OK);
            assert_int_equal(ev.id, a.id);
            assert_in_range(ev.choice, 0, CHOICES - 1);
            strncat(now[ev.choice], ev.text.bytes ? ev.text.data : "", ev.text.bytes);
            n_finished += ev.finish != QR_FINISH_NONE;
        }
        for (int c = 0; c < CHOICES; c++) {
            if (with_stop) {
                text[c][strcspn(text[c], "e")] = 0;
                assert_string_equal(now[c], text[c]);
            } else {
                memcpy(text[c], now[c], sizeof text[c]);
                if (c == 0)
                    assert_string_equal(now[0], a.text);
                else
                    assert_string_not_equal(now[c], now[c - 1]);
            }
        }
    }
    struct qr_gen_event ev;
    assert_int_equal(qr_lib_next(lib, &ev, 5), QR_AGAIN);
    qr_lib_close(&lib);
}
