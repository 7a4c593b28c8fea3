/* Recorded runs go through the scheduler again, decision for decision; a changed one is found; a bad line is named. */
#include "sim/replay.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/test.h"
#include "engine/engine.h"
#include "sim/exec_sim.h"

#define N 60

struct run {
    struct qr_clock_virtual clock;
    struct qr_exec *exec;
    struct qr_engine *engine;
    FILE *trace;
    char path[64];
    uint64_t seed, n_random;
};

static uint64_t draw(struct run *r, uint64_t n)
{
    return qr_rand_u64(r->seed, 7, r->n_random++) % n;
}

static void write_line(void *arg, const char *line, size_t bytes)
{
    assert_int_equal(fwrite(line, 1, bytes, arg), bytes);
}

static void open_run(struct run *r, uint64_t seed, uint32_t n_ram)
{
    *r = (struct run){.seed = seed};
    strcpy(r->path, "/tmp/quire-replay-XXXXXX");
    int fd = mkstemp(r->path);
    assert_true(fd >= 0);
    r->trace = fdopen(fd, "w");
    qr_clock_virtual_init(&r->clock);
    // The executor keeps it.
    static struct qr_sim_cost cost = {.kind = QR_SIM_TABLE, .table = {1000000, 100000, 200000, 20000, 100, 1, 50000}};
    struct qr_exec_sim_conf xc = {.n_slots = 6,
                                  .n_tokens_max = 128,
                                  .block_size = 16,
                                  .n_vocab = 500,
                                  .ctx_max = 600,
                                  .n_blocks = 60,
                                  .n_ram = n_ram,
                                  .block_bytes = 1000,
                                  .clock = &r->clock.face,
                                  .cost = &cost,
                                  .shadow = true};
    assert_int_equal(qr_exec_sim_new(&xc, &r->exec, NULL), QR_OK);
    struct qr_engine_conf ec = {.max_num_seqs = 6,
                                .max_num_batched_tokens = 128,
                                .max_model_len = 600,
                                .inbox_capacity = 128,
                                .outbox_capacity = 4096,
                                .clock = &r->clock.face,
                                .check_every_step = true,
                                .prefix_caching = true,
                                .prefix_seed = seed,
                                .costs = {1, 1000000, 100000, 200000, 20000, 100, 1},
                                .step_budget_ns = seed % 2 ? 3000000 : 0,
                                .kv_idle_release_ns = 1,
                                .trace = write_line,
                                .trace_arg = r->trace};
    assert_int_equal(qr_engine_new(&ec, r->exec, &r->engine, NULL), QR_OK);
}

static void submit_one(struct run *r, qr_req_id *id)
{
    int32_t ids[400];
    int32_t n = 1 + (int32_t)draw(r, 300), stem = (int32_t)draw(r, 3);
    for (int32_t i = 0; i < n; i++) ids[i] = i < 100 ? (i * 7 + stem) % 500 : (int32_t)draw(r, 500);
    struct qr_req q = {.prompt = ids,
                       .n_prompt = n,
                       .n_choices = draw(r, 4) == 0 ? 3 : 1,
                       .tenant = draw(r, 2),
                       .sampling = {.max_tokens = 1 + (int32_t)draw(r, 100),
                                    .temperature = 1,
                                    .seed = draw(r, 1000),
                                    .n_logprobs = -1,
                                    .n_prompt_logprobs = draw(r, 8) == 0 ? 0 : -1}};
    if (q.n_choices == 3 && draw(r, 2)) q.beam = (struct qr_beam){.width = 3, .length_penalty = 1};
    assert_int_equal(qr_engine_submit(r->engine, &q, id, NULL), QR_OK);
}

static void go(struct run *r)
{
    struct qr_event ev;
    qr_req_id ids[N];
    int n = 0;
    for (int step = 0; step < 20000; step++) {
        if (n < N && draw(r, 4) == 0) submit_one(r, &ids[n++]);
        if (n > 0 && draw(r, 40) == 0) qr_engine_cancel(r->engine, ids[draw(r, (uint64_t)n)], draw(r, 2) ? -1 : 0, -1, false);
        if (draw(r, 500) == 0) qr_engine_reset_prefix_cache(r->engine);
        enum qr_status st = qr_engine_step(r->engine);
        r->clock.ns += draw(r, 1000);
        while (qr_engine_poll(r->engine, &ev)) {}
        if (n == N && st == QR_AGAIN) break;
    }
    qr_engine_free(&r->engine);
    r->exec->ops->close(r->exec);
    assert_int_equal(fclose(r->trace), 0);
}

