#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "yyjson/yyjson.h"

#include "base/assert.h"
#include "base/hash.h"
#include "base/mem.h"

/* A qr_json is a yyjson_val and a qr_json_doc is a yyjson_doc: no other file sees yyjson's names. */

// yyjson's readers take pointers to mutable values, and write to none of them.
static yyjson_val *val_of(qr_json *v)
{
    return (yyjson_val *)(uintptr_t)v;
}

static qr_json *json_of(const yyjson_val *v)
{
    return (qr_json *)(const void *)v;
}

static void *alc_malloc(void *ctx, size_t bytes)
{
    return qr_malloc(QR_MEM_REQ, bytes);
}

static void *alc_realloc(void *ctx, void *p, size_t old_bytes, size_t bytes)
{
    return qr_realloc(QR_MEM_REQ, p, bytes);
}

static void alc_free(void *ctx, void *p)
{
    qr_free(p);
}

static const yyjson_alc alc = {.malloc = alc_malloc, .realloc = alc_realloc, .free = alc_free};

// --- Parsing ---

// The offset of the first bracket that opens a level deeper than depth_max, or `bytes`. Brackets inside
// strings do not count. On malformed text the answer is only an upper bound of the depth, which is all that
// is needed.
static size_t find_too_deep(const char *text, size_t bytes, int depth_max)
{
    int depth = 0;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (c == '"') {
            for (i++; i < bytes && text[i] != '"'; i++)
                if (text[i] == '\\') i++;
        } else if (c == '[' || c == '{') {
            if (++depth > depth_max) return i;
        } else if (c == ']' || c == '}') {
            depth--;
        }
    }
    return bytes;
}

struct dup_key {
    uint64_t hash;
    yyjson_val *key;
};

// A total order: by hash, then by the key itself, so chosen collisions cost comparisons and nothing else.
static int dup_compare(const struct dup_key *a, const struct dup_key *b)
{
    if (a->hash != b->hash) return a->hash < b->hash ? -1 : 1;
    size_t an = unsafe_yyjson_get_len(a->key), bn = unsafe_yyjson_get_len(b->key);
    if (an != bn) return an < bn ? -1 : 1;
    return memcmp(unsafe_yyjson_get_str(a->key), unsafe_yyjson_get_str(b->key), an);
}

static void dup_sift(struct dup_key *k, size_t i, size_t n)
{
    struct dup_key moving = k[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && dup_compare(&k[child], &k[child + 1]) < 0) child++;
        if (dup_compare(&moving, &k[child]) >= 0) break;
        k[i] = k[child];
    }
    k[i] = moving;
}

// Heapsort: no input makes it quadratic, and it needs no memory.
static void dup_sort(struct dup_key *k, size_t n)
{
    for (size_t i = n / 2; i-- > 0;) dup_sift(k, i, n);
    for (size_t end = n; end-- > 1;) {
        struct dup_key top = k[0];
        k[0] = k[end];
        k[end] = top;
        dup_sift(k, 0, end);
    }
}

// Most objects are small: their pairs are compared in place, without hashes and memory.
#define DUP_PAIRWISE_MAX 12

struct dup_search {
    struct dup_key *keys;
    size_t cap;
    yyjson_val *found; // the later one of two equal keys
    bool no_memory;
};

static void dup_pairwise(struct dup_search *s, yyjson_val *obj)
{
    yyjson_val *keys[DUP_PAIRWISE_MAX];
    size_t n = unsafe_yyjson_get_len(obj);
    yyjson_val *key = obj + 1;
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < i; j++) {
            size_t bytes = unsafe_yyjson_get_len(key);
            if (unsafe_yyjson_get_len(keys[j]) != bytes) continue;
            if (memcmp(unsafe_yyjson_get_str(keys[j]), unsafe_yyjson_get_str(key), bytes)) continue;
            s->found = key;
            return;
        }
        keys[i] = key;
        key = unsafe_yyjson_get_next(key + 1);
    }
}

