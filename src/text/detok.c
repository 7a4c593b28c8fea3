#include "text/text.h"

#include "text/tokenizer_internal.h"
#include "text/utf8_internal.h"

#define REPLACEMENT "\xef\xbf\xbd" // U+FFFD

void qr_detok_init(struct qr_detok *d, const struct qr_tokenizer *t, bool skip_special, bool at_start)
{
    *d = (struct qr_detok){
        .tok = t, .skip_special = skip_special, .strip_space = at_start && t->view.strip_space};
}

// The bytes that continue what is held. Returns how many of s were used; the rest begins a new character.
static size_t complete(struct qr_detok *d, const uint8_t *s, size_t n, struct qr_buf *out)
{
    int need = utf8_need(d->held[0]);
    size_t used = 0;
    while (used < n && d->n_held < need) {
        bool fits = d->n_held == 1 ? utf8_second(d->held[0], s[used]) : (s[used] & 0xc0) == 0x80;
        if (!fits) break;
        d->held[d->n_held++] = s[used++];
    }
    if (d->n_held == need) {
        qr_buf_add(out, d->held, (size_t)need);
        d->n_held = 0;
    } else if (used < n) {
        qr_buf_str(out, REPLACEMENT);
        d->n_held = 0;
    }
    return used;
}

// Length of the longest prefix of s that is whole characters, up to the first byte that is not.
static size_t whole(const uint8_t *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        int need = utf8_need(s[i]);
        if (need == 0 || i + (size_t)need > n) break;
        if (need > 1 && !utf8_second(s[i], s[i + 1])) break;
        int k = 2;
        while (k < need && (s[i + (size_t)k] & 0xc0) == 0x80) k++;
        if (k < need) break;
        i += (size_t)need;
    }
    return i;
}

static void feed(struct qr_detok *d, const uint8_t *s, size_t n, struct qr_buf *out)
{
    while (n > 0) {
        size_t used = 0;
        if (d->n_held) {
            used = complete(d, s, n, out);
        } else if ((used = whole(s, n))) {
            qr_buf_add(out, s, used);
        } else if (utf8_need(s[0])) {
            d->held[0] = s[0];
            d->n_held = 1;
            used = 1;
        } else {
            qr_buf_str(out, REPLACEMENT);
            used = 1;
        }
        s += used;
        n -= used;
    }
}

void qr_detok_push(struct qr_detok *d, int32_t id, struct qr_buf *out)
{
    // A special token has text of its own and never adds to the character before it.
    if (qr_tokenizer_is_special(d->tok, id)) {
        if (d->skip_special) return;
        qr_detok_flush(d, out);
        d->strip_space = false;
    }
    struct qr_text_span s = qr_tokenizer_bytes(d->tok, id);
    if (s.bytes && d->strip_space) {
        d->strip_space = false;
        if (s.data[0] == ' ') {
            s.data++;
            s.bytes--;
        }
    }
    feed(d, (const uint8_t *)s.data, s.bytes, out);
}

void qr_detok_flush(struct qr_detok *d, struct qr_buf *out)
{
    if (d->n_held) qr_buf_str(out, REPLACEMENT);
    d->n_held = 0;
}
