#include "conf/conf.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/test.h"
#include "conf/paths.h"

static enum qr_status parse(struct qr_conf *c, struct qr_error *err, const char *a, const char *b,
                            const char *d)
{
    static char argv_text[4][128];
    char *argv[5] = {0};
    const char *in[4] = {"serve", a, b, d};
    int argc = 0;
    for (int i = 0; i < 4; i++)
        if (in[i]) {
            snprintf(argv_text[argc], sizeof argv_text[0], "%s", in[i]);
            argv[argc] = argv_text[argc];
            argc++;
        }
    return qr_conf_parse(QR_VERB_S, argc, argv, c, err);
}

QR_TEST(conf_sizes)
{
    static const struct {
        const char *text;
        uint64_t value;
    } good[] = {
        {"0", 0},     {"512M", 512ull << 20}, {"2G", 2ull << 30},   {"1k", 1000},
        {"1K", 1024}, {"25.6k", 25600},       {"2GiB", 2ull << 30}, {"9007199254740993", 9007199254740993}};
    static const char *const bad[] = {"",     "-1",       "G",   "1X",    "0x10", "1e400",
                                      "12 M", "9999999T", "nan", "1.5.2", "0.5",  "8000.7"};
    uint64_t v;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_true(qr_parse_size(good[i].text, &v));
        assert_int_equal(v, good[i].value);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) assert_false(qr_parse_size(bad[i], &v));
}

QR_TEST(conf_cpu_list)
{
    int c[8];
    assert_int_equal(qr_parse_cpu_list("0-3,8", c, 8), 5);
    assert_int_equal(c[4], 8);
    static const char *const bad[] = {"a", "3-1", "1,", "-1", "0-99", "1-", "1;2"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(qr_parse_cpu_list(bad[i], c, 8), -1);
}

QR_TEST(conf_precedence)
{
    struct qr_conf c;
    struct qr_error err;
    char path[] = "/tmp/quire-conf-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    const char text[] = "# limits\nport: 1111\nmax_num_seqs: 7\nhost: \"1.1.1.1\"\nblock-size: 32\n";
    assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
    close(fd);
    setenv("QUIRE_PORT", "2222", 1);
    setenv("QUIRE_MAX_NUM_SEQS", "9", 1);
    char flag[64];
    snprintf(flag, sizeof flag, "--config=%s", path);
    assert_int_equal(parse(&c, &err, "model.gguf", flag, "--port=3333"), QR_OK);
    assert_int_equal(c.port, 3333);
    assert_int_equal(c.max_num_seqs, 9);
    assert_string_equal(c.host, "1.1.1.1");
    assert_int_equal(c.block_size, 32);
    assert_int_equal(c.origin[QR_OPT_port], QR_FROM_FLAG);
    assert_int_equal(c.origin[QR_OPT_host], QR_FROM_FILE);
    assert_int_equal(c.origin[QR_OPT_max_model_len], QR_FROM_DEFAULT);
    assert_int_equal(c.args.n, 1);
    assert_string_equal(c.args.v[0], "model.gguf");
    qr_conf_free(&c);
    unsetenv("QUIRE_PORT");
    unsetenv("QUIRE_MAX_NUM_SEQS");
    unlink(path);
}

QR_TEST(conf_flags_and_errors)
{
    struct qr_conf c;
    struct qr_error err;
    assert_int_equal(parse(&c, &err, "--kv_cache_memory", "2G", "m"), QR_OK);
    assert_int_equal(c.kv_cache_memory_bytes, 2ull << 30);
    assert_int_equal(c.args.n, 1);
    qr_conf_free(&c);
    assert_int_equal(parse(&c, &err, "--max-modle-len", "5", NULL), QR_EINVAL);
    assert_non_null(strstr(err.msg, "max-m"));
    assert_int_equal(parse(&c, &err, "--port", "abc", NULL), QR_EINVAL);
    assert_string_equal(err.param, "port");
    assert_int_equal(parse(&c, &err, "m", "--port", NULL), QR_EINVAL);
    assert_non_null(strstr(err.msg, "needs a value"));
    assert_int_equal(parse(&c, &err, "m", "-xyz", NULL), QR_EINVAL);
    assert_non_null(strstr(err.msg, "unknown option -x"));
    assert_int_equal(parse(&c, &err, "--api-key=a,b", "--api-key", "c"), QR_OK);
    assert_int_equal(c.api_key.n, 3);
    char line[2048];
    qr_conf_print_effective(&c, QR_VERB_S, line, sizeof line);
    assert_null(strstr(line, "a,b"));
    assert_non_null(strstr(line, "api-key=set (flag); by default host=127.0.0.1 port=8000"));
    assert_null(strstr(line, "temperature"));
    for (size_t cap = 1; cap < sizeof line; cap++)
        qr_conf_print_effective(&c, QR_VERB_S, line, cap); // cut, never beyond
    qr_conf_free(&c);
    assert_int_equal(parse(&c, &err, "--enforce-eager", "m", NULL), QR_OK);
    qr_conf_free(&c);
    assert_int_equal(parse(&c, &err, "--config=/no/such", "m", NULL), QR_ENOTFOUND);
}

// -1 is no number of things; it means auto where that is the default, and is refused elsewhere.
QR_TEST(conf_whole_numbers_have_ranges)
{
    struct qr_conf c;
    struct qr_error err;
    static const struct {
        const char *flag, *says;
    } bad[] = {
        {"--num-gpu-blocks-override=-1", "expected a whole number from 0 to 2147483647, got \"-1\""},
        {"--max-num-queued-tokens=-1", "(from the flag): expected a whole number from 0 on, got \"-1\""},
        {"--max-num-queued-reqs=-1", "from 0 to 2147483647"},
        {"--seed=-1", "from 0 on"},
        {"--seed=auto", "from 0 on"},
        {"--max-model-len=-5", "expected auto or a whole number from 0 to 1073741823, got \"-5\""},
        {"--max-model-len=1G", "auto or a whole number from 0 to 1073741823"},
        {"--max-num-seqs=0", "from 1 to 4096"},
        {"--port=65536", "from 0 to 65535"},
        {"--threads=2.5", "from 0 to 1024"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(parse(&c, &err, "m", bad[i].flag, NULL), QR_EINVAL);
        assert_non_null(strstr(err.msg, bad[i].says));
    }
    static const char *const autos[] = {"--max-model-len=-1", "--max-model-len=auto", "--max-model-len=0"};
    for (size_t i = 0; i < sizeof autos / sizeof autos[0]; i++) {
        assert_int_equal(parse(&c, &err, "m", autos[i], NULL), QR_OK);
        assert_int_equal(c.max_model_len, 0);
        qr_conf_free(&c);
    }
    char *words[] = {"sim", "m", "--max-num-seqs", "100000", NULL}; // another verb has ranges of its own
    assert_int_equal(qr_conf_parse(QR_VERB_M, 4, words, &c, &err), QR_OK);
    qr_conf_free(&c);
}

static enum qr_status parse_file(const char *text, size_t n, struct qr_error *err)
{
    struct qr_conf c;
    char path[] = "/tmp/quire-conf-XXXXXX", flag[64];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, n), n);
    close(fd);
    snprintf(flag, sizeof flag, "--config=%s", path);
    enum qr_status s = parse(&c, err, "m", flag, NULL);
    if (s == QR_OK) qr_conf_free(&c);
    unlink(path);
    return s;
}

