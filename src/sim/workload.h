/* What arrives when: requests as lengths, with what they share.
 *
 * Owns: the list of items and the hash ids of their prompts. Refuses to know: engines, time beyond arrivals.
 * Threads: immutable once made. Lifetime: _make to _free.
 *
 * From a file (CSV with a header, or JSON lines; .gz of either), or from lengths in words:
 *
 *   arrival_s       seconds from the start; empty: an arrival process places it   (JSON: timestamp, in ms)
 *   input_tokens    prompt, >= 1; of a session's turn: the whole context          (input_length, prompt_tokens)
 *   output_tokens   answer, >= 1                                                  (output_length)
 *   hash_ids        "0-13 27": ids of the prompt's blocks; equal ids, equal tokens
 *   session, turn   (session: any text) turns of one session come one after the other; a turn's prompt begins with the context before
 *                   it, answer included; its arrival is from the session's start
 *   think_s         of a turn: what the user takes after the answer before
 *
 * The same for users is in README.md beside this. Other columns are ignored, and named in `unused`. In words: "512/128" is
 * a prompt of 512 and an answer of 128 tokens; "200/100*19,30000/100" nineteen of one kind for one of another. */
#ifndef QR_SIM_WORKLOAD_H
#define QR_SIM_WORKLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define QR_SIM_TOKENS_MAX (1 << 24) // of a prompt or an answer
#define QR_SIM_REQUESTS_MAX 100000000 // in memory at once, 88 bytes each
// A clock of 64 bits counts nanoseconds for 584 years; answers must end within them too.
#define QR_SIM_ARRIVAL_S_MAX 1e9

struct qr_sim_item {
    double arrival_s; // of a session's later turns: from the session's start, or < 0: when the turn before has ended
    double think_s;
    int32_t n_prompt, n_output;
    int64_t session; // -1: none
    int64_t next;    // index of the session's next turn; -1: none
    bool is_first;   // no turn before it
    size_t first_hash, n_hashes; // into hashes[]
};

struct qr_sim_workload {
    struct qr_sim_item *items; // in order of arrival, but for later turns
    size_t n_items;
    uint64_t *hashes;
    size_t n_hashes;
    int32_t hash_tokens; // of a block that one hash id stands for; 0: there are none
    bool timed;          // arrivals are the file's own
    long late_line;      // of the file: the first whose times are beyond QR_SIM_ARRIVAL_S_MAX; 0: none
    char unused[160];    // columns, or keys of the first object, that stand for nothing here: "a", "b"
};

struct qr_sim_workload_conf {
    const char *source;  // a path, "-" for standard input, or lengths in words
    int64_t n_requests;  // 0: all rows of a file, 1000 of lengths in words
    double rate;         // a second (sessions, where there are any); 0: as the file says, INFINITY: all at once
    double rate_without_times; // where `rate` is 0 and the source has no times; 0: that is an error
    bool needs_rate;     // for the error: all at once is nothing that the caller can take
    double burstiness;   // shape of the gamma distribution of gaps; 1: Poisson, below: in bursts
    int32_t shared_tokens; // of a prefix that is put before every prompt
    uint64_t seed;
};

// One line of error with file, line, what was expected and what came.
enum qr_status qr_sim_workload_make(const struct qr_sim_workload_conf *conf, struct qr_sim_workload *out,
                                    struct qr_error *err) QR_MUST_CHECK;
void qr_sim_workload_free(struct qr_sim_workload *w);

// Rows of a file as they stand: arrival_s NAN where it is empty.
enum qr_status qr_sim_workload_read(const char *path, struct qr_sim_workload *out,
                                    struct qr_error *err) QR_MUST_CHECK;
// The i-th gap of an arrival process, seconds: gamma distributed with mean 1 / rate and this shape.
double qr_sim_gap(uint64_t seed, uint64_t i, double rate, double shape);

#endif
