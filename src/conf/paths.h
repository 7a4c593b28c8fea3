/* Where models live, and finding one by path or by cached name; whether a result can be written.
 *
 * Owns: nothing. Refuses to know: what is in a file. Threads: any. Lifetime: the caller's buffers.
 * The folder is QUIRE_CACHE, else ${XDG_CACHE_HOME:-~/.cache}/quire, and models are under models/ (DESIGN 6).
 */
#ifndef QR_CONF_PATHS_H
#define QR_CONF_PATHS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

// Writes the models folder's path.
enum qr_status qr_paths_models(char *out, size_t cap, struct qr_error *err) QR_MUST_CHECK;
// A path that exists as given, else a cached name with or without ".gguf". QR_ENOTFOUND lists what is cached.
enum qr_status qr_paths_find_model(const char *name, char *out, size_t cap,
                                   struct qr_error *err) QR_MUST_CHECK;
// "a, b, c": the cached names, as many as fit; "" where there are none.
void qr_paths_list_cached(char *out, size_t cap);
// "-": standard input or output.
bool qr_path_is_std(const char *path);
// Whether a file that --flag writes is one that --other reads or writes. QR_EINVAL if so; "" and "-" are none.
enum qr_status qr_paths_check_apart(const char *flag, const char *path, const char *other, const char *other_path,
                                    struct qr_error *err) QR_MUST_CHECK;
// Before much is computed: whether the file that --flag names can be written, as far as one can tell without doing so.
// QR_EIO says why not; "" and "-" (standard output) are fine.
enum qr_status qr_paths_check_writable(const char *flag, const char *path, struct qr_error *err) QR_MUST_CHECK;

#endif