QR_TEST(conf_files_that_are_no_configuration)
{
    struct qr_conf c;
    struct qr_error err;
    static char line[10000];
    assert_int_equal(parse_file("port: 1\r\nhost: h", 16, &err), QR_OK);
    assert_int_equal(parse_file("", 0, &err), QR_OK);
    assert_int_equal(parse_file("port: 1\0\nhost: h\n", 18, &err), QR_EFORMAT);
    memset(line, ' ', sizeof line); // what follows the 4096th byte is no line of its own
    memcpy(line, "host: h", 7);
    memcpy(line + 4095, "port: 1\n", 8);
    assert_int_equal(parse_file(line, sizeof line, &err), QR_EFORMAT);
    assert_int_equal(parse(&c, &err, "m", "--config=/dev/zero", NULL), QR_EFORMAT);
    assert_int_equal(parse(&c, &err, "m", "--config=/", NULL), QR_EIO);
}

QR_TEST(conf_an_empty_key_is_refused)
{
    struct qr_conf c;
    struct qr_error err;
    assert_int_equal(parse(&c, &err, "m", "--api-key=", NULL), QR_EINVAL);
    assert_int_equal(parse(&c, &err, "m", "--api-key", ","), QR_EINVAL);
    assert_string_equal(err.param, "api-key");
}