static void dup_sorted(struct dup_search *s, yyjson_val *obj)
{
    size_t n = unsafe_yyjson_get_len(obj);
    if (n > s->cap) {
        qr_free(s->keys);
        s->keys = n > SIZE_MAX / sizeof *s->keys ? NULL : qr_malloc(QR_MEM_REQ, n * sizeof *s->keys);
        s->cap = s->keys ? n : 0;
        s->no_memory = !s->keys;
        if (!s->keys) return;
    }
    yyjson_val *key = obj + 1;
    for (size_t i = 0; i < n; i++) {
        uint64_t hash = qr_hash_bytes(0, unsafe_yyjson_get_str(key), unsafe_yyjson_get_len(key));
        s->keys[i] = (struct dup_key){hash, key};
        key = unsafe_yyjson_get_next(key + 1);
    }
    dup_sort(s->keys, n);
    for (size_t i = 1; i < n && !s->found; i++) {
        if (dup_compare(&s->keys[i - 1], &s->keys[i]) != 0) continue;
        s->found = s->keys[i].key > s->keys[i - 1].key ? s->keys[i].key : s->keys[i - 1].key;
    }
}

// yyjson keeps a document's values in one array in the order of the text: one pass meets all objects.
static enum qr_status refuse_duplicates(const yyjson_doc *doc, struct qr_error *err)
{
    struct dup_search s = {0};
    yyjson_val *end = doc->root + doc->val_read;
    for (yyjson_val *v = doc->root; v < end && !s.found && !s.no_memory; v++) {
        if (!unsafe_yyjson_is_obj(v)) continue;
        size_t n = unsafe_yyjson_get_len(v);
        if (n > DUP_PAIRWISE_MAX)
            dup_sorted(&s, v);
        else if (n > 1)
            dup_pairwise(&s, v);
    }
    qr_free(s.keys);
    if (s.no_memory) return qr_fail(err, QR_ENOMEM, "out of memory while reading JSON");
    if (!s.found) return QR_OK;
    size_t at = (size_t)(unsafe_yyjson_get_str(s.found) - doc->str_pool);
    return qr_fail(err, QR_EFORMAT, "not valid JSON at byte %zu: the same key twice in one object", at);
}

enum qr_status qr_json_parse(const char *text, size_t bytes, int depth_max, struct qr_json_doc **out,
                             struct qr_error *err)
{
    size_t deep = find_too_deep(text, bytes, depth_max);
    if (deep < bytes)
        return qr_fail(err, QR_ETOOBIG, "JSON nested too deeply: over %d levels at byte %zu", depth_max,
                       deep);
    if (bytes == 0) return qr_fail(err, QR_EFORMAT, "not valid JSON at byte 0: the text is empty");
    yyjson_read_err why = {0};
    // Without the in-place flag yyjson copies the text and does not write to ours.
    yyjson_doc *doc = yyjson_read_opts((char *)text, bytes, YYJSON_READ_NOFLAG, &alc, &why);
    if (!doc && why.code == YYJSON_READ_ERROR_MEMORY_ALLOCATION)
        return qr_fail(err, QR_ENOMEM, "out of memory while reading JSON");
    if (!doc) return qr_fail(err, QR_EFORMAT, "not valid JSON at byte %zu: %s", why.pos, why.msg);
    enum qr_status st = refuse_duplicates(doc, err);
    if (st != QR_OK) {
        yyjson_doc_free(doc);
        return st;
    }
    *out = (struct qr_json_doc *)(void *)doc;
    return QR_OK;
}

void qr_json_free(struct qr_json_doc **doc)
{
    yyjson_doc_free((yyjson_doc *)(void *)*doc);
    *doc = NULL;
}

qr_json *qr_json_root(const struct qr_json_doc *doc)
{
    return doc ? json_of(((const yyjson_doc *)(const void *)doc)->root) : NULL;
}

// --- Reading ---

enum qr_json_type qr_json_type(qr_json *v)
{
    if (!v) return QR_JSON_ABSENT;
    switch (unsafe_yyjson_get_type(val_of(v))) {
    case YYJSON_TYPE_NULL: return QR_JSON_NULL;
    case YYJSON_TYPE_BOOL: return QR_JSON_BOOL;
    case YYJSON_TYPE_NUM: return unsafe_yyjson_is_real(val_of(v)) ? QR_JSON_REAL : QR_JSON_INT;
    case YYJSON_TYPE_STR: return QR_JSON_STR;
    case YYJSON_TYPE_ARR: return QR_JSON_ARR;
    case YYJSON_TYPE_OBJ: return QR_JSON_OBJ;
    }
    return QR_JSON_ABSENT;
}

const char *qr_json_type_name(enum qr_json_type t)
{
    static const char *const names[] = {"nothing",  "null",     "a boolean", "an integer",
                                        "a number", "a string", "an array",  "an object"};
    return t <= QR_JSON_OBJ ? names[t] : "?";
}

