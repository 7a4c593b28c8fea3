#include "core/costs.h"

#include <stdio.h>

void qr_work_add(struct qr_work *w, int32_t n_prompt, int32_t pos0, int32_t n_tokens)
{
    int32_t to = pos0 + n_tokens, prompt_to = to < n_prompt ? to : n_prompt;
    int32_t n_in_prompt = prompt_to > pos0 ? prompt_to - pos0 : 0;
    w->n_rows += n_tokens - n_in_prompt;
    w->n_prompt_tile += (n_in_prompt + QR_COST_TILE - 1) / QR_COST_TILE * QR_COST_TILE;
    w->context += to;
    w->query_context += (int64_t)n_in_prompt * prompt_to;
}

void qr_work_of(const struct qr_batch *b, struct qr_work *out)
{
    *out = (struct qr_work){0};
    for (int32_t i = 0; i < b->n_seqs; i++) {
        const struct qr_batch_seq *q = &qr_batch_seqs(b)[i];
        qr_work_add(out, q->n_prompt, q->pos0, q->n_tokens);
    }
}

uint64_t qr_cost_times(uint64_t n, uint64_t cost)
{
    uint64_t r;
    return __builtin_mul_overflow(n, cost, &r) || r > QR_STEP_NS_MAX ? QR_STEP_NS_MAX : r;
}

static uint64_t of_ps(uint64_t n, uint64_t cost_ps)
{
    return qr_cost_times(n / 1000, cost_ps) + n % 1000 * cost_ps / 1000;
}

static uint64_t rows_ns(const struct qr_costs *c, const struct qr_work *w)
{
    return c->fixed_ns + qr_cost_times((uint64_t)w->n_rows, c->row_ns);
}

bool qr_costs_floor_rules(const struct qr_costs *c, const struct qr_work *w)
{
    return c->floor_ns > rows_ns(c, w);
}

uint64_t qr_costs_ns(const struct qr_costs *c, const struct qr_work *w)
{
    uint64_t rows = rows_ns(c, w);
    uint64_t ns = (c->floor_ns > rows ? c->floor_ns : rows) + (w->n_prompt_tile > 0 ? c->prompt_fixed_ns : 0) +
                  qr_cost_times((uint64_t)w->n_prompt_tile, c->prompt_row_ns) + of_ps((uint64_t)w->context, c->context_ps) +
                  of_ps((uint64_t)w->query_context, c->query_context_ps);
    return ns < QR_STEP_NS_MAX ? ns : QR_STEP_NS_MAX;
}

void qr_work_counts(const struct qr_work *w, bool floor_rules, double counts[QR_COST_TERMS])
{
    counts[QR_COST_FLOOR] = floor_rules;
    counts[QR_COST_FIXED] = !floor_rules;
    counts[QR_COST_ROW] = floor_rules ? 0 : (double)w->n_rows;
    counts[QR_COST_PROMPT_FIXED] = w->n_prompt_tile > 0;
    counts[QR_COST_PROMPT_ROW] = (double)w->n_prompt_tile;
    counts[QR_COST_CONTEXT] = (double)w->context;
    counts[QR_COST_QUERY_CONTEXT] = (double)w->query_context;
}

struct key {
    const char *name;
    size_t at;
    double per_ns; // the key's unit
    int64_t least; // a step that takes no time would let a simulated clock stand still
    bool optional;
};
static const struct key epoch_key = {"epoch", offsetof(struct qr_costs, epoch), 1, 1, true};
static const struct key keys[QR_COST_TERMS] = {
    [QR_COST_FIXED] = {"fixed_ns", offsetof(struct qr_costs, fixed_ns), 1, 1, false},
    [QR_COST_ROW] = {"row_ns", offsetof(struct qr_costs, row_ns), 1, 0, false},
    [QR_COST_PROMPT_FIXED] = {"prompt_fixed_ns", offsetof(struct qr_costs, prompt_fixed_ns), 1, 0, false},
    [QR_COST_PROMPT_ROW] = {"prompt_row_ns", offsetof(struct qr_costs, prompt_row_ns), 1, 0, false},
    [QR_COST_CONTEXT] = {"context_ps", offsetof(struct qr_costs, context_ps), 1e3, 0, false},
    [QR_COST_QUERY_CONTEXT] = {"query_context_ps", offsetof(struct qr_costs, query_context_ps), 1e3, 0, false},
    [QR_COST_FLOOR] = {"floor_ns", offsetof(struct qr_costs, floor_ns), 1, 0, true}};

