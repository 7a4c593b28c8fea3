#include "sample/sample.h"

#include <math.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/mem.h"
#include "kern/kern.h"
#include "sample/counts.h"
#include "sample/sample_internal.h"

#define GREEDY_BELOW 1e-5f // a temperature under this is 0, as in vLLM

struct qr_sampler {
    const struct qr_sampling *sampling;
    int32_t choice, n_vocab, n_prompt;
    struct qr_counts *counts; // NULL: no penalty asks for it
    int32_t *prompt;          // NULL: the prompt is not scored
    int32_t *recent;          // the last n_recent generated tokens, oldest first; what bad words look back at
    int32_t n_recent, recent_max;
};

static bool has_penalties(const struct qr_sampling *p)
{
    return p->repetition != 1.0f || p->frequency != 0.0f || p->presence != 0.0f;
}

static void remember(struct qr_sampler *s, int32_t token)
{
    if (s->counts) qr_counts_add(s->counts, token, 1);
    if (s->recent_max == 0) return;
    if (s->n_recent == s->recent_max) {
        for (int32_t i = 1; i < s->n_recent; i++) s->recent[i - 1] = s->recent[i];
        s->n_recent--;
    }
    s->recent[s->n_recent++] = token;
}

static enum qr_status make_counts(struct qr_sampler *s, const int32_t *ids, int32_t n_ids)
{
    const struct qr_sampling *p = s->sampling;
    if (!has_penalties(p)) return QR_OK;
    int64_t most = (int64_t)n_ids + p->max_tokens;
    if (most > s->n_vocab) most = s->n_vocab;
    enum qr_status st = qr_counts_new((int32_t)most, &s->counts);
    if (st != QR_OK) return st;
    if (p->repetition != 1.0f) // the other penalties do not see the prompt
        for (int32_t i = 0; i < s->n_prompt; i++) qr_counts_add(s->counts, ids[i], 0);
    return QR_OK;
}

enum qr_status qr_sampler_new(const struct qr_sampling *sampling, int32_t choice, int32_t n_vocab,
                              const int32_t *ids, int32_t n_prompt, int32_t n_ids, struct qr_sampler **out)
{
    int32_t longest_bad = 0;
    for (size_t i = 0; i < sampling->n_bad; i++)
        if (sampling->bad_lens[i] > longest_bad) longest_bad = sampling->bad_lens[i];
    size_t n_recent = longest_bad > 1 ? (size_t)longest_bad - 1 : 0;
    size_t n_scored = sampling->n_prompt_logprobs >= 0 ? (size_t)n_prompt : 0;
    struct qr_sampler *s = qr_malloc(QR_MEM_EXEC, sizeof *s + (n_recent + n_scored) * sizeof(int32_t));
    if (!s) return QR_ENOMEM;
    *s =
        (struct qr_sampler){.sampling = sampling, .choice = choice, .n_vocab = n_vocab, .n_prompt = n_prompt};
    s->recent = (int32_t *)(s + 1);
    s->recent_max = (int32_t)n_recent;
    if (n_scored > 0) {
        s->prompt = s->recent + n_recent;
        memcpy(s->prompt, ids, n_scored * sizeof(int32_t));
    }
    enum qr_status st = make_counts(s, ids, n_ids);
    if (st != QR_OK) {
        qr_sampler_free(&s);
        return st;
    }
    for (int32_t i = n_prompt; i < n_ids; i++) remember(s, ids[i]);
    *out = s;
    return QR_OK;
}

void qr_sampler_free(struct qr_sampler **sampler)
{
    struct qr_sampler *s = *sampler;
    if (!s) return;
    qr_counts_free(&s->counts);
    qr_free(s);
    *sampler = NULL;
}

int32_t qr_sampler_prompt_id(const struct qr_sampler *s, int32_t p)
{
    return s->prompt && p >= 0 && p < s->n_prompt ? s->prompt[p] : -1;
}

int32_t qr_sampler_n_prompt_logprobs(const struct qr_sampler *s)
{
    return s->sampling->n_prompt_logprobs;
}

int32_t qr_sampler_n_candidates(const struct qr_sampler *s)
{
    return s->sampling->n_candidates;
}

// ==== Reports of the raw distribution ====

// Places from 1 of a token when the row is sorted, largest first, equal values by id.
static int32_t rank_of(const float *x, int32_t n, int32_t token)
{
    float v = x[token];
    int32_t before = 0;
    for (int32_t i = 0; i < token; i++) before += x[i] >= v;
    for (int32_t i = token + 1; i < n; i++) before += x[i] > v;
    return before + 1;
}

