#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/printable.h"

// Cuts a trailing partial UTF-8 character, which vsnprintf leaves when it runs out of room.
static void trim_partial_utf8(char *s)
{
    size_t n = strlen(s), back = 0;
    while (back < 4 && back < n && ((unsigned char)s[n - 1 - back] & 0xC0) == 0x80) back++;
    if (back == n) return;
    unsigned char lead = (unsigned char)s[n - 1 - back];
    size_t need = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
    if (need > back) s[n - 1 - back] = 0;
}

static enum qr_status fail_v(struct qr_error *err, enum qr_status code, const char *param, const char *fmt,
                             va_list ap)
{
    if (!err) return code;
    err->code = code;
    snprintf(err->param, sizeof err->param, "%s", param);
    vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    trim_partial_utf8(err->msg);
    qr_printable_line(err->msg);
    return code;
}

enum qr_status qr_fail(struct qr_error *err, enum qr_status code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fail_v(err, code, "", fmt, ap);
    va_end(ap);
    return code;
}

enum qr_status qr_fail_param(struct qr_error *err, enum qr_status code, const char *param, const char *fmt,
                             ...)
{
    va_list ap;
    va_start(ap, fmt);
    fail_v(err, code, param, fmt, ap);
    va_end(ap);
    return code;
}

enum qr_status qr_fail_in(struct qr_error *err, enum qr_status code, const char *where)
{
    char what[sizeof err->msg];
    if (!err) return code;
    snprintf(what, sizeof what, "%s", err->msg);
    size_t n = strlen(where), used = strlen(what) + strlen(": "), room = sizeof what - 1 - used;
    if (used + sizeof "..." > sizeof what) return code;
    if (n <= room)
        snprintf(err->msg, sizeof err->msg, "%s: %s", where, what);
    else
        snprintf(err->msg, sizeof err->msg, "...%s: %s", where + n - (room - strlen("...")), what);
    qr_printable_line(err->msg);
    return code;
}

const char *qr_status_name(enum qr_status code)
{
    switch (code) {
    case QR_OK: return "ok";
    case QR_EINVAL: return "invalid";
    case QR_ENOMEM: return "out of memory";
    case QR_EIO: return "input or output failed";
    case QR_EFORMAT: return "malformed";
    case QR_ENOTSUP: return "not supported";
    case QR_ENOTFOUND: return "not found";
    case QR_AGAIN: return "not now";
    case QR_ECANCELED: return "cancelled";
    case QR_ETOOBIG: return "too big";
    }
    return "unknown";
}
