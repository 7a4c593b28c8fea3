/* What the engine's memory looks like: /debug/kv. With API keys it needs one, without it answers loopback
 * only. */
#include "api/api_internal.h"

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

void api_debug_kv(struct call *c)
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
    put(&w, "block_size", (uint64_t)s.block_size);
    put(&w, "block_bytes", s.block_bytes);
    put(&w, "blocks", s.n_blocks);
    put(&w, "blocks_free", s.n_blocks_free);
    put(&w, "blocks_used", s.n_blocks_used);
    put(&w, "blocks_cached", s.n_blocks_cached);
    put(&w, "pool_bytes", s.n_blocks * s.block_bytes);
    put(&w, "resident_bytes", qr_lib_kv_resident_bytes(lib));
    put(&w, "slots_allocated", s.slots_allocated);
    put(&w, "slots_filled", s.slots_filled);
    put_ratio(&w, "waste_now", s.slots_allocated - s.slots_filled, s.slots_allocated);
    put_ratio(&w, "waste", s.waste_slots, s.waste_of_slots);
    put(&w, "waste_slots", s.waste_slots);
    put(&w, "waste_of_slots", s.waste_of_slots);
    put(&w, "running", (uint64_t)s.n_running);
    put(&w, "waiting", (uint64_t)s.n_waiting);
    put(&w, "preemptions", s.n_preemptions);
    put(&w, "preempted_tokens", s.n_preempted_tokens);
    put(&w, "recomputed_tokens", s.n_recomputed_tokens);
    put(&w, "steps", s.n_steps);
    qr_jw_obj_end(&w);
    call_reply_json(c, 200, &b);
}
