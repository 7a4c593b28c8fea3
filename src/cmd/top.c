/* quire top: the block pool of a running server, live in this terminal. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/printable.h"
#include "client/client.h"
#include "cmd/cmd.h"
#include "top/frame.h"

#define RATE_PAGES 16 // rates are over the last so many pages

static volatile sig_atomic_t stopped;

static void on_stop(int sig)
{
    (void)sig;
    stopped = 1;
}

static void help(FILE *out)
{
    fprintf(out, "usage: quire top [URL] [options]\n\n"
                 "Shows the memory of a running `quire serve`: each cell is one or more KV blocks, in a colour of the\n"
                 "request that holds it; shared, cached and free blocks; requests, tokens a second, waste, prefix hits.\n"
                 "URL is http://127.0.0.1:8000 unless given. w shows the whole pool or the part in use, q or Ctrl-C ends it.\n\n"
                 "  quire top\n"
                 "  quire top --port 9000\n"
                 "  quire top http://10.0.0.5:8000 --api-key KEY\n"
                 "  quire top --once            one picture as plain text, for a script or a bug report\n");
    qr_conf_help(QR_VERB_T, out);
}

/* ==== The terminal. ==== */

struct screen {
    bool live; // a terminal on both ends that we took over
    struct termios before;
};

static void screen_open(struct screen *s)
{
    s->live = tcgetattr(STDIN_FILENO, &s->before) == 0;
    if (!s->live) return;
    struct termios raw = s->before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    fputs("\033[?1049h\033[?25l", stdout); // another screen, no cursor
}

static void screen_close(struct screen *s)
{
    if (!s->live) return;
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    tcsetattr(STDIN_FILENO, TCSANOW, &s->before);
}

static void size_of(struct top_view *v)
{
    struct winsize w = {0};
    v->columns = 80;
    v->lines = 24;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col >= 20 && w.ws_row >= 8) {
        v->columns = w.ws_col;
        v->lines = w.ws_row - 1; // the last line stays free: writing into its end would scroll
    }
}

// Each line is overwritten and its rest erased, so that nothing flickers.
static void show(const struct qr_buf *frame)
{
    fputs("\033[H", stdout);
    for (size_t i = 0; i < frame->len; i++) {
        if (frame->data[i] == '\n') fputs("\033[K", stdout);
        putchar(frame->data[i]);
    }
    fputs("\033[J", stdout);
    fflush(stdout);
}

// Waits for the next look; w changes what is looked at. False: q was pressed, or standard input ended.
static bool rest(int ms, bool has_keys, struct top_view *v)
{
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    if (poll(&p, has_keys, ms) <= 0 || !(p.revents & (POLLIN | POLLHUP))) return true;
    char key;
    ssize_t n = read(STDIN_FILENO, &key, 1);
    if (n == 1 && (key == 'w' || key == 'W')) v->whole = !v->whole;
    return n == 1 && key != 'q' && key != 'Q' && key != 3 && key != 4;
}

/* ==== Pages. ==== */

struct page {
    struct qr_json_doc *doc;
    uint64_t at_ns;
};

struct top {
    struct qr_client *client;
    char model[200];
    struct page pages[RATE_PAGES]; // a ring
    int n_pages;                   // ever fetched
    struct qr_buf body, frame;
};

static void close_top(struct top *t)
{
    for (int i = 0; i < RATE_PAGES; i++) qr_json_free(&t->pages[i].doc);
    qr_client_free(&t->client);
    qr_buf_fini(&t->body);
    qr_buf_fini(&t->frame);
}

// The answer of a route as a document. QR_EIO: the server said no, and err says how.
static enum qr_status fetch(struct top *t, const char *path, struct qr_json_doc **out, struct qr_error *err)
{
    qr_buf_clear(&t->body);
    int status = qr_client_call(t->client, "GET", path, NULL, 0, &t->body, err);
    if (status == 0) return QR_EIO;
    enum qr_status st = qr_json_parse(t->body.data ? t->body.data : "", t->body.len, QR_JSON_DEPTH_MAX, out, err);
    if (st != QR_OK) return qr_fail(err, QR_EFORMAT, "GET %s: status %d without JSON: is this a quire server?", path, status);
    if (status == 200) return QR_OK;
    const char *why = qr_json_str(qr_json_get(qr_json_get(qr_json_root(*out), "error"), "message"), NULL);
    st = qr_fail(err, QR_EIO, "GET %s: status %d: %.150s", path, status, why ? why : "no reason given");
    qr_json_free(out);
    return st;
}

