/* Traces: CSV with a header, or JSON lines. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "base/mem.h"
#include "sim/lines.h"
#include "sim/names.h"
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

struct row { // a request, and what only its neighbours are checked by
    struct qr_sim_item it;
    int64_t turn; // -1: none
    bool is_new_session;
};

struct reader {
    struct qr_lines lines;
    struct qr_sim_workload w;
    struct qr_names sessions;
    size_t cap_items, cap_hashes;
    int n_fields, fields[64]; // of the header: enum column, or -1
    struct row last;
    struct qr_error *err;
};

static enum qr_status at_line(struct reader *r, enum qr_status st)
{
    char where[4200];
    snprintf(where, sizeof where, "%.4096s:%ld", r->lines.path, r->lines.n);
    return qr_fail_in(r->err, st, where);
}

static enum qr_status bad_line(struct reader *r, const char *what, const char *expected, const char *got)
{
    return at_line(r, qr_fail(r->err, QR_EFORMAT, "%s: expected %s, got %s", what, expected, got));
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

#define SECONDS_MAX 1e12 // more is no time at all; who counts from 1970 is told later (late_line)

static bool seconds(const char *text, double unit, double *out)
{
    char *end;
    double v = strtod(text, &end) * unit;
    if (end == text || *end || !(v >= 0 && v <= SECONDS_MAX)) return false;
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

static enum qr_status take_arrival(struct reader *r, enum column c, const char *text, struct qr_sim_item *it)
{
    if (!text[0]) return QR_OK;
    if (c == ARRIVAL)
        return seconds(text, 1, &it->arrival_s) ? QR_OK : bad_text(r, "arrival_s", "seconds from the start, 0 to 1e12", text);
    return seconds(text, 1e-3, &it->arrival_s) ? QR_OK : bad_text(r, "timestamp", "milliseconds from the start, 0 to 1e15", text);
}

static enum qr_status take_field(struct reader *r, enum column c, char *text, struct row *row)
{
    struct qr_sim_item *it = &row->it;
    uint64_t v = 0;
    switch (c) {
    case ARRIVAL:
    case TIMESTAMP_MS: return take_arrival(r, c, text, it);
    case INPUT: return take_tokens(r, "input_tokens", text, &it->n_prompt);
    case OUTPUT: return take_tokens(r, "output_tokens", text, &it->n_output);
    case HASHES: return take_hashes(r, text, it);
    case SESSION:
        if (text[0] && (it->session = qr_names_put(&r->sessions, text, &row->is_new_session)) < 0) return no_memory(r);
        return QR_OK;
    case TURN:
        if (!text[0]) return QR_OK;
        if (!whole(text, INT32_MAX, &v)) return bad_text(r, "turn", "a whole number", text);
        row->turn = (int64_t)v;
        return QR_OK;
    case THINK:
        if (text[0] && !seconds(text, 1, &it->think_s)) return bad_text(r, "think_s", "seconds, 0 to 1e12", text);
        return QR_OK;
    case N_COLUMNS: break;
    }
    return QR_OK;
}

static int column_of(const char *name)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcasecmp(names[i].name, name) == 0) return names[i].column;
    return -1;
}

// Two names may stand for the same: the second is refused.
static enum qr_status claim(struct reader *r, bool has[N_COLUMNS], int column, const char *name)
{
    int what = column == TIMESTAMP_MS ? ARRIVAL : column;
    size_t i = 0;
    char got[48];
    if (!has[what]) return has[what] = true, QR_OK;
    while ((int)names[i].column != what) i++;
    snprintf(got, sizeof got, "\"%.30s\" too", name);
    return bad_line(r, names[i].name, "it once", got);
}

// A name that stands for nothing here: whoever asked is told.
static void note_unused(struct reader *r, const char *name)
{
    size_t at = strlen(r->w.unused);
    if (at + 40 > sizeof r->w.unused) return;
    snprintf(r->w.unused + at, sizeof r->w.unused - at, "%s\"%.30s\"", at ? ", " : "", name);
}

// Where there are no sessions, there are no turns of them.
static void note_turns(struct reader *r, const bool has[N_COLUMNS])
{
    if (has[SESSION]) return;
    if (has[TURN]) note_unused(r, "turn");
    if (has[THINK]) note_unused(r, "think_s");
}

/* ==== Rows. ==== */

static const struct row blank = {.it = {.arrival_s = NAN, .session = -1, .next = -1, .is_first = true}, .turn = -1};

static enum qr_status too_early(struct reader *r, double arrival_s)
{
    char want[64], got[32];
    snprintf(want, sizeof want, "no earlier than the line before, %.9g", r->last.it.arrival_s);
    snprintf(got, sizeof got, "%.9g", arrival_s);
    return bad_line(r, "arrival_s", want, got);
}

static enum qr_status check_turn(struct reader *r, const struct row *row)
{
    char want[64], got[32];
    if (row->it.session != r->last.it.session && !row->is_new_session)
        return bad_line(r, "session", "its turns together", "one after another session's");
    if (row->is_new_session || row->turn < 0 || row->turn > r->last.turn) return QR_OK;
    snprintf(want, sizeof want, "more than the turn before, %lld", (long long)r->last.turn);
    snprintf(got, sizeof got, "%lld", (long long)row->turn);
    return bad_line(r, "turn", want, got);
}

