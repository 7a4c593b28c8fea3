/* What tests of lib share: asks that run together or alone, and what came of each.
 *
 * Owns: nothing. Refuses to know: what a test wants. Threads: main. Lifetime: a test. */
#ifndef QR_LIB_ASK_INTERNAL_H
#define QR_LIB_ASK_INTERNAL_H

#include "lib/lib.h"

#define ASK_PROMPT_MAX 900
#define ASK_TOKENS_MAX 1600
#define ASK_TEXT_MAX 16384

struct ask {
    // asked
    int32_t prompt[ASK_PROMPT_MAX];
    struct qr_gen gen; // gen.req.prompt is set by ask_serve
    int32_t n_prompt;
    int32_t cancel_after; // generated tokens; 0: never
    // answered
    char text[ASK_TEXT_MAX];
    size_t n_text;
    int32_t ids[ASK_TOKENS_MAX];
    float logprobs[ASK_TOKENS_MAX];
    int32_t n_ids;
    struct qr_gen_event last; // FINISH
    bool finished;
    struct qr_gen_token *scored; // (n_prompt) when not NULL: prompt tokens by position
    int32_t n_scored;
    qr_req_id id;
};

// Opens build/tiny/NAME.gguf, or returns NULL where it is absent.
struct qr_lib *ask_open_lib(const char *name, const struct qr_lib_conf *conf);
// A prompt of n random ids (never a special one), greedy, n_gen tokens, ignoring EOS, reporting tokens.
void ask_init(struct ask *a, uint64_t seed, int32_t n_prompt, int32_t n_gen);
// Submits n asks one after another and reads until all have finished.
void ask_serve(struct qr_lib *lib, struct ask *asks, int n);
// The same, and the engine finds all of them at once, however slow this thread is. For a library whose conf.trace was
// ask_gate when it was opened.
void ask_serve_at_once(struct qr_lib *lib, struct ask *asks, int n);
void ask_gate(void *arg, const char *line, size_t bytes);

#endif
