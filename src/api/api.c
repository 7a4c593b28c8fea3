#include "api/api.h"
#include "api/api_internal.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"

const struct route api_routes[] = {
#define QR_ROUTE(method, path, handler, flags) {method, path, handler, flags},
#include "api/routes.def"
#undef QR_ROUTE
};
const int api_n_routes = sizeof api_routes / sizeof api_routes[0];
_Static_assert(sizeof api_routes / sizeof api_routes[0] <= 64, "by_route counts at most 64 routes");

// --- Dispatch, on the I/O thread ---

static bool path_matches(const struct route *r, const char *path, size_t bytes)
{
    size_t n = strlen(r->path);
    if (r->flags & UNDER) return bytes > n && memcmp(path, r->path, n) == 0;
    return bytes == n && memcmp(path, r->path, n) == 0;
}

// The route of this method and path; else *allow gets the methods that the path has, "" when there is no such
// path.
static const struct route *find_route(const char *method, const char *path, char *allow, size_t cap)
{
    size_t bytes = strlen(path);
    if (bytes > 1 && path[bytes - 1] == '/') bytes--; // "/metrics/" is "/metrics"
    const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method;
    const struct route *found = NULL;
    allow[0] = 0;
    for (int i = 0; i < api_n_routes; i++) {
        const struct route *r = &api_routes[i];
        if (!path_matches(r, path, bytes)) continue;
        if (strcmp(r->method, wanted) == 0) found = r;
        size_t used = strlen(allow);
        const char *with = strcmp(r->method, "GET") == 0 ? "GET, HEAD" : r->method;
        snprintf(allow + used, cap - used, "%s%s", used ? ", " : "", with);
    }
    if (allow[0]) snprintf(allow + strlen(allow), cap - strlen(allow), ", OPTIONS");
    return found;
}

// Refusals that need no call.
static void refuse(struct http_req *req, int status, const char *message)
{
    char body[512];
    size_t n = error_render(status, message, NULL, body, sizeof body);
    if (status == 503) http_add_header(req, "Retry-After", "1");
    if (status == 401) http_add_header(req, "WWW-Authenticate", "Bearer");
    http_reply(req, status, "application/json", body, n);
}

static void on_request(void *arg, struct http_req *req)
{
    struct api *a = arg;
    char allow[128];
    const char *method = http_req_method(req);
    const struct route *r = find_route(method, http_req_path(req), allow, sizeof allow);
    if (strcmp(method, "OPTIONS") == 0 && (allow[0] || strcmp(http_req_path(req), "*") == 0)) {
        http_add_header(req, "Allow", allow[0] ? allow : "GET, HEAD, POST, OPTIONS");
        http_reply(req, 204, NULL, "", 0);
        return;
    }
    bool open = r && (r->flags & OPEN);
    unsigned client = 0;
    if (!open &&
        !auth_ok(&a->conf, http_req_header(req, "Authorization"), http_req_header(req, "x-api-key"), &client)) {
        refuse(req, 401, "A valid API key is needed: send `Authorization: Bearer KEY`.");
        return;
    }
    if (!r) {
        if (allow[0]) http_add_header(req, "Allow", allow);
        refuse(req, allow[0] ? 405 : 404,
               allow[0] ? "This path does not answer this method." : "There is no such path.");
        return;
    }
    if ((r->flags & MODEL) && (!atomic_load(&a->lib) || atomic_load(&a->dead))) {
        refuse(req, 503, atomic_load(&a->dead) ? "The engine stopped." : "Loading model");
        return;
    }
    struct call *c = call_new(a, req, r, http_req_path(req));
    if (!c) {
        refuse(req, 503, "The server has too many requests.");
        return;
    }
    c->client = client;
    if (!(r->flags & WORK)) {
        r->handler(c);
        call_unref(&c);
    } else if (!call_enqueue(c)) {
        qr_metric_add(a->metrics, QR_METRIC_REJECT_REQS, 1);
        call_error(c, 503, NULL, "The server's queue is full.");
        call_unref(&c);
    }
}