// By what came before: a file has times or none, sessions or none, and is in order.
static enum qr_status check_row(struct reader *r, const struct row *row)
{
    bool is_first = r->w.n_items == 0, timed = !isnan(row->it.arrival_s), in_session = row->it.session >= 0;
    if (!is_first && in_session != (r->last.it.session >= 0))
        return bad_line(r, "session", "one in every line, or in none", in_session ? "the first" : "none");
    if (in_session) return check_turn(r, row);
    if (is_first) return QR_OK;
    if (timed != !isnan(r->last.it.arrival_s))
        return bad_line(r, "arrival_s", "one in every line, or in none", timed ? "the first" : "none");
    return timed && row->it.arrival_s < r->last.it.arrival_s ? too_early(r, row->it.arrival_s) : QR_OK;
}

static enum qr_status take_row(struct reader *r, const struct row *row)
{
    enum qr_status st = check_row(r, row);
    if (st == QR_OK) st = add_item(r, &row->it);
    bool is_late = row->it.arrival_s > QR_SIM_ARRIVAL_S_MAX || row->it.think_s > QR_SIM_ARRIVAL_S_MAX;
    if (is_late && r->w.late_line == 0) r->w.late_line = r->lines.n;
    r->last = *row;
    return st;
}

/* ==== CSV. ==== */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

// Takes the next field off a line: without blanks around it, and without quotes, in which a comma is one and "" a quote.
// NULL: there is none.
static char *next_field(char **rest)
{
    char *at = *rest, *from, *to;
    bool quoted = false;
    if (!at) return NULL;
    while (is_blank(*at)) at++;
    for (from = to = at; *at && (quoted || *at != ','); at++) {
        bool is_quote = *at == '"', doubled = quoted && is_quote && at[1] == '"';
        if (is_quote && !doubled)
            quoted = !quoted;
        else
            *to++ = *at;
        at += doubled;
    }
    *rest = *at ? at + 1 : NULL;
    while (to > from && is_blank(to[-1])) to--;
    *to = 0;
    return from;
}

static enum qr_status bad_header(struct reader *r, const bool has[N_COLUMNS], const char *shown)
{
    if (shown[0] == '[') return bad_line(r, "line", "a JSON object in each line, or a header of columns", "an array");
    if (r->n_fields == 1 && strpbrk(shown, ";\t")) return bad_text(r, "header", "columns with commas between them", shown);
    if (!has[INPUT] && !has[OUTPUT])
        return bad_text(r, "header",
                        "columns input_tokens and output_tokens (and arrival_s, hash_ids, session), or a JSON object in each line", shown);
    return bad_text(r, "header", has[INPUT] ? "a column output_tokens too" : "a column input_tokens too", shown);
}

static enum qr_status take_header(struct reader *r)
{
    bool has[N_COLUMNS] = {0};
    char shown[44];
    snprintf(shown, sizeof shown, "%.40s", r->lines.line);
    char *rest = r->lines.line;
    for (char *name; (name = next_field(&rest));) {
        if (r->n_fields == 64) return bad_line(r, "header", "at most 64 columns", "more");
        int c = r->fields[r->n_fields++] = column_of(name);
        enum qr_status st = c < 0 ? QR_OK : claim(r, has, c, name);
        if (st != QR_OK) return st;
        if (c < 0) note_unused(r, name);
    }
    if (!has[INPUT] || !has[OUTPUT]) return bad_header(r, has, shown);
    note_turns(r, has);
    return QR_OK;
}

static enum qr_status take_csv(struct reader *r)
{
    struct row row = blank;
    char *rest = r->lines.line, text[24];
    int n = 0;
    for (char *field; (field = next_field(&rest));) {
        if (n == r->n_fields) {
            n++;
            break;
        }
        int c = r->fields[n++];
        enum qr_status st = c < 0 ? QR_OK : take_field(r, (enum column)c, field, &row);
        if (st != QR_OK) return st;
    }
    if (n != r->n_fields) {
        char want[48];
        snprintf(want, sizeof want, "%d fields as in the header", r->n_fields);
        snprintf(text, sizeof text, n > r->n_fields ? "more than %d" : "%d", n > r->n_fields ? r->n_fields : n);
        return bad_line(r, "line", want, text);
    }
    return take_row(r, &row);
}

/* ==== JSON lines. ==== */

static enum qr_status bad_value(struct reader *r, const char *what, const char *expected, qr_json *v)
{
    char got[40];
    qr_json_shown(v, got, sizeof got);
    return bad_line(r, what, expected, got);
}

