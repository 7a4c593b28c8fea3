#include "sim/workload.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/test.h"
#include "sim/prompt.h"

static char file_name[64];

static const char *file_of(const char *text)
{
    strcpy(file_name, "/tmp/quire-trace-XXXXXX");
    int fd = mkstemp(file_name);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    return file_name;
}

static enum qr_status make(const char *text, double rate, int64_t n, struct qr_sim_workload *w, struct qr_error *err)
{
    struct qr_sim_workload_conf c = {.source = file_of(text), .rate = rate, .n_requests = n, .burstiness = 1, .seed = 1};
    enum qr_status st = qr_sim_workload_make(&c, w, err);
    unlink(file_name);
    return st;
}

static void fails(const char *text, double rate, int64_t n, const char *says)
{
    struct qr_sim_workload w;
    struct qr_error err = {0};
    assert_int_not_equal(make(text, rate, n, &w, &err), QR_OK);
    if (!strstr(err.msg, says)) fail_msg("got: %s\nexpected it to say: %s", err.msg, says);
}

#define HEAD "arrival_s,input_tokens,output_tokens\n"

QR_TEST(workload_csv_keeps_its_times)
{
    struct qr_sim_workload w;
    struct qr_error err;
    assert_int_equal(make(HEAD "0,374,44\r\n4.5,396,109\n\n5,1,1\n", 0, 0, &w, &err), QR_OK);
    assert_int_equal(w.n_items, 3);
    assert_true(w.items[1].arrival_s == 4.5 && w.items[1].n_prompt == 396 && w.items[1].n_output == 109);
    assert_int_equal(w.hash_tokens, 0);
    qr_sim_workload_free(&w);
    assert_int_equal(make(HEAD "0,374,44\n4.5,396,109\n", 0, 1, &w, &err), QR_OK);
    assert_int_equal(w.n_items, 1);
    qr_sim_workload_free(&w);
}

QR_TEST(workload_json_lines_and_other_names)
{
    struct qr_sim_workload w;
    struct qr_error err;
    assert_int_equal(make("{\"timestamp\":1500,\"input_length\":1000,\"output_length\":5,\"hash_ids\":[7,8]}\n"
                          "{\"arrival_s\":2.5,\"prompt_tokens\":513,\"completion_tokens\":6,\"hash_ids\":\"7-8\",\"x\":{}}\n",
                          0, 0, &w, &err),
                     QR_OK);
    assert_int_equal(w.n_items, 2);
    assert_true(w.items[0].arrival_s == 1.5 && w.items[1].arrival_s == 2.5);
    assert_int_equal(w.items[1].n_hashes, 2);
    assert_int_equal(w.hashes[w.items[1].first_hash + 1], 8);
    assert_int_equal(w.hash_tokens, 512);
    qr_sim_workload_free(&w);
}

