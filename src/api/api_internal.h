/* The inside of the api room: the server, one call of it, and one generation.
 *
 * Owns: these records. Refuses to know: sockets, blocks.
 * Threads: the I/O thread dispatches; workers parse, tokenise and submit; the pump turns events into answers.
 *   A call is touched by one of them at a time, with two exceptions: `gone` is atomic and set by the I/O
 * thread, and a generation that is being submitted may already have events, so both sides hold its lock.
 * Lifetime: a call is counted. Each holder (queue, worker, every submitted sequence) has one count.
 *
 * Lock order: gen.lock, then a lock of http. Nothing is locked under slots_lock but what qr_lib_cancel takes.
 */
#ifndef QR_API_INTERNAL_H
#define QR_API_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "api/api.h"
#include "api/params.h"
#include "base/buf.h"
#include "base/json.h"
#include "http/http.h"
#include "metrics/metrics.h"

#define API_CALLS_MAX 8192 // calls alive at once: more than there can be connections
#define API_QUEUE_MAX 4096 // calls waiting for a worker
#define API_CONNS_MAX 4096
// Unsent bytes of one stream at which its chunks begin to be put together.
#define API_STREAM_BYTES_MAX (256u << 10)
#define API_SLOW_RETRY_NS 1000000000u   // ... once in this time
#define API_SLOW_CLIENT_NS 60000000000u // and after so long without room the request is ended
#define API_LOGGED_FIELDS 64            // names of unknown fields that were logged

enum { OPEN = 1, MODEL = 2, WORK = 4, UNDER = 8 };

struct call;
typedef void api_handler(struct call *c);
struct route {
    const char *method, *path;
    api_handler *handler;
    unsigned flags;
};
extern const struct route api_routes[];
extern const int api_n_routes;

// Growing pieces of an answer: the inside of JSON arrays, without brackets.
struct api_pieces {
    struct qr_buf tokens, logprobs, tops, offsets, content, ids, prompt;
};

// One sequence of a generation: one choice of one prompt. Choice k of prompt i is seqs[i * n_choices + k]; the
// choices of a prompt are one request of the engine, and borrow the first one's prompt.
struct api_seq {
    struct call *call;
    int32_t index, choice;
    _Atomic qr_req_id id; // 0: not submitted
    int32_t *prompt;
    size_t n_prompt;
    struct qr_buf text;       // not sent yet; begins with the prompt when it is echoed
    struct api_pieces pieces; // of tokens that are not sent yet
    bool begun;               // something of it was sent
    bool done;
    int64_t chars; // of token texts so far: text_offset of the next one
    enum qr_finish finish;
    int32_t stop_token, stop_string;
    int32_t n_generated, n_cached;
    uint64_t first_ns, last_ns;
    int32_t n_left, n_generated_max; // of a prompt's first choice: its choices that are not finished, the longest answer
};

struct api_gen {
    pthread_mutex_t lock;
    struct api_params params;
    struct qr_buf stops_text; // copies of the stop strings, one after the other
    char id[160];             // "chatcmpl-..."
    int64_t created;          // unix seconds
    struct api_seq *seqs;             // (n_prompts, n_choices)
    int32_t n_choices;
    _Atomic int32_t n_seqs;           // the count is set once seqs can be read
    int32_t n_open;                   // submitted or about to be, and not finished
    bool answered;                    // the client has its answer, or an error
    bool streaming;                   // http_stream_begin was called
    uint64_t slow_since_ns, retry_ns; // 0: the reader keeps up
};

struct call {
    struct api *api;
    struct http_req *req;
    const struct route *route;
    const char *path;  // of the request, decoded
    struct call *next; // in the workers' queue
    uint64_t key;      // its slot, for the I/O thread's `gone`
    _Atomic int refs;
    _Atomic bool gone;
    uint64_t arrival_ns;
    unsigned client; // whose key it came with, from 1; 0: there are no keys
    _Atomic(struct api_gen *) gen; // NULL for calls that generate nothing, or do not yet
};

struct api {
    struct api_conf conf;
    struct http_server *http;
    struct qr_metrics *metrics;
    _Atomic(struct qr_lib *) lib; // NULL: loading
    _Atomic uint64_t load_done, load_total;
    _Atomic bool stopping, dead; // dead: the engine stopped by itself
    _Atomic uint64_t n_ids, n_seeds;
    _Atomic int n_live;
    int64_t started; // unix seconds
    uint64_t seed;
    const char *model_name;         // in answers; set with lib
    const struct qr_tokenizer *tok; // lib's
    size_t text_bytes_max;          // longer texts cannot fit the context, whatever they say
    char fingerprint[64];
    _Atomic uint64_t by_route[64][6]; // answers by route and status class

