#include "sim/run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "sim/exec_sim.h"
#include "sim/prompt.h"

#define INBOX 4096
#define PROGRESS_STEPS 4096
#define CLOCK_NS_MAX ((uint64_t)1 << 61)

struct due { // an item and when it is submitted
    uint64_t ns;
    int64_t item;
};

struct live { // beside its record
    uint64_t last_ns; // of choice 0's last token
    int32_t n_open;   // choices not finished
    int32_t n_ids;    // of ids, for a session that goes on
    int32_t *ids;     // prompt and choice 0's answer; NULL: nobody will ask
};

struct sim {
    const struct qr_sim_run_conf *conf;
    struct qr_clock_virtual clock;
    struct qr_exec *exec;
    struct qr_engine *engine;
    struct due *dues; // a heap, earliest first
    size_t n_dues, cap_dues;
    struct live *lives;    // (n_items) by record
    uint64_t *starts;      // (n_items) of the item's session
    int32_t **contexts;    // (n_items) what a later turn begins with, until it is submitted
    int32_t *context_lens; // (n_items)
    int32_t *prompt;       // (max_model_len) scratch
    uint64_t n_done, n_steps;
    uint64_t n_held, *held; // (max_num_seqs) records finished in a static batch that still runs
    struct qr_sim_result *out;
};

double qr_sim_itl_ns(int i)
{
    return pow(1.01, i);
}

int qr_sim_itl_bucket(uint64_t ns)
{
    static const double per_octave = 69.660716893574; // log(2) / log(1.01)
    if (ns < 1) return 0;
    int i = (int)ceil(log2((double)ns) * per_octave - 1e-9);
    return i < QR_SIM_ITL_BUCKETS ? i : QR_SIM_ITL_BUCKETS - 1;
}

static bool before(const struct due *a, const struct due *b)
{
    return a->ns != b->ns ? a->ns < b->ns : a->item < b->item;
}

static void push_due(struct sim *s, uint64_t ns, int64_t item)
{
    struct due d = {ns, item};
    size_t i = s->n_dues++;
    QR_ASSERT(s->n_dues <= s->cap_dues);
    for (; i > 0 && before(&d, &s->dues[(i - 1) / 2]); i = (i - 1) / 2) s->dues[i] = s->dues[(i - 1) / 2];
    s->dues[i] = d;
}

static void pop_due(struct sim *s)
{
    struct due d = s->dues[--s->n_dues];
    size_t i = 0;
    for (;;) {
        size_t c = 2 * i + 1;
        if (c >= s->n_dues) break;
        if (c + 1 < s->n_dues && before(&s->dues[c + 1], &s->dues[c])) c++;
        if (!before(&s->dues[c], &d)) break;
        s->dues[i] = s->dues[c];
        i = c;
    }
    s->dues[i] = d;
}

static uint64_t ns_of(double seconds)
{
    return (uint64_t)(seconds * 1e9);
}

// A request that can never fit, and the turns that would have followed it.
static void refuse(struct sim *s, int64_t i, const struct qr_error *err)
{
    if (s->out->n_refused == 0) snprintf(s->out->refused_why, sizeof s->out->refused_why, "%s", err->msg);
    for (; i >= 0; i = s->conf->workload->items[i].next) s->out->n_refused++, s->n_done++;
}

static bool keep_ids(struct sim *s, struct live *l, int64_t item, int32_t n_prompt)
{
    if (s->conf->workload->items[item].next < 0) return true;
    l->ids = qr_malloc(QR_MEM_MISC, (size_t)(n_prompt + s->conf->workload->items[item].n_output) * sizeof(int32_t));
    if (!l->ids) return false;
    memcpy(l->ids, s->prompt, (size_t)n_prompt * sizeof(int32_t));
    l->n_ids = n_prompt;
    return true;
}

