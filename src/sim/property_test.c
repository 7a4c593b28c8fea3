/* Random workloads over the production scheduler, block bookkeeping and engine, with the simulator's shadow
 * watching every block. QUIRE_SEED=n runs one seed alone; `make sim-long` runs many. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/test.h"
#include "sched/policy.h"
#include "sched/sched.h"
#include "sim/rig_internal.h"

#define REQS_MAX 96
#define N_TEXTS 4 // that prompts begin with, in any length

struct choice_seen {
    int32_t n_tokens, n_scores, n_cached;
    int32_t *tokens;
    enum qr_finish finish;
    bool finished, aborted, quiet, expired;
};

struct tracked {
    struct rig_req q;
    qr_req_id id;
    bool accepted;
    struct choice_seen seen[4];
};

struct world {
    uint64_t seed, draws;
    uint64_t n_expired;
    struct rig rig;
    bool faults, layouts; // layouts: any layout and batching, not only paged and continuous
    int32_t n_reqs, n_steps;
    struct tracked reqs[REQS_MAX];
    struct qr_snapshot end;
};

static uint64_t running_seed;

// On any failure: the one line that runs it again.
static void say_replay(void)
{
    char line[128];
    int n = snprintf(line, sizeof line, "replay: QUIRE_SEED=%llu quire-test sim_random\n",
                     (unsigned long long)running_seed);
    ssize_t put = write(STDERR_FILENO, line, (size_t)n);
    (void)put;
}

static void on_abort(int sig)
{
    say_replay();
    signal(sig, SIG_DFL);
    raise(sig);
}

#define EXPECT(c)                                                                                            \
    do {                                                                                                     \
        if (!(c)) {                                                                                          \
            say_replay();                                                                                    \
            fail_msg("seed %llu: %s", (unsigned long long)running_seed, #c);                                 \
        }                                                                                                    \
    } while (0)

static int32_t draw(struct world *w, int32_t from, int32_t to)
{
    return from + (int32_t)(qr_rand_u64(w->seed, 1, w->draws++) % (uint64_t)(to - from + 1));
}

static struct rig_conf draw_conf(struct world *w)
{
    static const int32_t sizes[] = {1, 3, 16, 16, 32, 48, 64, 128};
    static const int32_t budgets[] = {1, 2, 7, 16, 17, 33, 64, 100, 256, 512};
    struct rig_conf c = {.block_size = sizes[draw(w, 0, 7)],
                         .max_num_seqs = draw(w, 4, 20),
                         .n_vocab = draw(w, 20, 400),
                         .budget = budgets[draw(w, 0, 9)],
                         .max_model_len = draw(w, 60, 400),
                         .outbox = 8192};
    c.policy = qr_policy_at((size_t)draw(w, 0, 2));
    // Step budgets from nothing to plenty, with a guess of costs that is anything from far too low to far too high.
    c.costs = (struct qr_costs){1, 1000000, (uint64_t)draw(w, 10000, 1000000), 200000, (uint64_t)draw(w, 2000, 200000),
                                100, (uint64_t)draw(w, 0, 1000000), (uint64_t)draw(w, 0, 3) * 1000000};
    c.step_budget_ns = draw(w, 0, 2) == 0 ? QR_STEP_AUTO : draw(w, 0, 1) ? (uint64_t)draw(w, 1, 8000) * 1000 : 0;
    c.prefix_caching = draw(w, 0, 3) > 0;
    c.prefix_seed = w->seed;
    c.exact = draw(w, 0, 3) == 0;
    // From a pool that one request fills to one where four fit.
    int32_t per_seq = (c.max_model_len + c.block_size - 1) / c.block_size;
    c.n_blocks = (uint32_t)draw(w, per_seq, 4 * per_seq);
    // From no swap space over one that only some fit into to one for all.
    if (draw(w, 0, 2) > 0) c.n_ram = (uint32_t)draw(w, 0, 1 + (int32_t)c.n_blocks * (draw(w, 0, 3) ? 1 : 8));
    if (!w->layouts && draw(w, 0, 1)) {
        if (draw(w, 0, 1)) c.n_prefix_ram = (uint32_t)draw(w, 1, 2 * (int32_t)c.n_blocks);
        if (draw(w, 0, 1)) c.n_prefix_file = (uint32_t)draw(w, 1, 3 * (int32_t)c.n_blocks);
        c.n_file = (uint32_t)draw(w, 1, 8 * (int32_t)c.n_blocks);
        c.n_staging = (uint32_t)draw(w, 1, 2 * (int32_t)c.n_blocks);
        c.io_delay = draw(w, 0, 12);
        c.io_fail_every = w->faults ? draw(w, 2, 60) : 0;
        if (draw(w, 0, 1)) c.n_ram = 0;
    }
    c.preempt_mode = (enum qr_preempt_mode)draw(w, QR_PREEMPT_AUTO, QR_PREEMPT_RECOMPUTE);
    // Computing everything again for each token takes a budget that a few steps of fill.
    if (draw(w, 0, 2) == 0 && c.budget >= 64) c.preempt_every = (uint64_t)draw(w, 1, 9);
    if (!w->layouts) return c;
    c.layout = (enum qr_kv_layout_kind)draw(w, 0, QR_KV_LAYOUTS - 1);
    c.batching = draw(w, 0, 1) ? QR_BATCHING_CONTINUOUS : (enum qr_batching)draw(w, 1, QR_BATCHING_STATIC);
    c.page_blocks = (uint32_t)draw(w, 1, 4);
    // Runs are rounded up to powers of two, pages to whole ones.
    c.n_blocks = qr_kv_layout_is_contiguous(c.layout) ? c.n_blocks * 2 : c.n_blocks + c.page_blocks;
    return c;
}

// Lets a prompt begin like others: with one of a few texts, or with another request's prompt and answer.
static void begin_alike(struct world *w, struct tracked *t)
{
    int32_t n = 0, n_prompt = t->q.req.n_prompt, kind = draw(w, 0, 3);
    if (kind == 0) return;
    if (kind <= 2) {
        struct tracked *u = NULL;
        for (int32_t tries = 0; tries < 8 && !u; tries++) {
            u = &w->reqs[draw(w, 0, w->n_reqs - 1)];
            if (!u->accepted || u->seen[0].n_tokens == 0 || u->q.req.n_prompt >= n_prompt) u = NULL;
        }
        if (!u) return;
        for (; n < n_prompt && n < u->q.req.n_prompt; n++) t->q.prompt[n] = u->q.prompt[n];
        const struct choice_seen *c = &u->seen[draw(w, 0, u->q.req.n_choices - 1)];
        for (int32_t i = 0; i < c->n_tokens && n < n_prompt; i++, n++) t->q.prompt[n] = c->tokens[i];
        return;
    }
    uint64_t text = (uint64_t)draw(w, 0, N_TEXTS - 1);
    for (int32_t most = draw(w, 1, n_prompt); n < most; n++)
        t->q.prompt[n] = (int32_t)(qr_rand_u64(w->seed, 1000 + text, (uint64_t)n) % (uint64_t)w->rig.conf.n_vocab);
}

static void submit(struct world *w)
{
    const struct rig_conf *c = &w->rig.conf;
    if (w->n_reqs == REQS_MAX) return;
    struct tracked *t = &w->reqs[w->n_reqs++];
    int32_t n_prompt = draw(w, 1, c->max_model_len / 2), max_tokens = draw(w, 0, c->max_model_len / 2);
    if (draw(w, 0, 3) == 0) n_prompt = draw(w, 1, 4);
    sim_rig_req_init(&t->q, w->seed * 1000 + (uint64_t)w->n_reqs, n_prompt, max_tokens, c->n_vocab);
    struct qr_req *q = &t->q.req;
    begin_alike(w, t);
    q->tenant = draw(w, 0, 3) == 0;
    q->no_cache_read = draw(w, 0, 15) == 0;
    q->n_choices = draw(w, 0, 2) == 0 ? draw(w, 1, 4) : 1;
    q->priority = draw(w, 0, 9) == 0 ? draw(w, -2, 2) : 0;
    if (w->seed % 5 < 2) q->priority = draw(w, -3, 3);
    q->fair_key = (uint64_t)draw(w, 0, 3);
    if (draw(w, 0, 7) == 0) q->deadline_ns = w->rig.clock.face.now_ns(&w->rig.clock.face) + (uint64_t)draw(w, 0, 200) * 1000000 + 1;
    t->q.eos[0] = draw(w, 0, c->n_vocab - 1);
    t->q.stop[0] = draw(w, 0, c->n_vocab - 1);
    q->sampling.eos = t->q.eos, q->sampling.n_eos = (size_t)draw(w, 0, 1);
    q->sampling.stop_ids = t->q.stop, q->sampling.n_stop_ids = (size_t)draw(w, 0, 1);
    q->sampling.ignore_eos = draw(w, 0, 3) == 0;
    q->sampling.min_tokens = draw(w, 0, 2) == 0 ? draw(w, 0, max_tokens) : 0;
    q->sampling.n_prompt_logprobs = draw(w, 0, 3) == 0 ? draw(w, 0, 2) : -1;
    if (w->rig.conf.layout == QR_KV_PAGED && max_tokens > 0 && draw(w, 0, 5) == 0) {
        q->n_choices = draw(w, 1, 4);
        q->beam = (struct qr_beam){.width = q->n_choices,
                                   .length_penalty = (float)draw(w, -2, 4) * 0.5f,
                                   .early_stopping = (enum qr_beam_early)draw(w, 0, 2),
                                   .rules = (enum qr_beam_rules)draw(w, 0, 1)};
    }
    struct qr_error err;
    if (w->faults && draw(w, 0, 7) == 0) qr_mem_fail_at((uint64_t)draw(w, 1, 3), 0);
    enum qr_status st = qr_engine_submit(w->rig.engine, q, &t->id, &err);
    qr_mem_fail_at(0, 0);
    EXPECT(st == QR_OK || (st == QR_ENOMEM && w->faults) || st == QR_ETOOBIG);
    t->accepted = st == QR_OK;
    for (int32_t i = 0; i < q->n_choices; i++) {
        t->seen[i].tokens = qr_malloc(QR_MEM_MISC, (size_t)(max_tokens + 1) * sizeof(int32_t));
        EXPECT(t->seen[i].tokens);
    }
}

static void cancel(struct world *w)
{
    if (w->n_reqs == 0) return;
    struct tracked *t = &w->reqs[draw(w, 0, w->n_reqs - 1)];
    if (!t->accepted) return;
    int32_t choice = draw(w, -1, t->q.req.n_choices - 1);
    if (t->q.req.beam.width > 0) choice = -1; // one search
    bool quiet = draw(w, 0, 2) == 0;
    for (int32_t i = 0; i < t->q.req.n_choices; i++)
        if (choice < 0 || choice == i) {
            t->seen[i].aborted = true;
            if (quiet && !t->seen[i].finished) t->seen[i].quiet = true;
        }
    // As after a stop string: what came after some token never was.
    int32_t at = choice >= 0 && draw(w, 0, 1) ? t->q.req.n_prompt - 1 + draw(w, 0, t->seen[choice].n_tokens) : -1;
    qr_engine_cancel(w->rig.engine, t->id, choice, at, quiet);
}

static void take(struct world *w, const struct qr_event *ev)
{
    struct tracked *t = w->reqs;
    while (t < w->reqs + w->n_reqs && !(t->accepted && t->id == ev->id)) t++;
    EXPECT(t < w->reqs + w->n_reqs && ev->choice >= 0 && ev->choice < t->q.req.n_choices);
    struct choice_seen *s = &t->seen[ev->choice];
    EXPECT(ev->n_cached >= s->n_cached && ev->n_cached < t->q.req.n_prompt);
    s->n_cached = ev->n_cached;
    EXPECT(!s->finished && !s->quiet); // FINISH is the last event; nothing after a quiet cancel
    if (ev->kind == QR_EVENT_TOKEN) {
        EXPECT(s->n_tokens < t->q.req.sampling.max_tokens && ev->pos == t->q.req.n_prompt + s->n_tokens);
        s->tokens[s->n_tokens++] = ev->token;
    } else if (ev->kind == QR_EVENT_PROMPT) {
        EXPECT(ev->pos >= 1 && ev->pos < t->q.req.n_prompt && ev->token == t->q.prompt[ev->pos]);
        t->seen[0].n_scores++; // the leader scores, whichever choice that is
        EXPECT(ev->pos == t->seen[0].n_scores);
    } else {
        s->finished = true;
        s->finish = ev->finish;
        // Only what was never begun comes too late, and nothing was sent of it.
        s->expired = ev->finish == QR_FINISH_ERROR && ev->status == QR_AGAIN;
        EXPECT(!s->expired || (t->q.req.deadline_ns && ev->scheduled_ns == 0 && s->n_tokens == 0));
        EXPECT(!s->expired || ev->now_ns >= t->q.req.deadline_ns);
        w->n_expired += s->expired;
    }
}

static void step(struct world *w)
{
    if (w->faults && draw(w, 0, 40) == 0) qr_mem_fail_at(1, 0);
    if (w->faults && draw(w, 0, 200) == 0) w->rig.spy.fail_waits = 1;
    enum qr_status st = qr_engine_step(w->rig.engine);
    qr_mem_fail_at(0, 0);
    EXPECT(st == QR_OK || st == QR_AGAIN);
    w->n_steps++;
    for (struct qr_event ev; qr_engine_poll(w->rig.engine, &ev);) take(w, &ev);
    struct qr_snapshot s;
    qr_engine_snapshot(w->rig.engine, &s);
    const struct qr_kv_slots *k = &s.kv_slots;
    uint64_t pool = (uint64_t)w->rig.conf.n_blocks * (uint64_t)w->rig.conf.block_size;
    EXPECT(k->used + k->reserved + k->internal + k->external + k->free == pool);
    EXPECT(k->used <= pool && k->free <= pool && k->reserved <= pool && k->internal <= pool);
}

// How far the prompt of t is that of u, or u's prompt and an answer.
static int32_t alike(const struct world *w, const struct tracked *t, const struct tracked *u)
{
    int32_t n = 0, best = 0, n_prompt = t->q.req.n_prompt;
    while (n < n_prompt && n < u->q.req.n_prompt && t->q.prompt[n] == u->q.prompt[n]) n++;
    if (n < u->q.req.n_prompt || n == n_prompt) return n;
    if (u->q.req.beam.width > 0) return n_prompt; // beams that died left blocks, too, and nobody was told of them
    for (int32_t c = 0; c < u->q.req.n_choices; c++) {
        struct rig_text said = sim_rig_solo(&u->q, c, w->rig.conf.n_vocab);
        int32_t k = 0;
        while (k < said.n && n + k < n_prompt && t->q.prompt[n + k] == said.tokens[k]) k++;
        best = k > best ? k : best;
        sim_rig_text_fini(&said);
    }
    return n + best;
}

// Nobody finds more than somebody with the same salt left.
static void judge_cached(struct world *w, const struct tracked *t)
{
    int32_t n_cached = 0, most = 0;
    for (int32_t c = 0; c < t->q.req.n_choices; c++)
        n_cached = t->seen[c].n_cached > n_cached ? t->seen[c].n_cached : n_cached;
    bool reads = w->rig.conf.prefix_caching && !t->q.req.no_cache_read && t->q.req.sampling.n_prompt_logprobs < 0;
    EXPECT(reads || n_cached == 0);
    for (int32_t i = 0; i < w->n_reqs && most < n_cached; i++) {
        const struct tracked *u = &w->reqs[i];
        if (u == t || !u->accepted || u->q.req.tenant != t->q.req.tenant) continue;
        int32_t n = alike(w, t, u);
        most = n > most ? n : most;
    }
    EXPECT(n_cached <= most);
}

static void judge(struct world *w, const struct tracked *t)
{
    struct rig_text all[4];
    if (!t->accepted) return;
    judge_cached(w, t);
    if (t->q.req.beam.width > 0) sim_rig_beams(&t->q, w->rig.conf.n_vocab, all);
    for (int32_t c = 0; c < t->q.req.n_choices; c++) {
        const struct choice_seen *s = &t->seen[c];
        EXPECT(s->finished != s->quiet);
        struct rig_text right = t->q.req.beam.width > 0 ? all[c] : sim_rig_solo(&t->q, c, w->rig.conf.n_vocab);
        EXPECT(s->n_tokens <= right.n &&
               memcmp(s->tokens, right.tokens, (size_t)s->n_tokens * sizeof(int32_t)) == 0);
        if (s->finished && s->finish != QR_FINISH_ABORT && s->finish != QR_FINISH_ERROR) {
            EXPECT(s->n_tokens == right.n && s->finish == right.finish);
            // Scores are published by the first choice that is live; a quiet one keeps them to itself.
            if (t->q.req.sampling.n_prompt_logprobs >= 0 && !t->seen[0].quiet)
                EXPECT(t->seen[0].n_scores == t->q.req.n_prompt - 1);
        }
        EXPECT(s->finish != QR_FINISH_ABORT || s->aborted);
        EXPECT(s->finish != QR_FINISH_ERROR || w->faults || s->expired);
        sim_rig_text_fini(&right);
    }
}

// Runs one seed to its end and returns the hash of every batch.
static uint64_t run_world(struct world *w, uint64_t seed, int32_t n_ops, bool judged)
{
    bool layouts = w->layouts;
    memset(w, 0, sizeof *w);
    w->layouts = layouts;
    w->seed = running_seed = seed;
    w->faults = seed % 3 == 0;
    struct rig_conf c = draw_conf(w);
    sim_rig_open(&w->rig, &c);
    int32_t p_submit = draw(w, 5, 40), p_cancel = draw(w, 0, 1) ? 0 : draw(w, 1, 10);
    for (int32_t i = 0; i < n_ops; i++) {
        int32_t p = draw(w, 0, 99);
        if (p < p_submit)
            submit(w);
        else if (p < p_submit + p_cancel)
            cancel(w);
        else if (p == 99 && draw(w, 0, 9) == 0)
            qr_engine_reset_prefix_cache(w->rig.engine);
        else
            step(w);
    }
    for (int32_t i = 0;; i++) {
        struct qr_snapshot s;
        qr_engine_snapshot(w->rig.engine, &s);
        uint32_t n_held = s.n_blocks_used; // I/O of requests that are gone holds some until it is done
        for (int t = 0; t < QR_TIERS; t++) n_held += s.n_slots_used[t];
        if (s.n_running == 0 && s.n_waiting == 0 && n_held == 0) break;
        EXPECT(i < 200000); // no livelock, nothing lost
        step(w);
    }
    step(w); // cancels of requests that are gone
    while (qr_engine_step(w->rig.engine) == QR_OK) continue; // I/O of such requests
    qr_engine_snapshot(w->rig.engine, &w->end);
    if (judged)
        for (int32_t i = 0; i < w->n_reqs; i++) judge(w, &w->reqs[i]);
    for (int32_t i = 0; i < w->n_reqs; i++) {
        for (int32_t k = 0; k < 4; k++) qr_free(w->reqs[i].seen[k].tokens);
        sim_rig_req_fini(&w->reqs[i].q);
    }
    uint64_t hash = w->rig.spy.batch_hash;
    sim_rig_close(&w->rig);
    return hash;
}

static void run_seeds(uint64_t from, uint64_t to, int32_t n_ops, bool layouts)
{
    const char *one = getenv("QUIRE_SEED");
    if (one) {
        from = strtoull(one, NULL, 10);
        to = from + 1;
    }
    static struct world w;
    w.layouts = layouts;
    void (*before)(int) = signal(SIGABRT, on_abort);
    qr_log_set_level((enum qr_log_level) - 1); // faults are reported as errors, and here are many
    uint64_t n_steps = 0, n_preemptions = 0, n_swaps = 0, n_recomputed = 0, n_generated = 0, n_errors = 0;
    uint64_t n_expired = 0, n_yields = 0;
    uint64_t n_asked = 0, n_found = 0, n_found_d = 0, n_found_ram = 0, n_found_file = 0;
    size_t live =
        qr_mem_live_bytes(QR_MEM_REQ) + qr_mem_live_bytes(QR_MEM_SCHED) + qr_mem_live_bytes(QR_MEM_EXEC);
    for (uint64_t seed = from; seed < to; seed++) {
        uint64_t hash = run_world(&w, seed, n_ops, true);
        n_steps += (uint64_t)w.n_steps;
        n_preemptions += w.end.n_preemptions;
        n_swaps += w.end.n_swaps;
        n_recomputed += w.end.n_recomputed_tokens;
        n_generated += w.end.n_generated_tokens;
        n_errors += w.end.n_finished_error - w.n_expired;
        n_expired += w.n_expired;
        n_yields += w.end.n_yields;
        n_asked += w.end.n_cache_queries;
        n_found += w.end.n_cache_hits;
        n_found_d += w.end.n_cache_generated;
        n_found_ram += w.end.n_cache_hits_of[QR_TIER_RAM];
        n_found_file += w.end.n_cache_hits_of[QR_TIER_FILE];
        if (seed % 8 == 0) EXPECT(run_world(&w, seed, n_ops, false) == hash); // S5
    }
    EXPECT(qr_mem_live_bytes(QR_MEM_REQ) + qr_mem_live_bytes(QR_MEM_SCHED) + qr_mem_live_bytes(QR_MEM_EXEC) ==
           live);
    printf("sim: %llu seeds, %llu steps, %llu tokens, %llu preemptions (%llu by swap), %llu tokens recomputed, "
           "%llu ended by faults; %llu of %llu prompt tokens found, %llu of them in answers, "
           "%llu in memory and %llu in a file beside the pool\n",
           (unsigned long long)(to - from), (unsigned long long)n_steps, (unsigned long long)n_generated,
           (unsigned long long)n_preemptions, (unsigned long long)n_swaps, (unsigned long long)n_recomputed,
           (unsigned long long)n_errors, (unsigned long long)n_found, (unsigned long long)n_asked,
           (unsigned long long)n_found_d, (unsigned long long)n_found_ram, (unsigned long long)n_found_file);
    uint64_t few = layouts ? 0 : 20; // these states are reached
    if (!one) EXPECT(n_preemptions > few && n_swaps > few && n_errors > 5 && n_found > 500);
    if (!one) EXPECT(n_found_d > (layouts ? 5 : 50));
    if (!one && !layouts) EXPECT(n_found_ram > 50 && n_found_file > 50);
    if (!one) EXPECT(n_expired > 5 && n_yields > (layouts ? 0 : 5));
    qr_log_set_level(QR_LOG_INFO);
    signal(SIGABRT, before);
}

QR_TEST(sim_random_workloads_equal_their_solo_runs)
{
    run_seeds(1, 61, 300, false);
}

// Whatever the layout, the texts are the same, and every slot of the pool is somewhere in each step.
QR_TEST(sim_random_workloads_on_every_layout_equal_their_solo_runs)
{
    run_seeds(5001, 5081, 300, true);
}

QR_TEST(sim_long_random_workloads)
{
    const char *n = getenv("QUIRE_SIM_SEEDS");
    if (!n) QR_SKIP("runs under make sim-long");
    run_seeds(1000, 1000 + strtoull(n, NULL, 10), 600, false);
    run_seeds(200000, 200000 + strtoull(n, NULL, 10), 600, true);
}
