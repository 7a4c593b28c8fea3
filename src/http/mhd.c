#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/mem.h"
#include "http/http_internal.h"

// A refused body is read and dropped up to this size, so that the client gets its answer on a usable
// connection; beyond, the connection is closed at once.
#define SWALLOW_BYTES_MAX ((uint64_t)256 << 20)

// MHD buffers a stream's bytes here only for clients of HTTP/1.0, which know no chunks.
#define STREAM_BLOCK_BYTES 1024

static struct http_conn *conn_of(struct MHD_Connection *m)
{
    return MHD_get_connection_info(m, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

static void on_notify(void *cls, struct MHD_Connection *m, void **context,
                      enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        http_conn_started(cls, m, context);
    else
        http_conn_closed(cls, *context);
}

// Called when the request line has been read, before MHD changes it.
static void *on_target(void *cls, const char *target, struct MHD_Connection *m)
{
    struct http_server *s = cls;
    struct http_conn *c = conn_of(m);
    if (!c || c->phase == CONN_REFUSED || c->phase == CONN_SHUT) return NULL;
    if (c->phase != CONN_RECEIVING) http_conn_phase(s, c, CONN_RECEIVING);
    struct http_req *r = http_req_new(s, c, target);
    if (r) r->local = c->local;
    c->req = r;
    return r;
}

static void free_body(void *body)
{
    qr_free(body);
}

static ssize_t on_stream(void *cls, uint64_t pos, char *to, size_t cap)
{
    struct http_req *r = cls;
    struct http_conn *c = r->conn;
    struct http_server *s = r->server;
    ssize_t n = http_stream_take(r, to, cap);
    if (n > 0) {
        atomic_fetch_add(&s->bytes_out, (uint64_t)n);
    } else if (n == 0) {
        c->suspended = true;
        MHD_suspend_connection(c->mhd);
    } else if (n == MHD_CONTENT_READER_END_WITH_ERROR || r->http_1_0) { // MHD closes the connection on return
        c->next_nudge = s->nudge;
        s->nudge = c;
    }
    return n;
}

// With the request's lock held.
static struct MHD_Response *make_response(struct http_req *r)
{
    struct MHD_Response *resp;
    if (r->answer == ANSWER_STREAM && r->head) {
        resp = MHD_create_response_from_buffer(0, "", MHD_RESPMEM_PERSISTENT);
    } else if (r->answer == ANSWER_STREAM) {
        resp = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK_BYTES, on_stream, r, NULL);
    } else {
        char *body = r->out;
        atomic_fetch_add(&r->server->bytes_out, r->out_bytes);
        resp = body ? MHD_create_response_from_buffer_with_free_callback(r->out_bytes, body, free_body)
                    : MHD_create_response_from_buffer(0, "", MHD_RESPMEM_PERSISTENT);
        if (resp) { // it owns the body now
            r->out = NULL;
            r->out_bytes = r->out_from = r->out_cap = 0;
        }
    }
    if (!resp) return NULL;
    if (r->content_type) MHD_add_response_header(resp, "Content-Type", r->content_type);
    for (int i = 0; i < r->n_extra; i++) MHD_add_response_header(resp, r->extra[i].name, r->extra[i].value);
    if (r->close) MHD_add_response_header(resp, "Connection", "close");
    return resp;
}

static bool client_closes(const struct http_req *r)
{
    const char *connection = http_req_header(r, "Connection");
    if (r->http_1_0) return !connection || !strcasestr(connection, "keep-alive");
    return connection && strcasestr(connection, "close");
}

static enum MHD_Result send_answer(struct http_conn *c, struct http_req *r)
{
    pthread_mutex_lock(&r->lock);
    struct MHD_Response *resp = r->gone ? NULL : make_response(r);
    int status = r->status;
    c->closing = r->close || client_closes(r);
    pthread_mutex_unlock(&r->lock);
    if (!resp) return MHD_NO;
    enum MHD_Result ok = MHD_queue_response(c->mhd, (unsigned)status, resp);
    MHD_destroy_response(resp);
    return ok;
}

static void fail_framing(struct http_req *r, int status)
{
    r->error = status;
    qr_buf_fini(&r->body);
}

static enum MHD_Result on_head(struct http_server *s, struct http_conn *c, struct http_req *r,
                               const char *method, const char *version)
{
    r->head_seen = true;
    int status = http_head_read(s, c->mhd, r, method, version);
    const char *length = http_req_header(r, "Content-Length");
    const union MHD_ConnectionInfo *size =
        MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    if (size) atomic_fetch_add(&s->bytes_in, size->header_size);
    if (status == 0) return MHD_YES;
    fail_framing(r, status);
    bool hopeless = r->close || r->expects_100 || (length && strtoull(length, NULL, 10) > SWALLOW_BYTES_MAX);
    if (!hopeless) return MHD_YES; // the body is read to its end and dropped, then the error is sent
    r->close = true;
    c->linger = true;
    http_conn_phase(s, c, CONN_OWED);
    http_req_answer_error(r, status);
    return send_answer(c, r);
}

static enum MHD_Result on_body(struct http_server *s, struct http_conn *c, struct http_req *r,
                               const char *data, size_t n)
{
    atomic_fetch_add(&s->bytes_in, n);
    if (r->error) {
        r->swallowed += n;
        if (r->swallowed <= SWALLOW_BYTES_MAX) return MHD_YES;
        http_conn_refuse(s, c, r->error, http_error_message(r->error));
        return MHD_NO;
    }
    if (n > s->conf.body_bytes_max - r->body.len) {
        fail_framing(r, 413); // only chunked bodies come here: a length too large was seen in the head
        return MHD_YES;
    }
    qr_buf_add(&r->body, data, n);
    if (r->body.failed) fail_framing(r, 503);
    return MHD_YES;
}

static enum MHD_Result on_whole(struct http_server *s, struct http_conn *c, struct http_req *r)
{
    if (!r->served) {
        if (c->peer_closed) return MHD_NO;
        r->served = true;
        http_conn_request_whole(c);
        http_conn_phase(s, c, CONN_OWED);
        atomic_fetch_add(&s->n_requests, 1);
        if (r->error) {
            http_req_answer_error(r, r->error);
        } else {
            http_req_ref(r);
            struct http_req *lent = r;
            s->conf.handler(s->conf.arg, r);
            http_req_unref(&lent);
        }
    }
    pthread_mutex_lock(&r->lock);
    bool gone = r->gone, answered = r->answer != ANSWER_NONE;
    pthread_mutex_unlock(&r->lock);
    if (gone) return MHD_NO;
    if (answered) return send_answer(c, r);
    c->suspended = true;
    MHD_suspend_connection(c->mhd);
    return MHD_YES;
}

// MHD calls this when the head is there, for every piece of the body, when the request is whole, and again
// after each resume until there is an answer.
static enum MHD_Result on_access(void *cls, struct MHD_Connection *m, const char *url, const char *method,
                                 const char *version, const char *data, size_t *n_data, void **context)
{
    struct http_server *s = cls;
    struct http_conn *c = conn_of(m);
    struct http_req *r = *context;
    if (!c || !r || c->phase == CONN_REFUSED || c->phase == CONN_SHUT) return MHD_NO;
    if (!r->head_seen) return on_head(s, c, r, method, version);
    if (*n_data) {
        size_t n = *n_data;
        *n_data = 0;
        return on_body(s, c, r, data, n);
    }
    return on_whole(s, c, r);
}

static void on_completed(void *cls, struct MHD_Connection *m, void **context,
                         enum MHD_RequestTerminationCode code)
{
    struct http_server *s = cls;
    struct http_conn *c = conn_of(m);
    struct http_req *r = *context;
    *context = NULL;
    if (!c || !r) return;
    c->req = NULL;
    c->answered = true;
    c->suspended = false;
    pthread_mutex_lock(&r->lock);
    bool stream = r->answer == ANSWER_STREAM;
    bool head_only = stream && r->head && code == MHD_REQUEST_TERMINATED_COMPLETED_OK;
    pthread_mutex_unlock(&r->lock);
    if (code != MHD_REQUEST_TERMINATED_COMPLETED_OK && r->served) c->closing = true;
    if (stream) atomic_fetch_sub(&s->n_streams, 1);
    if (!head_only) http_req_lost(r); // tells the application only if it was not done
    r->conn = NULL;
    http_req_drop(r);
    if (c->phase == CONN_OWED) http_conn_phase(s, c, c->early ? CONN_RECEIVING : CONN_IDLE);
    c->early = false;
    http_conn_fresh(s, c); // what came early is read now
    // The end was seen while the answer was on its way, and its edge is spent.
    if (c->peer_closed) shutdown(c->fd, SHUT_RDWR);
}

// MHD's log. Its lines quote requests, so they are not repeated; but one of them announces an error page.
static void on_log(void *cls, const char *fmt, va_list ap)
{
    static const char announces[] = "Error processing request (HTTP response code is %u";
    if (strncmp(fmt, announces, sizeof announces - 1) == 0)
        http_conn_mhd_error(cls, (int)va_arg(ap, unsigned));
}

// Our own decoding of paths and queries is in head.c: MHD's cuts them at an encoded NUL.
static size_t keep_escapes(void *cls, struct MHD_Connection *m, char *s)
{
    return strlen(s);
}

struct MHD_Daemon *http_mhd_start(struct http_server *s)
{
    // Room for the longest head, MHD's 64-byte record of each header, and the smallest useful write buffer.
    // The memory is mapped, and touched only as far as it is used.
    size_t conn_bytes = s->conf.header_bytes_max + 80 * (size_t)(s->conf.n_headers_max + 1) + 4096;
    // No polling thread of MHD's own: ours calls MHD_run, so that one thread sees sockets, deadlines and
    // answers. TURBO leaves the sending side open when a connection closes: http_conn_closed may still have
    // to say why.
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_TURBO | MHD_USE_ERROR_LOG;
    return MHD_start_daemon(
        flags, 0, NULL, NULL, on_access, s, MHD_OPTION_EXTERNAL_LOGGER, on_log, s, MHD_OPTION_LISTEN_SOCKET,
        s->listen_fd, MHD_OPTION_NOTIFY_CONNECTION, on_notify, s, MHD_OPTION_NOTIFY_COMPLETED, on_completed,
        s, MHD_OPTION_URI_LOG_CALLBACK, on_target, s, MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, s,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, conn_bytes, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)s->conf.n_conns_max + 256, MHD_OPTION_CONNECTION_TIMEOUT, 0u, MHD_OPTION_END);
}
