/* quire bench ppl: how well the model, as it computes here, foretells a text. */
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "bench/bench_internal.h"

const char bench_ppl_help[] =
    "Perplexity of a text file: windows of --ctx tokens go through the engine as prompts, and each token's probability is that\n"
    "given what stands before it in its window. A window begins --stride tokens after the one before; tokens that an earlier\n"
    "window has scored are only context. The first token of the text has no probability. It tells what a KV type, activations\n"
    "or another way of computing costs: compare two runs over the same text.\n\n"
    "  quire bench ppl MODEL wiki.test.raw\n"
    "  quire bench ppl MODEL wiki.test.raw --text-tokens 40000 --kv-cache-dtype int8\n"
    "  quire bench ppl MODEL wiki.test.raw --numerics exact          as answers are computed, not prompts\n"
    "  quire bench ppl MODEL wiki.test.raw --activations f32         the reference\n";

enum { TEXT_BYTES_MAX = 1 << 28 };

struct ppl {
    struct qr_lib *lib;
    int32_t *ids;
    size_t n_ids;
    int32_t ctx, stride;
    // so far
    size_t n_scored;
    double sum, sum_squares; // of -log p
    uint64_t start_ns, shown_ns;
    double seconds;
};

static uint64_t now_ns(void)
{
    return qr_clock_wall()->now_ns(qr_clock_wall());
}

static enum qr_status read_text(const char *path, struct qr_buf *out, struct qr_error *err)
{
    char part[65536];
    FILE *f = fopen(path, "rb");
    if (!f) return qr_fail(err, QR_EIO, "bench ppl: cannot read %.150s", path);
    for (size_t n; out->len <= TEXT_BYTES_MAX && (n = fread(part, 1, sizeof part, f)) > 0;) qr_buf_add(out, part, n);
    bool failed = ferror(f) != 0;
    fclose(f);
    if (failed) return qr_fail(err, QR_EIO, "bench ppl: cannot read %.150s", path);
    if (out->failed) return qr_fail(err, QR_ENOMEM, "bench ppl: no memory for %.150s", path);
    if (out->len == 0 || out->len > TEXT_BYTES_MAX)
        return qr_fail(err, QR_EINVAL, "bench ppl: %.150s: expected a text of 1 byte to %d MiB", path, TEXT_BYTES_MAX >> 20);
    if (out->len > 1 && (uint8_t)out->data[0] == 0x1f && (uint8_t)out->data[1] == 0x8b)
        return qr_fail(err, QR_EINVAL, "bench ppl: %.150s is compressed: gunzip it first", path);
    return QR_OK;
}

static enum qr_status tokenise(struct ppl *p, const struct bench_args *a, struct qr_error *err)
{
    struct qr_buf text = {0};
    int64_t limit = a->conf->text_tokens;
    enum qr_status st = read_text(a->conf->args.v[1], &text, err);
    if (st == QR_OK)
        st = qr_tokenizer_encode(qr_lib_tokenizer(p->lib), text.data, text.len, QR_ENCODE_ADD_SPECIAL, &p->ids, &p->n_ids, err);
    qr_buf_fini(&text);
    if (st != QR_OK) return st;
    if (limit > 0 && (size_t)limit < p->n_ids) p->n_ids = (size_t)limit;
    return p->n_ids >= 2 ? QR_OK : qr_fail(err, QR_EINVAL, "bench ppl: expected a text of at least 2 tokens, got %zu", p->n_ids);
}

static void show(struct ppl *p, bool last)
{
    uint64_t now = now_ns();
    if (!isatty(STDERR_FILENO) || (now - p->shown_ns < 200000000u && !last)) return;
    p->shown_ns = now;
    double s = (double)(now - p->start_ns) * 1e-9;
    if (last)
        fprintf(stderr, "\r\033[K");
    else
        fprintf(stderr, "\r%zu of %zu tokens, perplexity %.3f, %.0f tokens/s \033[K", p->n_scored + 1, p->n_ids,
                exp(p->sum / (double)p->n_scored), (double)p->n_scored / s);
}

// Ids first .. end - 1, of which those from `scored` on count.
static enum qr_status window(struct ppl *p, size_t first, size_t scored, size_t end, struct qr_error *err)
{
    struct qr_gen gen = {.req = {.prompt = p->ids + first, .n_prompt = (int32_t)(end - first), .n_choices = 1, .no_cache_read = true},
                         .want_tokens = true};
    gen.req.sampling = (struct qr_sampling){.top_p = 1, .repetition = 1, .seed = 1, .n_logprobs = -1, .n_prompt_logprobs = 0};
    struct qr_gen_event ev;
    qr_req_id id;
    enum qr_status st = qr_lib_submit(p->lib, &gen, &id, err);
    if (st != QR_OK) return st;
    do {
        st = qr_lib_next(p->lib, &ev, -1);
        if (st != QR_OK) return qr_fail(err, st, "bench ppl: the engine ended");
        for (size_t i = 0; i < ev.n_tokens; i++) {
            const struct qr_gen_token *t = &ev.tokens[i];
            if (!t->is_prompt || first + (size_t)t->pos < scored) continue;
            p->n_scored++;
            p->sum -= (double)t->logprob;
            p->sum_squares += (double)t->logprob * (double)t->logprob;
        }
        if (p->n_scored) show(p, false);
    } while (ev.finish == QR_FINISH_NONE);
    return ev.finish == QR_FINISH_ERROR ? qr_fail(err, QR_EIO, "bench ppl: %.120s", ev.error) : QR_OK;
}

