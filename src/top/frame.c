#include "top/frame.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define HEAD_LINES 4  // above the cells, the empty line among them
#define TABLE_LINES 5 // that the table gets at least, its heading among them
#define COLOURS 12
#define NOBODY 0

// Colours of the 256-colour palette that are told apart on dark and on light ground.
static const uint8_t palette[COLOURS] = {39, 208, 76, 170, 220, 45, 203, 114, 141, 178, 80, 205};

struct pool {
    int64_t n_blocks;
    size_t n_states;
    const char *states;
    uint32_t *owners; // (n_states) id of a request that holds the block, modulo 2^32; NOBODY
};

static int64_t number(qr_json *page, const char *key)
{
    int64_t v = 0;
    (void)qr_json_int64(qr_json_get(page, key), &v);
    return v;
}

static double real(qr_json *page, const char *key)
{
    double v = 0;
    (void)qr_json_double(qr_json_get(page, key), &v);
    return v;
}

static bool read_pool(qr_json *page, struct pool *p)
{
    size_t n = 0;
    const char *states = qr_json_str(qr_json_get(page, "states"), &n);
    *p = (struct pool){.n_blocks = number(page, "blocks"), .n_states = n, .states = states};
    return states && p->n_blocks > 0 && (int64_t)n <= p->n_blocks &&
           qr_json_type(qr_json_get(page, "sequences")) == QR_JSON_ARR;
}

static void find_owners(qr_json *page, struct pool *p)
{
    struct qr_json_iter seqs = qr_json_iter(qr_json_get(page, "sequences"));
    for (qr_json *q; (q = qr_json_next(&seqs, NULL, NULL));) {
        uint32_t id = (uint32_t)number(q, "request");
        struct qr_json_iter blocks = qr_json_iter(qr_json_get(q, "blocks"));
        for (qr_json *b; (b = qr_json_next(&blocks, NULL, NULL));) {
            int64_t i;
            if (qr_json_int64(b, &i) && i >= 0 && i < (int64_t)p->n_states) p->owners[i] = id ? id : 1;
        }
    }
}

/* ==== Cells. ==== */

struct cell {
    int64_t n_blocks, n_used, n_shared, n_cached;
    uint32_t owner; // of the last used one
};

static bool is_used(char state)
{
    return (state >= '1' && state <= '9') || state == '+';
}

static struct cell cell_of(const struct pool *p, int64_t from, int64_t to)
{
    struct cell c = {.n_blocks = to - from};
    for (int64_t i = from; i < to && i < (int64_t)p->n_states; i++) {
        char s = p->states[i];
        bool used = is_used(s);
        c.n_cached += s == 'c';
        c.n_used += used;
        c.n_shared += used && s != '1';
        if (used && p->owners[i] != NOBODY) c.owner = p->owners[i];
    }
    return c;
}

// In colours: a full block for used cells, shaded by how much of the cell is used; shared ones in stripes.
static void put_colour(struct qr_buf *out, const struct cell *c, int *now)
{
    static const char *const shades[] = {"\u2591", "\u2592", "\u2593", "\u2588"};
    int want = c->n_used ? palette[c->owner % COLOURS] : c->n_cached ? 245 : 238;
    if (want != *now) qr_buf_printf(out, "\033[38;5;%dm", want);
    *now = want;
    if (c->n_used)
        qr_buf_str(out, c->n_shared * 2 > c->n_used ? "\u259a" : shades[(c->n_used * 4 - 1) / c->n_blocks]);
    else
        qr_buf_str(out, c->n_cached ? "\u2591" : "\u00b7");
}

static void put_ascii(struct qr_buf *out, const struct cell *c)
{
    if (c->n_used)
        qr_buf_char(out, c->n_shared * 2 > c->n_used ? '#' : (char)('a' + c->owner % 26));
    else
        qr_buf_char(out, c->n_cached ? ':' : '.');
}

struct part {
    int64_t from, to, each; // blocks, and how many a cell stands for
};

