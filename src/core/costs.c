#include "core/costs.h"

#include <stdio.h>

#define COST_MAX ((int64_t)1 << 50) // sums over a batch of any size stay within 64 bits

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

uint64_t qr_costs_ns(const struct qr_costs *c, const struct qr_work *w)
{
    return c->fixed_ns + (uint64_t)w->n_rows * c->row_ns + (w->n_prompt_tile > 0 ? c->prompt_fixed_ns : 0) +
           (uint64_t)w->n_prompt_tile * c->prompt_row_ns + (uint64_t)w->context * c->context_ps / 1000 +
           (uint64_t)w->query_context * c->query_context_ps / 1000;
}

struct key {
    const char *name;
    size_t at;
    int64_t least; // a step that takes no time would let a simulated clock stand still
};
static const struct key keys[] = {{"epoch", offsetof(struct qr_costs, epoch), 0},
                                  {"fixed_ns", offsetof(struct qr_costs, fixed_ns), 1},
                                  {"row_ns", offsetof(struct qr_costs, row_ns), 0},
                                  {"prompt_fixed_ns", offsetof(struct qr_costs, prompt_fixed_ns), 0},
                                  {"prompt_row_ns", offsetof(struct qr_costs, prompt_row_ns), 0},
                                  {"context_ps", offsetof(struct qr_costs, context_ps), 0},
                                  {"query_context_ps", offsetof(struct qr_costs, query_context_ps), 0}};

void qr_costs_write(const struct qr_costs *c, struct qr_json_writer *w)
{
    qr_jw_obj(w);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        qr_jw_key(w, keys[i].name);
        qr_jw_int(w, (int64_t) * (const uint64_t *)((const char *)c + keys[i].at));
    }
    qr_jw_obj_end(w);
}

static enum qr_status bad_cost(const struct key *k, qr_json *x, const char *where, struct qr_error *err)
{
    char got[48];
    qr_json_shown(x, got, sizeof got);
    return qr_fail(err, QR_EFORMAT, "%.100s: %s: expected a whole number from %lld to %lld, got %s", where, k->name,
                   (long long)k->least, (long long)COST_MAX, got);
}

enum qr_status qr_costs_read(qr_json *v, const char *where, struct qr_costs *out, struct qr_error *err)
{
    struct qr_costs c = {.epoch = 1};
    if (qr_json_type(v) != QR_JSON_OBJ)
        return qr_fail(err, QR_EFORMAT, "%.100s: expected an object of costs, got %s", where,
                       qr_json_type_name(qr_json_type(v)));
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        qr_json *x = qr_json_get(v, keys[i].name);
        int64_t n = 0;
        if (i == 0 && qr_json_type(x) == QR_JSON_ABSENT) continue;
        if (!qr_json_int64(x, &n) || n < keys[i].least || n > COST_MAX) return bad_cost(&keys[i], x, where, err);
        *(uint64_t *)((char *)&c + keys[i].at) = (uint64_t)n;
    }
    *out = c;
    return QR_OK;
}