QR_TEST(workload_errors_name_file_line_and_what_was_expected)
{
    fails("", 0, 0, "the file is empty");
    fails("a,b\n1,2\n", 0, 0,
          ":1: header: expected columns input_tokens and output_tokens (and arrival_s, hash_ids, session), or a JSON object in each line, "
          "got \"a,b\"");
    fails("input_tokens,x\n1,2\n", 0, 0, ":1: header: expected a column output_tokens too, got \"input_tokens,x\"");
    fails("arrival_s;input_tokens;output_tokens\n0;5;5\n", 0, 0, ":1: header: expected columns with commas between them");
    fails("[{\"input_tokens\":5,\"output_tokens\":5}]\n", 0, 0,
          ":1: line: expected a JSON object in each line, or a header of columns, got an array");
    fails("# lengths\ninput_tokens,output_tokens\n5,5\n", 0, 0, "or a JSON object in each line, got \"# lengths\"");
    fails(HEAD, 1, 0, "no request in it");
    fails(HEAD "0,374\n", 1, 0, ":2: line: expected 3 fields as in the header, got 2");
    fails(HEAD "0,374,4,5\n", 1, 0, ":2: line: expected 3 fields as in the header, got more than 3");
    fails(HEAD "0,1,1\n1,x,4\n", 1, 0, ":3: input_tokens: expected a whole number from 1 to 16777216, got \"x\"");
    fails(HEAD "0,1,0\n", 1, 0, ":2: output_tokens: expected a whole number");
    fails(HEAD "0,-1,4\n", 1, 0, ":2: input_tokens");
    fails(HEAD "soon,1,4\n", 1, 0, ":2: arrival_s: expected seconds from the start, 0 to 1e12, got \"soon\"");
    fails(HEAD "1e300,1,4\n", 1, 0, ":2: arrival_s: expected seconds from the start, 0 to 1e12, got \"1e300\"");
    fails("timestamp,input_tokens,output_tokens\n-1,1,4\n", 1, 0,
          ":2: timestamp: expected milliseconds from the start, 0 to 1e15, got \"-1\"");
    fails(HEAD "nan,1,4\n", 1, 0, ":2: arrival_s");
    fails(HEAD "2,1,4\n1,1,4\n", 0, 0, ":3: arrival_s: expected no earlier than the line before, 2, got 1");
    fails(HEAD ",1,4\n", 0, 0, "--request-rate");
    fails(HEAD "0,1,x\n", 0, 0, "/tmp/quire-trace-"); // the whole path
    fails(HEAD "0,1,4\n1700000000,1,4\n1700000001,1,4\n", 0, 0,
          ":3: expected seconds from the start of the trace, at most 1e+09, got 1700000001");
    fails(HEAD "0,1,4\n,1,4\n", 1, 0, ":3: arrival_s: expected one in every line, or in none, got none");
    fails(HEAD ",1,4\n3,1,4\n", 1, 0, ":3: arrival_s: expected one in every line, or in none, got the first");
    fails(HEAD ",1,4\n", 1e-300, 0, "--request-rate: at 1e-300 a second the last of 1 request comes after");
    fails(HEAD "0,1,4\n", 0, 5, "--num-prompts");
    fails("input_tokens,output_tokens,hash_ids\n100,4,1-x\n", 1, 0, ":2: hash_ids: expected ids and runs of them");
    fails("input_tokens,output_tokens,hash_ids\n100,4,9-1\n", 1, 0, ":2: hash_ids");
    fails("input_tokens,output_tokens,hash_ids\n100,4,1-3\n1000,4,1\n", 1, 0, "no block size");
    fails("{\"input_tokens\":5}\n", 1, 0, ":1: line: expected input_tokens and output_tokens");
    fails("{\"input_tokens\":5,\n", 1, 0, ":1: not valid JSON at byte 18: unexpected end of data");
    fails("{\"input_tokens\":5.5,\"output_tokens\":1}\n", 1, 0,
          ":1: input_tokens: expected a whole number from 1 to 16777216, got \"5.5\"");
    fails("{\"input_tokens\":[5]}\n", 1, 0, ":1: input_tokens: expected a number, got an array");
    struct qr_sim_workload w;
    struct qr_error err;
    struct qr_sim_workload_conf c = {.source = "/nonexistent.csv", .rate = 1, .burstiness = 1};
    assert_int_equal(qr_sim_workload_make(&c, &w, &err), QR_ENOTFOUND);
    assert_non_null(strstr(err.msg, "no such file: /nonexistent.csv; expected a file of requests or lengths"));
    static const char *const lengths[] = {"0/50", "50/0", "-5/10", "5/5,", "1/2*0"};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        c.source = lengths[i];
        assert_int_equal(qr_sim_workload_make(&c, &w, &err), QR_EINVAL);
        assert_non_null(strstr(err.msg, "--workload: expected prompt and answer lengths from 1 to 16777216"));
    }
    c.source = "/tmp";
    assert_int_equal(qr_sim_workload_make(&c, &w, &err), QR_EINVAL);
    assert_non_null(strstr(err.msg, "/tmp: expected a file, got a directory"));
    c = (struct qr_sim_workload_conf){.source = "5/5", .burstiness = 1, .needs_rate = true};
    assert_int_equal(qr_sim_workload_make(&c, &w, &err), QR_EINVAL);
    assert_null(strstr(err.msg, "inf"));
}

QR_TEST(workload_of_a_table_editor_is_read_and_what_is_not_used_is_named)
{
    struct qr_sim_workload w;
    struct qr_error err;
    assert_int_equal(make("\xef\xbb\xbf" HEAD "3,374,44\n", 0, 0, &w, &err), QR_OK);
    assert_true(w.n_items == 1 && w.items[0].arrival_s == 3);
    assert_string_equal(w.unused, "");
    qr_sim_workload_free(&w);
    assert_int_equal(make("\xef\xbb\xbf{\"arrival_s\":3,\"input_tokens\":4,\"output_tokens\":5,\"user\":1}\n", 0, 0, &w, &err), QR_OK);
    assert_true(w.items[0].arrival_s == 3);
    assert_string_equal(w.unused, "\"user\"");
    qr_sim_workload_free(&w);
    assert_int_equal(make("arrival,input_tokens,output_tokens,who\n1,2,3,4\n", 1, 0, &w, &err), QR_OK);
    assert_string_equal(w.unused, "\"arrival\", \"who\"");
    qr_sim_workload_free(&w);
    char many[4000] = "input_tokens,output_tokens";
    for (int i = 0; i < 50; i++) strcat(many, ",some_column_of_a_rather_long_name");
    strcat(many, "\n");
    fails(many, 1, 0, "no request in it");
}