// The blocks from the first to the last that a request holds, or that was ever used where none is held.
static struct part held_part(const struct pool *p)
{
    struct part r = {.from = (int64_t)p->n_states};
    for (int64_t i = 0; i < (int64_t)p->n_states; i++) {
        if (!is_used(p->states[i])) continue;
        if (r.to == 0) r.from = i;
        r.to = i + 1;
    }
    if (r.to == 0) r.from = 0, r.to = (int64_t)p->n_states;
    return r;
}

// What is drawn in `lines` lines. A part begins with a line's first cell and fills the room, so that it stays put while
// requests come and go.
static struct part choose_part(const struct top_view *v, const struct pool *p, int lines)
{
    int64_t n_cells = (int64_t)v->columns * lines, n = p->n_blocks;
    struct part r = {0, n, (n + n_cells - 1) / n_cells};
    if (v->whole || r.each == 1) return r;
    r = held_part(p);
    r.from -= r.from % v->columns;
    r.each = (r.to - r.from + n_cells - 1) / n_cells;
    if (r.each < 1) r.each = 1;
    r.to = r.from + r.each * n_cells < n ? r.from + r.each * n_cells : n;
    return r;
}

static void draw_cells(const struct top_view *v, const struct pool *p, const struct part *part, struct qr_buf *out,
                       int *n_lines)
{
    int colour = -1;
    *n_lines = 0;
    for (int64_t at = part->from; at < part->to; ++*n_lines) {
        for (int i = 0; i < v->columns && at < part->to; i++, at += part->each) {
            struct cell c = cell_of(p, at, at + part->each < part->to ? at + part->each : part->to);
            if (v->colour)
                put_colour(out, &c, &colour);
            else
                put_ascii(out, &c);
        }
        if (v->colour) qr_buf_str(out, "\033[0m");
        colour = -1;
        qr_buf_char(out, '\n');
    }
}

/* ==== Text. ==== */

// A line cut at the terminal's width. ASCII only but for what the caller made printable.
static void put_line(const struct top_view *v, struct qr_buf *out, const char *text)
{
    int columns = 0;
    size_t n = 0;
    for (; text[n]; n++) {
        if (((unsigned char)text[n] & 0xC0) != 0x80 && columns++ == v->columns) break;
    }
    qr_buf_add(out, text, n);
    qr_buf_char(out, '\n');
}

static const char *bytes_text(char out[16], double bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    int u = 0;
    for (; bytes >= 1000 && u < 4; u++) bytes /= 1000;
    snprintf(out, 16, bytes < 10 && u ? "%.1f %s" : "%.0f %s", bytes, units[u]);
    return out;
}

static double rate(const struct top_view *v, qr_json *now, qr_json *before, const char *key)
{
    if (!before || v->seconds <= 0) return 0;
    int64_t d = number(now, key) - number(before, key);
    return d > 0 ? (double)d / v->seconds : 0; // a server that was started anew counts from zero
}

static void draw_head(const struct top_view *v, qr_json *now, qr_json *before, struct qr_buf *out)
{
    char line[512], hits[64] = "", pool[16], resident[16];
    snprintf(line, sizeof line, "quire top  %.120s at %.200s", v->model, v->url);
    put_line(v, out, line);
    int64_t asked = number(now, "prefix_query_tokens");
    if (asked > 0)
        snprintf(hits, sizeof hits, "  prefix hits %.0f %%",
                 100.0 * (double)number(now, "prefix_hit_tokens") / (double)asked);
    snprintf(line, sizeof line, "running %lld  waiting %lld  out %.0f tok/s  in %.0f tok/s%s  preemptions %lld",
             (long long)number(now, "running"), (long long)number(now, "waiting"),
             rate(v, now, before, "generated_tokens"), rate(v, now, before, "prompt_tokens"), hits,
             (long long)number(now, "preemptions"));
    put_line(v, out, line);
    int64_t n = number(now, "blocks");
    snprintf(line, sizeof line,
             "KV %.0f %% of %lld blocks (%s)  used %lld  cached %lld  resident %s  waste %.1f %%",
             100.0 * (double)number(now, "blocks_used") / (double)n, (long long)n,
             bytes_text(pool, real(now, "pool_bytes")), (long long)number(now, "blocks_used"),
             (long long)number(now, "blocks_cached"), bytes_text(resident, real(now, "resident_bytes")),
             100.0 * real(now, "waste_now"));
    put_line(v, out, line);
}