QR_TEST(replay_decides_as_the_run_did)
{
    uint64_t n_preempted = 0, n_cached = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct run r;
        struct qr_replay out;
        struct qr_error err = {0};
        open_run(&r, seed, seed % 3 ? 0 : 20);
        go(&r);
        struct qr_replay_conf c = {.path = r.path, .check_every = 1};
        if (qr_replay_run(&c, &out, &err) != QR_OK) fail_msg("%s", err.msg);
        if (out.differs) fail_msg("%s", out.why);
        assert_true(out.n_steps > 100);
        assert_true(out.recorded.n_records > N / 3);
        n_preempted += out.recorded.end.n_preemptions;
        for (uint64_t i = 0; i < out.recorded.n_records; i++) {
            const struct qr_sim_record *t = &out.recorded.records[i];
            assert_true(t->arrival_ns <= t->scheduled_ns && t->scheduled_ns <= t->first_ns && t->first_ns <= t->finish_ns);
            n_cached += (uint64_t)t->n_cached;
        }
        qr_replay_free(&out);
        unlink(r.path);
    }
    assert_true(n_preempted > 5 && n_cached > 500); // the runs were not dull
}

// Changes the text of the n-th line that begins with `letter`, writes the whole to another file, and replays that.
static enum qr_status replay_changed(const char *path, char letter, int nth, const char *text, struct qr_replay *out,
                                     struct qr_error *err)
{
    static char line[65536];
    char other[80];
    snprintf(other, sizeof other, "%s.changed", path);
    FILE *in = fopen(path, "r"), *to = fopen(other, "w");
    assert_non_null(in);
    assert_non_null(to);
    while (fgets(line, sizeof line, in)) {
        bool it = line[0] == letter && --nth == 0;
        fputs(it ? text : line, to);
    }
    fclose(in);
    fclose(to);
    struct qr_replay_conf c = {.path = other};
    enum qr_status st = qr_replay_run(&c, out, err);
    unlink(other);
    return st;
}

QR_TEST(replay_finds_what_was_changed)
{
    struct run r;
    struct qr_replay out;
    struct qr_error err = {0};
    open_run(&r, 3, 0);
    go(&r);
    static const struct {
        char letter;
        const char *text, *why;
    } changed[] = {{'B', "B 20 1 1 0 12345\n", "recorded"}, {'O', "O 7 1\n", "orders about slots"},
                   {'A', "A 900 5 5 1 0 0 0 0 0 0 0 0 1 2 3 4 5\n", "recorded"}};
    for (size_t i = 0; i < sizeof changed / sizeof *changed; i++) {
        assert_int_equal(replay_changed(r.path, changed[i].letter, 20, changed[i].text, &out, &err), QR_OK);
        assert_true(out.differs);
        assert_non_null(strstr(out.why, changed[i].why));
        qr_replay_free(&out);
    }
    static const struct {
        char letter;
        const char *text, *why;
    } bad[] = {{'P', "P 12\n", "P with a time"},      {'B', "B one\n", "five numbers"},
               {'T', "T 999999 0 1\n", "live request"}, {'E', "E 1 70 0\n", "live request"},
               {'C', "C 1 2 3 fcfs\n", "scheduler's numbers"}, {'A', "A 901 5 5 1 0 0 0 0 0 0 0 0 1 2\n", "prompt ids"},
               {'D', "D\n", "D behind B"},            {'P', "Y 1\n", "one of A B C D"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err = (struct qr_error){0};
        assert_int_equal(replay_changed(r.path, bad[i].letter, 1, bad[i].text, &out, &err), QR_EFORMAT);
        if (!strstr(err.msg, bad[i].why)) fail_msg("%s", err.msg);
    }
    unlink(r.path);
}
