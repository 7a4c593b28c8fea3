#include "engine/trace.h"

#include <inttypes.h>
#include <stdarg.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/hash.h"
#include "engine/engine_internal.h"
#include "kv/store.h"
#include "sched/policy.h"

uint64_t qr_trace_batch_hash(const struct qr_batch *b)
{
    return qr_hash_bytes(1, b, b->bytes);
}

uint64_t qr_trace_orders_hash(const struct qr_plan *plan)
{
    uint64_t h = 0;
    for (int32_t i = 0; i < plan->n_orders; i++) {
        const struct qr_order *o = &plan->orders[i];
        uint64_t v[4] = {o->kind, (uint64_t)o->slot, o->r->id, (uint64_t)o->choice};
        h = qr_hash_bytes(h, v, sizeof v);
    }
    return h;
}

void qr_trace_conf_pack(const struct qr_sched_conf *c, uint64_t out[QR_TRACE_CONF_NUMBERS])
{
    int n = 0;
    out[n++] = (uint64_t)c->max_num_seqs, out[n++] = (uint64_t)c->max_num_batched_tokens;
    out[n++] = (uint64_t)c->max_model_len, out[n++] = (uint64_t)c->block_size, out[n++] = c->n_blocks;
    out[n++] = c->layout, out[n++] = c->page_blocks, out[n++] = c->batching, out[n++] = c->prefix_caching;
    out[n++] = c->prefix_seed, out[n++] = c->exact, out[n++] = c->n_staging, out[n++] = c->preempt_mode;
    out[n++] = c->preempt_costs.token_ns, out[n++] = c->preempt_every, out[n++] = c->preempt_at;
    out[n++] = (uint64_t)c->starve_steps;
    for (int t = 0; t < QR_TIERS; t++) out[n++] = c->n_slots[t];
    for (int t = 0; t < QR_TIERS; t++) out[n++] = c->preempt_costs.block_ns[t];
    for (int t = 0; t < QR_TIERS; t++) out[n++] = c->n_prefix[t];
    out[n++] = c->prefix_key[0], out[n++] = c->prefix_key[1];
    QR_ASSERT(n == QR_TRACE_CONF_NUMBERS);
}

void qr_trace_conf_unpack(const uint64_t in[QR_TRACE_CONF_NUMBERS], struct qr_sched_conf *c)
{
    int n = 0;
    *c = (struct qr_sched_conf){0};
    c->max_num_seqs = (int32_t)in[n++], c->max_num_batched_tokens = (int32_t)in[n++];
    c->max_model_len = (int32_t)in[n++], c->block_size = (int32_t)in[n++], c->n_blocks = (uint32_t)in[n++];
    c->layout = (enum qr_kv_layout_kind)in[n++], c->page_blocks = (uint32_t)in[n++];
    c->batching = (enum qr_batching)in[n++], c->prefix_caching = in[n++];
    c->prefix_seed = in[n++], c->exact = in[n++], c->n_staging = (uint32_t)in[n++];
    c->preempt_mode = (enum qr_preempt_mode)in[n++], c->preempt_costs.token_ns = in[n++];
    c->preempt_every = in[n++], c->preempt_at = in[n++], c->starve_steps = (int32_t)in[n++];
    for (int t = 0; t < QR_TIERS; t++) c->n_slots[t] = (uint32_t)in[n++];
    for (int t = 0; t < QR_TIERS; t++) c->preempt_costs.block_ns[t] = in[n++];
    for (int t = 0; t < QR_TIERS; t++) c->n_prefix[t] = (uint32_t)in[n++];
    c->prefix_key[0] = in[n++], c->prefix_key[1] = in[n++];
}

static void put_line(struct qr_engine *e, char letter, int n, const uint64_t *v, const char *word)
{
    struct qr_buf *b = &e->trace_line;
    qr_buf_clear(b);
    qr_buf_char(b, letter);
    for (int i = 0; i < n; i++) qr_buf_printf(b, " %" PRIu64, v[i]);
    if (word) qr_buf_printf(b, " %s", word);
    qr_buf_char(b, '\n');
    if (!b->failed) e->conf.trace(e->conf.trace_arg, b->data, b->len);
}

#define PUT(letter, ...)                                                                                           \
    do {                                                                                                           \
        const uint64_t v_[] = {__VA_ARGS__};                                                                       \
        if (e->conf.trace) put_line(e, letter, (int)(sizeof v_ / sizeof *v_), v_, NULL);                           \
    } while (0)

void trace_conf(struct qr_engine *e)
{
    uint64_t v[QR_TRACE_CONF_NUMBERS];
    if (!e->conf.trace) return;
    static const char head[] = QR_TRACE_HEAD "\n";
    e->conf.trace(e->conf.trace_arg, head, sizeof head - 1);
    qr_trace_conf_pack(&e->sched_conf, v);
    put_line(e, 'C', QR_TRACE_CONF_NUMBERS, v, e->sched_conf.policy ? e->sched_conf.policy->name : "fcfs");
}