QR_TEST(workload_lengths_in_words_are_drawn_by_weight)
{
    struct qr_sim_workload w;
    struct qr_error err;
    struct qr_sim_workload_conf c = {
        .source = "200/100*19,30000/50", .rate = 5, .n_requests = 10000, .burstiness = 1, .seed = 3};
    assert_int_equal(qr_sim_workload_make(&c, &w, &err), QR_OK);
    int n_long = 0;
    for (size_t i = 0; i < w.n_items; i++) {
        n_long += w.items[i].n_prompt == 30000;
        assert_true(w.items[i].n_prompt == 30000 ? w.items[i].n_output == 50 : w.items[i].n_prompt == 200);
        assert_true(i == 0 || w.items[i].arrival_s >= w.items[i - 1].arrival_s);
    }
    assert_in_range(n_long, 430, 570); // 500, and three standard deviations
    double rate = 10000 / w.items[9999].arrival_s;
    assert_true(rate > 4.85 && rate < 5.15);
    qr_sim_workload_free(&w);
    static const char *const bad[] = {"512", "512/", "/4", "0/5", "5/0", "1/2*", "1/2*0", "1/2,", "1/2 ", "1/2*-1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        c.source = bad[i];
        assert_int_not_equal(qr_sim_workload_make(&c, &w, &err), QR_OK);
    }
}

// Mean 1 / rate, and variance mean^2 / shape.
QR_TEST(workload_gaps_have_the_moments_of_their_distribution)
{
    static const double shapes[] = {0.25, 1, 4};
    for (int k = 0; k < 3; k++) {
        double sum = 0, squares = 0, rate = 2;
        int n = 200000;
        for (int i = 0; i < n; i++) {
            double g = qr_sim_gap(9, (uint64_t)i, rate, shapes[k]);
            assert_true(g >= 0);
            sum += g, squares += g * g;
        }
        double mean = sum / n, variance = squares / n - mean * mean;
        assert_true(fabs(mean * rate - 1) < 0.02);
        assert_true(fabs(variance * rate * rate * shapes[k] - 1) < 0.05);
    }
    assert_true(qr_sim_gap(1, 5, INFINITY, 1) == 0);
}

#define TURNS "session,turn,arrival_s,input_tokens,output_tokens,think_s\n"

QR_TEST(workload_links_the_turns_of_sessions)
{
    struct qr_sim_workload w;
    struct qr_error err;
    const char *text = TURNS "a b,0,,10,5,\na b,1,,30,5,2.5\n7,0,,8,2,\n4,0,,9,9,\n4,1,3,20,4,0\n";
    assert_int_equal(make(text, 1, 0, &w, &err), QR_OK);
    assert_int_equal(w.n_items, 5);
    static const bool first[] = {true, false, true, true, false};
    static const int64_t next[] = {1, -1, -1, 4, -1};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(w.items[i].is_first, first[i]);
        assert_int_equal(w.items[i].next, next[i]);
    }
    assert_true(w.items[1].think_s == 2.5 && w.items[1].arrival_s < 0 && w.items[4].arrival_s == 3);
    assert_true(w.items[2].arrival_s > w.items[0].arrival_s && w.items[3].arrival_s > w.items[2].arrival_s);
    qr_sim_workload_free(&w);
    assert_int_equal(make(text, 1, 2, &w, &err), QR_OK); // two sessions
    assert_int_equal(w.n_items, 3);
    qr_sim_workload_free(&w);
    fails(text, 1, 4, "has 3 sessions");
    fails(text, 0, 0, "times in it count from the start of each session: expected sessions a second");
}

