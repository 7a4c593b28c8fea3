/* Traces: CSV with a header, or JSON lines. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "sim/lines.h"
#include "sim/workload.h"

enum column { ARRIVAL, TIMESTAMP_MS, INPUT, OUTPUT, HASHES, SESSION, TURN, THINK, N_COLUMNS };
static const struct {
    const char *name;
    enum column column;
} names[] = {
    {"arrival_s", ARRIVAL},    {"timestamp", TIMESTAMP_MS}, {"input_tokens", INPUT},   {"input_length", INPUT},
    {"prompt_tokens", INPUT},  {"output_tokens", OUTPUT},   {"output_length", OUTPUT}, {"completion_tokens", OUTPUT},
    {"hash_ids", HASHES},      {"session", SESSION},        {"session_id", SESSION},   {"turn", TURN},
    {"think_s", THINK},
};

struct reader {
    struct qr_lines lines;
    struct qr_sim_workload w;
    size_t cap_items, cap_hashes;
    int n_fields, fields[64]; // of the header: enum column, or -1
    double last_arrival;
    struct qr_error *err;
};

static enum qr_status bad_line(struct reader *r, const char *what, const char *expected, const char *got)
{
    return qr_fail(r->err, QR_EFORMAT, "%.100s:%ld: %s: expected %s, got %.40s", r->lines.path, r->lines.n, what, expected, got);
}

// The same of a text that stands there.
static enum qr_status bad_text(struct reader *r, const char *what, const char *expected, const char *text)
{
    char got[48];
    snprintf(got, sizeof got, "\"%.40s\"", text);
    return bad_line(r, what, expected, got);
}

static enum qr_status no_memory(struct reader *r)
{
    return qr_fail(r->err, QR_ENOMEM, "no memory for the workload (%zu requests so far)", r->w.n_items);
}

static enum qr_status add_hash(struct reader *r, uint64_t id)
{
    if (r->w.n_hashes == r->cap_hashes) {
        size_t cap = r->cap_hashes ? 2 * r->cap_hashes : 1024;
        uint64_t *p = qr_realloc(QR_MEM_MISC, r->w.hashes, cap * sizeof *p);
        if (!p) return no_memory(r);
        r->w.hashes = p;
        r->cap_hashes = cap;
    }
    r->w.hashes[r->w.n_hashes++] = id;
    return QR_OK;
}

static enum qr_status add_item(struct reader *r, const struct qr_sim_item *it)
{
    if (r->w.n_items == r->cap_items) {
        size_t cap = r->cap_items ? 2 * r->cap_items : 1024;
        struct qr_sim_item *p = qr_realloc(QR_MEM_MISC, r->w.items, cap * sizeof *p);
        if (!p) return no_memory(r);
        r->w.items = p;
        r->cap_items = cap;
    }
    r->w.items[r->w.n_items++] = *it;
    return QR_OK;
}

static bool whole(const char *text, uint64_t max, uint64_t *out)
{
    char *end;
    if (text[0] < '0' || text[0] > '9') return false;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    *out = v;
    return errno == 0 && *end == 0 && v <= max;
}

static bool seconds(const char *text, double *out)
{
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end || !(v >= 0 && v <= 1e12)) return false;
    *out = v;
    return true;
}

// "0-13 27": ids and inclusive runs of them.
static enum qr_status take_hashes(struct reader *r, char *text, struct qr_sim_item *it)
{
    it->first_hash = r->w.n_hashes;
    char *save = NULL;
    for (char *part = strtok_r(text, " ", &save); part; part = strtok_r(NULL, " ", &save)) {
        char *dash = strchr(part, '-');
        uint64_t from, to;
        if (dash) *dash = 0;
        bool ok = whole(part, UINT64_MAX, &from);
        to = from;
        if (dash) ok = ok && whole(dash + 1, UINT64_MAX, &to) && to >= from && to - from < QR_SIM_TOKENS_MAX;
        if (dash) *dash = '-';
        if (!ok) return bad_text(r, "hash_ids", "ids and runs of them, as 0-13 27", part);
        for (uint64_t id = from;; id++) {
            enum qr_status st = add_hash(r, id);
            if (st != QR_OK) return st;
            if (id == to) break;
        }
    }
    it->n_hashes = r->w.n_hashes - it->first_hash;
    return QR_OK;
}

static enum qr_status take_tokens(struct reader *r, const char *what, const char *text, int32_t *out)
{
    uint64_t v;
    if (!whole(text, QR_SIM_TOKENS_MAX, &v) || v < 1) return bad_text(r, what, "a whole number from 1 to 16777216", text);
    *out = (int32_t)v;
    return QR_OK;
}

static enum qr_status take_field(struct reader *r, enum column c, char *text, struct qr_sim_item *it)
{
    uint64_t v = 0;
    switch (c) {
    case ARRIVAL:
    case TIMESTAMP_MS:
        if (!text[0]) return QR_OK;
        if (!seconds(text, &it->arrival_s)) return bad_text(r, "arrival_s", "seconds >= 0", text);
        if (c == TIMESTAMP_MS) it->arrival_s /= 1000;
        return QR_OK;
    case INPUT: return take_tokens(r, "input_tokens", text, &it->n_prompt);
    case OUTPUT: return take_tokens(r, "output_tokens", text, &it->n_output);
    case HASHES: return take_hashes(r, text, it);
    case SESSION:
        if (!whole(text, INT64_MAX, &v)) return bad_text(r, "session", "a whole number", text);
        it->session = (int64_t)v;
        return QR_OK;
    case TURN: // rows of a session stand in order
        return whole(text, INT32_MAX, &v) ? QR_OK : bad_text(r, "turn", "a whole number", text);
    case THINK:
        if (text[0] && !seconds(text, &it->think_s)) return bad_text(r, "think_s", "seconds >= 0", text);
        return QR_OK;
    case N_COLUMNS: break;
    }
    return QR_OK;
}

static int column_of(const char *name)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i].name, name) == 0) return names[i].column;
    return -1;
}

// A name that stands for nothing here: whoever asked is told.
static void note_unused(struct reader *r, const char *name)
{
    size_t at = strlen(r->w.unused);
    if (at + 40 > sizeof r->w.unused) return;
    snprintf(r->w.unused + at, sizeof r->w.unused - at, "%s\"%.30s\"", at ? ", " : "", name);
}

static enum qr_status take_header(struct reader *r)
{
    bool has[N_COLUMNS] = {0};
    char shown[44];
    snprintf(shown, sizeof shown, "%.40s", r->lines.line);
    char *rest = r->lines.line;
    for (char *name; (name = strsep(&rest, ","));) {
        if (r->n_fields == 64) return bad_line(r, "header", "at most 64 columns", "more");
        int c = column_of(name);
        if (c >= 0) has[c] = true;
        if (c < 0) note_unused(r, name);
        r->fields[r->n_fields++] = c;
    }
    if (!has[INPUT] || !has[OUTPUT])
        return bad_text(r, "header", "columns input_tokens and output_tokens (and arrival_s, hash_ids, session)", shown);
    return QR_OK;
}

static const struct qr_sim_item blank = {.arrival_s = NAN, .session = -1, .next = -1, .is_first = true};

static enum qr_status take_csv(struct reader *r)
{
    struct qr_sim_item it = blank;
    char *rest = r->lines.line, text[24];
    int n = 0;
    for (char *field; (field = strsep(&rest, ","));) {
        if (n == r->n_fields) {
            n++;
            break;
        }
        int c = r->fields[n++];
        enum qr_status st = c < 0 ? QR_OK : take_field(r, (enum column)c, field, &it);
        if (st != QR_OK) return st;
    }
    if (n != r->n_fields) {
        char want[48];
        snprintf(want, sizeof want, "%d fields as in the header", r->n_fields);
        snprintf(text, sizeof text, n > r->n_fields ? "more than %d" : "%d", n > r->n_fields ? r->n_fields : n);
        return bad_line(r, "line", want, text);
    }
    return add_item(r, &it);
}

static enum qr_status take_json_hashes(struct reader *r, qr_json *v, struct qr_sim_item *it)
{
    it->first_hash = r->w.n_hashes;
    struct qr_json_iter each = qr_json_iter(v);
    for (qr_json *e; (e = qr_json_next(&each, NULL, NULL));) {
        int64_t id;
        if (!qr_json_int64(e, &id)) return bad_line(r, "hash_ids", "whole numbers", qr_json_type_name(qr_json_type(e)));
        enum qr_status st = add_hash(r, (uint64_t)id);
        if (st != QR_OK) return st;
    }
    it->n_hashes = r->w.n_hashes - it->first_hash;
    return QR_OK;
}

static enum qr_status take_object(struct reader *r, qr_json *o)
{
    struct qr_sim_item it = blank;
    if (qr_json_type(o) != QR_JSON_OBJ) return bad_line(r, "line", "a JSON object", qr_json_type_name(qr_json_type(o)));
    struct qr_json_iter members = qr_json_iter(o);
    const char *key;
    while (r->w.n_items == 0 && qr_json_next(&members, &key, NULL)) // of the first; the others are as it
        if (column_of(key) < 0) note_unused(r, key);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        qr_json *v = qr_json_get(o, names[i].name);
        if (!v) continue;
        enum qr_status st;
        char text[32];
        double x;
        int64_t n;
        if (names[i].column == HASHES && qr_json_type(v) == QR_JSON_ARR) {
            st = take_json_hashes(r, v, &it);
        } else if (names[i].column == HASHES && qr_json_type(v) == QR_JSON_STR) {
            char *copy = qr_strdup(QR_MEM_MISC, qr_json_str(v, NULL));
            st = copy ? take_hashes(r, copy, &it) : no_memory(r);
            qr_free(copy);
        } else {
            if (qr_json_int64(v, &n))
                snprintf(text, sizeof text, "%lld", (long long)n);
            else if (qr_json_double(v, &x))
                snprintf(text, sizeof text, "%.9f", x);
            else
                return bad_line(r, names[i].name, "a number", qr_json_type_name(qr_json_type(v)));
            st = take_field(r, names[i].column, text, &it);
        }
        if (st != QR_OK) return st;
    }
    if (!it.n_prompt || !it.n_output)
        return bad_line(r, "line", "input_tokens and output_tokens", "an object without them");
    return add_item(r, &it);
}

static enum qr_status take_json(struct reader *r)
{
    struct qr_json_doc *doc = NULL;
    struct qr_error why = {0};
    if (qr_json_parse(r->lines.line, r->lines.len, QR_JSON_DEPTH_MAX, &doc, &why) != QR_OK)
        return bad_line(r, "line", "a JSON object", why.msg);
    enum qr_status st = take_object(r, qr_json_root(doc));
    qr_json_free(&doc);
    return st;
}

// The power of two that makes every row's number of ids the number of its prompt's blocks, whole or begun.
static enum qr_status find_hash_tokens(struct reader *r)
{
    for (int32_t s = 1; s <= 4096; s *= 2) {
        bool all = true;
        for (size_t i = 0; i < r->w.n_items && all; i++) {
            const struct qr_sim_item *it = &r->w.items[i];
            int64_t n = (int64_t)it->n_hashes;
            all = n == 0 || (n >= it->n_prompt / s && n <= (it->n_prompt + s - 1) / s);
        }
        if (!all) continue;
        r->w.hash_tokens = s;
        return QR_OK;
    }
    return qr_fail(r->err, QR_EFORMAT, "%.150s: hash_ids: no block size up to 4096 makes them one id a block in every row",
                   r->lines.path);
}

static enum qr_status too_early(struct reader *r, double arrival_s)
{
    char want[64], got[32];
    snprintf(want, sizeof want, "no earlier than the line before, %.9g", r->last_arrival);
    snprintf(got, sizeof got, "%.9g", arrival_s);
    return bad_line(r, "arrival_s", want, got);
}

// What editors of tables put before the first line of UTF-8.
static void skip_bom(struct qr_lines *l)
{
    if (l->len < 3 || memcmp(l->line, "\xef\xbb\xbf", 3) != 0) return;
    l->len -= 3;
    memmove(l->line, l->line + 3, l->len + 1);
}

static enum qr_status read_all(struct reader *r)
{
    enum qr_status st = qr_lines_next(&r->lines, r->err);
    if (st == QR_OK) skip_bom(&r->lines);
    if (st == QR_AGAIN) return qr_fail(r->err, QR_EFORMAT, "%.180s: the file is empty", r->lines.path);
    bool json = st == QR_OK && r->lines.line[0] == '{';
    if (st == QR_OK) st = json ? take_json(r) : take_header(r);
    while (st == QR_OK) {
        st = qr_lines_next(&r->lines, r->err);
        if (st == QR_OK && r->lines.len > 0) st = json ? take_json(r) : take_csv(r);
        if (st != QR_OK) break;
        if (r->w.n_items == 0) continue;
        const struct qr_sim_item *it = &r->w.items[r->w.n_items - 1];
        if (it->session >= 0 || isnan(it->arrival_s)) continue;
        if (it->arrival_s < r->last_arrival) return too_early(r, it->arrival_s);
        r->last_arrival = it->arrival_s;
    }
    if (st != QR_AGAIN) return st;
    if (r->w.n_items == 0) return qr_fail(r->err, QR_EFORMAT, "%.180s: no request in it", r->lines.path);
    return r->w.n_hashes > 0 ? find_hash_tokens(r) : QR_OK;
}

enum qr_status qr_sim_workload_read(const char *path, struct qr_sim_workload *out, struct qr_error *err)
{
    struct reader r = {.err = err};
    enum qr_status st = qr_lines_open(path, &r.lines, err);
    if (st != QR_OK) return st;
    st = read_all(&r);
    qr_lines_close(&r.lines);
    if (st == QR_OK)
        *out = r.w;
    else
        qr_sim_workload_free(&r.w);
    return st;
}
