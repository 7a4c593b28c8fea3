/* A load: prompts as token ids, answers by length, and when each request is sent.
 *
 * Owns: the list. Refuses to know: servers. Threads: immutable once made. Lifetime: _make to _free.
 *
 * Kinds: "sharegpt", lengths as chats have them (lognormal, mean 161 in and 200 out, at most 800 and 600);
 * "random", prompts of --input-len and answers of --output-len tokens; "prefix", --prefix-len tokens that all
 * share, then --input-len of one's own. */
#ifndef QR_BENCH_LOAD_H
#define QR_BENCH_LOAD_H

#include <stddef.h>
#include <stdint.h>

#include "conf/conf.h"

struct bench_item {
    double arrival_s; // after the start
    int32_t n_prompt, n_out;
    int32_t *prompt; // (n_prompt)
};

struct bench_load {
    struct bench_item *items; // by arrival
    size_t n;
    int32_t *ids; // of all prompts
    uint64_t n_in, n_out;
};

// QR_EINVAL names the option at fault.
enum qr_status bench_load_make(const struct qr_conf *conf, struct bench_load *out,
                               struct qr_error *err) QR_MUST_CHECK;
void bench_load_free(struct bench_load *l);

#endif