QR_TEST(workload_turns_stand_together_and_in_order)
{
    fails(TURNS "4,0,,10,5,\n7,0,,8,2,\n4,1,,30,5,2.5\n", 1, 0,
          ":4: session: expected its turns together, got one after another session's");
    fails(TURNS "4,1,,10,5,\n4,0,,30,5,\n", 1, 0, ":3: turn: expected more than the turn before, 1, got 0");
    fails(TURNS "4,1,,10,5,\n4,1,,30,5,\n", 1, 0, ":3: turn: expected more than the turn before, 1, got 1");
    fails(TURNS "4,0,,10,5,\n,0,,30,5,\n", 1, 0, ":3: session: expected one in every line, or in none, got none");
    fails("{\"input_tokens\":5,\"output_tokens\":5}\n{\"session\":\"x\",\"input_tokens\":5,\"output_tokens\":5}\n", 1, 0,
          ":2: session: expected one in every line, or in none, got the first");
    struct qr_sim_workload w;
    struct qr_error err;
    assert_int_equal(make("{\"session\":7,\"input_tokens\":5,\"output_tokens\":5}\n"
                          "{\"session\":\"7\",\"input_tokens\":15,\"output_tokens\":5}\n"
                          "{\"session\":\"8\",\"input_tokens\":5,\"output_tokens\":5}\n", 1, 0, &w, &err), QR_OK);
    assert_true(w.items[0].next == 1 && w.items[1].next == -1 && w.items[2].is_first);
    qr_sim_workload_free(&w);
    assert_int_equal(make("turn,input_tokens,output_tokens,think_s\n0,5,5,1\n", 1, 0, &w, &err), QR_OK);
    assert_string_equal(w.unused, "\"turn\", \"think_s\"");
    qr_sim_workload_free(&w);
}

QR_TEST(workload_names_one_thing_once)
{
    fails("input_tokens,output_tokens,prompt_tokens\n1,2,3\n", 1, 0, ":1: input_tokens: expected it once, got \"prompt_tokens\" too");
    fails("arrival_s,timestamp,input_tokens,output_tokens\n1,2,3,4\n", 0, 0, ":1: arrival_s: expected it once, got \"timestamp\" too");
    fails("input_tokens,output_tokens,output_tokens\n1,2,3\n", 1, 0, ":1: output_tokens: expected it once, got \"output_tokens\" too");
    fails("{\"input_tokens\":5,\"output_tokens\":5,\"output_length\":7}\n", 1, 0,
          ":1: output_tokens: expected it once, got \"output_length\" too");
    fails("{\"input_tokens\":5,\"output_tokens\":5,\"hash_ids\":[-1]}\n", 1, 0, ":1: hash_ids: expected whole numbers from 0, got -1");
    fails("{\"timestamp\":5000,\"input_tokens\":5,\"output_tokens\":5}\n"
          "{\"timestamp\":1000,\"input_tokens\":5,\"output_tokens\":5}\n", 0, 0,
          ":2: arrival_s: expected no earlier than the line before, 5, got 1");
}

