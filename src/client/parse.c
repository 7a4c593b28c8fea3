#include "client/parse.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

void client_parser_begin(struct client_parser *p)
{
    struct qr_buf line = p->line, body = p->body;
    qr_buf_clear(&line);
    qr_buf_clear(&body);
    *p = (struct client_parser){.keep_alive = true, .line = line, .body = body};
}

void client_parser_fini(struct client_parser *p)
{
    qr_buf_fini(&p->line);
    qr_buf_fini(&p->body);
}

static void fail(struct client_parser *p, const char *why)
{
    p->state = CLIENT_BAD;
    p->why = why;
}

/* ==== Lines. ==== */

static bool has_word(const char *value, const char *word)
{
    size_t n = strlen(word);
    for (; *value; value++)
        if (strncasecmp(value, word, n) == 0) return true;
    return false;
}

static void status_line(struct client_parser *p, const char *s)
{
    if (strncmp(s, "HTTP/1.", 7) != 0 || strlen(s) < 12 || s[8] != ' ') {
        fail(p, "the answer does not begin with HTTP/1.");
        return;
    }
    p->status = atoi(s + 9);
    if (s[7] == '0') p->keep_alive = false;
    if (p->status < 100 || p->status > 599) fail(p, "the status is not a number from 100 to 599");
}

static void header_line(struct client_parser *p, const char *s)
{
    const char *colon = strchr(s, ':');
    if (!colon) return;
    size_t n = (size_t)(colon - s);
    const char *v = colon + 1 + strspn(colon + 1, " \t");
    if (n == 14 && strncasecmp(s, "Content-Length", n) == 0) {
        char *end;
        p->left = strtoull(v, &end, 10);
        if (end == v || *end || *v == '-') fail(p, "Content-Length is not a number");
    } else if (n == 17 && strncasecmp(s, "Transfer-Encoding", n) == 0)
        p->is_chunked = has_word(v, "chunked");
    else if (n == 12 && strncasecmp(s, "Content-Type", n) == 0)
        p->is_stream = has_word(v, "text/event-stream");
    else if (n == 10 && strncasecmp(s, "Connection", n) == 0)
        p->keep_alive = has_word(v, "close") ? false : has_word(v, "keep-alive") ? true : p->keep_alive;
}

static void head_end(struct client_parser *p)
{
    if (p->status == 100) { // "go on": the answer itself follows
        p->status = 0;
        return;
    }
    if (p->is_chunked)
        p->state = CLIENT_SIZE;
    else if (p->left != UINT64_MAX)
        p->state = p->left && p->status != 204 && p->status != 304 ? CLIENT_DATA : CLIENT_DONE;
    else {
        p->state = p->status == 204 || p->status == 304 ? CLIENT_DONE : CLIENT_CLOSE;
        if (p->state == CLIENT_CLOSE) p->keep_alive = false;
    }
}

static void size_line(struct client_parser *p, const char *s)
{
    char *end;
    p->left = strtoull(s, &end, 16);
    if (end == s || (*end && *end != ';' && *end != ' ') || p->left > CLIENT_BODY_BYTES_MAX) {
        fail(p, "a chunk's size is not a hexadecimal number below 64 MiB");
        return;
    }
    p->state = p->left ? CLIENT_DATA : CLIENT_TRAILER;
}

static void line_end(struct client_parser *p)
{
    if (p->line.len && p->line.data[p->line.len - 1] == '\r') p->line.data[--p->line.len] = 0;
    const char *s = p->line.len ? p->line.data : "";
    switch (p->state) {
    case CLIENT_HEAD:
        if (p->status == 0) {
            p->left = UINT64_MAX; // no length was given
            status_line(p, s);
        } else if (*s)
            header_line(p, s);
        else
            head_end(p);
        break;
    case CLIENT_SIZE: size_line(p, s); break;
    case CLIENT_CRLF:
        if (*s)
            fail(p, "a chunk is longer than its size");
        else
            p->state = CLIENT_SIZE;
        break;
    case CLIENT_TRAILER:
        if (!*s) p->state = CLIENT_DONE;
        break;
    default: break;
    }
    qr_buf_clear(&p->line);
}

/* ==== Bytes. ==== */

