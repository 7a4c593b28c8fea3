#include "conf/paths.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum qr_status qr_paths_models(char *out, size_t cap, struct qr_error *err)
{
    const char *own = getenv("QUIRE_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n;
    if (own && *own)
        n = snprintf(out, cap, "%s/models", own);
    else if (xdg && *xdg)
        n = snprintf(out, cap, "%s/quire/models", xdg);
    else if (home && *home)
        n = snprintf(out, cap, "%s/.cache/quire/models", home);
    else
        return qr_fail(err, QR_ENOTFOUND, "no cache folder: set QUIRE_CACHE or HOME");
    if (n < 0 || (size_t)n >= cap) return qr_fail(err, QR_EINVAL, "the cache folder's path is too long");
    return QR_OK;
}

static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

// Writes "a, b, c": the cached names, as many as fit.
static void list_cached(const char *dir, char *out, size_t cap)
{
    size_t at = 0;
    out[0] = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        if (n < 6 || strcmp(e->d_name + n - 5, ".gguf") != 0 || at + n + 4 > cap) continue;
        at += (size_t)snprintf(out + at, cap - at, "%s%.*s", at ? ", " : "", (int)(n - 5), e->d_name);
    }
    if (d) closedir(d);
}

enum qr_status qr_paths_find_model(const char *name, char *out, size_t cap, struct qr_error *err)
{
    if (strlen(name) >= cap) return qr_fail(err, QR_EINVAL, "the model's path is too long");
    struct stat st;
    if (stat(name, &st) == 0) {
        if (!S_ISREG(st.st_mode))
            return qr_fail(err, QR_EINVAL, "%.120s is not a file: give a .gguf file", name);
        snprintf(out, cap, "%s", name);
        return QR_OK;
    }
    char dir[4096], cached[160];
    enum qr_status s = qr_paths_models(dir, sizeof dir, err);
    if (s != QR_OK) return s;
    if (!strchr(name, '/')) {
        static const char *const endings[] = {"", ".gguf"};
        for (int i = 0; i < 2; i++) {
            int n = snprintf(out, cap, "%s/%s%s", dir, name, endings[i]);
            if (n > 0 && (size_t)n < cap && is_file(out)) return QR_OK;
        }
    }
    list_cached(dir, cached, sizeof cached);
    if (!cached[0])
        return qr_fail(err, QR_ENOTFOUND,
                       "no file %.80s; no model is cached yet (`make model` brings the default one)", name);
    return qr_fail(err, QR_ENOTFOUND, "no file %.60s and no cached model of that name; cached: %s", name,
                   cached);
}

void qr_paths_list_cached(char *out, size_t cap)
{
    char dir[4096];
    struct qr_error err;
    out[0] = 0;
    if (qr_paths_models(dir, sizeof dir, &err) == QR_OK) list_cached(dir, out, cap);
}

// By permissions alone: to open a pipe and close it again would end its reader.
static bool may_write(const char *path)
{
    char dir[4096];
    const char *slash = strrchr(path, '/');
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) return errno = EISDIR, false;
    if (access(path, W_OK) == 0) return true;
    snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    return errno == ENOENT && access(dir, W_OK | X_OK) == 0;
}

bool qr_path_is_std(const char *path)
{
    return strcmp(path, "-") == 0;
}

static bool is_one_file(const char *a, const char *b)
{
    struct stat x, y;
    if (strcmp(a, b) == 0) return true;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino && S_ISREG(x.st_mode);
}

enum qr_status qr_paths_check_apart(const char *flag, const char *path, const char *other, const char *other_path,
                                    struct qr_error *err)
{
    if (!path[0] || !other_path[0] || qr_path_is_std(path) || qr_path_is_std(other_path)) return QR_OK;
    if (strncmp(path, "/dev/", 5) == 0 || !is_one_file(path, other_path)) return QR_OK;
    return qr_fail(err, QR_EINVAL, "--%s: expected another file than that of %s, got %.150s", flag, other, path);
}

enum qr_status qr_paths_check_writable(const char *flag, const char *path, struct qr_error *err)
{
    if (!path[0] || qr_path_is_std(path) || may_write(path)) return QR_OK;
    return qr_fail(err, QR_EIO, "--%s: cannot write %.150s: %s", flag, path, strerror(errno));
}