// As R and spreadsheets write it.
QR_TEST(workload_fields_in_quotes_and_with_blanks)
{
    struct qr_sim_workload w;
    struct qr_error err = {0};
    if (make("\n\"Arrival_s\", \"Input_Tokens\" ,\"output_tokens\",\"note\"\n"
             "\"0.5\",\"374\",\"44\",\"a, \"\"b\"\"\"\n 1 , 5 ,6,\n", 0, 0, &w, &err) != QR_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(w.n_items, 2);
    assert_true(w.items[0].arrival_s == 0.5 && w.items[0].n_prompt == 374 && w.items[0].n_output == 44);
    assert_true(w.items[1].arrival_s == 1 && w.items[1].n_prompt == 5 && w.items[1].n_output == 6);
    assert_string_equal(w.unused, "\"note\"");
    qr_sim_workload_free(&w);
}

// A rate for what has no times, and only for that.
QR_TEST(workload_without_times_may_have_a_rate_to_fall_back_on)
{
    struct qr_sim_workload w;
    struct qr_error err;
    struct qr_sim_workload_conf c = {.source = "100/40", .n_requests = 3, .burstiness = 1, .rate_without_times = INFINITY};
    assert_int_equal(qr_sim_workload_make(&c, &w, &err), QR_OK);
    assert_true(!w.timed && w.items[2].arrival_s == 0);
    qr_sim_workload_free(&w);
    c.source = file_of(HEAD "0,5,5\n7,5,5\n");
    c.n_requests = 0;
    assert_int_equal(qr_sim_workload_make(&c, &w, &err), QR_OK);
    assert_true(w.timed && w.items[1].arrival_s == 7);
    qr_sim_workload_free(&w);
    unlink(file_name);
}

// What of a file that gzip cannot unpack came out before is not at fault.
QR_TEST(workload_of_a_cut_gzip_file_is_blamed_on_gzip)
{
    struct qr_sim_workload w;
    struct qr_error err;
    char path[80], command[512];
    snprintf(path, sizeof path, "%s.csv.gz", file_of(HEAD));
    FILE *f = fopen(file_name, "a");
    assert_non_null(f);
    for (int i = 0; i < 20000; i++) fprintf(f, "%d.%06d,%d,%d\n", i, i * 7919 % 1000003, 1 + i * 31 % 977, 1 + i * 17 % 313);
    fclose(f);
    snprintf(command, sizeof command, "gzip -c %s | head -c 60000 > %s", file_name, path);
    assert_int_equal(system(command), 0);
    struct qr_sim_workload_conf c = {.source = path, .burstiness = 1};
    assert_int_equal(qr_sim_workload_make(&c, &w, &err), QR_EFORMAT);
    if (!strstr(err.msg, ".csv.gz: expected a gzip file; gzip cannot unpack it")) fail_msg("%s", err.msg);
    unlink(path);
    unlink(file_name);
}

QR_TEST(prompts_share_what_the_workload_says_and_nothing_else)
{
    struct qr_sim_workload w;
    struct qr_error err;
    int32_t a[64], b[64];
    assert_int_equal(make("arrival_s,input_tokens,output_tokens,hash_ids\n0,40,1,5-7\n0,36,1,5 6 9\n0,40,1,\n", 0, 0, &w, &err),
                     QR_OK);
    assert_int_equal(w.hash_tokens, 16);
    qr_sim_prompt(&w, 0, 0, NULL, 1, 50000, a);
    qr_sim_prompt(&w, 1, 0, NULL, 1, 50000, b);
    assert_memory_equal(a, b, 32 * sizeof *a);
    assert_memory_not_equal(a + 32, b + 32, 4 * sizeof *a);
    qr_sim_prompt(&w, 2, 0, NULL, 1, 50000, b);
    assert_int_not_equal(a[0], b[0]);
    qr_sim_prompt(&w, 2, 8, NULL, 1, 50000, a); // a shared prefix
    qr_sim_prompt(&w, 1, 8, NULL, 1, 50000, b);
    assert_memory_equal(a, b, 8 * sizeof *a);
    assert_int_not_equal(a[8], b[8]);
    struct qr_sim_context ctx = {a, 30};
    qr_sim_prompt(&w, 2, 0, &ctx, 1, 50000, b);
    assert_memory_equal(a, b, 30 * sizeof *a);
    for (int i = 0; i < 40; i++) assert_in_range(b[i], 0, 49999);
    ctx.n_ids = 41; // the client cut its context: nothing of it comes back
    qr_sim_prompt(&w, 2, 0, &ctx, 1, 50000, b);
    assert_int_not_equal(a[0], b[0]);
    qr_sim_workload_free(&w);
}

QR_TEST(workload_reads_every_shared_trace)
{
    static const struct {
        const char *name;
        size_t n;
        int32_t hash_tokens;
    } files[] = {{"azure2023_conv.csv", 9683, 0}, {"lens_alpaca_gpt2bpe.csv", 1000, 0},
                 {"lens_sharegpt_firstturn_llama2.csv.gz", 2655, 0}, {"mooncake_conversation.csv.gz", 6015, 512},
                 {"mooncake_synthetic.csv.gz", 1996, 512}, {"sharegpt_multiturn300_llama31_prefix16.csv.gz", 150, 16},
                 {"sharegpt_sessions_llama2.csv.gz", 15168, 0}, {"agent_swebench_exgentic.csv", 1077, 0},
                 {"agent_coding_weka.csv.gz", 2510, 0}};
    const char *dir = qr_test_shared();
    if (!dir) QR_SKIP("no shared data");
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[512];
        struct qr_sim_workload w;
        struct qr_error err = {0};
        snprintf(path, sizeof path, "%s/data/%s", dir, files[i].name);
        if (qr_sim_workload_read(path, &w, &err) != QR_OK) fail_msg("%s", err.msg);
        assert_int_equal(w.n_items, files[i].n);
        assert_int_equal(w.hash_tokens, files[i].hash_tokens);
        qr_sim_workload_free(&w);
    }
}