static void draw_sequence(const struct top_view *v, qr_json *q, struct qr_buf *out)
{
    char line[256], mark[40];
    uint32_t id = (uint32_t)number(q, "request");
    const char *state = qr_json_str(qr_json_get(q, "state"), NULL);
    if (v->colour)
        snprintf(mark, sizeof mark, "\033[38;5;%dm\u2588\033[0m", palette[id % COLOURS]);
    else
        snprintf(mark, sizeof mark, "%c", 'a' + (int)(id % 26));
    snprintf(line, sizeof line, " %8lld %6lld  %-9.9s %7lld %7lld %8lld %7zu %8.1f",
             (long long)number(q, "request"), (long long)number(q, "choice"), state ? state : "?",
             (long long)number(q, "prompt_tokens"), (long long)number(q, "tokens"),
             (long long)number(q, "computed_tokens"), qr_json_len(qr_json_get(q, "blocks")), real(q, "age_s"));
    qr_buf_str(out, mark);
    struct top_view rest = *v;
    rest.columns--;
    put_line(&rest, out, line);
}

static void draw_table(const struct top_view *v, qr_json *now, int lines, struct qr_buf *out)
{
    qr_json *seqs = qr_json_get(now, "sequences");
    int64_t n = (int64_t)qr_json_len(seqs), shown = n <= lines - 1 ? n : lines - 2;
    if (n == 0 || lines < 3) return;
    put_line(v, out, "   request choice  state      prompt  tokens computed  blocks    age s");
    struct qr_json_iter it = qr_json_iter(seqs);
    for (int64_t i = 0; i < shown; i++) draw_sequence(v, qr_json_next(&it, NULL, NULL), out);
    if (shown == n) return;
    char more[64];
    snprintf(more, sizeof more, "   and %lld more", (long long)(n - shown));
    put_line(v, out, more);
}

// The legend, and which blocks the cells are where they are not all. Returns its lines.
static int draw_legend(const struct top_view *v, qr_json *now, const struct part *part, struct qr_buf *out)
{
    char line[160];
    snprintf(line, sizeof line, "a cell is %lld block%s of %lld tokens;  %s", (long long)part->each,
             part->each == 1 ? "" : "s", (long long)number(now, "block_size"),
             v->colour ? "\u2588 used  \u259a shared  \u2591 cached  \u00b7 free"
                       : "a-z used  # shared  : cached  . free");
    put_line(v, out, line);
    if (part->to - part->from == number(now, "blocks")) return 1;
    snprintf(line, sizeof line, "blocks %lld to %lld; no request holds another (%s: the whole pool)", (long long)part->from,
             (long long)part->to - 1, v->colour ? "w" : "--whole");
    put_line(v, out, line);
    return 2;
}

enum qr_status top_draw(const struct top_view *v, qr_json *now, qr_json *before, struct qr_buf *out)
{
    struct pool p;
    if (!read_pool(now, &p)) return QR_EFORMAT;
    p.owners = qr_calloc(QR_MEM_MISC, p.n_states + 1, sizeof *p.owners);
    if (!p.owners) return QR_ENOMEM;
    find_owners(now, &p);
    draw_head(v, now, before, out);
    int room = v->lines - HEAD_LINES - TABLE_LINES - 2, n_lines = 0; // 2: of the legend; the empty line is in HEAD_LINES
    struct part part = choose_part(v, &p, room > 1 ? room : 1);
    int n_legend = draw_legend(v, now, &part, out);
    draw_cells(v, &p, &part, out, &n_lines);
    qr_buf_char(out, '\n');
    draw_table(v, now, v->lines - HEAD_LINES - n_legend - n_lines, out);
    qr_free(p.owners);
    return out->failed ? QR_ENOMEM : QR_OK;
}