qr_json *qr_json_get(qr_json *obj, const char *key)
{
    if (qr_json_type(obj) != QR_JSON_OBJ) return NULL;
    return json_of(yyjson_obj_get(val_of(obj), key));
}

size_t qr_json_len(qr_json *v)
{
    enum qr_json_type t = qr_json_type(v);
    return t == QR_JSON_ARR || t == QR_JSON_OBJ ? unsafe_yyjson_get_len(val_of(v)) : 0;
}

qr_json *qr_json_at(qr_json *arr, size_t i)
{
    if (qr_json_type(arr) != QR_JSON_ARR) return NULL;
    return json_of(yyjson_arr_get(val_of(arr), i));
}

bool qr_json_bool(qr_json *v, bool otherwise)
{
    return qr_json_type(v) == QR_JSON_BOOL ? unsafe_yyjson_get_bool(val_of(v)) : otherwise;
}

bool qr_json_int64(qr_json *v, int64_t *out)
{
    if (!v || !unsafe_yyjson_is_num(val_of(v))) return false;
    if (unsafe_yyjson_is_real(val_of(v))) {
        double d = unsafe_yyjson_get_real(val_of(v));
        // Both bounds are exact in a double; 2^63 itself is not an int64.
        if (!(d >= -0x1p63 && d < 0x1p63) || d != trunc(d)) return false;
        *out = (int64_t)d;
        return true;
    }
    if (unsafe_yyjson_is_uint(val_of(v)) && unsafe_yyjson_get_uint(val_of(v)) > INT64_MAX) return false;
    *out = unsafe_yyjson_get_sint(val_of(v));
    return true;
}

bool qr_json_double(qr_json *v, double *out)
{
    if (!v || !unsafe_yyjson_is_num(val_of(v))) return false;
    *out = unsafe_yyjson_get_num(val_of(v));
    return true;
}

const char *qr_json_str(qr_json *v, size_t *bytes)
{
    if (qr_json_type(v) != QR_JSON_STR) return NULL;
    if (bytes) *bytes = unsafe_yyjson_get_len(val_of(v));
    return unsafe_yyjson_get_str(val_of(v));
}

void qr_json_shown(qr_json *v, char *out, size_t cap)
{
    enum qr_json_type t = qr_json_type(v);
    struct qr_buf b = {0};
    if (t == QR_JSON_INT || t == QR_JSON_REAL) qr_json_render(v, &b);
    snprintf(out, cap, "%s", b.len > 0 && !b.failed ? b.data : qr_json_type_name(t));
    qr_buf_fini(&b);
}

struct qr_json_iter qr_json_iter(qr_json *container)
{
    size_t n = qr_json_len(container);
    return (struct qr_json_iter){container, n ? val_of(container) + 1 : NULL, n};
}

qr_json *qr_json_next(struct qr_json_iter *it, const char **key, size_t *key_bytes)
{
    if (it->left == 0) return NULL;
    yyjson_val *v = (yyjson_val *)it->cur;
    if (qr_json_type(it->container) == QR_JSON_OBJ) {
        if (key) *key = unsafe_yyjson_get_str(v);
        if (key_bytes) *key_bytes = unsafe_yyjson_get_len(v);
        v++;
    }
    it->left--;
    it->cur = it->left ? unsafe_yyjson_get_next(v) : NULL;
    return json_of(v);
}

void qr_json_render(qr_json *v, struct qr_buf *out)
{
    size_t n = 0;
    if (!v || out->failed) return;
    char *text = yyjson_val_write_opts(val_of(v), YYJSON_WRITE_NOFLAG, &alc, &n, NULL);
    if (!text) {
        out->failed = true;
        return;
    }
    qr_buf_add(out, text, n);
    qr_free(text);
}

// --- Writing ---

void qr_jw_init(struct qr_json_writer *w, struct qr_buf *buf)
{
    *w = (struct qr_json_writer){.buf = buf, .first = 1};
}

// Places the comma that a value or key at this depth needs, if any.
static void jw_comma(struct qr_json_writer *w)
{
    uint64_t bit = (uint64_t)1 << w->depth;
    if (w->after_key)
        w->after_key = false;
    else if (w->first & bit)
        w->first &= ~bit;
    else if (w->depth)
        qr_buf_char(w->buf, ',');
}

static void jw_open(struct qr_json_writer *w, char c)
{
    jw_comma(w);
    qr_buf_char(w->buf, c);
    QR_ASSERT(w->depth < 63);
    w->depth++;
    w->first |= (uint64_t)1 << w->depth;
}