// top is of the raw row; returns log(sum exp).
static double report_top(const float *raw, int32_t n, int32_t n_top, struct sample_work *w,
                         struct qr_out_row *row, struct qr_top *top)
{
    double norm = sample_peak(raw, n, w).norm;
    row->n_top = sample_top(raw, n, n_top, w, top);
    for (int32_t i = 0; i < row->n_top; i++) top[i].logprob = (float)((double)top[i].logprob - norm);
    return norm;
}

void qr_sample_score(const float *logits, int32_t n_vocab, int32_t token, int32_t n_top, void *work,
                     struct qr_out_row *row, struct qr_top *top)
{
    struct sample_work w = sample_work_at(work, n_vocab);
    double norm = report_top(logits, n_vocab, n_top < QR_LOGPROBS_MAX ? n_top : QR_LOGPROBS_MAX, &w, row, top);
    row->token = token;
    row->logprob = (float)((double)logits[token] - norm);
    row->rank = rank_of(logits, n_vocab, token);
}

// ==== Masks, bias, penalties: they may change which token is the most likely ====

static bool changes_row(const struct qr_sampler *s, int32_t n_generated)
{
    const struct qr_sampling *p = s->sampling;
    return p->n_allowed > 0 || p->n_bad > 0 || p->n_bias > 0 || s->counts || n_generated < p->min_tokens;
}

static void mask_id(const struct qr_sampler *s, float *logits, int32_t id)
{
    if (id >= 0 && id < s->n_vocab) logits[id] = -INFINITY;
}

static void keep_allowed(const struct qr_sampler *s, float *logits, struct sample_work *w)
{
    const struct qr_sampling *p = s->sampling;
    size_t n = p->n_allowed < (size_t)s->n_vocab ? p->n_allowed : (size_t)s->n_vocab;
    for (size_t i = 0; i < n; i++) w->values[i] = logits[p->allowed[i]];
    for (int32_t i = 0; i < s->n_vocab; i++) logits[i] = -INFINITY;
    for (size_t i = 0; i < n; i++) logits[p->allowed[i]] = w->values[i];
}

// A sequence is avoided by masking its last token when those before it are the latest generated ones.
static void mask_bad_words(const struct qr_sampler *s, float *logits)
{
    const struct qr_sampling *p = s->sampling;
    const int32_t *ids = p->bad_ids;
    for (size_t i = 0; i < p->n_bad; ids += p->bad_lens[i], i++) {
        int32_t before = p->bad_lens[i] - 1;
        if (before > s->n_recent) continue;
        const int32_t *tail = s->recent + s->n_recent - before;
        if (before == 0 || memcmp(tail, ids, (size_t)before * sizeof *ids) == 0)
            mask_id(s, logits, ids[before]);
    }
}

static void apply_penalties(const struct qr_sampler *s, float *logits)
{
    const struct qr_sampling *p = s->sampling;
    int32_t n;
    const struct qr_count *list = qr_counts_list(s->counts, &n);
    for (int32_t i = 0; i < n; i++) {
        float x = logits[list[i].id];
        x = x > 0 ? x / p->repetition : x * p->repetition;
        if (list[i].n_generated > 0) x = x - p->frequency * (float)list[i].n_generated - p->presence;
        logits[list[i].id] = x;
    }
}

static void change_row(const struct qr_sampler *s, int32_t n_generated, float *logits, struct sample_work *w)
{
    const struct qr_sampling *p = s->sampling;
    if (p->n_allowed > 0) keep_allowed(s, logits, w);
    mask_bad_words(s, logits);
    if (n_generated < p->min_tokens) {
        for (size_t i = 0; i < p->n_eos; i++) mask_id(s, logits, p->eos[i]);
        for (size_t i = 0; i < p->n_stop_ids; i++) mask_id(s, logits, p->stop_ids[i]);
    }
    for (size_t i = 0; i < p->n_bias; i++) logits[p->bias[i].id] += p->bias[i].value;
    if (s->counts) apply_penalties(s, logits);
}

// ==== The draw ====

// The draw's distribution: weights are exp((logit - max) * scale).
struct scaling {
    float max, scale;
};

