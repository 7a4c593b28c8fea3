/* What the engine's memory looks like: /debug/kv. With API keys it needs one, without it answers loopback
 * only. Cheap enough to be asked ten times a second: the engine copies ids between two steps while anybody
 * asks, and nothing waits for it. */
#include "api/api_internal.h"
#include "base/mem.h"

static void put(struct qr_json_writer *w, const char *key, uint64_t v)
{
    qr_jw_key(w, key);
    qr_jw_int(w, (int64_t)v);
}

static void put_ratio(struct qr_json_writer *w, const char *key, uint64_t part, uint64_t whole)
{
    qr_jw_key(w, key);
    qr_jw_double(w, whole ? (double)part / (double)whole : 0);
}

static void put_totals(struct qr_json_writer *w, struct qr_lib *lib, const struct qr_snapshot *s)
{
    put(w, "block_size", (uint64_t)s->block_size);
    put(w, "block_bytes", s->block_bytes);
    qr_jw_key(w, "dtype");
    qr_jw_str(w, qr_kvtype_name(qr_lib_info(lib)->model.kvtype));
    put(w, "blocks", s->n_blocks);
    put(w, "blocks_free", s->n_blocks_free);
    put(w, "blocks_used", s->n_blocks_used);
    put(w, "blocks_cached", s->n_blocks_cached);
    put(w, "pool_bytes", s->n_blocks * s->block_bytes);
    put(w, "resident_bytes", qr_lib_kv_resident_bytes(lib));
    put(w, "slots_allocated", s->slots_allocated);
    put(w, "slots_filled", s->slots_filled);
    put_ratio(w, "waste_now", s->slots_allocated - s->slots_filled, s->slots_allocated);
    put_ratio(w, "waste", s->waste_slots, s->waste_of_slots);
    put(w, "waste_slots", s->waste_slots);
    put(w, "waste_of_slots", s->waste_of_slots);
    put(w, "running", (uint64_t)s->n_running);
    put(w, "waiting", (uint64_t)s->n_waiting);
    put(w, "preemptions", s->n_preemptions);
    put(w, "preempted_tokens", s->n_preempted_tokens);
    put(w, "recomputed_tokens", s->n_recomputed_tokens);
    put(w, "steps", s->n_steps);
    put(w, "step_sequences", s->n_step_seqs);
    qr_jw_key(w, "slot_steps"); // the pool's slots by what becomes of them, summed over steps
    qr_jw_obj(w);
    put(w, "used", s->kv_slots_sum.used);
    put(w, "reserved", s->kv_slots_sum.reserved);
    put(w, "internal", s->kv_slots_sum.internal);
    put(w, "external", s->kv_slots_sum.external);
    put(w, "free", s->kv_slots_sum.free);
    qr_jw_obj_end(w);
    put(w, "prompt_tokens", s->n_prompt_tokens);
    put(w, "generated_tokens", s->n_generated_tokens);
    put(w, "prefix_query_tokens", s->n_cache_queries);
    put(w, "prefix_hit_tokens", s->n_cache_hits);
    put(w, "requests", s->n_requests);
}

static void put_sequence(struct qr_json_writer *w, const struct qr_inspect *p, const struct qr_inspect_seq *q)
{
    qr_jw_obj(w);
    put(w, "request", q->id);
    put(w, "choice", (uint64_t)q->choice);
    qr_jw_key(w, "state");
    qr_jw_str(w, q->running ? "running" : q->n_preemptions > 0 ? "preempted" : "waiting");
    qr_jw_key(w, "priority");
    qr_jw_int(w, q->priority);
    put(w, "prompt_tokens", (uint64_t)q->n_prompt);
    put(w, "tokens", (uint64_t)q->n_ids);
    put(w, "computed_tokens", (uint64_t)q->n_computed);
    put(w, "preemptions", (uint64_t)q->n_preemptions);
    qr_jw_key(w, "age_s");
    qr_jw_double(w, p->now_ns > q->arrival_ns ? (double)(p->now_ns - q->arrival_ns) * 1e-9 : 0);
    qr_jw_key(w, "blocks");
    qr_jw_arr(w);
    for (uint32_t i = 0; i < q->n_blocks; i++) qr_jw_int(w, p->tables[q->first_block + i]);
    qr_jw_arr_end(w);
    qr_jw_obj_end(w);
}

void api_debug_kv(struct call *c)
{
    struct api *a = c->api;
    if (a->conf.n_keys == 0 && !http_req_is_local(c->req)) {
        call_error(c, 403, NULL, "This page answers loopback clients only, unless an API key is set.");
        return;
    }
    struct qr_lib *lib = atomic_load(&a->lib);
    struct qr_inspect *p = qr_lib_inspect(lib);
    if (!p) {
        call_error(c, 503, NULL, "No memory for a picture of the block pool now; try again.");
        return;
    }
    struct qr_buf b = {0};
    struct qr_json_writer w;
    qr_jw_init(&w, &b);
    qr_jw_obj(&w);
    put_totals(&w, lib, &p->snapshot);
    // One character for each block that was ever used: '-' free, 'c' free but cached, '1' to '9' references,
    // '+' more.
    qr_jw_key(&w, "states");
    qr_jw_strn(&w, p->states, p->n_states);
    qr_jw_key(&w, "sequences");
    qr_jw_arr(&w);
    for (int32_t i = 0; i < p->n_seqs; i++) put_sequence(&w, p, &p->seqs[i]);
    qr_jw_arr_end(&w);
    qr_free(p);
    qr_jw_obj_end(&w);
    call_reply_json(c, 200, &b);
}