QR_TEST(conf_lists_behind_the_model)
{
    struct qr_conf c;
    struct qr_error err;
    char *words[] = {"serve", "m",         "--served-model-name", "a",  "b",  "--port",
                     "1",     "--alias=c", "--api-key",           "k1", "k2", NULL};
    assert_int_equal(qr_conf_parse(QR_VERB_S, 11, words, &c, &err), QR_OK);
    assert_int_equal(c.args.n, 1);
    assert_int_equal(c.served_model_name.n, 3);
    assert_string_equal(c.served_model_name.v[1], "b");
    assert_int_equal(c.api_key.n, 2);
    qr_conf_free(&c);
    char *before[] = {"serve", "--served-model-name", "a", "m", NULL}; // the word behind is the model
    assert_int_equal(qr_conf_parse(QR_VERB_S, 4, before, &c, &err), QR_OK);
    assert_string_equal(c.args.v[0], "m");
    assert_int_equal(c.served_model_name.n, 1);
    qr_conf_free(&c);
}

// --system is a message for one verb and a preset for another; a file's line goes to the verb's own.
QR_TEST(conf_two_verbs_use_one_word)
{
    struct qr_conf c;
    struct qr_error err;
    char path[] = "/tmp/quire-conf-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "system: ft\n", 11), 11);
    close(fd);
    char *words[] = {"sim", "m", "--config", path, NULL};
    assert_int_equal(qr_conf_parse(QR_VERB_M, 4, words, &c, &err), QR_OK);
    assert_string_equal(c.sim_system, "ft");
    qr_conf_free(&c);
    words[0] = "run";
    assert_int_equal(qr_conf_parse(QR_VERB_R, 4, words, &c, &err), QR_OK);
    assert_string_equal(c.system, "ft");
    qr_conf_free(&c);
    unlink(path);
}

QR_TEST(conf_near_misses)
{
    static const struct {
        const char *typed, *says;
    } rows[] = {
        {"--prot", "did you mean --port?"},
        {"--max-model-length", "did you mean --max-model-len?"},
        {"--tempreature", "(--help lists all)"}, // no option of serve is near
        {"--temperature", "is an option of quire run, not of quire serve"},
        {"--zzz", "(--help lists all)"},
    };
    struct qr_conf c;
    struct qr_error err;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(parse(&c, &err, rows[i].typed, "5", NULL), QR_EINVAL);
        assert_non_null(strstr(err.msg, rows[i].says));
    }
    assert_int_equal(parse(&c, &err, "--tempreature", "5", NULL), QR_EINVAL);
    assert_null(strstr(err.msg, "did you mean"));
}

QR_TEST(paths_of_what_is_written_and_read_are_apart)
{
    struct qr_error err;
    char path[] = "/tmp/quire-apart-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    char same[64];
    snprintf(same, sizeof same, "/tmp/.%s", path + 4);
    assert_int_equal(qr_paths_check_apart("chrome", same, "--replay", path, &err), QR_EINVAL);
    assert_non_null(strstr(err.msg, "--chrome: expected another file than that of --replay, got"));
    unlink(path);
    assert_int_equal(qr_paths_check_apart("json", path, "--out", path, &err), QR_EINVAL); // neither is there yet
    assert_int_equal(qr_paths_check_apart("json", "-", "--out", "-", &err), QR_OK);
    assert_int_equal(qr_paths_check_apart("json", "/dev/null", "--out", "/dev/null", &err), QR_OK);
    assert_int_equal(qr_paths_check_apart("json", "", "--workload", "", &err), QR_OK);
    assert_int_equal(qr_paths_check_apart("json", path, "--workload", "512/128", &err), QR_OK);
}

QR_TEST(paths_that_cannot_be_written_are_known_before)
{
    struct qr_error err;
    assert_int_equal(qr_paths_check_writable("json", "", &err), QR_OK);
    assert_int_equal(qr_paths_check_writable("json", "-", &err), QR_OK);
    assert_int_equal(qr_paths_check_writable("json", "/dev/null", &err), QR_OK);
    assert_int_equal(qr_paths_check_writable("json", "/tmp/quire-that-is-not-there", &err), QR_OK);
    assert_int_equal(access("/tmp/quire-that-is-not-there", F_OK), -1);
    assert_int_equal(qr_paths_check_writable("json", "/tmp", &err), QR_EIO);
    assert_string_equal(err.msg, "--json: cannot write /tmp: Is a directory");
    assert_int_equal(qr_paths_check_writable("costs", "/nonexistent/x", &err), QR_EIO);
    assert_string_equal(err.msg, "--costs: cannot write /nonexistent/x: No such file or directory");
}