static enum qr_status take_json_hashes(struct reader *r, qr_json *v, struct qr_sim_item *it)
{
    it->first_hash = r->w.n_hashes;
    struct qr_json_iter each = qr_json_iter(v);
    for (qr_json *e; (e = qr_json_next(&each, NULL, NULL));) {
        int64_t id;
        if (!qr_json_int64(e, &id) || id < 0) return bad_value(r, "hash_ids", "whole numbers from 0", e);
        enum qr_status st = add_hash(r, (uint64_t)id);
        if (st != QR_OK) return st;
    }
    it->n_hashes = r->w.n_hashes - it->first_hash;
    return QR_OK;
}

// As text, as a field of a CSV line would have it.
static enum qr_status take_value(struct reader *r, enum column c, const char *key, qr_json *v, struct row *row)
{
    char text[40];
    int64_t n;
    enum qr_json_type t = qr_json_type(v);
    if (t == QR_JSON_NULL) return QR_OK;
    if (c == HASHES && t == QR_JSON_ARR) return take_json_hashes(r, v, &row->it);
    if ((c == HASHES || c == SESSION) && t == QR_JSON_STR) {
        char *copy = qr_strdup(QR_MEM_MISC, qr_json_str(v, NULL));
        enum qr_status st = copy ? take_field(r, c, copy, row) : no_memory(r);
        qr_free(copy);
        return st;
    }
    if (t != QR_JSON_INT && t != QR_JSON_REAL)
        return bad_value(r, key, c == HASHES ? "an array of numbers" : c == SESSION ? "a number or a string" : "a number", v);
    if (qr_json_int64(v, &n)) // 16.0 is whole too
        snprintf(text, sizeof text, "%lld", (long long)n);
    else
        qr_json_shown(v, text, sizeof text);
    return take_field(r, c, text, row);
}

static enum qr_status take_object(struct reader *r, qr_json *o)
{
    struct row row = blank;
    bool has[N_COLUMNS] = {0};
    if (qr_json_type(o) != QR_JSON_OBJ) return bad_line(r, "line", "a JSON object", qr_json_type_name(qr_json_type(o)));
    struct qr_json_iter members = qr_json_iter(o);
    const char *key;
    for (qr_json *v; (v = qr_json_next(&members, &key, NULL));) {
        int c = column_of(key);
        if (c < 0 && r->w.n_items == 0) note_unused(r, key); // of the first; the others are as it
        enum qr_status st = c < 0 ? QR_OK : claim(r, has, c, key);
        if (st == QR_OK && c >= 0) st = take_value(r, (enum column)c, key, v, &row);
        if (st != QR_OK) return st;
    }
    if (!row.it.n_prompt || !row.it.n_output)
        return bad_line(r, "line", "input_tokens and output_tokens", "an object without them");
    if (r->w.n_items == 0) note_turns(r, has);
    return take_row(r, &row);
}

static enum qr_status take_json(struct reader *r)
{
    struct qr_json_doc *doc = NULL;
    enum qr_status st = qr_json_parse(r->lines.line, r->lines.len, QR_JSON_DEPTH_MAX, &doc, r->err);
    if (st != QR_OK) return at_line(r, st);
    st = take_object(r, qr_json_root(doc));
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

// What editors of tables put before the first line of UTF-8.
static void skip_bom(struct qr_lines *l)
{
    if (l->len < 3 || memcmp(l->line, "\xef\xbb\xbf", 3) != 0) return;
    l->len -= 3;
    memmove(l->line, l->line + 3, l->len + 1);
}

// The first line with anything in it. QR_AGAIN: there is none.
static enum qr_status first_line(struct reader *r)
{
    enum qr_status st = qr_lines_next(&r->lines, r->err);
    if (st == QR_OK) skip_bom(&r->lines);
    while (st == QR_OK && r->lines.len == 0) st = qr_lines_next(&r->lines, r->err);
    return st;
}

static enum qr_status read_all(struct reader *r)
{
    enum qr_status st = first_line(r);
    if (st == QR_AGAIN) return qr_fail_in(r->err, qr_fail(r->err, QR_EFORMAT, "the file is empty"), r->lines.path);
    bool json = st == QR_OK && r->lines.line[strspn(r->lines.line, " \t")] == '{';
    if (st == QR_OK) st = json ? take_json(r) : take_header(r);
    while (st == QR_OK) {
        st = qr_lines_next(&r->lines, r->err);
        if (st == QR_OK && r->lines.len > 0) st = json ? take_json(r) : take_csv(r);
    }
    if (st != QR_AGAIN) return st;
    if (r->w.n_items == 0) return qr_fail_in(r->err, qr_fail(r->err, QR_EFORMAT, "no request in it"), r->lines.path);
    return r->w.n_hashes > 0 ? find_hash_tokens(r) : QR_OK;
}

enum qr_status qr_sim_workload_read(const char *path, struct qr_sim_workload *out, struct qr_error *err)
{
    struct reader r = {.err = err};
    enum qr_status st = qr_lines_open(path, &r.lines, err);
    if (st != QR_OK) return st;
    st = read_all(&r);
    if (st == QR_EFORMAT) st = qr_lines_blame(&r.lines, st, err);
    qr_lines_close(&r.lines);
    qr_names_fini(&r.sessions);
    if (st == QR_OK)
        *out = r.w;
    else
        qr_sim_workload_free(&r.w);
    return st;
}