// QR_AGAIN: the inbox is full.
static enum qr_status submit(struct sim *s, const struct due *d, struct qr_error *err)
{
    const struct qr_sim_run_conf *c = s->conf;
    const struct qr_sim_item *it = &c->workload->items[d->item];
    struct qr_req q = {.prompt = s->prompt,
                       .n_prompt = it->n_prompt,
                       .n_choices = c->n_choices,
                       .arrival_ns = d->ns ? d->ns : 1,
                       .sampling = {.max_tokens = it->n_output,
                                    .ignore_eos = true,
                                    .seed = c->seed,
                                    .repetition = 1,
                                    .top_p = 1,
                                    .n_logprobs = -1,
                                    .n_prompt_logprobs = -1}};
    // A layout that shares nothing stores each beam by itself, which so many independent answers do as well.
    if (c->beam_width > 0 && c->layout == QR_KV_PAGED) q.beam = (struct qr_beam){.width = c->beam_width, .length_penalty = 1};
    if (it->n_prompt > c->max_model_len) {
        (void)qr_fail(err, QR_ETOOBIG, "a prompt of %d tokens is longer than --max-model-len %d", it->n_prompt, c->max_model_len);
        return QR_ETOOBIG;
    }
    struct qr_sim_context ctx = {s->contexts[d->item], s->context_lens[d->item]};
    qr_sim_prompt(c->workload, d->item, c->shared_tokens, ctx.ids ? &ctx : NULL, c->seed, c->n_vocab, s->prompt);
    qr_req_id id = 0;
    enum qr_status st = qr_engine_submit(s->engine, &q, &id, err);
    if (st != QR_OK) return st;
    QR_ASSERT(id == s->out->n_records + 1); // ids count, so an event's id is its record's place
    struct live *l = &s->lives[s->out->n_records];
    s->out->records[s->out->n_records++] =
        (struct qr_sim_record){.item = d->item, .arrival_ns = q.arrival_ns, .n_prompt = it->n_prompt};
    *l = (struct live){.n_open = c->n_choices};
    qr_free(s->contexts[d->item]);
    s->contexts[d->item] = NULL;
    return keep_ids(s, l, d->item, it->n_prompt) ? QR_OK : qr_fail(err, QR_ENOMEM, "no memory for a session's context");
}

// As many as the engine takes in at its next step.
static enum qr_status submit_due(struct sim *s, struct qr_error *err)
{
    for (int n = 0; n < INBOX && s->n_dues > 0 && s->dues[0].ns <= s->clock.ns; n++) {
        struct due d = s->dues[0];
        enum qr_status st = submit(s, &d, err);
        if (st == QR_ETOOBIG)
            refuse(s, d.item, err);
        else if (st != QR_OK)
            return st;
        pop_due(s);
    }
    return QR_OK;
}

// A request is over: its session goes on.
static void follow(struct sim *s, struct qr_sim_record *r, struct live *l)
{
    const struct qr_sim_item *it = &s->conf->workload->items[r->item];
    s->n_done++;
    if (s->conf->stop && s->conf->stop(s->conf->stop_arg, r)) s->out->stopped = true;
    if (it->next < 0) return;
    const struct qr_sim_item *next = &s->conf->workload->items[it->next];
    uint64_t at = r->finish_ns + ns_of(next->think_s), start = s->starts[r->item];
    if (next->arrival_s >= 0 && start + ns_of(next->arrival_s) > at) at = start + ns_of(next->arrival_s);
    s->starts[it->next] = start;
    s->contexts[it->next] = l->ids;
    s->context_lens[it->next] = l->n_ids;
    l->ids = NULL;
    push_due(s, at, it->next);
}

static void take(struct sim *s, const struct qr_event *ev)
{
    QR_ASSERT(ev->id >= 1 && ev->id <= s->out->n_records);
    struct qr_sim_record *r = &s->out->records[ev->id - 1];
    struct live *l = &s->lives[ev->id - 1];
    if (ev->kind == QR_EVENT_TOKEN) {
        r->n_output++;
        if (!r->first_ns) r->first_ns = ev->now_ns, r->scheduled_ns = ev->scheduled_ns, r->n_cached = ev->n_cached;
        if (ev->choice != 0) return;
        if (l->last_ns) s->out->itl[qr_sim_itl_bucket(ev->now_ns - l->last_ns)]++;
        l->last_ns = ev->now_ns;
        if (l->ids) l->ids[l->n_ids++] = ev->token;
        return;
    }
    if (ev->kind != QR_EVENT_FINISH) return;
    QR_ASSERT(ev->finish == QR_FINISH_LENGTH);
    r->n_preemptions = ev->n_preemptions;
    if (--l->n_open > 0) return;
    r->finish_ns = ev->now_ns;
    if (s->conf->batching == QR_BATCHING_STATIC)
        s->held[s->n_held++] = ev->id - 1;
    else
        follow(s, r, l);
}

