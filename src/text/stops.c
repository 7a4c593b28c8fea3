#include "text/text.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

/* One Knuth-Morris-Pratt automaton a string, all fed the same bytes. `len[k]` is how much of string k's
 * beginning the text ends with; the most that any of them holds is a suffix of the text, and it is what must
 * wait.
 *
 *     text so far   ... a n d   E N
 *     stop "END"                ^^^  len 2 of 3
 *     stop "N\n"                  ^  len 1 of 2      held: the last 2 bytes
 *
 * Held bytes are the beginning of the string that holds most, so they need no memory of their own. */
struct stop {
    const uint8_t *s;
    uint32_t *fail; // fail[i]: length of the longest proper prefix of s[0..i] that is also its suffix
    size_t n, len;
};

struct qr_stops {
    size_t n;
    bool include;
    struct stop stop[QR_STOPS_MAX];
};

static void prepare(struct stop *p)
{
    size_t k = 0;
    p->fail[0] = 0;
    for (size_t i = 1; i < p->n; i++) {
        while (k && p->s[i] != p->s[k]) k = p->fail[k - 1];
        if (p->s[i] == p->s[k]) k++;
        p->fail[i] = (uint32_t)k;
    }
}

enum qr_status qr_stops_new(const struct qr_text_span *strings, size_t n, bool include_stop,
                            struct qr_stops **out)
{
    if (n > QR_STOPS_MAX) return QR_EINVAL;
    size_t total = 0;
    for (size_t i = 0; i < n; i++) {
        if (strings[i].bytes == 0 || strings[i].bytes > QR_STOP_BYTES_MAX) return QR_EINVAL;
        total += strings[i].bytes;
    }
    struct qr_stops *s = qr_calloc(QR_MEM_REQ, 1, sizeof *s + total * (sizeof(uint32_t) + 1));
    if (!s) return QR_ENOMEM;
    s->n = n;
    s->include = include_stop;
    uint32_t *fail = (uint32_t *)(s + 1);
    uint8_t *text = (uint8_t *)(fail + total);
    for (size_t i = 0; i < n; i++) {
        struct stop *p = &s->stop[i];
        memcpy(text, strings[i].data, strings[i].bytes);
        *p = (struct stop){.s = text, .fail = fail, .n = strings[i].bytes};
        prepare(p);
        fail += p->n;
        text += p->n;
    }
    *out = s;
    return QR_OK;
}

void qr_stops_free(struct qr_stops **s)
{
    qr_free(*s);
    *s = NULL;
}

// The string that holds most, or NULL.
static const struct stop *holder(const struct qr_stops *s)
{
    const struct stop *best = NULL;
    for (size_t i = 0; i < s->n; i++)
        if (s->stop[i].len > (best ? best->len : 0)) best = &s->stop[i];
    return best;
}

size_t qr_stops_held(const struct qr_stops *s)
{
    const struct stop *p = holder(s);
    return p ? p->len : 0;
}

// Returns the longest stop that completes with this byte, or -1.
static int step(struct qr_stops *s, uint8_t c)
{
    int done = -1;
    for (size_t i = 0; i < s->n; i++) {
        struct stop *p = &s->stop[i];
        while (p->len && p->s[p->len] != c) p->len = p->fail[p->len - 1];
        if (p->s[p->len] == c) p->len++;
        if (p->len == p->n && (done < 0 || p->n > s->stop[done].n)) done = (int)i;
    }
    return done;
}

/* held bytes before the push, then text[0..end) : all that is known. Emits its first `bytes`. */
static void emit(struct qr_buf *out, const uint8_t *held, size_t n_held, const char *text, size_t bytes)
{
    size_t first = bytes < n_held ? bytes : n_held;
    qr_buf_add(out, held, first);
    qr_buf_add(out, text, bytes - first);
}

int qr_stops_push(struct qr_stops *s, const char *text, size_t bytes, struct qr_buf *out)
{
    const struct stop *before = holder(s);
    const uint8_t *held = before ? before->s : NULL;
    size_t n_held = before ? before->len : 0;
    for (size_t i = 0; i < bytes; i++) {
        int done = step(s, (uint8_t)text[i]);
        if (done < 0) continue;
        size_t stop_bytes = s->stop[done].n;
        for (size_t k = 0; k < s->n; k++) s->stop[k].len = 0;
        QR_ASSERT(n_held + i + 1 >= stop_bytes);
        emit(out, held, n_held, text, n_held + i + 1 - (s->include ? 0 : stop_bytes));
        return done;
    }
    size_t keep = qr_stops_held(s);
    QR_ASSERT(n_held + bytes >= keep);
    emit(out, held, n_held, text, n_held + bytes - keep);
    return -1;
}

void qr_stops_flush(struct qr_stops *s, struct qr_buf *out)
{
    const struct stop *p = holder(s);
    if (p) qr_buf_add(out, p->s, p->len);
    for (size_t i = 0; i < s->n; i++) s->stop[i].len = 0;
}