// y = (x - max) * scale; what no exponential reaches, NaN included, becomes -infinity. y may be x.
static void scale_row(const float *x, int32_t n, struct scaling s, float *y)
{
    int32_t i = 0;
    for (; i + 16 <= n; i += 16) { // through lanes: the compiler makes them vectors whether or not y is x
        float t[16];
        for (int l = 0; l < 16; l++) t[l] = (x[i + l] - s.max) * s.scale;
        for (int l = 0; l < 16; l++) t[l] = t[l] > -88.0f ? t[l] : -INFINITY;
        memcpy(y + i, t, sizeof t);
    }
    for (; i < n; i++) {
        float t = (x[i] - s.max) * s.scale;
        y[i] = t > -88.0f ? t : -INFINITY;
    }
}

static int32_t block_len(int32_t n, int32_t first)
{
    return n - first < SAMPLE_BLOCK ? n - first : SAMPLE_BLOCK;
}

// Sums of the weights by blocks of SAMPLE_BLOCK into w->sums; returns their sum. Uses w->values.
static double sum_blocks(const float *x, int32_t n, struct scaling s, struct sample_work *w)
{
    const struct qr_kern *kern = qr_kern();
    double sum = 0;
    for (int32_t b = 0, i = 0; i < n; b++, i += SAMPLE_BLOCK) {
        scale_row(x + i, block_len(n, i), s, w->values);
        w->sums[b] = kern->sum_exp(w->values, block_len(n, i), 0);
        sum += (double)w->sums[b];
    }
    return sum;
}

// The first i at which exps[0] + ... + exps[i] passes target; the last that has any mass when rounding leaves
// it short.
static int32_t walk(const float *exps, int32_t n, double target)
{
    int32_t last = 0;
    double sum = 0;
    for (int32_t i = 0; i < n; i++) {
        if (!(exps[i] > 0)) continue;
        last = i;
        sum += (double)exps[i];
        if (sum > target) break;
    }
    return last;
}

static int32_t draw_from_row(const float *x, int32_t n, struct scaling s, double u, struct sample_work *w)
{
    double target = u * sum_blocks(x, n, s, w), before = 0;
    int32_t n_blocks = (n + SAMPLE_BLOCK - 1) / SAMPLE_BLOCK, b = walk(w->sums, n_blocks, target);
    for (int32_t i = 0; i < b; i++) before += (double)w->sums[i];
    int32_t first = b * SAMPLE_BLOCK, len = block_len(n, first);
    scale_row(x + first, len, s, w->values);
    qr_kern()->vec_exp(w->values, len, w->exps);
    return first + walk(w->exps, len, target - before);
}

// From candidates in w (ids ascending): top_p narrows them, u chooses.
static int32_t draw_from_candidates(const struct qr_sampling *p, int32_t n, double full_mass, double u,
                                    struct sample_work *w)
{
    qr_kern()->vec_exp(w->values, n, w->exps);
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += (double)w->exps[i];
    if (p->top_p < 1.0f) {
        double mass = (double)p->top_p * (full_mass > 0 ? full_mass : sum);
        struct sample_nucleus s = sample_top_p(w->values, w->exps, n, mass);
        uint32_t cut = sample_key(s.cut);
        int32_t kept = 0;
        sum = 0;
        for (int32_t i = 0; i < n; i++) {
            uint32_t key = sample_key(w->values[i]);
            if (key < cut || (key == cut && s.n_equal-- <= 0)) continue;
            w->ids[kept] = w->ids[i];
            w->exps[kept++] = w->exps[i];
            sum += (double)w->exps[kept - 1];
        }
        n = kept;
    }
    return w->ids[walk(w->exps, n, u * sum)];
}

// The logit that scales to t, or a little less: what is rounded on the way is not lost.
static float unscaled(float t, struct scaling s)
{
    double by = (double)t / (double)s.scale;
    return (float)((double)s.max + by - 1e-6 * (fabs((double)s.max) + fabs(by)));
}

// Candidates whose scaled value is at least floor stay.
static int32_t keep_from(int32_t n, float floor, struct sample_work *w)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < n; i++) {
        w->ids[kept] = w->ids[i];
        w->values[kept] = w->values[i];
        kept += w->values[i] >= floor;
    }
    return kept;
}

