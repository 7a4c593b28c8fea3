/* Refusals: {"error":{"message","type","param","code"}}, at most 1 kB, never with the client's own words in
 * it. */
#include "api/api_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

const char *error_type(int status)
{
    switch (status) {
    case 400: return "BadRequestError";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "NotFoundError";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 411: return "Length Required";
    case 413: return "Request Entity Too Large";
    case 417: return "Expectation Failed";
    case 431: return "Request Header Fields Too Large";
    case 501: return "NotImplementedError";
    case 503: return "ServiceUnavailableError";
    default: return status < 500 ? "BadRequestError" : "InternalServerError";
    }
}

int error_status(enum qr_status code)
{
    switch (code) {
    case QR_EINVAL:
    case QR_EFORMAT:
    case QR_ENOTSUP:
    case QR_ETOOBIG: return 400;
    case QR_ENOTFOUND: return 404;
    case QR_AGAIN:
    case QR_ENOMEM:
    case QR_ECANCELED: return 503;
    default: return 500;
    }
}

size_t error_render(int status, const char *message, const char *param, char *out, size_t cap)
{
    struct qr_buf b = {0};
    struct qr_json_writer w;
    qr_jw_init(&w, &b);
    qr_jw_obj(&w);
    qr_jw_key(&w, "error");
    qr_jw_obj(&w);
    qr_jw_key(&w, "message");
    qr_jw_strn(&w, message, strnlen(message, 512));
    qr_jw_key(&w, "type");
    qr_jw_str(&w, error_type(status));
    qr_jw_key(&w, "param");
    if (param && *param)
        qr_jw_str(&w, param);
    else
        qr_jw_null(&w);
    qr_jw_key(&w, "code");
    qr_jw_int(&w, status);
    qr_jw_obj_end(&w);
    qr_jw_obj_end(&w);
    size_t n = 0;
    if (b.failed || b.len >= cap) {
        n = (size_t)snprintf(out, cap,
                             "{\"error\":{\"message\":\"error\",\"type\":\"%s\",\"param\":null,\"code\":%d}}",
                             error_type(status), status);
        if (n >= cap) n = 0;
    } else {
        memcpy(out, b.data, b.len);
        n = b.len;
    }
    qr_buf_fini(&b);
    return n;
}

int error_retry_after_s(struct api *a)
{
    struct qr_lib *lib = atomic_load(&a->lib);
    struct qr_snapshot s = {.retry_after_s = 1};
    if (lib) qr_lib_snapshot(lib, &s);
    return s.retry_after_s;
}

void call_reply(struct call *c, int status, const char *content_type, const void *body, size_t bytes)
{
    if (c->route) {
        int cls = status / 100;
        if (cls >= 1 && cls <= 5)
            atomic_fetch_add_explicit(&c->api->by_route[c->route - api_routes][cls], 1, memory_order_relaxed);
    }
    if (!atomic_load(&c->gone)) http_reply(c->req, status, content_type, body, bytes);
}

void call_reply_json(struct call *c, int status, struct qr_buf *body)
{
    if (body->failed)
        call_error(c, 503, NULL, "The server is out of memory.");
    else
        call_reply(c, status, "application/json", body->data, body->len);
    qr_buf_fini(body);
}

void call_error(struct call *c, int status, const char *param, const char *fmt, ...)
{
    char message[512], body[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    size_t n = error_render(status, message, param, body, sizeof body);
    char seconds[16];
    snprintf(seconds, sizeof seconds, "%d", status == 503 ? error_retry_after_s(c->api) : 0);
    if (status == 503) http_add_header(c->req, "Retry-After", seconds);
    if (status == 401) http_add_header(c->req, "WWW-Authenticate", "Bearer");
    call_reply(c, status, "application/json", body, n);
}

void call_fail(struct call *c, const struct qr_error *err)
{
    int status = error_status(err->code);
    const char *fallback = status == 503 ? "The server is busy; try again." : "The request failed.";
    call_error(c, status, err->param, "%s", err->msg[0] ? err->msg : fallback);
}
