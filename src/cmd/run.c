/* quire run: one answer, or a chat, in this terminal. */
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "cmd/cmd.h"

static atomic_bool interrupted;

static void on_sigint(int sig)
{
    atomic_store(&interrupted, true);
}

static void help(void)
{
    printf("usage: quire run MODEL [\"prompt\"] [options]\n\n"
           "Answers the prompt and ends. Without a prompt: a chat when this is a terminal, else the prompt "
           "is read\n"
           "from standard input. MODEL is a .gguf file or the name of a cached model.\n\n"
           "  quire run smollm2-135m-instruct \"Name three rivers.\"\n"
           "  quire run smollm2-135m-instruct --raw \"Once upon a time\" --max-tokens 50\n"
           "  quire run smollm2-135m-instruct < question.txt\n"
           "In a chat: Ctrl-C stops an answer, an empty Ctrl-D ends; /new forgets what was said.\n");
    qr_conf_help(QR_VERB_R, stdout);
}

struct chat {
    struct qr_lib *lib;
    const struct qr_conf *conf;
    struct qr_buf messages; // JSON objects, comma-separated
    uint64_t seed, turn;
    bool tty_out;
};

// Model text on a terminal: control characters other than newline and tab would let it drive the terminal.
static void put_text(const struct chat *c, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char ch = (unsigned char)s[i];
        bool c1 = ch == 0xC2 && i + 1 < n && (unsigned char)s[i + 1] < 0xA0;
        if (!c->tty_out || (ch >= 0x20 && ch != 0x7F && !c1) || ch == '\n' || ch == '\t')
            putchar(ch);
        else
            i += c1;
    }
    fflush(stdout);
}

static void add_message(struct chat *c, const char *role, const char *text, size_t n)
{
    struct qr_json_writer w;
    if (c->messages.len) qr_buf_char(&c->messages, ',');
    qr_jw_init(&w, &c->messages);
    qr_jw_obj(&w);
    qr_jw_key(&w, "role");
    qr_jw_str(&w, role);
    qr_jw_key(&w, "content");
    qr_jw_strn(&w, text, n);
    qr_jw_obj_end(&w);
}

// The text of a special token by id, for the template's bos_token and eos_token.
static void special(struct qr_json_writer *w, const struct chat *c, const char *key, int32_t id)
{
    struct qr_text_span s = {"", 0};
    if (id >= 0) s = qr_tokenizer_piece(qr_lib_tokenizer(c->lib), id);
    qr_jw_key(w, key);
    qr_jw_strn(w, s.data, s.bytes);
}

static enum qr_status render(struct chat *c, struct qr_buf *out, struct qr_error *err)
{
    const struct qr_lib_info *info = qr_lib_info(c->lib);
    struct qr_buf vars = {0}, list = {0};
    struct qr_json_writer w;
    qr_buf_printf(&list, "[%.*s]", (int)c->messages.len, c->messages.data);
    qr_jw_init(&w, &vars);
    qr_jw_obj(&w);
    qr_jw_key(&w, "messages");
    qr_jw_raw(&w, list.data, list.len);
    qr_jw_key(&w, "add_generation_prompt");
    qr_jw_bool(&w, true);
    special(&w, c, "bos_token", info->bos);
    special(&w, c, "eos_token", info->eos);
    qr_jw_obj_end(&w);
    enum qr_status s = vars.failed || list.failed
                           ? qr_fail(err, QR_ENOMEM, "out of memory")
                           : qr_template_render(qr_lib_template(c->lib), vars.data, vars.len, out, err);
    qr_buf_fini(&vars);
    qr_buf_fini(&list);
    return s;
}

