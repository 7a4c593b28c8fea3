#include "bench/inproc.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"

#define TTY_EVERY_NS 100000000u
#define LOG_EVERY_NS 10000000000u // where nobody looks at a terminal, a line so often

static uint64_t now_ns(void)
{
    return qr_clock_wall()->now_ns(qr_clock_wall());
}

void bench_progress(const char *word, uint64_t done, uint64_t total)
{
    static uint64_t last_ns;
    uint64_t now = now_ns();
    bool tty = isatty(STDERR_FILENO);
    if (!word) return;
    if (!tty && last_ns == 0) last_ns = now; // what is soon over needs no line in a log
    bool is_last = tty && done == total;
    if (now - last_ns < (tty ? TTY_EVERY_NS : LOG_EVERY_NS) && !is_last) return;
    last_ns = now;
    if (is_last)
        fprintf(stderr, "\r\033[K");
    else
        fprintf(stderr, tty ? "\r%s: %" PRIu64 " of %" PRIu64 "\033[K" : "%s: %" PRIu64 " of %" PRIu64 "\n", word, done, total);
}

enum qr_status bench_inproc_ids(const struct qr_conf *c, const struct qr_lib *lib, struct bench_ids *out,
                                struct qr_error *err)
{
    enum qr_status st = bench_ids_parse(c->token_ids, out, err);
    int32_t n_vocab = qr_lib_info(lib)->model.n_vocab;
    if (st != QR_OK) return st;
    if (out->end > n_vocab) out->end = n_vocab;
    if (out->lo >= out->end) out->lo = 0;
    return QR_OK;
}

static struct qr_gen request_of(const struct bench_load *l, size_t i)
{
    const struct bench_item *it = &l->items[i];
    return (struct qr_gen){
        .req = {.prompt = l->ids + it->first_id,
                .n_prompt = it->n_prompt,
                .n_choices = 1,
                .sampling = {.top_p = 1,
                             .repetition = 1,
                             .seed = 1,
                             .max_tokens = it->n_out,
                             .ignore_eos = true,
                             .n_logprobs = -1,
                             .n_prompt_logprobs = -1}}};
}

enum qr_status bench_inproc_run(struct qr_lib *lib, const struct bench_load *l, const char *shown, struct bench_inproc *out,
                                struct qr_error *err)
{
    uint64_t start = now_ns(), end = start;
    size_t n_sent = 0, n_done = 0;
    *out = (struct bench_inproc){0};
    while (n_done < l->n) {
        struct qr_gen_event e;
        enum qr_status st = QR_OK;
        while (n_sent < l->n && st == QR_OK) { // as many as the inbox takes
            struct qr_gen g = request_of(l, n_sent);
            qr_req_id id;
            st = qr_lib_submit(lib, &g, &id, err);
            n_sent += st == QR_OK;
        }
        if (st != QR_OK && st != QR_AGAIN) return st;
        st = qr_lib_next(lib, &e, 50);
        if (st == QR_AGAIN) continue;
        if (st != QR_OK) return qr_fail(err, st, "the engine has stopped");
        if (e.finish == QR_FINISH_NONE) continue;
        if (e.finish == QR_FINISH_ERROR) return qr_fail(err, QR_EIO, "a request failed: %.120s", e.error);
        n_done++;
        out->n_in += (uint64_t)e.n_prompt;
        out->n_out += (uint64_t)e.n_generated;
        end = e.now_ns;
        bench_progress(shown, n_done, l->n);
    }
    out->seconds = (double)(end - start) * 1e-9;
    return QR_OK;
}