static void on_gone(void *arg, struct http_req *req, void *user)
{
    call_client_gone(arg, (uint64_t)(uintptr_t)user);
}

static size_t on_error_body(void *arg, int status, const char *message, char *out, size_t cap)
{
    return error_render(status, message, NULL, out, cap);
}

// --- Lifetime ---

static void init(struct api *a, const struct api_conf *conf)
{
    a->conf = *conf;
    a->queue_tail = &a->queue_head;
    pthread_mutex_init(&a->slots_lock, NULL);
    pthread_mutex_init(&a->queue_lock, NULL);
    pthread_mutex_init(&a->fields_lock, NULL);
    pthread_cond_init(&a->queue_cond, NULL);
    for (uint32_t i = 0; i < API_CALLS_MAX; i++) a->free_slots[i] = API_CALLS_MAX - 1 - i;
    a->n_free_slots = API_CALLS_MAX;
    a->started = (int64_t)time(NULL);
    a->seed = conf->seed ? conf->seed
                         : qr_mix64(qr_clock_wall()->now_ns(qr_clock_wall()) ^ (uint64_t)a->started << 20);
}

static enum qr_status start_workers(struct api *a, struct qr_error *err)
{
    int n = a->conf.n_workers > 0 ? a->conf.n_workers : 2;
    a->workers = qr_calloc(QR_MEM_HTTP, (size_t)n, sizeof *a->workers);
    if (!a->workers) return qr_fail(err, QR_ENOMEM, "api: no memory for %d workers", n);
    for (; a->n_workers < n; a->n_workers++)
        if (pthread_create(&a->workers[a->n_workers], NULL, call_worker, a) != 0)
            return qr_fail(err, QR_ENOMEM, "api: cannot start worker thread %d of %d", a->n_workers + 1, n);
    return QR_OK;
}

enum qr_status api_start(const struct api_conf *conf, struct api **out, struct qr_error *err)
{
    struct api *a = qr_calloc(QR_MEM_HTTP, 1, sizeof *a);
    if (!a) return qr_fail(err, QR_ENOMEM, "api: no memory");
    init(a, conf);
    enum qr_status rc = qr_metrics_new(&a->metrics);
    if (rc != QR_OK) {
        qr_fail(err, rc, "api: no memory for metrics");
        goto fail;
    }
    rc = start_workers(a, err);
    if (rc != QR_OK) goto fail;
    struct http_conf h = {.host = conf->host,
                          .port = conf->port,
                          .body_bytes_max = conf->body_bytes_max,
                          .header_bytes_max = 16 << 10,
                          .n_headers_max = 256,
                          .n_conns_max = API_CONNS_MAX,
                          .idle_timeout_s = 75,
                          .request_timeout_s = 30,
                          .stream_bytes_max = API_STREAM_BYTES_MAX,
                          .handler = on_request,
                          .gone = on_gone,
                          .error_body = on_error_body,
                          .arg = a};
    if (h.body_bytes_max == 0) h.body_bytes_max = 32u << 20;
    rc = http_server_new(&h, &a->http, err);
    if (rc != QR_OK) goto fail;
    *out = a;
    return QR_OK;
fail:
    api_stop(&a);
    return rc;
}

void api_progress(struct api *a, uint64_t done, uint64_t total)
{
    atomic_store(&a->load_done, done);
    atomic_store(&a->load_total, total);
}

