/* Who is served when, and what steps cost: /debug/sched. Reachable as /debug/kv is. */
#include "api/api_internal.h"

static void put(struct qr_json_writer *w, const char *key, uint64_t v)
{
    qr_jw_key(w, key);
    qr_jw_int(w, (int64_t)v);
}

static void put_ms(struct qr_json_writer *w, const char *key, uint64_t ns)
{
    qr_jw_key(w, key);
    qr_jw_double(w, (double)ns * 1e-6);
}

// What some steps will take by the table: for people, and for checks of the table.
static void put_steps(struct qr_json_writer *w, const struct qr_costs *c)
{
    const struct {
        const char *name;
        int32_t n_seqs, n_prompt, pos0, n_tokens;
    } steps[] = {{"generate_1_at_300", 1, 1, 299, 1},       {"generate_32_at_300", 32, 1, 299, 1},
                 {"prompt_128_at_0", 1, 128, 0, 128},       {"prompt_512_at_0", 1, 512, 0, 512},
                 {"prompt_16_at_8000", 1, 8016, 8000, 16}};
    qr_jw_key(w, "predicted_ms");
    qr_jw_obj(w);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        struct qr_work work = {0};
        for (int32_t k = 0; k < steps[i].n_seqs; k++)
            qr_work_add(&work, steps[i].n_prompt, steps[i].pos0, steps[i].n_tokens);
        put_ms(w, steps[i].name, qr_costs_ns(c, &work));
    }
    qr_jw_obj_end(w);
}

void api_debug_sched(struct call *c)
{
    struct api *a = c->api;
    if (a->conf.n_keys == 0 && !http_req_is_local(c->req)) {
        call_error(c, 403, NULL, "This page answers loopback clients only, unless an API key is set.");
        return;
    }
    struct qr_lib *lib = atomic_load(&a->lib);
    struct qr_snapshot s;
    qr_lib_snapshot(lib, &s);
    struct qr_buf b = {0};
    struct qr_json_writer w;
    qr_jw_init(&w, &b);
    qr_jw_obj(&w);
    qr_jw_key(&w, "policy");
    qr_jw_str(&w, qr_lib_info(lib)->policy);
    put(&w, "running", (uint64_t)s.n_running);
    put(&w, "running_sequences", (uint64_t)s.n_running_seqs);
    put(&w, "waiting", (uint64_t)s.n_waiting);
    put(&w, "waiting_preempted", (uint64_t)s.n_waiting_begun);
    put(&w, "waiting_prompt_tokens", (uint64_t)s.n_waiting_tokens);
    qr_jw_key(&w, "oldest_wait_s");
    qr_jw_double(&w, s.oldest_arrival_ns && s.now_ns > s.oldest_arrival_ns
                         ? (double)(s.now_ns - s.oldest_arrival_ns) * 1e-9
                         : 0);
    put(&w, "retry_after_s", (uint64_t)s.retry_after_s);
    put(&w, "expired", s.n_expired);
    put(&w, "aged", s.n_aged);
    put(&w, "priority_preemptions", s.n_yields);
    qr_jw_key(&w, "step_budget_ms");
    if (s.step_budget_ns == UINT64_MAX)
        qr_jw_str(&w, "auto");
    else
        qr_jw_double(&w, (double)s.step_budget_ns * 1e-6);
    qr_jw_key(&w, "costs");
    qr_costs_write(&s.costs, &w);
    put_steps(&w, &s.costs);
    qr_jw_obj_end(&w);
    call_reply_json(c, 200, &b);
}
