#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

bool qr_buf_reserve(struct qr_buf *b, size_t more)
{
    if (b->failed) return false;
    if (more < b->cap - b->len) return true; // strictly less: one byte stays for the NUL
    size_t need = b->len + more + 1;
    size_t cap = b->cap ? b->cap : 64;
    while (cap < need && cap < SIZE_MAX / 2) cap *= 2;
    char *p = need < b->len ? NULL : qr_realloc(QR_MEM_MISC, b->data, cap);
    if (!p) {
        b->failed = true;
        return false;
    }
    b->data = p;
    b->cap = cap;
    return true;
}

void qr_buf_add(struct qr_buf *b, const void *p, size_t n)
{
    if (!qr_buf_reserve(b, n)) return;
    if (n) memcpy(b->data + b->len, p, n);
    b->len += n;
    b->data[b->len] = 0;
}

void qr_buf_str(struct qr_buf *b, const char *s)
{
    qr_buf_add(b, s, strlen(s));
}

void qr_buf_char(struct qr_buf *b, char c)
{
    qr_buf_add(b, &c, 1);
}

void qr_buf_printf(struct qr_buf *b, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n >= 0 && qr_buf_reserve(b, (size_t)n)) {
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
}

void qr_buf_clear(struct qr_buf *b)
{
    b->len = 0;
    b->failed = false;
    if (b->data) b->data[0] = 0;
}

void qr_buf_fini(struct qr_buf *b)
{
    qr_free(b->data);
    *b = (struct qr_buf){0};
}
