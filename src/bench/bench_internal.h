/* What the files of the room share: the functions that bench.def names.
 *
 * Owns: nothing. Refuses to know: how a measurement works. Threads: see bench.h. Lifetime: static. */
#ifndef QR_BENCH_BENCH_INTERNAL_H
#define QR_BENCH_BENCH_INTERNAL_H

#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "bench/bench.h"

#define QR_BENCH(name, model, args, summary)                                                                  \
    enum qr_status bench_##name(const struct bench_args *a, struct qr_error *err) QR_MUST_CHECK;              \
    extern const char bench_##name##_help[];
#include "bench/bench.def"
#undef QR_BENCH

// Common members of every JSON result: version, date (UTC), processor.
void bench_put_origin(struct qr_json_writer *w);
// A member of the object that w is in.
void bench_put_real(struct qr_json_writer *w, const char *key, double v);
void bench_put_int(struct qr_json_writer *w, const char *key, int64_t v);
void bench_put_str(struct qr_json_writer *w, const char *key, const char *v);
// --json -: the JSON is all that is printed.
static inline bool bench_json_only(const struct bench_args *a)
{
    return strcmp(a->conf->json, "-") == 0;
}
// Writes a result to the file of --json, if one was given.
enum qr_status bench_save(const struct bench_args *a, const struct qr_buf *json, struct qr_error *err) QR_MUST_CHECK;

#endif