// w->maxima are x's. Only candidates are scaled: top_k and what bounds the others is found among the logits.
static int32_t draw(const struct qr_sampler *s, int32_t pos, const float *x, float max, struct sample_work *w)
{
    const struct qr_sampling *p = s->sampling;
    int32_t n = s->n_vocab;
    struct scaling sc = {max, 1.0f / p->temperature};
    double u = qr_rand_unit(p->seed, (uint64_t)s->choice, (uint64_t)pos), full_mass = 0;
    bool top_k = p->top_k > 0 && p->top_k < n;
    if (!top_k && !(p->min_p > 0) && p->top_p >= 1.0f) return draw_from_row(x, n, sc, u, w);
    float least = p->min_p > 0 ? logf(p->min_p) : -INFINITY, floor = least; // scaled
    if (!top_k && !(p->min_p > 0)) {
        /* Tokens below x have less than n exp(x) in all; where that is at most (1 - top_p) of the whole,
         * those above already hold top_p and none below can be in the nucleus. Half of it leaves room for
         * rounding. */
        full_mass = sum_blocks(x, n, sc, w);
        floor = (float)log(0.5 * (1.0 - (double)p->top_p) * full_mass / n);
    }
    floor = unscaled(floor, sc);
    if (top_k) {
        float kth = sample_kth_of_row(x, n, p->top_k, w);
        floor = kth > floor ? kth : floor;
    }
    int32_t n_kept = sample_collect(x, n, floor, w);
    scale_row(w->values, n_kept, sc, w->values);
    return draw_from_candidates(p, keep_from(n_kept, least, w), full_mass, u, w);
}

// ==== A token ====

static bool is_greedy(const struct qr_sampling *p)
{
    return p->temperature < GREEDY_BELOW;
}

enum qr_logit_want qr_sampler_wants(const struct qr_sampler *s, int32_t pos)
{
    const struct qr_sampling *p = s->sampling;
    if (!is_greedy(p) || p->n_candidates > 0 || p->n_logprobs > 0 || changes_row(s, pos - s->n_prompt)) return QR_LOGIT_ALL;
    return p->n_logprobs < 0 ? QR_LOGIT_PEAK : QR_LOGIT_PEAK_NORM;
}

void qr_sampler_take(const struct qr_sampler *s, const struct qr_logit_peak *peak, struct qr_out_row *row)
{
    bool report = s->sampling->n_logprobs >= 0;
    row->token = peak->id;
    row->n_top = 0;
    row->rank = report;
    row->logprob = report ? (float)((double)peak->max - peak->norm) : 0;
}

// From logits as masks, bias and penalties left them.
static int32_t choose(const struct qr_sampler *s, int32_t pos, const float *x, struct sample_work *w)
{
    const struct qr_sampling *p = s->sampling;
    const struct qr_kern *kern = qr_kern();
    int32_t n = s->n_vocab;
    if (!is_greedy(p)) {
        float max = w->maxima[kern->argmax(w->maxima, kern->chunk_max(x, n, w->maxima))];
        if (max > -INFINITY && max < INFINITY) return draw(s, pos, x, max, w);
    }
    int32_t token = kern->argmax(x, n);
    return x[token] > -INFINITY || p->n_allowed == 0 ? token : p->allowed[0]; // or everything is masked
}

void qr_sampler_next(struct qr_sampler *s, int32_t pos, float *logits, void *work, struct qr_out_row *row,
                     struct qr_top *top)
{
    const struct qr_sampling *p = s->sampling;
    struct sample_work w = sample_work_at(work, s->n_vocab);
    int32_t n = s->n_vocab, n_generated = pos - s->n_prompt;
    bool change = changes_row(s, n_generated), report = p->n_logprobs >= 0;
    const float *raw = logits;
    double norm = 0;
    row->n_top = row->rank = 0;
    row->logprob = 0;
    if (p->n_candidates > 0) {
        report_top(logits, n, p->n_candidates < QR_CANDIDATES_MAX ? p->n_candidates : QR_CANDIDATES_MAX, &w, row, top);
        row->token = -1;
        return;
    }
    if (report) {
        norm = report_top(logits, n, p->n_logprobs < QR_LOGPROBS_MAX ? p->n_logprobs : QR_LOGPROBS_MAX, &w, row, top);
        if (change) raw = memcpy(w.raw, logits, (size_t)n * sizeof *logits);
    }
    if (change) change_row(s, n_generated, logits, &w);
    row->token = choose(s, pos, logits, &w);
    if (report) {
        row->logprob = (float)((double)raw[row->token] - norm);
        row->rank = rank_of(raw, n, row->token);
    }
    remember(s, row->token);
}
