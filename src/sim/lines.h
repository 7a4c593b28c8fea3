/* Lines of a text file, one after the other; a file that ends in .gz goes through gzip.
 *
 * Owns: the open file, its child process, the line's buffer. Refuses to know: what stands in a line.
 * Threads: one. Lifetime: open to close. */
#ifndef QR_SIM_LINES_H
#define QR_SIM_LINES_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/status.h"

struct qr_lines {
    const char *path; // borrowed
    FILE *f;
    pid_t child; // 0: none
    char *line;  // the last one read, without its end
    size_t cap, len;
    bool is_cut; // the file ended within it
    long n; // its number, from 1
};

// Opens a text file, also .gz (by gzip as a child); "-" is standard input. QR_ENOTFOUND, QR_EINVAL (a directory),
// QR_EIO, QR_ENOMEM with *err.
enum qr_status qr_lines_open(const char *path, struct qr_lines *out, struct qr_error *err) QR_MUST_CHECK;
// QR_OK: the next line is in l->line; QR_AGAIN: there is none; QR_EIO, QR_EFORMAT (a NUL byte) with *err.
enum qr_status qr_lines_next(struct qr_lines *l, struct qr_error *err) QR_MUST_CHECK;
// For who found a fault in a line: if the file does not unpack, that is the fault. Returns the status of what *err says then.
enum qr_status qr_lines_blame(struct qr_lines *l, enum qr_status st, struct qr_error *err) QR_MUST_CHECK;
void qr_lines_close(struct qr_lines *l);

#endif
