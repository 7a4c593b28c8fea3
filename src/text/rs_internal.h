/* The border to the Rust library of src/text/rs (its src/lib.rs has the other side of every line here).
 *
 * Owns: nothing. Refuses to know: struct qr_buf, struct qr_error; those are the C side's.
 * Threads: a handle is immutable once made. Lifetime: _new/_from_* to _free.
 *
 * A result is an enum qr_status; when it is not 0, `msg` holds one line. Outputs are written only on success.
 * Panics do not cross: they become QR_EINVAL and a message that says "internal fault". */
#ifndef QR_TEXT_RS_INTERNAL_H
#define QR_TEXT_RS_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/text.h"

struct text_rs_tok;
struct text_rs_template;

struct text_rs_message {
    char *text;
    size_t cap;
};

// The tables of a tokenizer, for as long as it lives. Entry i is arena[offs[i] .. offs[i + 1]).
struct text_rs_view {
    size_t n;
    const char *pieces;
    const uint32_t *piece_offs; // n + 1
    const char *bytes;
    const uint32_t *byte_offs; // n + 1
    const uint8_t *flags;      // TEXT_RS_*
    bool strip_space;          // a text begins with a space that was not in the input
};
#define TEXT_RS_SPECIAL 1

// Called once with the result; copies it and answers 0, or a status that becomes the call's.
typedef int (*text_rs_sink)(void *ctx, const void *data, size_t n);

int text_rs_from_vocab(const struct qr_vocab *v, struct text_rs_tok **out, struct text_rs_message m);
int text_rs_from_json(const char *json, size_t bytes, struct text_rs_tok **out, struct text_rs_message m);
void text_rs_tokenizer_free(struct text_rs_tok *t);
void text_rs_view(const struct text_rs_tok *t, struct text_rs_view *out);
int32_t text_rs_find(const struct text_rs_tok *t, const char *piece, size_t bytes);
int text_rs_encode(const struct text_rs_tok *t, const char *text, size_t bytes, uint32_t flags,
                   text_rs_sink sink, void *ctx, struct text_rs_message m); // data: n uint32_t

int text_rs_template_new(const char *source, size_t bytes, struct text_rs_template **out,
                         struct text_rs_message m);
void text_rs_template_free(struct text_rs_template *t);
int text_rs_template_render(const struct text_rs_template *t, const char *vars_json, size_t bytes,
                            int64_t now, text_rs_sink sink, void *ctx,
                            struct text_rs_message m); // data: n bytes

// As qr_template_render at a given time (seconds since the epoch), so that a test can hold it still.
enum qr_status text_template_render_at(const struct qr_template *t, const char *vars_json, size_t bytes,
                                       int64_t now, struct qr_buf *out, struct qr_error *err) QR_MUST_CHECK;

#endif
