/* Beam search of a model against golden answers of transformers, and of vLLM's loop over its logits
 * (tests/vectors/mkbeam.py). */
#include <math.h>
#include <string.h>

#include "base/test.h"
#include "lib/ask_internal.h"

#define NO_MODEL "no tiny models: python tests/tiny-model/make.py BUILD/tiny"
#define WIDTH_MAX 16
#define IDS_MAX 64

struct golden {
    char model[32];
    struct qr_beam beam;
    int32_t max_tokens, n_prompt, prompt[IDS_MAX], ends[4];
    size_t n_ends;
    struct {
        double score, sum;
        int32_t n, ids[IDS_MAX];
    } answers[WIDTH_MAX];
};

static void read_ids(FILE *f, int32_t *out, int32_t n)
{
    assert_in_range(n, 0, IDS_MAX);
    for (int32_t i = 0; i < n; i++) assert_int_equal(fscanf(f, "%d", &out[i]), 1);
}

static bool read_case(FILE *f, struct golden *g)
{
    char rules[16], early[16];
    memset(g, 0, sizeof *g);
    int n = fscanf(f, " case %31s %15s %d %f %15s %d %d %zu", g->model, rules, &g->beam.width, &g->beam.length_penalty, early,
                   &g->max_tokens, &g->n_prompt, &g->n_ends);
    if (n != 8) return false;
    g->beam.rules = strcmp(rules, "vllm") == 0 ? QR_BEAM_VLLM : QR_BEAM_TRANSFORMERS;
    g->beam.early_stopping = strcmp(early, "never") == 0       ? QR_BEAM_NEVER
                             : strcmp(early, "heuristic") == 0 ? QR_BEAM_HEURISTIC
                                                               : QR_BEAM_FULL;
    assert_int_equal(fscanf(f, " prompt"), 0);
    read_ids(f, g->prompt, g->n_prompt);
    assert_int_equal(fscanf(f, " ends"), 0);
    assert_true(g->n_ends <= 4 && g->beam.width <= WIDTH_MAX);
    read_ids(f, g->ends, (int32_t)g->n_ends);
    for (int32_t i = 0; i < g->beam.width; i++) {
        assert_int_equal(fscanf(f, " answer %lf %lf %d", &g->answers[i].score, &g->answers[i].sum, &g->answers[i].n), 3);
        read_ids(f, g->answers[i].ids, g->answers[i].n);
    }
    return true;
}

struct got {
    int32_t n, ids[IDS_MAX];
    double sum;
    bool finished;
    enum qr_finish finish;
};

static void search(struct qr_lib *lib, const struct golden *g, struct got *got)
{
    struct qr_gen gen = {.req = {.prompt = g->prompt, .n_prompt = g->n_prompt, .n_choices = g->beam.width, .beam = g->beam},
                         .want_tokens = true};
    struct qr_error err = {0};
    qr_req_id id;
    memset(got, 0, WIDTH_MAX * sizeof *got);
    gen.req.sampling = (struct qr_sampling){.top_p = 1,
                                            .repetition = 1,
                                            .seed = 1,
                                            .max_tokens = g->max_tokens,
                                            .ignore_eos = true,
                                            .n_logprobs = 0,
                                            .n_prompt_logprobs = -1,
                                            .n_stop_ids = g->n_ends,
                                            .stop_ids = g->ends};
    if (qr_lib_submit(lib, &gen, &id, &err) != QR_OK) fail_msg("submit: %s", err.msg);
    for (int32_t left = g->beam.width; left > 0;) {
        struct qr_gen_event ev;
        assert_int_equal(qr_lib_next(lib, &ev, 20000), QR_OK);
        struct got *a = &got[ev.choice];
        for (size_t i = 0; i < ev.n_tokens; i++) {
            assert_int_equal(ev.tokens[i].pos, g->n_prompt + a->n);
            a->sum += (double)ev.tokens[i].logprob;
            a->ids[a->n++] = ev.tokens[i].id;
        }
        if (ev.finish == QR_FINISH_NONE) continue;
        a->finished = true;
        a->finish = ev.finish;
        left--;
    }
}

static void judge(const struct golden *g, const struct got *got, int i_case)
{
    for (int32_t i = 0; i < g->beam.width; i++) {
        const struct got *a = &got[i];
        bool same = a->n == g->answers[i].n && memcmp(a->ids, g->answers[i].ids, (size_t)a->n * sizeof *a->ids) == 0;
        if (!same)
            fail_msg("case %d (%s, width %d), answer %d: %d tokens and sum %.6f, expected %d and %.6f", i_case, g->model,
                     g->beam.width, i, a->n, a->sum, g->answers[i].n, g->answers[i].sum);
        bool ended = a->finish == QR_FINISH_STOP;
        int32_t n = g->beam.rules == QR_BEAM_VLLM ? g->n_prompt + a->n - ended : a->n;
        double score = a->sum / pow(n, (double)g->beam.length_penalty);
        if (fabs(a->sum - g->answers[i].sum) > 1e-4 || fabs(score - g->answers[i].score) > 1e-4 * fmax(1, fabs(score)))
            fail_msg("case %d, answer %d: sum %.6f score %.6f, expected %.6f %.6f", i_case, i, a->sum, score,
                     g->answers[i].sum, g->answers[i].score);
    }
}

QR_TEST(beam_answers_are_those_of_transformers_and_of_vllm)
{
    struct qr_lib_conf conf = {
        .max_num_seqs = 16, .max_num_batched_tokens = 64, .block_size = 16, .n_blocks = 128, .max_model_len = 256,
        .activations = QR_ACT_F32};
    static struct golden g;
    static struct got got[WIDTH_MAX];
    struct qr_lib *lib = NULL;
    char open[32] = "";
    int n = 0, n_ended = 0, n_vllm = 0;
    FILE *f = fopen("tests/vectors/beam_golden.txt", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "#%*[^\n]"), 0);
    for (; read_case(f, &g); n++) {
        if (strcmp(open, g.model) != 0) {
            qr_lib_close(&lib);
            lib = ask_open_lib(g.model, &conf);
            if (!lib) {
                fclose(f);
                QR_SKIP(NO_MODEL);
            }
            snprintf(open, sizeof open, "%s", g.model);
        }
        search(lib, &g, got);
        judge(&g, got, n);
        for (int32_t i = 0; i < g.beam.width; i++) n_ended += got[i].finish == QR_FINISH_STOP;
        n_vllm += g.beam.rules == QR_BEAM_VLLM;
    }
    assert_true(n > 100 && n_ended > 50 && n_vllm > 20);
    fclose(f);
    qr_lib_close(&lib);
}
