#define _GNU_SOURCE
#include "sim/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define LINE_BYTES_MAX ((size_t)64 << 20)
#define BLAME_BYTES_MAX ((size_t)1 << 30) // read at most to learn whether the rest unpacks: seconds

// A child that unpacks fd into a pipe; its reading end, or -1.
static int unpack(int fd, pid_t *child)
{
    int ends[2];
    char *argv[] = {"gzip", "-dc", NULL};
    posix_spawn_file_actions_t fa;
    if (pipe2(ends, O_CLOEXEC) != 0) return -1;
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_adddup2(&fa, fd, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&fa, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&fa, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    int rc = posix_spawnp(child, "gzip", &fa, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&fa);
    close(ends[1]);
    if (rc == 0) return ends[0];
    close(ends[0]);
    *child = 0;
    return -1;
}

enum qr_status qr_lines_open(const char *path, struct qr_lines *out, struct qr_error *err)
{
    struct qr_lines l = {.path = path};
    size_t n = strlen(path);
    int fd = strcmp(path, "-") == 0 ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0) : open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0) return qr_fail(err, QR_ENOTFOUND, "%.180s: %s", path, strerror(errno));
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        close(fd);
        return qr_fail(err, QR_EINVAL, "%.180s: expected a file, got a directory", path);
    }
    if (n > 3 && strcmp(path + n - 3, ".gz") == 0) {
        int pipe_end = unpack(fd, &l.child);
        close(fd);
        fd = pipe_end;
        if (fd < 0) return qr_fail(err, QR_EIO, "%.180s: cannot run gzip to unpack it", path);
    }
    l.f = fdopen(fd, "r");
    if (!l.f) {
        close(fd);
        qr_lines_close(&l);
        return qr_fail(err, QR_ENOMEM, "no memory to read %.180s", path);
    }
    *out = l;
    return QR_OK;
}

// Whether the child has unpacked all, now that nothing comes of it any more.
static enum qr_status unpacked(struct qr_lines *l, struct qr_error *err)
{
    int status = 0;
    if (!l->child || waitpid(l->child, &status, 0) != l->child) return QR_OK;
    l->child = 0;
    if (status == 0) return QR_OK;
    (void)qr_fail(err, QR_EFORMAT, "expected a gzip file; gzip cannot unpack it: it is cut off, damaged, or no gzip at all");
    return qr_fail_in(err, QR_EFORMAT, l->path);
}

static enum qr_status end_of(struct qr_lines *l, struct qr_error *err)
{
    if (ferror(l->f)) return qr_fail(err, QR_EIO, "%.150s:%ld: reading failed", l->path, l->n + 1);
    enum qr_status st = unpacked(l, err);
    return st == QR_OK ? QR_AGAIN : st;
}

enum qr_status qr_lines_blame(struct qr_lines *l, enum qr_status st, struct qr_error *err)
{
    char part[4096];
    if (!l->child) return st;
    for (size_t n, left = BLAME_BYTES_MAX; left > sizeof part && (n = fread(part, 1, sizeof part, l->f)) > 0;) left -= n;
    if (!feof(l->f)) return st;
    enum qr_status why = unpacked(l, err);
    return why == QR_OK ? st : why;
}

// A line with its end, or what was read when its end did not come for so long. The bytes,
// 0 at the end of the file.
static enum qr_status read_line(struct qr_lines *l, size_t *n)
{
    int c = 0;
    for (*n = 0; c != '\n' && *n <= LINE_BYTES_MAX && (c = getc_unlocked(l->f)) != EOF; l->line[(*n)++] = (char)c) {
        if (*n + 1 < l->cap) continue; // room for this one and a NUL
        size_t cap = l->cap ? 2 * l->cap : 4096;
        char *line = realloc(l->line, cap);
        if (!line) return QR_ENOMEM;
        l->line = line;
        l->cap = cap;
    }
    return QR_OK;
}

enum qr_status qr_lines_next(struct qr_lines *l, struct qr_error *err)
{
    size_t n;
    if (read_line(l, &n) != QR_OK) return qr_fail(err, QR_ENOMEM, "%.150s:%ld: no memory for the line", l->path, l->n + 1);
    if (n == 0 || ferror(l->f)) return end_of(l, err);
    l->n++;
    if (n > LINE_BYTES_MAX || memchr(l->line, 0, n))
        return qr_fail(err, QR_EFORMAT, "%.150s:%ld: expected a line of text", l->path, l->n);
    l->is_cut = l->line[n - 1] != '\n';
    while (n > 0 && (l->line[n - 1] == '\n' || l->line[n - 1] == '\r')) n--;
    l->line[n] = 0;
    l->len = n;
    return QR_OK;
}

void qr_lines_close(struct qr_lines *l)
{
    if (l->f) fclose(l->f);
    if (l->child) waitpid(l->child, NULL, 0); // it ends: nobody reads its pipe
    free(l->line);
    *l = (struct qr_lines){0};
}
