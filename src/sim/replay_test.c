/* Recorded runs go through the scheduler again, decision for decision; a changed one is found; a bad line is named. */
#include "sim/replay.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/test.h"
#include "engine/engine.h"
#include "engine/trace.h"
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

// n_file: slots of the file for preempted requests, and as many for cached prefixes.
static void open_run(struct run *r, uint64_t seed, uint32_t n_ram, uint32_t n_file)
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
                                  .n_file = n_file,
                                  .n_staging = n_file / 2,
                                  .n_prefix_file = n_file,
                                  .io_delay = 3,
                                  .io_fail_every = 7,
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
        open_run(&r, seed, seed % 3 ? 0 : 20, seed % 4 ? 0 : 24);
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
    open_run(&r, 3, 0, 0);
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

struct text { // a trace in memory, to be changed line by line
    char *bytes;
    char **lines;
    size_t n;
};

static void load(const char *path, struct text *t)
{
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    size_t size = (size_t)ftell(f);
    rewind(f);
    t->bytes = malloc(size + 1);
    t->lines = malloc((size + 1) * sizeof *t->lines);
    assert_true(t->bytes && t->lines && fread(t->bytes, 1, size, f) == size);
    t->bytes[size] = 0;
    fclose(f);
    t->n = 0;
    for (char *save = NULL, *l = strtok_r(t->bytes, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) t->lines[t->n++] = l;
}

// One of its numbers becomes another one.
static void put_changed(struct run *r, const char *line, FILE *to)
{
    static const char *const others[] = {"0", "1", "2", "3", "63", "64", "-1", "999999", "2147483648", "18446744073709551615", ""};
    size_t n = 0, which;
    for (const char *c = line; *c; c++) n += *c == ' ';
    which = n > 0 ? 1 + draw(r, n < 14 ? n : 14) : 0;
    for (const char *c = line; *c; c++) {
        fputc(*c, to);
        if (*c != ' ' || --which != 0) continue;
        fputs(others[draw(r, sizeof others / sizeof *others)], to);
        while (c[1] && c[1] != ' ') c++;
    }
    fputc('\n', to);
}

// The trace with a line changed, dropped, doubled, cut and joined with the next, swapped with the next, or put where another is.
static void write_damaged(struct run *r, const struct text *t, const char *path)
{
    FILE *to = fopen(path, "w");
    assert_non_null(to);
    uint64_t how = draw(r, 6);
    size_t at = 1 + draw(r, t->n - 2), other = 1 + draw(r, t->n - 1);
    for (size_t i = 0; i < t->n; i++) {
        const char *line = t->lines[i];
        if (i != at || how == 1) {
            if (i != at) fprintf(to, "%s\n", line);
        } else if (how == 0) {
            put_changed(r, line, to);
        } else if (how == 2) {
            fprintf(to, "%s\n%s\n", line, line);
        } else if (how == 3) {
            fprintf(to, "%.*s%s\n", (int)draw(r, strlen(line) + 1), line, t->lines[++i]);
        } else if (how == 4) {
            fprintf(to, "%s\n%s\n", t->lines[i + 1], line);
            i++;
        } else {
            fprintf(to, "%s\n%s\n", t->lines[other], line);
        }
    }
    fclose(to);
}

// An assertion would end this process.
QR_TEST(replay_of_a_damaged_trace_is_a_line_or_a_difference)
{
    int n_bad = 0, n_differ = 0, n_tries = 40;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct run r;
        struct text t;
        char path[80];
        open_run(&r, seed, seed % 3 ? 0 : 20, seed % 4 ? 0 : 24);
        go(&r);
        load(r.path, &t);
        snprintf(path, sizeof path, "%s.damaged", r.path);
        for (int i = 0; i < n_tries; i++) {
            struct qr_replay out;
            struct qr_error err = {0};
            write_damaged(&r, &t, path);
            struct qr_replay_conf c = {.path = path, .check_every = 1};
            enum qr_status st = qr_replay_run(&c, &out, &err);
            if (st == QR_EFORMAT && !strstr(err.msg, path)) fail_msg("%s", err.msg);
            n_bad += st != QR_OK;
            if (st != QR_OK) continue;
            n_differ += out.differs;
            qr_replay_free(&out);
        }
        unlink(path);
        unlink(r.path);
        free(t.bytes);
        free(t.lines);
    }
    // The rest: what changed nothing, as the order of two that came together.
    assert_true(n_bad > 8 * n_tries / 3 && n_differ > 8 * n_tries / 20);
}

QR_TEST(replay_needs_all_that_a_step_brought)
{
    static const struct {
        char letter; // of a line that is left out
        const char *why;
    } needed[] = {{'T', "T, V or E for each sequence"}, {'O', "O behind P"}, {'B', "B behind O"}, {'D', "D or F behind B"}};
    struct run r;
    struct qr_replay out;
    struct qr_error err = {0};
    open_run(&r, 3, 0, 0);
    go(&r);
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        assert_int_equal(replay_changed(r.path, needed[i].letter, 5, "", &out, &err), QR_EFORMAT);
        if (!strstr(err.msg, needed[i].why)) fail_msg("%s", err.msg);
    }
    static const char *const lines[] = {"Z 1 2 3\n", "Z\n", "F\n", "J 0\n", "I 0 0 0 0\n", "P 1 1\nP 1 1\n", "R 1\n"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        assert_int_equal(replay_changed(r.path, 'P', 5, lines[i], &out, &err), QR_EFORMAT);
    unlink(r.path);
    FILE *f = fopen(r.path, "w");
    assert_non_null(f);
    fputs(QR_TRACE_HEAD "\n", f);
    fclose(f);
    struct qr_replay_conf c = {.path = r.path};
    assert_int_equal(qr_replay_run(&c, &out, &err), QR_EFORMAT);
    assert_non_null(strstr(err.msg, "the record ends behind its first line"));
    unlink(r.path);
}