static uint64_t *at(struct qr_costs *c, const struct key *k)
{
    return (uint64_t *)(void *)((char *)c + k->at);
}

static uint64_t value(const struct qr_costs *c, const struct key *k)
{
    return *(const uint64_t *)(const void *)((const char *)c + k->at);
}

void qr_costs_terms(const struct qr_costs *c, double ns[QR_COST_TERMS])
{
    for (int i = 0; i < QR_COST_TERMS; i++) ns[i] = (double)value(c, &keys[i]) / keys[i].per_ns;
}

struct qr_costs qr_costs_of_terms(const double ns[QR_COST_TERMS], uint64_t epoch)
{
    struct qr_costs c = {.epoch = epoch};
    for (int i = 0; i < QR_COST_TERMS; i++) {
        uint64_t v = ns[i] > 0 ? (uint64_t)(ns[i] * keys[i].per_ns + 0.5) : 0, least = (uint64_t)keys[i].least;
        *at(&c, &keys[i]) = v > least ? v : least;
    }
    return c;
}

void qr_costs_put(const struct qr_costs *c, struct qr_json_writer *w)
{
    for (int i = 0; i < QR_COST_TERMS; i++) {
        qr_jw_key(w, keys[i].name);
        qr_jw_int(w, (int64_t)value(c, &keys[i]));
    }
}

void qr_costs_write(const struct qr_costs *c, struct qr_json_writer *w)
{
    qr_jw_obj(w);
    qr_jw_key(w, epoch_key.name);
    qr_jw_int(w, (int64_t)c->epoch);
    qr_costs_put(c, w);
    qr_jw_obj_end(w);
}

enum qr_status qr_cost_read(qr_json *v, const char *name, int64_t least, const char *where, uint64_t *out, struct qr_error *err)
{
    char got[48];
    qr_json *x = qr_json_get(v, name);
    int64_t n = 0;
    if (!qr_json_int64(x, &n) || n < least || n > (int64_t)QR_COST_MAX) {
        qr_json_shown(x, got, sizeof got);
        return qr_fail(err, QR_EFORMAT, "%.100s: %s: expected a whole number from %lld to %lld, got %s", where, name,
                       (long long)least, (long long)QR_COST_MAX, got);
    }
    *out = (uint64_t)n;
    return QR_OK;
}

static enum qr_status read_key(qr_json *v, const struct key *k, const char *where, struct qr_costs *c, struct qr_error *err)
{
    if (k->optional && qr_json_type(qr_json_get(v, k->name)) == QR_JSON_ABSENT) return QR_OK;
    return qr_cost_read(v, k->name, k->least, where, at(c, k), err);
}

enum qr_status qr_costs_read(qr_json *v, const char *where, struct qr_costs *out, struct qr_error *err)
{
    struct qr_costs c = {.epoch = 1};
    if (qr_json_type(v) != QR_JSON_OBJ)
        return qr_fail(err, QR_EFORMAT, "%.100s: expected an object of costs, got %s", where,
                       qr_json_type_name(qr_json_type(v)));
    enum qr_status st = read_key(v, &epoch_key, where, &c, err);
    for (int i = 0; i < QR_COST_TERMS && st == QR_OK; i++) st = read_key(v, &keys[i], where, &c, err);
    if (st == QR_OK) *out = c;
    return st;
}