    pthread_mutex_t slots_lock;
    struct call *slots[API_CALLS_MAX];
    uint32_t slot_turn[API_CALLS_MAX]; // upper half of a call's key, so that a stale key finds nothing
    uint32_t free_slots[API_CALLS_MAX];
    int n_free_slots;

    pthread_mutex_t queue_lock;
    pthread_cond_t queue_cond;
    struct call *queue_head, **queue_tail;
    int n_queued;

    pthread_t *workers;
    int n_workers;
    pthread_t pump;
    bool pump_runs;
    struct qr_buf scratch; // the pump's: the event being written

    pthread_mutex_t fields_lock;
    uint64_t logged[API_LOGGED_FIELDS];
    int n_logged;
};

// --- call.c: lifetime, queue, workers ---
struct call *call_new(struct api *a, struct http_req *req, const struct route *route,
                      const char *path); // NULL: no slot or no memory
void call_ref(struct call *c);
void call_unref(struct call **c);
bool call_enqueue(struct call *c); // takes the caller's count; false: full, nothing taken
void call_client_gone(struct api *a, uint64_t key);
void *call_worker(void *api);       // a worker thread
void calls_fail_all(struct api *a); // ends every live generation, when stopping

// --- error.c ---
size_t error_render(int status, const char *message, const char *param, char *out, size_t cap);
// Seconds after which a refused client may come again: how long the engine's queue will take as things go.
int error_retry_after_s(struct api *a);
int error_status(enum qr_status code); // 400, 404, 500, 503
const char *error_type(int status);
void call_error(struct call *c, int status, const char *param, const char *fmt, ...) QR_PRINTF(4, 5);
void call_fail(struct call *c, const struct qr_error *err); // by its code
void call_reply(struct call *c, int status, const char *content_type, const void *body, size_t bytes);
void call_reply_json(struct call *c, int status, struct qr_buf *body); // 500 when the buffer failed; frees it

// --- auth.c ---
// *key gets the number of the client's key, from 1; 0 where none is needed.
bool auth_ok(const struct api_conf *conf, const char *authorization, const char *x_api_key, unsigned *key);

// --- prompt.c: from JSON to token ids ---
// The body as a JSON document; answers 400 itself and returns false when it is none.
bool call_json(struct call *c, struct qr_json_doc **doc);
// The model's name, when given, must be one of the served; answers 404 itself.
bool call_model_ok(struct call *c, qr_json *model);
enum qr_status prompts_read(struct call *c, struct qr_error *err);     // completions: fills gen->seqs
enum qr_status chat_prompt_read(struct call *c, struct qr_error *err); // chat: fills gen->seqs
// messages and options -> text, by the model's template.
struct chat_options {
    qr_json *messages, *kwargs;
    bool add_generation_prompt, continue_final;
};
enum qr_status chat_render(struct qr_lib *lib, const struct chat_options *o, struct qr_buf *out,
                           struct qr_error *err) QR_MUST_CHECK;
enum qr_status chat_vars(struct qr_lib *lib, const struct chat_options *o, struct qr_buf *json,
                         struct qr_error *err) QR_MUST_CHECK;
// The messages as templates expect them: an array of objects with text content. What was written is of no use
// on failure.
enum qr_status chat_messages(qr_json *messages, struct qr_json_writer *w, struct qr_error *err) QR_MUST_CHECK;
enum qr_status bad_words_encode(const struct qr_tokenizer *t, struct api_params *p,
                                struct qr_error *err) QR_MUST_CHECK;

// --- gen.c: submitting ---
void gen_run(struct call *c, bool chat); // parse, make the prompt, submit; on a worker
void gen_free(struct api_gen **g);
void gen_abandon(struct call *c); // cancels every sequence
// Ends the answer with an error, whatever was sent before. Under gen.lock.
void gen_fail(struct call *c, int status, const char *param, const char *message);

// --- render.c: answers and chunks, under gen.lock ---
bool wants_tokens(const struct api_params *p);
void pieces_begin(struct api_seq *s); // the first prompt token, which nothing scores
void pieces_add(struct api_seq *s, const struct qr_gen_token *t); // one token's share
bool pieces_empty(const struct api_pieces *p);
void render_answer(struct call *c, struct qr_buf *out);
void render_chunk(struct api_seq *s,
                  struct qr_buf *out); // the event, with `data: ` and the blank line; clears what it sent
void render_role(struct api_seq *s, struct qr_buf *out); // chat's first event
void render_usage_chunk(struct call *c, struct qr_buf *out);
void pieces_fini(struct api_pieces *p);
// The text of a token as it is shown: its bytes, or its name when it is special.
struct qr_text_span token_text(const struct qr_tokenizer *t, int32_t id);

// --- pump.c ---
void *pump_thread(void *api);

api_handler api_completions, api_chat, api_models, api_model, api_tokenize, api_detokenize, api_health,
    api_version, api_load, api_metrics, api_debug_kv, api_debug_sched, api_reset_prefix_cache;

#endif
