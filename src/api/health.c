/* Small answers: health, version, load, metrics. */
#include "api/api_internal.h"

#include <stdio.h>
#include <string.h>

static void error_fields(struct qr_json_writer *w, const char *message, int status)
{
    qr_jw_key(w, "error");
    qr_jw_obj(w);
    qr_jw_key(w, "message");
    qr_jw_str(w, message);
    qr_jw_key(w, "type");
    qr_jw_str(w, "unavailable_error");
    qr_jw_key(w, "param");
    qr_jw_null(w);
    qr_jw_key(w, "code");
    qr_jw_int(w, status);
    qr_jw_obj_end(w);
}

void api_health(struct call *c)
{
    struct api *a = c->api;
    struct qr_buf b = {0};
    struct qr_json_writer w;
    qr_jw_init(&w, &b);
    qr_jw_obj(&w);
    bool dead = atomic_load(&a->dead), ready = atomic_load(&a->lib) && !dead && !atomic_load(&a->stopping);
    qr_jw_key(&w, "status");
    qr_jw_str(&w, ready ? "ok" : dead ? "error" : "loading");
    if (!ready) {
        uint64_t total = atomic_load(&a->load_total);
        error_fields(&w, dead ? "The engine stopped." : "Loading model", 503);
        qr_jw_key(&w, "progress");
        qr_jw_double(&w, total ? (double)atomic_load(&a->load_done) / (double)total : 0);
        http_add_header(c->req, "Retry-After", "1");
    }
    qr_jw_obj_end(&w);
    call_reply_json(c, ready ? 200 : 503, &b);
}

void api_version(struct call *c)
{
    struct qr_buf b = {0};
    struct qr_json_writer w;
    qr_jw_init(&w, &b);
    qr_jw_obj(&w);
    qr_jw_key(&w, "version");
    qr_jw_str(&w, c->api->conf.version ? c->api->conf.version : "0");
    qr_jw_obj_end(&w);
    call_reply_json(c, 200, &b);
}

// Requests being worked on now, this one not counted.
void api_load(struct call *c)
{
    struct qr_buf b = {0};
    qr_buf_printf(&b, "{\"server_load\": %d}", atomic_load(&c->api->n_live) - 1);
    call_reply_json(c, 200, &b);
}

static void by_route(struct api *a, struct qr_buf *b)
{
    qr_buf_str(b, "# HELP http_requests_total Total number of requests by method, status and handler.\n"
                  "# TYPE http_requests_total counter\n");
    for (int i = 0; i < api_n_routes; i++)
        for (int cls = 2; cls <= 5; cls++)
            if (cls != 3)
                qr_buf_printf(
                    b, "http_requests_total{handler=\"%s\",method=\"%s\",status=\"%dxx\"} %llu\n",
                    api_routes[i].path, api_routes[i].method, cls,
                    (unsigned long long)atomic_load_explicit(&a->by_route[i][cls], memory_order_relaxed));
}

void api_metrics(struct call *c)
{
    struct api *a = c->api;
    struct qr_lib *lib = atomic_load(&a->lib);
    if (lib) {
        struct qr_snapshot s;
        qr_lib_snapshot(lib, &s);
        qr_metrics_take(a->metrics, &s);
        qr_metric_set(a->metrics, QR_METRIC_KV_RESIDENT, (double)qr_lib_kv_resident_bytes(lib));
    }
    struct http_stats h = {0};
    if (a->http) http_server_stats(a->http, &h);
    qr_metric_set(a->metrics, QR_METRIC_STREAMS, (double)h.n_streams_now);
    qr_metric_set(a->metrics, QR_METRIC_CONNS, (double)h.n_conns_now);
    qr_metric_set(a->metrics, QR_METRIC_HTTP_IN, (double)h.bytes_in);
    qr_metric_set(a->metrics, QR_METRIC_HTTP_OUT, (double)h.bytes_out);
    qr_metric_set(a->metrics, QR_METRIC_LIVE, atomic_load(&a->n_live) - 1);
    struct qr_buf b = {0};
    qr_metrics_render(a->metrics, &b);
    by_route(a, &b);
    if (b.failed)
        call_error(c, 503, NULL, "The server is out of memory.");
    else
        call_reply(c, 200, "text/plain; version=0.0.4; charset=utf-8", b.data, b.len);
    qr_buf_fini(&b);
}
