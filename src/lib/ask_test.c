#include "lib/ask_internal.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/test.h"

struct qr_lib *ask_open_lib(const char *name, const struct qr_lib_conf *conf)
{
    char file[64];
    snprintf(file, sizeof file, "tiny/%s.gguf", name);
    const char *path = qr_test_build_path(file);
    if (access(path, R_OK) != 0) return NULL;
    struct qr_lib_conf c = *conf;
    struct qr_error err = {0};
    struct qr_lib *lib = NULL;
    c.model_path = path;
    c.check_every_step = true;
    if (c.n_threads == 0) c.n_threads = 2;
    if (qr_lib_open(&c, &lib, &err) != QR_OK) fail_msg("open: %s", err.msg);
    return lib;
}

void ask_init(struct ask *a, uint64_t seed, int32_t n_prompt, int32_t n_gen)
{
    memset(a, 0, sizeof *a);
    for (int32_t i = 0; i < n_prompt; i++)
        a->prompt[i] = 3 + (int32_t)(qr_rand_u64(seed, 1, (uint64_t)i) % 500);
    a->n_prompt = n_prompt;
    a->gen = (struct qr_gen){
        .req = {.n_prompt = n_prompt, .n_choices = 1},
        .skip_special = true,
        .want_tokens = true,
    };
    a->gen.req.sampling = (struct qr_sampling){.top_p = 1,
                                               .repetition = 1,
                                               .seed = seed,
                                               .max_tokens = n_gen,
                                               .ignore_eos = true,
                                               .n_logprobs = -1,
                                               .n_prompt_logprobs = -1};
}

static void take(struct ask *a, const struct qr_gen_event *ev)
{
    assert_false(a->finished);
    assert_true(a->n_text + ev->text.bytes < ASK_TEXT_MAX);
    if (ev->text.bytes) memcpy(a->text + a->n_text, ev->text.data, ev->text.bytes);
    a->n_text += ev->text.bytes;
    a->text[a->n_text] = 0;
    for (size_t i = 0; i < ev->n_tokens; i++) {
        const struct qr_gen_token *t = &ev->tokens[i];
        if (t->is_prompt) {
            assert_in_range(t->pos, 1, a->n_prompt - 1);
            if (a->scored) a->scored[t->pos] = *t;
            a->n_scored++;
            continue;
        }
        assert_int_equal(t->pos, a->n_prompt + a->n_ids);
        a->logprobs[a->n_ids] = t->logprob;
        a->ids[a->n_ids++] = t->id;
    }
    if (ev->finish == QR_FINISH_NONE) return;
    a->finished = true;
    a->last = *ev;
    a->last.text = (struct qr_text_span){0};
    a->last.tokens = NULL;
}

static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_opened = PTHREAD_COND_INITIALIZER;
static bool gate_shut;

static void shut_gate(bool shut)
{
    pthread_mutex_lock(&gate_lock);
    gate_shut = shut;
    pthread_cond_broadcast(&gate_opened);
    pthread_mutex_unlock(&gate_lock);
}

void ask_gate(__attribute__((unused)) void *arg, const char *line, __attribute__((unused)) size_t bytes)
{
    if (line[0] != 'A') return; // a request that comes in, before the scheduler sees it
    pthread_mutex_lock(&gate_lock);
    while (gate_shut) pthread_cond_wait(&gate_opened, &gate_lock);
    pthread_mutex_unlock(&gate_lock);
}

static void submit(struct qr_lib *lib, struct ask *asks, int n)
{
    for (int i = 0; i < n; i++) {
        struct qr_error err = {0};
        asks[i].gen.req.prompt = asks[i].prompt;
        asks[i].gen.user = &asks[i];
        if (qr_lib_submit(lib, &asks[i].gen, &asks[i].id, &err) != QR_OK) fail_msg("submit: %s", err.msg);
    }
}

static void read_all(struct qr_lib *lib, int n)
{
    for (int left = n; left > 0;) {
        struct qr_gen_event ev;
        assert_int_equal(qr_lib_next(lib, &ev, 20000), QR_OK);
        struct ask *a = ev.user;
        assert_int_equal(ev.id, a->id);
        take(a, &ev);
        if (a->finished)
            left--;
        else if (a->cancel_after > 0 && a->n_ids == a->cancel_after)
            qr_lib_cancel(lib, a->id);
    }
}

void ask_serve(struct qr_lib *lib, struct ask *asks, int n)
{
    submit(lib, asks, n);
    read_all(lib, n);
}

void ask_serve_at_once(struct qr_lib *lib, struct ask *asks, int n)
{
    shut_gate(true);
    submit(lib, asks, n);
    shut_gate(false);
    read_all(lib, n);
}