static size_t take_line(struct client_parser *p, const char *b, size_t n)
{
    const char *end = memchr(b, '\n', n);
    size_t take = end ? (size_t)(end - b) : n;
    p->head_bytes += take;
    if (p->state == CLIENT_HEAD && p->head_bytes > CLIENT_HEAD_BYTES_MAX)
        fail(p, "the headers are longer than 64 KiB");
    else if (p->line.len + take > CLIENT_HEAD_BYTES_MAX)
        fail(p, "a line is longer than 64 KiB");
    else
        qr_buf_add(&p->line, b, take);
    if (end && p->state != CLIENT_BAD) line_end(p);
    return take + (end != NULL);
}

static size_t take_data(struct client_parser *p, const char *b, size_t n)
{
    size_t take = p->state == CLIENT_DATA && p->left < n ? (size_t)p->left : n;
    if (p->body.len + take > CLIENT_BODY_BYTES_MAX) {
        fail(p, "the answer, or one event of it, is longer than 64 MiB");
        return n;
    }
    qr_buf_add(&p->body, b, take);
    if (p->state == CLIENT_DATA && (p->left -= take) == 0) p->state = p->is_chunked ? CLIENT_CRLF : CLIENT_DONE;
    return take;
}

void client_parser_feed(struct client_parser *p, const char *b, size_t n)
{
    if (p->taken > 0 && p->taken == p->body.len) { // what was handed out may go now
        qr_buf_clear(&p->body);
        p->taken = p->scanned = 0;
    } else if (p->taken > (64u << 10)) {
        memmove(p->body.data, p->body.data + p->taken, p->body.len - p->taken);
        p->body.len -= p->taken;
        p->scanned -= p->taken;
        p->taken = 0;
    }
    while (n > 0 && p->state != CLIENT_BAD) {
        if (p->state == CLIENT_DONE) {
            fail(p, "bytes follow the end of the answer");
            return;
        }
        bool is_data = p->state == CLIENT_DATA || p->state == CLIENT_CLOSE;
        size_t took = is_data ? take_data(p, b, n) : take_line(p, b, n);
        b += took;
        n -= took;
    }
    if (p->line.failed || p->body.failed) fail(p, "out of memory");
}

void client_parser_close(struct client_parser *p)
{
    if (p->state == CLIENT_CLOSE)
        p->state = CLIENT_DONE;
    else if (p->state != CLIENT_DONE && p->state != CLIENT_BAD)
        fail(p, p->status ? "the connection ended before the answer did"
                          : "the connection ended before an answer began");
}

/* ==== Events. ==== */

// Joins the values of the data lines of an event, in place. Returns their length; -1: there are none.
static long join_data(char *s, size_t n)
{
    char *out = s;
    bool any = false;
    for (char *line = s, *end = s + n; line < end;) {
        char *nl = memchr(line, '\n', (size_t)(end - line));
        char *stop = nl ? nl : end, *last = stop > line && stop[-1] == '\r' ? stop - 1 : stop;
        if (last - line >= 5 && memcmp(line, "data:", 5) == 0) {
            char *v = line + 5 + (last - line > 5 && line[5] == ' ');
            if (any) *out++ = '\n';
            memmove(out, v, (size_t)(last - v));
            out += last - v;
            any = true;
        }
        line = stop + 1;
    }
    return any ? out - s : -1;
}

// Where the event that begins at `from` ends: the offset behind its blank line; 0: not yet.
static size_t event_end(const struct qr_buf *b, size_t from, size_t scan)
{
    size_t at = scan > from + 3 ? scan - 3 : from;
    while (at < b->len) {
        const char *nl = memchr(b->data + at, '\n', b->len - at);
        if (!nl) return 0;
        size_t i = (size_t)(nl - b->data) + 1;
        if (i < b->len && b->data[i] == '\n') return i + 1;
        if (i + 1 < b->len && b->data[i] == '\r' && b->data[i + 1] == '\n') return i + 2;
        at = i;
    }
    return 0;
}

bool client_parser_event(struct client_parser *p, const char **data, size_t *bytes)
{
    while (p->is_stream && p->taken < p->body.len) {
        size_t end = event_end(&p->body, p->taken, p->scanned);
        if (end == 0) {
            p->scanned = p->body.len;
            return false;
        }
        char *s = p->body.data + p->taken;
        long n = join_data(s, end - p->taken);
        p->taken = p->scanned = end;
        if (n < 0) continue;
        s[n] = 0; // the blank line was there
        *data = s;
        *bytes = (size_t)n;
        return true;
    }
    return false;
}