static void fill_sampling(const struct chat *c, int32_t n_prompt, struct qr_sampling *s)
{
    const struct qr_conf *o = c->conf;
    int32_t room = qr_lib_info(c->lib)->max_model_len - n_prompt;
    *s = (struct qr_sampling){
        .temperature = (float)o->temperature,
        .top_p = (float)o->top_p,
        .min_p = (float)o->min_p,
        .top_k = (int32_t)o->top_k,
        .repetition = (float)o->repetition_penalty,
        .seed = qr_mix64(c->seed + c->turn),
        .max_tokens = o->max_tokens && o->max_tokens < room ? (int32_t)o->max_tokens : room,
        .n_logprobs = -1,
        .n_prompt_logprobs = -1,
    };
}

static void print_stats(const struct qr_gen_event *ev)
{
    double prefill = (double)(ev->first_token_ns - ev->arrival_ns) * 1e-9;
    double decode = (double)(ev->now_ns - ev->first_token_ns) * 1e-9;
    fprintf(stderr, "\n%d prompt tokens in %.2f s (%.0f tok/s), %d generated in %.2f s (%.1f tok/s)\n",
            ev->n_prompt, prefill, prefill > 0 ? ev->n_prompt / prefill : 0, ev->n_generated, decode,
            decode > 0 ? (ev->n_generated - 1) / decode : 0);
}

// Streams the answer to standard output and appends it to `answer`.
static enum qr_status stream(struct chat *c, qr_req_id id, struct qr_buf *answer, struct qr_error *err)
{
    struct qr_gen_event ev;
    bool cancelled = false;
    for (;;) {
        if ((atomic_load(&interrupted) || ferror(stdout)) && !cancelled) {
            qr_lib_cancel(c->lib, id);
            cancelled = true;
        }
        enum qr_status s = qr_lib_next(c->lib, &ev, 100);
        if (s == QR_AGAIN) continue;
        if (s != QR_OK) return qr_fail(err, s, "the engine stopped");
        put_text(c, ev.text.data, ev.text.bytes);
        qr_buf_add(answer, ev.text.data, ev.text.bytes);
        if (ev.finish == QR_FINISH_NONE) continue;
        if (answer->len == 0 || answer->data[answer->len - 1] != '\n') putchar('\n');
        if (c->conf->stats) print_stats(&ev);
        if (ev.finish == QR_FINISH_ERROR) return qr_fail(err, QR_EIO, "%s", ev.error);
        if (ev.finish == QR_FINISH_LENGTH && c->tty_out)
            fprintf(stderr, "[cut at %d tokens]\n", ev.n_generated);
        return QR_OK;
    }
}

static enum qr_status answer_prompt(struct chat *c, const char *prompt, size_t bytes, unsigned flags,
                                    struct qr_buf *answer, struct qr_error *err)
{
    struct qr_gen gen = {.skip_special = true};
    int32_t *ids = NULL;
    size_t n = 0;
    qr_req_id id;
    enum qr_status s = qr_tokenizer_encode(qr_lib_tokenizer(c->lib), prompt, bytes, flags, &ids, &n, err);
    if (s != QR_OK) return s;
    int32_t len_max = qr_lib_info(c->lib)->max_model_len;
    if (n == 0)
        s = qr_fail(err, QR_EINVAL, "the prompt is empty");
    else if (n >= (size_t)len_max)
        s = qr_fail(err, QR_ETOOBIG,
                    "the prompt has %zu tokens; the longest prompt and answer together is %d", n, len_max);
    if (s == QR_OK) {
        gen.req = (struct qr_req){.prompt = ids, .n_prompt = (int32_t)n, .n_choices = 1};
        fill_sampling(c, (int32_t)n, &gen.req.sampling);
        s = qr_lib_submit(c->lib, &gen, &id, err);
    }
    qr_free(ids);
    c->turn++;
    return s == QR_OK ? stream(c, id, answer, err) : s;
}