// A static batch answers when all of it is done.
static void release_held(struct sim *s)
{
    struct qr_snapshot o;
    if (s->n_held == 0) return;
    qr_engine_snapshot(s->engine, &o);
    if (o.n_running > 0) return;
    for (uint64_t i = 0; i < s->n_held; i++) {
        struct qr_sim_record *r = &s->out->records[s->held[i]];
        r->finish_ns = s->clock.ns;
        follow(s, r, &s->lives[s->held[i]]);
    }
    s->n_held = 0;
}

static enum qr_status loop(struct sim *s, struct qr_error *err)
{
    const struct qr_sim_run_conf *c = s->conf;
    uint64_t total = c->workload->n_items;
    for (;;) {
        enum qr_status st = submit_due(s, err);
        if (st != QR_OK) return st;
        st = qr_engine_step(s->engine);
        for (struct qr_event ev; qr_engine_poll(s->engine, &ev);) take(s, &ev);
        if (c->batching == QR_BATCHING_STATIC) release_held(s);
        if (s->clock.ns > CLOCK_NS_MAX)
            return qr_fail(err, QR_ETOOBIG, "simulated time passes 73 years: expected steps or arrivals that take less");
        if (s->out->stopped) return QR_OK;
        if (st == QR_AGAIN && s->n_dues == 0) break;
        if (st == QR_AGAIN && s->dues[0].ns > s->clock.ns) s->clock.ns = s->dues[0].ns;
        if (st != QR_OK) continue;
        s->n_steps++;
        if (c->check_every > 0 && s->n_steps % c->check_every == 0) qr_engine_check(s->engine);
        if (c->progress && s->n_steps % PROGRESS_STEPS == 0) c->progress(c->progress_arg, s->n_done, total);
    }
    if (c->progress) c->progress(c->progress_arg, total, total);
    QR_ASSERT(s->n_done == total);
    return QR_OK;
}

// Nothing reads within a step, and a beam search says most of its answers when it ends.
static int32_t outbox_size(const struct qr_sim_run_conf *c)
{
    int32_t longest = 1;
    for (size_t i = 0; i < c->workload->n_items && c->beam_width > 0; i++) {
        int32_t n = c->workload->items[i].n_output;
        if (n > longest && n <= c->max_model_len) longest = n;
    }
    int64_t n = (int64_t)c->max_num_seqs * (longest + 3) + 64;
    return n < INT32_MAX ? (int32_t)n : INT32_MAX;
}

static enum qr_status open_engine(struct sim *s, struct qr_error *err)
{
    const struct qr_sim_run_conf *c = s->conf;
    struct qr_exec_sim_conf xc = {.n_slots = c->max_num_seqs,
                                  .n_tokens_max = c->max_num_batched_tokens,
                                  .block_size = c->block_size,
                                  .n_vocab = c->n_vocab,
                                  .ctx_max = c->max_model_len,
                                  .n_blocks = c->n_blocks,
                                  .n_ram = c->n_ram,
                                  .block_bytes = c->block_bytes,
                                  .clock = &s->clock.face,
                                  .cost = c->cost,
                                  .shadow = c->check_every == 1};
    enum qr_status st = qr_exec_sim_new(&xc, &s->exec, err);
    if (st != QR_OK) return st;
    struct qr_engine_conf ec = {.max_num_seqs = c->max_num_seqs,
                                .max_num_batched_tokens = c->max_num_batched_tokens,
                                .max_model_len = c->max_model_len,
                                .inbox_capacity = INBOX,
                                .outbox_capacity = outbox_size(c),
                                .clock = &s->clock.face,
                                .check_every_step = c->check_every == 1,
                                .preempt_mode = c->preempt_mode,
                                .layout = c->layout,
                                .page_blocks = c->page_blocks,
                                .batching = c->batching,
                                .prefix_caching = c->prefix_caching,
                                .prefix_seed = c->seed,
                                .costs = qr_sim_cost_guess(c->cost),
                                .step_budget_ns = c->step_budget_ns};
    return qr_engine_new(&ec, s->exec, &s->engine, err);
}

