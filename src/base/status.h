/* Status codes and the error record that doors fill.
 *
 * Owns: the meaning of every return code in the program.
 * Refuses to know: who prints an error, or in which protocol it travels.
 * Threads: plain values; an error record belongs to its caller.
 * Lifetime: the caller's stack.
 *
 * Three kinds of failure have three forms. A bug aborts (base/assert.h). The world (file, memory, bad
 * request) gives a negative status and, at doors, a filled qr_error that says what, where, what was
 * expected and what came. "Not now" (no free block, empty queue) is QR_AGAIN and is never logged. */
#ifndef QR_BASE_STATUS_H
#define QR_BASE_STATUS_H

#define QR_MUST_CHECK __attribute__((warn_unused_result))
#define QR_PRINTF(fmt_arg, first_arg) __attribute__((format(printf, fmt_arg, first_arg)))

enum qr_status {
    QR_OK = 0,
    QR_EINVAL = -1,    // an argument or field is out of range
    QR_ENOMEM = -2,    // memory refused
    QR_EIO = -3,       // file or socket failed
    QR_EFORMAT = -4,   // bytes do not follow their format
    QR_ENOTSUP = -5,   // well formed, and not supported here
    QR_ENOTFOUND = -6, // no such file, tensor, model
    QR_AGAIN = -7,     // not now; trying later may work
    QR_ECANCELED = -8, // taken back by its owner
    QR_ETOOBIG = -9,   // can never fit the configured limits
};

struct qr_error {
    enum qr_status code;
    char msg[256];  // one printable line of UTF-8 (base/printable.h), ends with NUL
    char param[48]; // the request field at fault, "" where none is
};

// Fills *err (which may be NULL) and returns code, so that a door can `return qr_fail(err, ...)`.
enum qr_status qr_fail(struct qr_error *err, enum qr_status code, const char *fmt, ...) QR_PRINTF(3, 4);

// Puts "where: " before what *err says already; of a `where` that is too long, its end. Returns code.
enum qr_status qr_fail_in(struct qr_error *err, enum qr_status code, const char *where);
// As qr_fail, and names the request field at fault.
enum qr_status qr_fail_param(struct qr_error *err, enum qr_status code, const char *param, const char *fmt,
                             ...) QR_PRINTF(4, 5);

// A constant word for the code: "ok", "invalid", "no memory", ...
const char *qr_status_name(enum qr_status code);

#endif
