/* JSON in and out.
 *
 * Owns: parsed documents. Refuses to know: any schema.
 * Threads: a document is immutable once parsed, so any number may read it. A writer belongs to one thread.
 * Lifetime: values live as long as their document.
 *
 * Parsing is strict RFC 8259 (valid UTF-8, no trailing text, no NaN, lone surrogate escapes refused), and
 * bounded: nesting deeper than `depth_max` and duplicate keys in one object are errors. Messages of the
 * parser never repeat the input. */
#ifndef QR_BASE_JSON_H
#define QR_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

struct qr_json_doc;
// Borrowed from its document; NULL reads as "absent" everywhere below.
typedef const struct qr_json_val qr_json;

enum qr_json_type {
    QR_JSON_ABSENT,
    QR_JSON_NULL,
    QR_JSON_BOOL,
    QR_JSON_INT, // also integers beyond int64, which qr_json_int64 refuses
    QR_JSON_REAL,
    QR_JSON_STR,
    QR_JSON_ARR,
    QR_JSON_OBJ
};

#define QR_JSON_DEPTH_MAX 64

// QR_EFORMAT with the byte offset in the message, QR_ETOOBIG when nested too deeply, QR_ENOMEM.
enum qr_status qr_json_parse(const char *text, size_t bytes, int depth_max, struct qr_json_doc **out,
                             struct qr_error *err) QR_MUST_CHECK;
void qr_json_free(struct qr_json_doc **doc);
qr_json *qr_json_root(const struct qr_json_doc *doc);

enum qr_json_type qr_json_type(qr_json *v);
const char *qr_json_type_name(enum qr_json_type t);  // "an object", "a string", ...
qr_json *qr_json_get(qr_json *obj, const char *key); // NULL when absent or not an object
size_t qr_json_len(qr_json *v);                      // elements of an array, pairs of an object; else 0
qr_json *qr_json_at(qr_json *arr, size_t i);         // O(i): walk with an iterator when it matters
bool qr_json_bool(qr_json *v, bool otherwise);
// An integer, or a real that is exactly an int64 (16.0). False otherwise.
bool qr_json_int64(qr_json *v, int64_t *out);
bool qr_json_double(qr_json *v, double *out);
const char *qr_json_str(qr_json *v, size_t *bytes); // NULL when not a string; may hold NUL bytes
// What a message says came: a number as it stands, of anything else its kind ("a string").
void qr_json_shown(qr_json *v, char *out, size_t cap);

struct qr_json_iter {
    qr_json *container;
    const void *cur;
    size_t left;
};
struct qr_json_iter qr_json_iter(qr_json *container); // an array or an object; anything else is empty
// Steps; `key` (may be NULL) is set for objects. NULL at the end.
qr_json *qr_json_next(struct qr_json_iter *it, const char **key, size_t *key_bytes);

// Appends the value as JSON text to out (no spaces).
void qr_json_render(qr_json *v, struct qr_buf *out);

/* The writer appends to a buffer and places commas itself. Out of memory shows in buf->failed. */
struct qr_json_writer {
    struct qr_buf *buf;
    uint64_t first; // bit d: nothing was written yet at depth d
    int depth;
    bool after_key;
};
void qr_jw_init(struct qr_json_writer *w, struct qr_buf *buf);
void qr_jw_obj(struct qr_json_writer *w);
void qr_jw_obj_end(struct qr_json_writer *w);
void qr_jw_arr(struct qr_json_writer *w);
void qr_jw_arr_end(struct qr_json_writer *w);
void qr_jw_key(struct qr_json_writer *w, const char *key);
void qr_jw_str(struct qr_json_writer *w, const char *s);
void qr_jw_strn(struct qr_json_writer *w, const char *s, size_t bytes); // invalid UTF-8 becomes U+FFFD
void qr_jw_int(struct qr_json_writer *w, int64_t v);
// The shortest text that reads back equal; -inf becomes -9999.0, NaN and +inf null.
void qr_jw_double(struct qr_json_writer *w, double v);
void qr_jw_bool(struct qr_json_writer *w, bool v);
void qr_jw_null(struct qr_json_writer *w);
void qr_jw_raw(struct qr_json_writer *w, const char *json, size_t bytes); // one ready-made value

#endif