static void jw_close(struct qr_json_writer *w, char c)
{
    QR_ASSERT(w->depth > 0 && !w->after_key);
    w->depth--;
    qr_buf_char(w->buf, c);
}

void qr_jw_obj(struct qr_json_writer *w)
{
    jw_open(w, '{');
}

void qr_jw_obj_end(struct qr_json_writer *w)
{
    jw_close(w, '}');
}

void qr_jw_arr(struct qr_json_writer *w)
{
    jw_open(w, '[');
}

void qr_jw_arr_end(struct qr_json_writer *w)
{
    jw_close(w, ']');
}

// Bytes of the well-formed UTF-8 character at s (n >= 1), or 0. Table 3-7 of the Unicode standard.
static size_t utf8_char(const unsigned char *s, size_t n)
{
    unsigned char c = s[0];
    if (c < 0x80) return 1;
    if (c < 0xC2 || c > 0xF4) return 0;
    unsigned char lo = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80;
    unsigned char hi = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
    size_t len = c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    if (n < len || s[1] < lo || s[1] > hi) return 0;
    for (size_t i = 2; i < len; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    return len;
}

static void jw_escape(struct qr_buf *b, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    static const char named[32] = {['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
    char esc[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
    if (c == '"' || c == '\\')
        esc[1] = (char)c;
    else if (c < 32 && named[c])
        esc[1] = named[c];
    qr_buf_add(b, esc, esc[1] == 'u' ? 6 : 2);
}

void qr_jw_strn(struct qr_json_writer *w, const char *str, size_t bytes)
{
    const unsigned char *s = (const unsigned char *)str;
    jw_comma(w);
    if (!qr_buf_reserve(w->buf, bytes + 2)) return;
    qr_buf_char(w->buf, '"');
    size_t plain = 0; // s[plain, i) is copied as it is
    for (size_t i = 0; i < bytes;) {
        unsigned char c = s[i];
        size_t n = c >= 0x80 ? utf8_char(s + i, bytes - i) : c >= 0x20 && c != '"' && c != '\\' && c != 0x7F;
        if (n) {
            i += n;
            continue;
        }
        qr_buf_add(w->buf, s + plain, i - plain);
        if (c < 0x80)
            jw_escape(w->buf, c);
        else
            qr_buf_str(w->buf, "\xEF\xBF\xBD");
        plain = ++i;
    }
    qr_buf_add(w->buf, s + plain, bytes - plain);
    qr_buf_char(w->buf, '"');
}

void qr_jw_str(struct qr_json_writer *w, const char *s)
{
    qr_jw_strn(w, s, strlen(s));
}

void qr_jw_key(struct qr_json_writer *w, const char *key)
{
    QR_ASSERT(!w->after_key && w->depth > 0);
    qr_jw_str(w, key);
    qr_buf_char(w->buf, ':');
    w->after_key = true;
}

void qr_jw_int(struct qr_json_writer *w, int64_t v)
{
    char text[24];
    jw_comma(w);
    int n = snprintf(text, sizeof text, "%lld", (long long)v);
    qr_buf_add(w->buf, text, (size_t)n);
}

void qr_jw_double(struct qr_json_writer *w, double v)
{
    jw_comma(w);
    if (v == -INFINITY) {
        qr_buf_str(w->buf, "-9999.0"); // what clients of the completions API expect for "impossible"
        return;
    }
    if (!isfinite(v)) {
        qr_buf_str(w->buf, "null");
        return;
    }
    // The text of a double is at most 25 bytes; yyjson asks its allocator for some more.
    _Alignas(16) char pool[512];
    yyjson_alc on_stack;
    yyjson_val val;
    size_t n = 0;
    unsafe_yyjson_set_real(&val, v);
    yyjson_alc_pool_init(&on_stack, pool, sizeof pool);
    char *text = yyjson_val_write_opts(&val, YYJSON_WRITE_NOFLAG, &on_stack, &n, NULL);
    QR_ASSERT(text != NULL);
    qr_buf_add(w->buf, text, n);
}

void qr_jw_bool(struct qr_json_writer *w, bool v)
{
    jw_comma(w);
    qr_buf_str(w->buf, v ? "true" : "false");
}

void qr_jw_null(struct qr_json_writer *w)
{
    jw_comma(w);
    qr_buf_str(w->buf, "null");
}

void qr_jw_raw(struct qr_json_writer *w, const char *json, size_t bytes)
{
    jw_comma(w);
    qr_buf_add(w->buf, json, bytes);
}
