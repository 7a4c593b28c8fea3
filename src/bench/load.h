/* A load: prompts as token ids, answers by length, and when each request is sent.
 *
 * Owns: the list. Refuses to know: servers. Threads: immutable once made. Lifetime: _make to _free.
 *
 * Kinds: "sharegpt", lengths as chats have them (lognormal, mean 161 in and 200 out, at most 800 and 600): the very lengths
 * and ids that a Python client draws from random.Random(seed); "random", prompts of --input-len and answers of
 * --output-len tokens; "prefix", --prefix-len tokens that all share, then --input-len of one's own; or a --workload, the
 * traces of sim/workload.h. */
#ifndef QR_BENCH_LOAD_H
#define QR_BENCH_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conf/conf.h"

struct bench_item {
    double arrival_s; // after the start; of a later turn: after its session's, or < 0: when the turn before has ended
    double think_s;   // of a later turn: from the end of the turn before
    int32_t n_prompt, n_out;
    int64_t first_id; // into ids
    int64_t next;     // the session's next turn; -1: none
    bool is_first;    // no turn before it
};

struct bench_load {
    struct bench_item *items; // by arrival, but for later turns
    size_t n;
    int32_t *ids; // of all prompts
    uint64_t n_in, n_out;
    double rate; // requests a second; INFINITY: all at once; 0: as the trace says
};

struct bench_ids { // a range of token ids
    int32_t lo, end;
};
// "1000-39999". QR_EINVAL.
enum qr_status bench_ids_parse(const char *text, struct bench_ids *out, struct qr_error *err) QR_MUST_CHECK;

// With the options of `conf`, but seed and ids as given. QR_EINVAL names the option at fault.
enum qr_status bench_load_make(const struct qr_conf *conf, uint32_t seed, struct bench_ids ids, struct bench_load *out,
                               struct qr_error *err) QR_MUST_CHECK;
void bench_load_free(struct bench_load *l);

#endif