static enum qr_status say(struct chat *c, const char *text, size_t bytes, struct qr_error *err)
{
    struct qr_buf prompt = {0}, answer = {0};
    bool raw = c->conf->raw || !qr_lib_template(c->lib);
    enum qr_status s = QR_OK;
    size_t before = c->messages.len;
    if (raw) {
        qr_buf_add(&prompt, text, bytes);
    } else {
        add_message(c, "user", text, bytes);
        s = render(c, &prompt, err);
    }
    if (s == QR_OK && (prompt.failed || c->messages.failed)) s = qr_fail(err, QR_ENOMEM, "out of memory");
    unsigned flags = raw ? QR_ENCODE_ADD_SPECIAL : QR_ENCODE_PARSE_SPECIAL;
    if (s == QR_OK) s = answer_prompt(c, prompt.data ? prompt.data : "", prompt.len, flags, &answer, err);
    if (s == QR_OK && !raw)
        add_message(c, "assistant", answer.data ? answer.data : "", answer.len);
    else
        c->messages.len = before; // a turn that failed was not said
    qr_buf_fini(&prompt);
    qr_buf_fini(&answer);
    return s;
}

static void forget(struct chat *c)
{
    qr_buf_clear(&c->messages);
    if (c->conf->system[0]) add_message(c, "system", c->conf->system, strlen(c->conf->system));
}

static const char *chat_prompt(EditLine *el)
{
    return "> ";
}