static enum qr_status score(struct ppl *p, struct qr_error *err)
{
    p->start_ns = now_ns();
    size_t end = 0;
    for (size_t first = 0; end < p->n_ids; first += (size_t)p->stride) {
        size_t scored = end > first + 1 ? end : first + 1;
        end = first + (size_t)p->ctx < p->n_ids ? first + (size_t)p->ctx : p->n_ids;
        if (end <= scored) continue; // one token alone, which nothing foretells
        enum qr_status st = window(p, first, scored, end, err);
        if (st != QR_OK) return st;
    }
    p->seconds = (double)(now_ns() - p->start_ns) * 1e-9;
    show(p, true);
    return QR_OK;
}

static enum qr_status report(const struct ppl *p, const struct bench_args *a, struct qr_error *err)
{
    const struct qr_lib_info *info = qr_lib_info(p->lib);
    const char *type = qr_kvtype_name(info->model.kvtype);
    double n = (double)p->n_scored, nll = p->sum / n, ppl = exp(nll);
    double error = n > 1 ? ppl * sqrt(fmax(p->sum_squares / n - nll * nll, 0) / (n - 1)) : NAN;
    if (!bench_json_only(a))
        fprintf(a->out,
                "perplexity      %.4f +/- %.4f (standard error)\ntokens scored   %zu of %zu, windows of %d every %d\n"
                "time            %.1f s, %.1f tokens/s\nKV cache        %s, %llu bytes a token\n"
                "activations     %s, numerics %s\n",
                ppl, error, p->n_scored, p->n_ids, p->ctx, p->stride, p->seconds, n / p->seconds, type,
                (unsigned long long)info->model.kv_token_bytes, a->conf->activations, a->conf->numerics);
    struct qr_buf b = {0};
    struct qr_json_writer w;
    qr_jw_init(&w, &b);
    qr_jw_obj(&w);
    bench_put_origin(&w);
    bench_put_str(&w, "model", info->served_name);
    bench_put_real(&w, "perplexity", ppl);
    bench_put_real(&w, "perplexity_error", error);
    bench_put_real(&w, "mean_nll", nll);
    bench_put_real(&w, "tokens_scored", n);
    bench_put_real(&w, "tokens", (double)p->n_ids);
    bench_put_real(&w, "ctx", p->ctx);
    bench_put_real(&w, "stride", p->stride);
    bench_put_real(&w, "seconds", p->seconds);
    bench_put_str(&w, "kv_cache_dtype", type);
    bench_put_real(&w, "kv_bytes_per_token", (double)info->model.kv_token_bytes);
    bench_put_str(&w, "activations", a->conf->activations);
    bench_put_str(&w, "numerics", a->conf->numerics);
    qr_jw_obj_end(&w);
    enum qr_status st = bench_save(a, &b, err);
    qr_buf_fini(&b);
    return st;
}

static enum qr_status check_args(const struct bench_args *a, struct qr_error *err)
{
    const struct qr_conf *c = a->conf;
    if (c->args.n < 2) return qr_fail(err, QR_EINVAL, "bench ppl: expected a model and a text file");
    if (c->ppl_ctx < 2 || c->ppl_ctx > INT32_MAX / 4)
        return qr_fail_param(err, QR_EINVAL, "ctx", "--ctx: expected 2 to %d, got %lld", INT32_MAX / 4, (long long)c->ppl_ctx);
    if (c->ppl_stride < 0 || c->ppl_stride > c->ppl_ctx)
        return qr_fail_param(err, QR_EINVAL, "stride", "--stride: expected 1 to --ctx %lld, or 0 for that, got %lld",
                             (long long)c->ppl_ctx, (long long)c->ppl_stride);
    if (c->text_tokens < 0)
        return qr_fail_param(err, QR_EINVAL, "text-tokens", "--text-tokens: expected 0 or more, got %lld",
                             (long long)c->text_tokens);
    return QR_OK;
}

enum qr_status bench_ppl(const struct bench_args *a, struct qr_error *err)
{
    enum qr_status st = check_args(a, err);
    if (st != QR_OK) return st;
    struct ppl p = {.ctx = (int32_t)a->conf->ppl_ctx, .stride = (int32_t)a->conf->ppl_stride};
    if (p.stride == 0) p.stride = p.ctx;
    struct qr_lib_conf lc = *a->lib;
    lc.max_num_seqs = 1; // one window at a time
    if (lc.max_model_len == 0) lc.max_model_len = p.ctx;
    st = qr_lib_open(&lc, &p.lib, err);
    if (st == QR_OK) st = tokenise(&p, a, err);
    if (st == QR_OK) st = score(&p, err);
    if (st == QR_OK) st = report(&p, a, err);
    qr_lib_close(&p.lib);
    qr_free(p.ids);
    return st;
}
