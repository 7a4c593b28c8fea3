/* quire sim --replay: a recorded run of the server, gone through again. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/words.h"
#include "cmd/cmd.h"
#include "cmd/sim_input.h"
#include "conf/paths.h"
#include "sim/replay.h"
#include "sim/report.h"

// The same requests at the same times through the engine, each step as long as the recorded one: what the simulator
// would have foretold had it known the steps.
static enum qr_status simulate(struct qr_replay *r, struct qr_sim_summary *out, struct qr_error *err)
{
    const struct qr_sched_conf *c = &r->conf;
    struct qr_sim_cost cost = {.kind = QR_SIM_RECORDED, .recorded_ns = r->step_ns, .n_recorded = r->n_step_ns};
    struct qr_sim_run_conf conf = {.workload = &r->workload,
                                   .cost = &cost,
                                   .block_size = c->block_size,
                                   .max_num_seqs = c->max_num_seqs,
                                   .max_num_batched_tokens = c->max_num_batched_tokens,
                                   .max_model_len = c->max_model_len,
                                   .n_vocab = 32000,
                                   .n_blocks = c->n_blocks,
                                   .block_bytes = 1,
                                   .preempt_mode = c->preempt_mode,
                                   .layout = c->layout,
                                   .page_blocks = c->page_blocks,
                                   .batching = c->batching,
                                   .n_choices = 1};
    struct qr_sim_result res;
    double begin_s = (double)r->recorded.begin_ns * 1e-9;
    for (size_t i = 0; i < r->workload.n_items; i++) {
        struct qr_sim_item *it = &r->workload.items[i];
        it->arrival_s = it->arrival_s > begin_s ? it->arrival_s - begin_s : 0;
    }
    enum qr_status st = qr_sim_run(&conf, &res, err);
    if (st != QR_OK) return st;
    st = qr_sim_summarize(&res, 1, out);
    qr_sim_result_free(&res);
    return st == QR_OK ? st : qr_fail(err, st, "no memory for the figures");
}

static void print_pair(const char *name, double a, double b)
{
    printf("%-34s %12.4g %12.4g %9.2f %%\n", name, a, b, a != 0 ? 100 * (b / a - 1) : 0);
}

static void compare(const struct qr_sim_summary *a, const struct qr_sim_summary *b)
{
    printf("\nThe same requests simulated with the recorded time of each step (tokens count at its end, requests from\n"
           "the first plan that saw them, on both sides):\n");
    printf("%-34s %12s %12s %11s\n", "", "recorded", "simulated", "differs by");
    print_pair("steps", (double)a->n_steps, (double)b->n_steps);
    print_pair("generated tokens/s", a->tokens_per_s, b->tokens_per_s);
    print_pair("latency, mean, s", a->latency.mean, b->latency.mean);
    print_pair("normalised latency, s a token", a->normalized_latency_s, b->normalized_latency_s);
    print_pair("time to first token, mean, s", a->ttft.mean, b->ttft.mean);
    print_pair("time per output token, mean, s", a->tpot.mean, b->tpot.mean);
}

// Beside a simulation: a request counts from when a plan first saw it, and a token when the next plan could be made.
static enum qr_status beside_simulation(const char *path, const struct qr_replay *first, struct qr_sim_summary *out, struct qr_error *err)
{
    struct qr_replay r;
    struct qr_replay_conf conf = {.path = path, .cycle_ns = first->step_ns, .n_cycles = first->n_step_ns};
    enum qr_status st = qr_replay_run(&conf, &r, err);
    if (st != QR_OK) return st;
    for (uint64_t i = 0; i < r.recorded.n_records; i++) r.recorded.records[i].arrival_ns = r.recorded.records[i].seen_ns;
    st = qr_sim_summarize(&r.recorded, 1, out);
    qr_replay_free(&r);
    return st == QR_OK ? st : qr_fail(err, st, "no memory for the figures");
}

// Where the record ends, unless that is where the run did.
static void say_end(const struct qr_replay *r)
{
    uint64_t n = r->recorded.n_unfinished;
    if (r->cut_line == 0 && n == 0) return;
    if (r->cut_line > 0)
        printf("The trace ends within line %" PRIu64 "; the lines before count.", r->cut_line);
    else
        printf("The trace ends before the run did: the server was stopped, or still writes it.");
    printf(" %s had not finished", qr_count((char[QR_COUNT_BYTES]){0}, n, "request"));
    if (n > 0) printf(" (%" PRIu64 " tokens drawn, which count below but in the times)", r->recorded.n_unfinished_tokens);
    printf(".\n");
}

static enum qr_status tell(const char *path, struct qr_replay *r, struct qr_error *err)
{
    struct qr_sim_summary a, b;
    uint64_t n_unfinished = r->recorded.n_unfinished;
    if (r->n_steps == 0 && !r->differs) {
        printf("No step was recorded: there is no decision to compare.\n");
        say_end(r);
        return QR_OK;
    }
    char steps[QR_COUNT_BYTES], requests[QR_COUNT_BYTES], tokens[QR_COUNT_BYTES];
    printf("%s of %s (%s drawn) went through the scheduler again", qr_count(steps, r->n_steps, "step"),
           qr_count(requests, r->recorded.n_records + n_unfinished, "request"), qr_count(tokens, r->n_tokens, "token"));
    if (r->differs) {
        printf("\n");
        return qr_fail(err, QR_EFORMAT, "%s", r->why);
    }
    printf(": every decision is the same\n");
    say_end(r);
    if (qr_sim_summarize(&r->recorded, r->n_choices_max, &a) != QR_OK) return qr_fail(err, QR_ENOMEM, "no memory for the figures");
    printf("\nAs it was recorded:\n");
    qr_sim_print(&a, stdout);
    if (n_unfinished > 0) {
        printf("\nNot simulated from its step times: they are also those of requests that had not finished.\n");
        return QR_OK;
    }
    if (r->recorded.n_records == 0) return QR_OK;
    bool simulable = r->n_choices_max == 1 && r->conf.n_slots[QR_TIER_RAM] == 0 && r->conf.n_slots[QR_TIER_FILE] == 0;
    if (!simulable || r->conf.prefix_caching || r->has_budget) {
        printf("\nNot simulated from its step times: that is for runs with one answer a request, without swap, without a\n"
               "prefix cache (whose hits depend on what prompts said) and without a step budget in time (--step-budget-ms 0).\n");
        return QR_OK;
    }
    enum qr_status st = simulate(r, &b, err);
    if (st != QR_OK) return st;
    if ((st = beside_simulation(path, r, &a, err)) != QR_OK) return st;
    compare(&a, &b);
    return QR_OK;
}

// What was recorded decides: a flag that would change nothing is not taken.
static enum qr_status only_its_own(const struct qr_conf *c, struct qr_error *err)
{
    static const bool own[QR_OPT_COUNT] = {[QR_OPT_replay] = true, [QR_OPT_chrome] = true, [QR_OPT_check] = true,
                                           [QR_OPT_log_level] = true, [QR_OPT_config] = true};
    if (qr_path_is_std(c->replay))
        return qr_fail(err, QR_EINVAL, "--replay: a trace is read twice: expected a file, got standard input");
    if (c->args.n > 0)
        return qr_fail(err, QR_EINVAL, "--replay takes no model: the trace says what ran; got \"%.60s\"", c->args.v[0]);
    for (int i = 0; i < QR_OPT_COUNT; i++)
        if (c->origin[i] == QR_FROM_FLAG && !own[i])
            return qr_fail(err, QR_EINVAL, "--%s: --replay does not use it: the trace says what ran; expected --chrome, --check or nothing",
                           qr_conf_flag((enum qr_opt_id)i));
    return QR_OK;
}

int cmd_replay(const struct qr_conf *c)
{
    struct qr_error err = {0};
    struct qr_replay r;
    struct qr_replay_conf conf = {.path = c->replay};
    if (only_its_own(c, &err) != QR_OK || cmd_sim_check(c->check, &conf.check_every, &err) != QR_OK) return cmd_fail(2, &err);
    enum qr_status st = qr_paths_check_writable("chrome", c->chrome, &err);
    if (st == QR_OK) st = qr_paths_check_apart("chrome", c->chrome, "--replay", c->replay, &err);
    if (st != QR_OK) return cmd_fail(st == QR_EINVAL ? 2 : 1, &err);
    bool to_stdout = qr_path_is_std(c->chrome);
    if (c->chrome[0] && !(conf.chrome = to_stdout ? stdout : fopen(c->chrome, "w"))) {
        (void)qr_fail(&err, QR_EIO, "--chrome: cannot write %.150s", c->chrome);
        return cmd_fail(1, &err);
    }
    st = qr_replay_run(&conf, &r, &err);
    bool unwritten = conf.chrome && fflush(conf.chrome) != 0;
    if (conf.chrome && !to_stdout) unwritten |= fclose(conf.chrome) != 0;
    if (unwritten && st == QR_OK) {
        qr_replay_free(&r);
        st = qr_fail(&err, QR_EIO, "--chrome: writing %.150s failed", c->chrome);
    }
    if (st != QR_OK) return cmd_fail(1, &err);
    if (!to_stdout)
        st = tell(c->replay, &r, &err);
    else if (r.differs)
        st = qr_fail(&err, QR_EFORMAT, "%s", r.why);
    qr_replay_free(&r);
    return st == QR_OK ? 0 : cmd_fail(1, &err);
}
