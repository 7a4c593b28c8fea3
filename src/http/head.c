#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "http/http_internal.h"

/* The request line and the headers: what libmicrohttpd lets through is checked here by RFC 9112, strictly
 * where two readers of the same bytes could disagree about where a request ends. */

static int hex(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// Decodes %XX, and + as a space in queries, into out. NULL on a broken escape or a control character.
static char *decode(const char *s, size_t n, bool plus, char *out)
{
    for (size_t i = 0; i < n; i++) {
        int c = (unsigned char)s[i];
        if (c == '%') {
            if (n - i < 3 || hex(s[i + 1]) < 0 || hex(s[i + 2]) < 0) return NULL;
            c = hex(s[i + 1]) * 16 + hex(s[i + 2]);
            i += 2;
            if (c < 0x20 || c == 0x7F) return NULL;
        } else if (c == '+' && plus) {
            c = ' ';
        } else if (c <= 0x20 || c == 0x7F) {
            return NULL;
        }
        *out++ = (char)c;
    }
    *out++ = 0;
    return out;
}

// Splits and decodes r->target into path and query pairs; writes strings at `out` and returns the place after
// them, or NULL when it is malformed. Decoding never lengthens; every pair needs two NULs where it had '='
// and '&'.
static char *read_target(struct http_req *r, char *out)
{
    const char *t = r->target;
    if (strncasecmp(t, "http://", 7) == 0 || strncasecmp(t, "https://", 8) == 0) {
        t = strchr(strchr(t, ':') + 3, '/'); // the absolute form, as proxies send it
        if (!t) t = "/";
    }
    if (t[0] != '/' && strcmp(t, "*") != 0) return NULL;
    size_t n = strcspn(t, "?");
    r->path = out;
    out = decode(t, n, false, out);
    if (t[n] == 0 || !out) return out;
    for (const char *p = t + n + 1; out; p++) {
        size_t pair = strcspn(p, "&");
        const char *eq = memchr(p, '=', pair);
        size_t name = eq ? (size_t)(eq - p) : pair;
        r->query[r->n_query].name = out;
        out = decode(p, name, true, out);
        if (!out) return NULL;
        r->query[r->n_query++].value = out;
        out = decode(eq ? eq + 1 : "", eq ? pair - name - 1 : 0, true, out);
        p += pair;
        if (*p == 0) break;
    }
    return out;
}

struct head_scan {
    struct http_req *r;
    char *out;
    size_t bytes;
    int n;
};

static enum MHD_Result count_header(void *cls, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct head_scan *h = cls;
    h->n++;
    h->bytes += strlen(name) + strlen(value ? value : "") + 2;
    return MHD_YES;
}

static const char *put(struct head_scan *h, const char *s)
{
    const char *at = h->out;
    size_t n = strlen(s) + 1;
    memcpy(h->out, s, n);
    h->out += n;
    return at;
}

static enum MHD_Result copy_header(void *cls, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct head_scan *h = cls;
    struct http_pair *p = &h->r->headers[h->r->n_headers++];
    p->name = put(h, name);
    p->value = put(h, value ? value : "");
    size_t n = strlen(p->value);
    while (n && (p->value[n - 1] == ' ' || p->value[n - 1] == '\t')) ((char *)p->value)[--n] = 0;
    return MHD_YES;
}

static bool is_token(const char *s)
{
    static const char token[] =
        "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    return *s && s[strspn(s, token)] == 0;
}

static int n_named(const struct http_req *r, const char *name)
{
    int n = 0;
    for (int i = 0; i < r->n_headers; i++) n += strcasecmp(r->headers[i].name, name) == 0;
    return n;
}

// How long the body is must be said once and clearly: a server and the proxy before it that read two
// different lengths from one request can be made to read two different next requests.
static int check_framing(const struct http_server *s, struct http_req *r, bool http_1_0)
{
    const char *coding = http_req_header(r, "Transfer-Encoding"),
               *length = http_req_header(r, "Content-Length");
    int n_codings = n_named(r, "Transfer-Encoding"), n_lengths = n_named(r, "Content-Length");
    const char *expect = http_req_header(r, "Expect");
    r->expects_100 = expect && strcasecmp(expect, "100-continue") == 0;
    if (n_codings > 1 || n_lengths > 1 || (coding && (length || http_1_0))) {
        r->close = true;
        return 400;
    }
    if (coding && strcasecmp(coding, "chunked") != 0) {
        r->close = true;
        return 501;
    }
    if (!length) return 0;
    if (!*length || length[strspn(length, "0123456789")] || strlen(length) > 18) {
        r->close = true;
        return *length && !length[strspn(length, "0123456789")] ? 413 : 400;
    }
    return strtoull(length, NULL, 10) > s->conf.body_bytes_max ? 413 : 0;
}

static int check_headers(const struct http_server *s, struct http_req *r, bool http_1_0)
{
    for (int i = 0; i < r->n_headers; i++) {
        if (!is_token(r->headers[i].name)) return 400;
        for (const char *v = r->headers[i].value; *v; v++)
            if (((unsigned char)*v < 0x20 && *v != '\t') || *v == 0x7F) return 400;
    }
    int framing = check_framing(s, r, http_1_0), n_hosts = n_named(r, "Host");
    if (framing) return framing;
    return n_hosts > 1 || (n_hosts == 0 && !http_1_0) ? 400 : 0;
}

int http_head_read(struct http_server *s, struct MHD_Connection *m, struct http_req *r, const char *method,
                   const char *version)
{
    struct head_scan h = {.r = r};
    const char *target = r->target ? r->target : "";
    MHD_get_connection_values(m, MHD_HEADER_KIND, count_header, &h);
    r->head = strcmp(method, "HEAD") == 0;
    int n_query = 1;
    for (const char *p = target; *p; p++) n_query += *p == '&';
    size_t bytes = h.bytes + strlen(method) + 1 + strlen(target) + 2 * (size_t)n_query + 2;
    r->block = qr_malloc(QR_MEM_HTTP, bytes);
    r->headers = qr_malloc(QR_MEM_HTTP, (size_t)(h.n + 1) * sizeof *r->headers);
    r->query = qr_malloc(QR_MEM_HTTP, (size_t)n_query * sizeof *r->query);
    if (!r->block || !r->headers || !r->query) return 503;
    h.out = r->block;
    r->method = put(&h, method);
    MHD_get_connection_values(m, MHD_HEADER_KIND, copy_header, &h);
    r->http_1_0 = strcmp(version, "HTTP/1.0") == 0;
    int status = check_headers(s, r, r->http_1_0);
    if (h.n > s->conf.n_headers_max) return 431;
    const union MHD_ConnectionInfo *size =
        MHD_get_connection_info(m, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    if (size && size->header_size > s->conf.header_bytes_max) return 431;
    if (!r->target || !is_token(method) || !read_target(r, h.out)) {
        r->path = "";
        return status ? status : 400;
    }
    return status;
}