static void describe(struct api *a, const struct qr_lib_info *info)
{
    char labels[512];
    snprintf(labels, sizeof labels,
             "block_size=\"%d\",num_gpu_blocks=\"%u\",num_cpu_blocks=\"0\",cache_dtype=\"%s\",enable_"
             "prefix_caching=\"%s\","
             "kv_cache_size_tokens=\"%llu\",kv_cache_max_concurrency=\"%.2f\",kv_cache_memory_bytes=\"%llu\"",
             info->block_size, info->n_blocks, qr_kvtype_name(info->model.kvtype),
             info->prefix_caching ? "True" : "False",
             (unsigned long long)info->n_blocks * (unsigned)info->block_size,
             (double)info->n_blocks * info->block_size / (info->max_model_len ? info->max_model_len : 1),
             (unsigned long long)info->kv_bytes);
    static const struct {
        const char *name;
        enum qr_metric id;
    } policies[] = {
        {"fcfs", QR_METRIC_POLICY_FCFS}, {"priority", QR_METRIC_POLICY_PRIORITY}, {"fair", QR_METRIC_POLICY_FAIR}};
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++)
        qr_metric_set(a->metrics, policies[i].id, strcmp(policies[i].name, info->policy) == 0);
    struct qr_metrics_about about = {a->model_name, labels, a->conf.version, (uint64_t)info->max_model_len};
    if (qr_metrics_describe(a->metrics, &about) != QR_OK) QR_WARN("api", "the metrics' labels are too long");
    uint64_t h = qr_hash_bytes((uint64_t)info->max_model_len, info->served_name, strlen(info->served_name));
    h = qr_hash_bytes(h ^ (uint64_t)info->model.kvtype << 32 ^ (uint64_t)info->block_size, &info->block_bytes, sizeof info->block_bytes);
    snprintf(a->fingerprint, sizeof a->fingerprint, "quire-%.32s-%08x",
             a->conf.version ? a->conf.version : "0", (unsigned)h);
}

// A text is at most this long if it is to become n_tokens tokens: the longest token's bytes, thrice, because
// normalising may shorten a text (the longest that Unicode's composition does).
static size_t longest_text(const struct qr_tokenizer *t, int32_t n_tokens)
{
    size_t longest = 4;
    for (int32_t id = 0; id < qr_tokenizer_size(t); id++) {
        size_t a = qr_tokenizer_bytes(t, id).bytes, b = qr_tokenizer_piece(t, id).bytes;
        longest = a > longest ? a : longest;
        longest = b > longest ? b : longest;
    }
    return 3 * longest * (size_t)n_tokens;
}

void api_ready(struct api *a, struct qr_lib *lib)
{
    const struct qr_lib_info *info = qr_lib_info(lib);
    a->model_name = a->conf.n_served_names > 0 ? a->conf.served_names[0] : info->served_name;
    a->tok = qr_lib_tokenizer(lib);
    a->text_bytes_max = longest_text(a->tok, info->max_model_len);
    describe(a, info);
    atomic_store(&a->lib, lib); // publishes what was written above
    a->pump_runs = pthread_create(&a->pump, NULL, pump_thread, a) == 0;
    if (!a->pump_runs) {
        QR_ERROR("api", "cannot start the pump thread");
        atomic_store(&a->dead, true);
    }
}

int api_port(const struct api *a)
{
    return http_server_port(a->http);
}

void api_stop(struct api **ap)
{
    struct api *a = *ap;
    *ap = NULL;
    if (!a) return;
    pthread_mutex_lock(&a->queue_lock);
    atomic_store(&a->stopping, true);
    pthread_cond_broadcast(&a->queue_cond);
    pthread_mutex_unlock(&a->queue_lock);
    for (int i = 0; i < a->n_workers; i++) pthread_join(a->workers[i], NULL);
    calls_fail_all(a);
    if (a->pump_runs) pthread_join(a->pump, NULL); // it leaves when nothing is live, or after a moment
    http_server_free(&a->http);
    for (int i = 0; i < API_CALLS_MAX; i++) // sequences whose last event never came
        for (struct call *c = a->slots[i]; c; c = a->slots[i]) {
            struct call *mine = c;
            call_unref(&mine);
        }
    qr_free(a->workers);
    qr_metrics_free(&a->metrics);
    pthread_mutex_destroy(&a->slots_lock);
    pthread_mutex_destroy(&a->queue_lock);
    pthread_mutex_destroy(&a->fields_lock);
    pthread_cond_destroy(&a->queue_cond);
    qr_free(a);
}
