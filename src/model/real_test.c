/* The default model against transformers in float32, and the fast paths against the f32 path (DESIGN 5).
 * These need the model file and take some seconds: `make test`. */
#include "model/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/test.h"
#include "kern/kern.h"
#include "model/rig_internal.h"

#define TOLERANCE 1e-4f // of the largest |logit|; measured: 5e-6
#define N_TEXT 2000     // tokens of wikitext

static const char need_model[] = "no default model: set QUIRE_TEST_MODEL";

// The reference's own answer is fed back, so a step after a parting is judged by the same text as the
// reference's.
static void check_case(struct rig *r, const struct rig_case *c, float *logits, float *worst, int *n_parted)
{
    size_t n_vocab = (size_t)r->n_vocab;
    rig_run(r, c->ids, c->n_ids, c->n_prompt, 512, logits);
    for (int i = 0; i < c->n_rows; i++) {
        const struct rig_row *row = &c->rows[i];
        for (int j = 0; j < row->n; j++) {
            float e =
                fabsf(logits[(size_t)row->pos * n_vocab + (size_t)row->id[j]] - row->logit[j]) / row->max;
            if (!(e <= TOLERANCE))
                fail_msg("%s: position %d, id %d: %g of the largest logit", c->name, row->pos, row->id[j],
                         (double)e);
            if (e > *worst) *worst = e;
        }
    }
    for (int i = 0; i < c->n_steps; i++) {
        int pos = c->n_prompt - 1 + i;
        const float *row = logits + (size_t)pos * n_vocab;
        int got = qr_kern()->argmax(row, r->n_vocab);
        if (got == c->ids[pos + 1]) continue;
        ++*n_parted;
        if (c->gap[i] > TOLERANCE * fabsf(row[got]))
            fail_msg("%s: step %d chose %d, the reference %d", c->name, i, got, c->ids[pos + 1]);
    }
}

QR_TEST(model_real_answers_equal_transformers)
{
    if (!qr_test_model()) QR_SKIP(need_model);
    FILE *f = fopen("tests/vectors/smollm2_golden.txt", "r");
    struct rig_case *c = malloc(sizeof *c);
    struct rig r;
    float worst = 0;
    int n_cases = 0, n_parted = 0;
    assert_non_null(f);
    rig_open(&r, &(struct rig_conf){qr_test_model(), QR_ACT_F32, 2, 16, 512, QR_KV_AUTO});
    float *logits = malloc(512 * (size_t)r.n_vocab * sizeof *logits);
    while (rig_next_case(f, c)) {
        check_case(&r, c, logits, &worst, &n_parted);
        n_cases++;
    }
    printf(
        "f32 against transformers: %d answers, logits within %.1e, %d tokens parted inside the tolerance\n",
        n_cases, (double)worst, n_parted);
    assert_int_equal(n_cases, 20);
    free(logits);
    free(c);
    fclose(f);
    rig_close(&r);
}

/* ==== Fast against f32. ==== */

struct quality {
    const char *name;
    int n, n_same;  // rows, and those with the same best token
    double kl, nll; // sums
};

// log of the sum of exp
static double log_sum(const float *x, int n, float *max)
{
    *max = x[qr_kern()->argmax(x, n)];
    return (double)*max + log((double)qr_kern()->sum_exp(x, n, *max));
}

// Adds a row: exact logits p, the path's logits q, the token that follows.
static void judge(struct quality *s, const float *p, const float *q, int n, int next, float *work)
{
    const struct qr_kern *k = qr_kern();
    float max_p, max_q;
    double lp = log_sum(p, n, &max_p), lq = log_sum(q, n, &max_q), sum = 0;
    for (int i = 0; i < n; i++) work[i] = p[i] - (float)lp;
    k->vec_exp(work, n, work);
    for (int from = 0; from < n; from += 64) { // float sums of 64, double across them
        float part = 0;
        for (int i = from; i < from + 64 && i < n; i++) part += work[i] * (p[i] - q[i]);
        sum += (double)part;
    }
    s->kl += sum - (lp - lq);
    s->nll += lq - (double)q[next];
    s->n_same += k->argmax(p, n) == k->argmax(q, n);
    s->n++;
}

static void read_ids(int32_t *ids, int n)
{
    FILE *f = fopen("tests/vectors/wikitext_ids.txt", "r");
    assert_non_null(f);
    for (int i = 0; i < n; i++) assert_int_equal(fscanf(f, "%d", &ids[i]), 1);
    fclose(f);
}

// One path beside the exact one, chunk by chunk, so that no more than a chunk's logits are in memory.
static void compare_path(struct rig *exact, struct rig *fast, const int32_t *ids, int n_prompt,
                         struct quality *self, struct quality *s)
{
    enum { CHUNK = 400 };
    uint32_t table[N_TEXT / 16];
    float *work = malloc((size_t)exact->n_vocab * sizeof *work);
    rig_scatter(table, N_TEXT / 16, 0);
    for (int pos = 0; pos < N_TEXT; pos += CHUNK) {
        struct rig_seq seq = {ids, n_prompt, pos, CHUNK, table, N_TEXT / 16};
        rig_step(exact, &seq, 1);
        rig_step(fast, &seq, 1);
        for (int i = 0; i < CHUNK; i += 25) {
            struct qr_logit_row rows[25];
            for (int j = 0; j < 25; j++) rows[j] = (struct qr_logit_row){.i = i + j};
            qr_model_logits(exact->m, exact->f, exact->batch, rows, 25);
            qr_model_logits(fast->m, fast->f, fast->batch, rows, 25);
            for (int j = 0; j < 25; j++) {
                const float *pj = qr_model_logit_row(exact->f, j), *qj = qr_model_logit_row(fast->f, j);
                judge(self, pj, pj, exact->n_vocab, ids[pos + i + j + 1], work);
                judge(s, pj, qj, exact->n_vocab, ids[pos + i + j + 1], work);
            }
        }
    }
    free(work);
}

static void expect_quality(struct rig *exact, const int32_t *ids, const char *name, int n_prompt)
{
    struct quality self = {.name = "f32"}, s = {.name = name};
    struct rig fast;
    rig_open(&fast, &(struct rig_conf){qr_test_model(), QR_ACT_FAST, 2, 16, N_TEXT, QR_KV_AUTO});
    compare_path(exact, &fast, ids, n_prompt, &self, &s);
    double ppl = exp(s.nll / s.n), exact_ppl = exp(self.nll / self.n), same = (double)s.n_same / s.n;
    printf("%s: top-1 %.2f %%, mean KL %.5f, perplexity %.4f (f32 %.4f, %+.3f %%)\n", name, 100 * same,
           s.kl / s.n, ppl, exact_ppl, 100 * (ppl / exact_ppl - 1));
    assert_int_equal(s.n, N_TEXT);
    assert_true(same >= 0.98);
    assert_true(s.kl / s.n <= 0.002);
    assert_true(fabs(ppl / exact_ppl - 1) <= 0.005);
    rig_close(&fast);
}

QR_TEST(model_real_fast_paths_are_near_f32)
{
    static int32_t ids[N_TEXT + 1];
    struct rig exact;
    if (!qr_test_model()) QR_SKIP(need_model);
    read_ids(ids, N_TEXT + 1);
    rig_open(&exact, &(struct rig_conf){qr_test_model(), QR_ACT_F32, 2, 16, N_TEXT, QR_KV_AUTO});
    expect_quality(&exact, ids, "class P", N_TEXT);
    expect_quality(&exact, ids, "class D", 1);
    rig_close(&exact);
}
