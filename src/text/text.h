/* Text and tokens: tokenizers, chat templates, incremental detokenising, stop strings.
 *
 * Owns: vocabularies and compiled templates. The heavy part is a Rust static library (tokenizers, minijinja)
 * behind src/text/rs; this header is its whole C face.
 * Refuses to know: files, models, requests, HTTP.
 * Threads: a qr_tokenizer and a qr_template are immutable once made: any number of threads may use one.
 *   A qr_detok or qr_stops belongs to one thread at a time.
 * Lifetime: _new/_from_* to _free. Text is UTF-8 with an explicit length and may hold NUL. */
#ifndef QR_TEXT_TEXT_H
#define QR_TEXT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

struct qr_tokenizer;
struct qr_template;

struct qr_text_span {
    const char *data;
    size_t bytes;
};

// A vocabulary as GGUF metadata states it (tokenizer.ggml.*). All memory is borrowed for the call.
struct qr_vocab {
    const char *model; // "gpt2" (byte-level BPE) or "llama" (SPM)
    const char *pre;   // "llama-bpe", "qwen2", "gpt-2", "smollm", ...; NULL or "default": gpt-2's
    size_t n_tokens;
    const struct qr_text_span *tokens;
    const float *scores; // NULL where absent
    const int32_t
        *types; // GGUF token types: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
    size_t n_merges;
    const struct qr_text_span *merges;
    int32_t bos, eos, unk; // -1 where absent
    bool add_bos, add_eos, add_space_prefix;
};

// QR_ENOTSUP names a model or pre-tokenizer that is not known; QR_EFORMAT a vocabulary that contradicts
// itself.
enum qr_status qr_tokenizer_from_vocab(const struct qr_vocab *v, struct qr_tokenizer **out,
                                       struct qr_error *err) QR_MUST_CHECK;
// From the text of a Hugging Face tokenizer.json.
enum qr_status qr_tokenizer_from_json(const char *json, size_t bytes, struct qr_tokenizer **out,
                                      struct qr_error *err) QR_MUST_CHECK;
void qr_tokenizer_free(struct qr_tokenizer **t);

enum qr_encode_flags {
    QR_ENCODE_ADD_SPECIAL = 1,   // BOS/EOS as the vocabulary asks
    QR_ENCODE_PARSE_SPECIAL = 2, // "<|im_start|>" in the text becomes its token; otherwise it is plain text
};
// *ids is allocated with qr_malloc(QR_MEM_REQ) and belongs to the caller (qr_free). QR_EFORMAT when not
// UTF-8.
enum qr_status qr_tokenizer_encode(const struct qr_tokenizer *t, const char *text, size_t bytes,
                                   unsigned flags, int32_t **ids, size_t *n,
                                   struct qr_error *err) QR_MUST_CHECK;
// Appends the text of n ids; incomplete bytes become U+FFFD. Ids out of range are QR_EINVAL.
enum qr_status qr_tokenizer_decode(const struct qr_tokenizer *t, const int32_t *ids, size_t n,
                                   bool skip_special, struct qr_buf *out, struct qr_error *err) QR_MUST_CHECK;

int32_t qr_tokenizer_size(const struct qr_tokenizer *t); // ids are 0 .. size-1
// What the id stands for, as bytes; may be part of a character.
struct qr_text_span qr_tokenizer_bytes(const struct qr_tokenizer *t, int32_t id);
struct qr_text_span qr_tokenizer_piece(const struct qr_tokenizer *t,
                                       int32_t id);                         // its name in the vocabulary
int32_t qr_tokenizer_find(const struct qr_tokenizer *t, const char *piece); // -1 when there is none
bool qr_tokenizer_is_special(const struct qr_tokenizer *t, int32_t id);

/* Incremental detokenising. Emits only whole characters: bytes of an unfinished one are held back. */
struct qr_detok {
    const struct qr_tokenizer *tok;
    bool skip_special;
    bool strip_space; // drop one leading space of the very first piece (SPM at the start of a text)
    uint8_t held[8];  // bytes of a character that is not complete yet
    int n_held;
};
// at_start: the output begins a text (no prompt before it).
void qr_detok_init(struct qr_detok *d, const struct qr_tokenizer *t, bool skip_special, bool at_start);
void qr_detok_push(struct qr_detok *d, int32_t id,
                   struct qr_buf *out); // appends what became complete; invalid bytes become U+FFFD
void qr_detok_flush(struct qr_detok *d, struct qr_buf *out); // at the end: what is held becomes one U+FFFD

/* Stop strings across token borders. Text goes in as it is detokenised; text that may go out comes back. Only
 * a suffix that is a proper prefix of some stop string is held back (an automaton, not a fixed window). Of
 * several stops the one that completes earliest wins; at the same byte, the longest. */
struct qr_stops;
#define QR_STOPS_MAX 4         // strings
#define QR_STOP_BYTES_MAX 4096 // each
enum qr_status qr_stops_new(const struct qr_text_span *strings, size_t n, bool include_stop,
                            struct qr_stops **out) QR_MUST_CHECK;
void qr_stops_free(struct qr_stops **s);
// Appends to out what is safe. Returns the index of the stop that completed (everything after it is dropped),
// else -1.
int qr_stops_push(struct qr_stops *s, const char *text, size_t bytes, struct qr_buf *out);
void qr_stops_flush(struct qr_stops *s,
                    struct qr_buf *out);        // at the end: what was held is plain text after all
size_t qr_stops_held(const struct qr_stops *s); // bytes held back now

/* Chat templates: Jinja as transformers renders it (trim_blocks, lstrip_blocks, tojson, raise_exception,
 * strftime_now, loop controls), with a budget of steps and of output bytes. */
enum qr_status qr_template_new(const char *source, size_t bytes, struct qr_template **out,
                               struct qr_error *err) QR_MUST_CHECK;
void qr_template_free(struct qr_template **t);
// vars_json is one JSON object: messages, tools, add_generation_prompt, bos_token, eos_token, and what the
// request adds. QR_EINVAL carries the template's own message (raise_exception) or Jinja's.
enum qr_status qr_template_render(const struct qr_template *t, const char *vars_json, size_t bytes,
                                  struct qr_buf *out, struct qr_error *err) QR_MUST_CHECK;

#endif
