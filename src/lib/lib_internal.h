/* What the files of lib share: the composed system, and the text side of each live request.
 *
 * Owns: nothing beyond lib.h. Refuses to know: HTTP, JSON.
 * Threads: fields say whose they are. Lifetime: qr_lib_open to qr_lib_close. */
#ifndef QR_LIB_INTERNAL_H
#define QR_LIB_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/workers.h"
#include "engine/engine.h"
#include "exec/exec_local.h"
#include "fmt/gguf.h"
#include "lib/lib.h"

#define LIB_EOS_MAX 16
#define LIB_BUCKETS 4096   // of the table of live requests; ids are consecutive, so they spread evenly
#define LIB_REQS_MAX 16384 // live at once; more are told to come again
#define LIB_INBOX 4096     // requests between two steps
#define LIB_OUTBOX 4096    // events between two reads

// One answer of a request: what turns its tokens into text.
struct lib_choice {
    struct qr_detok detok;
    struct qr_stops *stops; // NULL: no stop strings
    int32_t n_generated;
    uint64_t first_token_ns;
    bool done;
};

struct lib_req {
    qr_req_id id;
    struct lib_req *chain; // table_lock
    void *user;
    bool include_stop, ignore_eos, want_tokens;
    int32_t n_prompt, min_tokens, n_cached;
    uint64_t scheduled_ns;
    size_t n_stop_ids;
    int32_t *stop_ids;
    int32_t n_choices, n_live;
    struct lib_choice choices[];
};

struct qr_lib {
    struct qr_lib_info info;
    struct qr_tokenizer *tok;
    struct qr_template *tmpl; // NULL: none
    struct qr_workers *workers;
    struct qr_model *model;
    struct qr_exec *exec;
    struct qr_engine *engine;
    int32_t eos[LIB_EOS_MAX];
    size_t n_eos;

    pthread_mutex_t table_lock;
    struct lib_req *table[LIB_BUCKETS]; // table_lock; only the reader takes entries out
    int32_t n_reqs;                     // table_lock

    atomic_bool closing;
    atomic_int n_reading; // inside qr_lib_next
    // the reader's
    struct qr_buf piece, text;
    struct qr_gen_token token;
};

// ==== vocab.c: from metadata to the text room ====

enum qr_status lib_make_tokenizer(const struct qr_gguf *g, struct qr_tokenizer **out,
                                  struct qr_error *err) QR_MUST_CHECK;
// The chat template of the file or the one given; *out stays NULL when there is none, or when the file's is
// not usable.
enum qr_status lib_make_template(const struct qr_gguf *g, const char *given, struct qr_template **out,
                                 struct qr_error *err) QR_MUST_CHECK;
int32_t lib_token_id(const struct qr_gguf *g, const char *key); // -1 where absent
// Every id that ends an answer: what metadata names, and the end-of-turn tokens that chat models use.
size_t lib_find_eos(const struct qr_gguf *g, const struct qr_tokenizer *t, int32_t eos[LIB_EOS_MAX]);

// ==== memory.c: how large the pool is ====

struct lib_memory {
    // asked for
    int32_t max_model_len; // 0: the model's
    int32_t max_num_seqs, block_size;
    uint64_t kv_bytes; // 0: from the share
    uint32_t n_blocks; // overrides kv_bytes when > 0
    double share;
    // found
    int32_t ctx_max;
    uint64_t block_bytes;
    uint64_t machine_bytes; // memory that there is
    uint64_t used_bytes;    // weights, what the process holds besides, swap space
    uint64_t step_bytes;    // activations of the largest step, not yet taken
};
struct lib_tier_bytes {
    uint64_t swap_ram, swap_file, prefix_ram, prefix_file;
};
struct lib_tiers {
    uint32_t n_ram, n_file, n_staging, n_prefix_ram, n_prefix_file; // blocks
};
// Blocks of the tiers beside the pool that so many bytes hold; what they take of memory counts as used before the
// pool is sized.
enum qr_status lib_size_tiers(const struct lib_memory *m, const struct lib_tier_bytes *bytes, struct lib_tiers *out,
                              struct qr_error *err) QR_MUST_CHECK;
// What a cached block's numbers depend on: the model file, the build, the instruction set, options. Two processes with
// the same identity compute the same bits.
enum qr_status lib_identity(const struct qr_lib_conf *conf, const struct qr_lib_info *info, uint64_t out[2],
                            struct qr_error *err) QR_MUST_CHECK;

struct lib_pool {
    uint32_t n_blocks;
    int32_t max_model_len;
};
// What a file's tensors will take once packed, within a few per cent.
uint64_t lib_weight_bytes(const struct qr_gguf *g);
// QR_ETOOBIG where weights cannot fit: said before they are read, for the system ends who takes too much.
enum qr_status lib_check_weights(uint64_t weight_bytes, uint64_t machine_bytes,
                                 struct qr_error *err) QR_MUST_CHECK;
// QR_ETOOBIG says what does not fit, with the numbers and the longest request that would.
enum qr_status lib_size_pool(const struct lib_memory *m, struct lib_pool *out,
                             struct qr_error *err) QR_MUST_CHECK;

// ==== stream.c ====

void lib_free_requests(struct qr_lib *lib);

#endif