void trace_add(struct qr_engine *e, const struct qr_sched_req *r)
{
    if (!e->conf.trace) return;
    const struct qr_req *q = r->req;
    struct qr_buf *b = &e->trace_line;
    qr_buf_clear(b);
    qr_buf_printf(b, "A %" PRIu64 " %d %d %d %d %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %d %d %d", r->id, q->n_prompt,
                  q->sampling.max_tokens, q->n_choices, q->priority, r->arrival_ns, q->deadline_ns, q->tenant, q->fair_key,
                  q->no_cache_read, q->sampling.n_prompt_logprobs >= 0, q->beam.width);
    for (int32_t i = 0; i < q->n_prompt; i++) qr_buf_printf(b, " %d", q->prompt[i]);
    qr_buf_char(b, '\n');
    if (!b->failed) e->conf.trace(e->conf.trace_arg, b->data, b->len);
}

void trace_budget(struct qr_engine *e, const struct qr_costs *c, uint64_t step_ns)
{
    PUT('S', c->epoch, c->fixed_ns, c->row_ns, c->prompt_fixed_ns, c->prompt_row_ns, c->context_ps, c->query_context_ps,
        c->floor_ns, step_ns);
}

void trace_preempt_costs(struct qr_engine *e, const struct qr_preempt_costs *c)
{
    PUT('X', c->token_ns, c->block_ns[QR_TIER_POOL], c->block_ns[QR_TIER_RAM], c->block_ns[QR_TIER_FILE]);
}

void trace_plan(struct qr_engine *e, uint64_t now_ns, const struct qr_plan *plan)
{
    PUT('P', now_ns, (uint64_t)e->conf.max_num_batched_tokens);
    PUT('O', (uint64_t)plan->n_orders, e->conf.trace ? qr_trace_orders_hash(plan) : 0);
}

void trace_batch(struct qr_engine *e, const struct qr_batch *b)
{
    if (!e->conf.trace) return;
    if (!b) {
        PUT('B', 0, 0, 0, 0, 0);
        return;
    }
    PUT('B', b->step, (uint64_t)b->n_seqs, (uint64_t)b->n_tokens, (uint64_t)b->n_copies, qr_trace_batch_hash(b));
}

void trace_computed(struct qr_engine *e, uint64_t elapsed_ns)
{
    PUT('D', elapsed_ns);
}

void trace_beams(struct qr_engine *e, const struct qr_sched_req *r, const struct qr_beam_move *moves, int32_t n)
{
    uint64_t v[2 + 2 * QR_CHOICES_MAX] = {r->id, (uint64_t)n};
    if (!e->conf.trace) return;
    for (int32_t i = 0; i < n; i++) {
        v[2 + 2 * i] = (uint64_t)moves[i].from;
        v[3 + 2 * i] = (uint64_t)moves[i].to;
    }
    put_line(e, 'V', 2 + 2 * n, v, NULL);
}

void trace_scored(struct qr_engine *e, const struct qr_sched_req *r)
{
    PUT('Q', r->id, (uint64_t)r->n_scored);
}

void trace_token(struct qr_engine *e, const struct qr_sched_req *r, int32_t choice, int32_t token)
{
    PUT('T', r->id, (uint64_t)choice, (uint64_t)token);
}

void trace_end(struct qr_engine *e, const struct qr_sched_req *r, const struct qr_seq *q)
{
    PUT('E', r->id, (uint64_t)q->choice, (uint64_t)q->n_kept);
}

void trace_io_started(struct qr_engine *e, int32_t n)
{
    PUT('J', (uint64_t)n);
}

void trace_io_done(struct qr_engine *e, const struct qr_io_done *d)
{
    PUT('I', d->io.kind, d->io.file, d->io.mem, d->status == QR_OK ? 0 : 1);
}

void trace_import(struct qr_engine *e, uint32_t slot, const void *tag)
{
    if (!e->conf.trace) return;
    struct qr_buf *b = &e->trace_line;
    const unsigned char *bytes = tag;
    qr_buf_clear(b);
    qr_buf_printf(b, "U %u ", slot);
    for (size_t i = 0; i < qr_kv_tag_bytes(e->info.block_size); i++) qr_buf_printf(b, "%02x", bytes[i]);
    qr_buf_char(b, '\n');
    if (!b->failed) e->conf.trace(e->conf.trace_arg, b->data, b->len);
}

// Lines of a letter alone, and M.
void trace_word(struct qr_engine *e, char letter)
{
    if (e->conf.trace) put_line(e, letter, 0, NULL, NULL);
}

void trace_flush(struct qr_engine *e, int32_t n_copies)
{
    PUT('W', (uint64_t)n_copies);
}

void trace_trim(struct qr_engine *e, bool trimmed)
{
    PUT('M', trimmed);
}