static enum qr_status next_page(struct top *t, struct qr_error *err)
{
    struct qr_json_doc *d = NULL;
    enum qr_status st = QR_OK;
    if (!t->model[0] && (st = fetch(t, "/v1/models", &d, err)) == QR_OK) {
        const char *id = qr_json_str(qr_json_get(qr_json_at(qr_json_get(qr_json_root(d), "data"), 0), "id"), NULL);
        snprintf(t->model, sizeof t->model, "%s", id ? id : "?");
        qr_printable_line(t->model);
        qr_json_free(&d);
    }
    if (st == QR_OK) st = fetch(t, "/debug/kv", &d, err);
    if (st != QR_OK) return st;
    struct page *p = &t->pages[t->n_pages++ % RATE_PAGES];
    qr_json_free(&p->doc);
    *p = (struct page){d, qr_clock_wall()->now_ns(qr_clock_wall())};
    return QR_OK;
}

static enum qr_status draw(struct top *t, struct top_view *v, struct qr_error *err)
{
    const struct page *now = &t->pages[(t->n_pages - 1) % RATE_PAGES];
    const struct page *before = t->n_pages > RATE_PAGES ? &t->pages[t->n_pages % RATE_PAGES] : &t->pages[0];
    v->model = t->model;
    v->seconds = (double)(now->at_ns - before->at_ns) * 1e-9;
    qr_buf_clear(&t->frame);
    enum qr_status st = top_draw(v, qr_json_root(now->doc), before == now ? NULL : qr_json_root(before->doc), &t->frame);
    if (st == QR_EFORMAT) return qr_fail(err, st, "GET /debug/kv: this is not the page of a quire server");
    return st == QR_OK ? st : qr_fail(err, st, "out of memory");
}

static int live(struct top *t, struct top_view *v, int interval_ms)
{
    struct screen s;
    struct qr_error err;
    struct sigaction stop = {.sa_handler = on_stop};
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    screen_open(&s);
    do {
        size_of(v);
        if (next_page(t, &err) != QR_OK || draw(t, v, &err) != QR_OK) {
            qr_buf_clear(&t->frame);
            qr_buf_printf(&t->frame, "quire top  %s\n\n%s\nTrying again; q ends.\n", v->url, err.msg);
            t->model[0] = 0; // another server may answer next time
        }
        show(&t->frame);
    } while (rest(interval_ms, s.live, v) && !stopped);
    screen_close(&s);
    return 0;
}

static enum qr_status open_top(const struct qr_conf *c, struct top *t, const char *url, struct qr_error *err)
{
    struct qr_client_conf conf = {
        .url = url, .n_conns_max = 1, .timeout_ms = 5000, .api_key = c->api_key.n ? c->api_key.v[0] : NULL};
    if (c->args.n > 1)
        return qr_fail(err, QR_EINVAL, "expected one URL, got \"%.80s\" too", c->args.v[1]);
    if (!(c->interval >= 0.05 && c->interval <= 3600))
        return qr_fail_param(err, QR_EINVAL, "interval", "--interval: expected 0.05 to 3600 seconds, got %g",
                             c->interval);
    return qr_client_new(&conf, &t->client, err);
}

int cmd_top(int argc, char **argv)
{
    struct qr_conf conf;
    struct qr_error err = {0};
    if (qr_conf_parse(QR_VERB_T, argc, argv, &conf, &err) != QR_OK) return cmd_fail(2, &err);
    if (conf.help) {
        help(stdout);
        qr_conf_free(&conf);
        return 0;
    }
    char url[300];
    struct top t = {0};
    struct top_view v = {.url = url, .whole = conf.whole};
    int rc;
    if (cmd_server_url(&conf, conf.args.n ? conf.args.v[0] : NULL, url, sizeof url, &err) != QR_OK ||
        open_top(&conf, &t, url, &err) != QR_OK)
        rc = cmd_fail(2, &err);
    else if (!conf.once && isatty(STDOUT_FILENO)) {
        v.colour = true;
        rc = live(&t, &v, (int)(conf.interval * 1000));
    } else {
        size_of(&v);
        rc = next_page(&t, &err) == QR_OK && draw(&t, &v, &err) == QR_OK ? 0 : cmd_fail(1, &err);
        if (rc == 0) fwrite(t.frame.data, 1, t.frame.len, stdout);
    }
    close_top(&t);
    qr_conf_free(&conf);
    return rc;
}
