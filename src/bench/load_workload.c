/* A load from a trace or from lengths in words: sim/workload.h reads it, and sim/prompt.h makes up the ids, so that prompts
 * share what the trace says. The next turn of a session holds the prompt before and an answer that is made up too: which
 * one the server gave is not known when the load is made. */
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "bench/load_internal.h"
#include "sim/prompt.h"
#include "sim/workload.h"

// What a session said up to the end of item i of the load, for its next turn. NULL ids: no memory.
static struct qr_sim_context context_of(struct load_maker *m, size_t i)
{
    const struct bench_item *it = &m->load->items[i];
    int32_t n = it->n_prompt + it->n_out, *ids = qr_malloc(QR_MEM_MISC, (size_t)n * sizeof *ids);
    if (!ids) return (struct qr_sim_context){0};
    for (int32_t k = 0; k < it->n_prompt; k++) ids[k] = m->load->ids[it->first_id + k] - m->range.lo;
    load_draw_ids(m, ids + it->n_prompt, it->n_out);
    for (int32_t k = it->n_prompt; k < n; k++) ids[k] -= m->range.lo;
    return (struct qr_sim_context){ids, n};
}

// Adds item i; `before` is the load's item of the turn before, SIZE_MAX where there is none.
static enum qr_status add(struct load_maker *m, const struct qr_sim_workload *w, int64_t i, size_t before,
                          struct qr_error *err)
{
    const struct qr_sim_item *it = &w->items[i];
    struct qr_sim_context context = {0};
    if (before != SIZE_MAX) {
        context = context_of(m, before);
        if (!context.ids) return load_no_memory(m, err);
    }
    int32_t *ids = load_add(m, it->n_prompt, it->n_output);
    if (ids) {
        qr_sim_prompt(w, i, 0, context.ids ? &context : NULL, m->seed, m->range.end - m->range.lo, ids);
        for (int32_t k = 0; k < it->n_prompt; k++) ids[k] += m->range.lo;
        struct bench_item *mine = &m->load->items[m->load->n - 1];
        mine->arrival_s = it->arrival_s;
        mine->think_s = it->think_s;
        mine->is_first = before == SIZE_MAX;
        if (before != SIZE_MAX) m->load->items[before].next = (int64_t)m->load->n - 1;
    }
    qr_free((void *)context.ids);
    return ids ? QR_OK : load_no_memory(m, err);
}

enum qr_status load_workload(struct load_maker *m, struct qr_error *err)
{
    const struct qr_conf *c = m->conf;
    bool is_rate_set = c->origin[QR_OPT_request_rate] != QR_FROM_DEFAULT;
    struct qr_sim_workload_conf conf = {.source = c->workload,
                                        .n_requests = c->origin[QR_OPT_num_prompts] != QR_FROM_DEFAULT ? c->num_prompts : 0,
                                        .rate = is_rate_set ? m->load->rate : 0,
                                        .rate_without_times = m->load->rate,
                                        .burstiness = c->burstiness,
                                        .seed = m->seed};
    struct qr_sim_workload w;
    enum qr_status st = qr_sim_workload_make(&conf, &w, err);
    if (st != QR_OK) return st;
    if (w.timed) m->load->rate = 0;
    if (w.unused[0]) QR_WARN("bench", "%s: %s: not used", c->workload, w.unused);
    size_t before = SIZE_MAX;
    bool dropped = false; // of this session: what comes after a turn that is left out is left out too
    for (size_t i = 0; st == QR_OK && i < w.n_items; i++) {
        const struct qr_sim_item *it = &w.items[i];
        if (it->is_first) dropped = false, before = SIZE_MAX;
        dropped |= c->max_model_len > 0 && (int64_t)it->n_prompt + it->n_output > c->max_model_len;
        if (dropped) continue;
        st = add(m, &w, (int64_t)i, before, err);
        before = m->load->n - 1;
    }
    qr_sim_workload_free(&w);
    if (st == QR_OK && m->load->n == 0)
        st = qr_fail_param(err, QR_EINVAL, "max-model-len", "--workload: no request fits --max-model-len %lld",
                           (long long)c->max_model_len);
    return st;
}
