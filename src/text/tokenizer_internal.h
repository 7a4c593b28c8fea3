/* The tokenizer's fields, for the .c files of this folder.
 *
 * Owns: nothing of its own. Refuses to know: how ids are found (src/text/rs).
 * Threads: immutable once made. Lifetime: the view lives as long as rs. */
#ifndef QR_TEXT_TOKENIZER_INTERNAL_H
#define QR_TEXT_TOKENIZER_INTERNAL_H

#include "text/rs_internal.h"
#include "text/text.h"

struct qr_tokenizer {
    struct text_rs_tok *rs;
    struct text_rs_view view;
};

// Clears *err and says where Rust may write its line; err may be NULL.
struct text_rs_message text_message(struct qr_error *err);
// Writes the code that Rust answered beside its line and returns it.
enum qr_status text_failed(struct qr_error *err, int code);

#endif