// libedit takes characters apart as the locale says. Text is UTF-8 here, also where no locale is set, as in a
// bare container.
static void use_utf8(void)
{
    if (!setlocale(LC_CTYPE, "") || strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
}

static bool dropped; // the line that is being edited is to be forgotten

// Ctrl-C is a key while a line is edited: a signal could come between the prompt and the reading, and be
// lost.
static unsigned char drop_line(EditLine *el, int key)
{
    dropped = true;
    return CC_NEWLINE;
}

// The next line without its end; NULL at the end of the chat. Ctrl-C drops what was typed so far.
static const char *next_line(EditLine *el, int *n)
{
    const char *line;
    for (dropped = false; (line = el_gets(el, n)) == NULL || dropped; dropped = false) {
        if (!dropped) return NULL;
        printf("^C\n");
    }
    while (*n > 0 && (line[*n - 1] == '\n' || line[*n - 1] == '\r')) (*n)--;
    return line;
}

static int chat_loop(struct chat *c)
{
    struct qr_error err = {0};
    HistEvent he;
    use_utf8();
    EditLine *el = el_init("quire", stdin, stdout, stderr);
    History *hist = history_init();
    if (!el || !hist) {
        fprintf(stderr, "quire: cannot edit lines on this terminal; give the prompt as an argument\n");
        return 1;
    }
    history(hist, &he, H_SETSIZE, 1000);
    el_set(el, EL_PROMPT, chat_prompt);
    el_set(el, EL_EDITOR, "emacs");
    el_set(el, EL_SIGNAL, 1);
    el_set(el, EL_ADDFN, "drop-line", "Forget the line", drop_line);
    el_set(el, EL_BIND, "^C", "drop-line", NULL);
    el_set(el, EL_SETTY, "-d", "-isig", NULL);
    el_set(el, EL_HIST, history, hist);
    printf("Ctrl-C stops an answer, Ctrl-D ends, /new forgets what was said.\n");
    int n;
    for (const char *line; (line = next_line(el, &n)) != NULL;) {
        if (n == 0) continue;
        history(hist, &he, H_ENTER, line);
        if (n == 4 && strncmp(line, "/new", 4) == 0) {
            forget(c);
            continue;
        }
        atomic_store(&interrupted, false);
        if (say(c, line, (size_t)n, &err) != QR_OK) fprintf(stderr, "quire: %s\n", err.msg);
    }
    putchar('\n');
    history_end(hist);
    el_end(el);
    return 0;
}

enum { PROMPT_BYTES_MAX = 64 << 20 }; // far more than any context holds

static enum qr_status read_stdin(struct qr_buf *b, struct qr_error *err)
{
    if (!cmd_read_all(stdin, PROMPT_BYTES_MAX, b))
        return qr_fail(err, QR_EIO, "cannot read a prompt of at most %d MiB from standard input",
                       PROMPT_BYTES_MAX >> 20);
    while (b->len && b->data[b->len - 1] == '\n') b->len--;
    if (b->len == 0)
        return qr_fail(err, QR_EINVAL, "no prompt: give one as an argument or on standard input");
    return QR_OK;
}

static int run(struct chat *c)
{
    struct qr_error err = {0};
    struct sigaction sa = {.sa_handler = on_sigint};
    bool chat = c->conf->args.n == 1 && isatty(STDIN_FILENO);
    struct qr_buf typed = {0};
    enum qr_status s = QR_OK;
    if (c->conf->args.n == 2)
        qr_buf_str(&typed, c->conf->args.v[1]);
    else if (!chat)
        s = read_stdin(&typed, &err); // before the handler: Ctrl-C ends the reading as it ends any program
    sigaction(SIGINT, &sa, NULL);
    forget(c);
    if (chat) return chat_loop(c);
    if (s == QR_OK) s = say(c, typed.data ? typed.data : "", typed.len, &err);
    qr_buf_fini(&typed);
    if (s == QR_OK && (fflush(stdout) != 0 || ferror(stdout)))
        s = qr_fail(&err, QR_EIO, "cannot write the answer to standard output");
    if (s == QR_OK && atomic_load(&interrupted)) return 128 + SIGINT;
    return s == QR_OK ? 0 : cmd_fail(1, &err);
}

static enum qr_status check_sampling(const struct qr_conf *c, struct qr_error *err)
{
    const struct {
        const char *flag;
        double v, lo, hi;
    } rows[] = {
        {"temperature", c->temperature, 0, 2},
        {"top-p", c->top_p, 1e-6, 1},
        {"min-p", c->min_p, 0, 1},
        {"top-k", (double)c->top_k, 0, 1e9},
        {"max-tokens", (double)c->max_tokens, 0, 1e9},
        {"repetition-penalty", c->repetition_penalty, 1e-6, 1e6},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (!(rows[i].v >= rows[i].lo && rows[i].v <= rows[i].hi))
            return qr_fail_param(err, QR_EINVAL, rows[i].flag, "--%s: expected %g to %g, got %g",
                                 rows[i].flag, rows[i].lo, rows[i].hi, rows[i].v);
    return QR_OK;
}

static int open_and_run(const struct qr_conf *conf, struct cmd_setup *setup)
{
    struct qr_error err = {0};
    struct chat chat = {.conf = conf, .tty_out = isatty(STDOUT_FILENO)};
    setup->lib.max_num_seqs = 1;
    if (qr_lib_open(&setup->lib, &chat.lib, &err) != QR_OK) return cmd_fail(1, &err);
    chat.seed = conf->seed ? (uint64_t)conf->seed : qr_mix64(qr_clock_wall()->now_ns(qr_clock_wall()));
    int rc = run(&chat);
    qr_buf_fini(&chat.messages);
    qr_lib_close(&chat.lib);
    return rc;
}

int cmd_run(int argc, char **argv)
{
    struct qr_error err = {0};
    struct qr_conf conf;
    struct cmd_setup setup;
    if (qr_conf_parse(QR_VERB_R, argc, argv, &conf, &err) != QR_OK) return cmd_fail(2, &err);
    if (conf.origin[QR_OPT_log_level] == QR_FROM_DEFAULT)
        conf.log_level = "warn"; // the terminal is for the answer
    int rc = 2;
    if (conf.help) {
        help();
        rc = 0;
    } else if (conf.args.n < 1 || conf.args.n > 2) {
        fprintf(
            stderr,
            "quire: run takes a model and one prompt; quote a prompt of several words (quire run --help)\n");
    } else {
        enum qr_status s = cmd_setup_init(&setup, &conf, &err);
        if (s == QR_OK) s = check_sampling(&conf, &err);
        rc = s == QR_OK ? open_and_run(&conf, &setup) : cmd_fail(s == QR_EINVAL ? 2 : 1, &err);
        cmd_setup_fini(&setup);
    }
    qr_conf_free(&conf);
    return rc;
}
