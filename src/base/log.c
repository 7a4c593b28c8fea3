#define _GNU_SOURCE
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/printable.h"

static atomic_int max_level = QR_LOG_INFO;

void qr_log_set_level(enum qr_log_level level)
{
    atomic_store(&max_level, (int)level);
}

void qr_log(enum qr_log_level level, const char *room, const char *fmt, ...)
{
    if ((int)level > atomic_load_explicit(&max_level, memory_order_relaxed)) return;
    char line[1024];
    struct timespec t;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &t);
    localtime_r(&t.tv_sec, &tm);
    int n = snprintf(line, sizeof line, "%02d:%02d:%02d.%03ld %c %s: ", tm.tm_hour, tm.tm_min, tm.tm_sec,
                     t.tv_nsec / 1000000, "EWID"[level], room);
    va_list ap;
    va_start(ap, fmt);
    int m = vsnprintf(line + n, sizeof line - (size_t)n, fmt, ap);
    va_end(ap);
    size_t len = (size_t)n + (m > 0 ? (size_t)m : 0);
    if (len > sizeof line - 2) len = sizeof line - 2;
    line[len] = 0;
    qr_printable_line(line);
    line[len++] = '\n';
    ssize_t put = write(STDERR_FILENO, line, len); // one write: lines of several threads do not mix
    (void)put;
}