static enum qr_status open(struct sim *s, struct qr_error *err)
{
    size_t n = s->conf->workload->n_items;
    s->cap_dues = n;
    s->dues = qr_malloc(QR_MEM_MISC, n * sizeof *s->dues);
    s->lives = qr_calloc(QR_MEM_MISC, n, sizeof *s->lives);
    s->starts = qr_calloc(QR_MEM_MISC, n, sizeof *s->starts);
    s->contexts = qr_calloc(QR_MEM_MISC, n, sizeof *s->contexts);
    s->context_lens = qr_calloc(QR_MEM_MISC, n, sizeof *s->context_lens);
    s->prompt = qr_malloc(QR_MEM_MISC, (size_t)s->conf->max_model_len * sizeof *s->prompt);
    s->held = qr_malloc(QR_MEM_MISC, (size_t)s->conf->max_num_seqs * sizeof *s->held);
    s->out->records = qr_malloc(QR_MEM_MISC, n * sizeof *s->out->records);
    if (!s->dues || !s->lives || !s->starts || !s->contexts || !s->context_lens || !s->prompt || !s->held || !s->out->records)
        return qr_fail(err, QR_ENOMEM, "no memory to simulate %zu requests", n);
    for (size_t i = 0; i < n; i++) {
        const struct qr_sim_item *it = &s->conf->workload->items[i];
        if (!it->is_first) continue;
        s->starts[i] = ns_of(it->arrival_s);
        push_due(s, s->starts[i], (int64_t)i);
    }
    return open_engine(s, err);
}

static void fini(struct sim *s)
{
    qr_engine_free(&s->engine);
    if (s->exec) s->exec->ops->close(s->exec);
    for (size_t i = 0; s->lives && i < s->cap_dues; i++) qr_free(s->lives[i].ids);
    for (size_t i = 0; s->contexts && i < s->cap_dues; i++) qr_free(s->contexts[i]);
    qr_free(s->dues);
    qr_free(s->lives);
    qr_free(s->starts);
    qr_free(s->contexts);
    qr_free(s->context_lens);
    qr_free(s->prompt);
    qr_free(s->held);
}

enum qr_status qr_sim_run(const struct qr_sim_run_conf *conf, struct qr_sim_result *out, struct qr_error *err)
{
    QR_ASSERT(conf->workload->n_items > 0 && conf->n_choices >= 1 && conf->n_choices <= QR_CHOICES_MAX);
    *out = (struct qr_sim_result){0};
    struct sim s = {.conf = conf, .out = out};
    qr_clock_virtual_init(&s.clock);
    enum qr_status st = open(&s, err);
    if (st == QR_OK) {
        s.clock.ns = out->begin_ns = s.n_dues > 0 ? s.dues[0].ns : 0;
        st = loop(&s, err);
    }
    if (st == QR_OK) {
        out->end_ns = s.clock.ns;
        out->shares = conf->layout == QR_KV_PAGED;
        qr_engine_snapshot(s.engine, &out->end);
        // Whatever happened: nothing runs, nothing waits, every block came back.
        QR_ASSERT(out->stopped || (out->end.n_running == 0 && out->end.n_waiting == 0 && out->end.n_blocks_used == 0));
        if (conf->check_every > 0) qr_engine_check(s.engine);
    }
    fini(&s);
    if (st != QR_OK) qr_sim_result_free(out);
    return st;
}

void qr_sim_result_free(struct qr_sim_result *r)
{
    qr_free(r->records);
    r->records = NULL;
}
