#ifndef _GNU_SOURCE
#define _GNU_SOURCE // O_DIRECT, fallocate
#endif
#include "exec/tier_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "exec/keep.h"

#define PAGE ((size_t)4096) // what O_DIRECT asks of offsets, lengths and addresses, at most

static const char magic[16] = "quire swap 1\n";

struct tier_file {
    struct tier_file_conf conf;
    char *path;
    int fd;
    bool is_ours;    // the file was made or taken over: it goes with us
    bool is_direct;
    size_t stride;   // bytes from slot to slot
    size_t slots_at; // where they begin
    struct keep keep; // of one that is kept
    uint64_t *sums;  // (n_slots) of what was written; the I/O thread's
    uint8_t *bounce; // (stride) for blocks that are not aligned; the I/O thread's

    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t todo_cond, done_cond;
    struct qr_io *todo;      // lock: (n_slots) a ring
    struct qr_io_done *done; // lock: (n_slots)
    uint32_t first, n_todo, n_done;
    uint32_t n_busy; // lock: submitted and not polled
    bool stop;       // lock
};

static bool is_kept(const struct tier_file *f)
{
    return f->conf.tag_bytes > 0;
}

static enum qr_status refuse(struct tier_file *f, struct qr_error *err, const char *what)
{
    return qr_fail_param(err, QR_EIO, f->conf.flag, "--%s %.120s: %s: %s", f->conf.flag, f->path, what,
                         strerror(errno));
}

static enum qr_status leave_alone(struct tier_file *f, struct qr_error *err, const char *why)
{
    return qr_fail_param(err, QR_EINVAL, f->conf.flag, "--%s %.120s: %s", f->conf.flag, f->path, why);
}

static bool begins_as_ours(struct tier_file *f)
{
    char head[sizeof magic];
    if (is_kept(f)) return keep_is_ours(f->fd);
    return pread(f->fd, head, sizeof head, 0) == (ssize_t)sizeof head && memcmp(head, magic, sizeof head) == 0;
}

static uint64_t whole_bytes(const struct tier_file *f)
{
    return f->slots_at + f->conf.n_slots * f->stride;
}

// A file that was there must be ours to overwrite.
static enum qr_status check_owned(struct tier_file *f, uint64_t *bytes, struct qr_error *err)
{
    struct stat st;
    if (fstat(f->fd, &st) != 0) return refuse(f, err, "cannot look at it");
    if (!S_ISREG(st.st_mode)) return leave_alone(f, err, "expected a regular file");
    if (flock(f->fd, LOCK_EX | LOCK_NB) != 0) return leave_alone(f, err, "another process uses it");
    *bytes = (uint64_t)st.st_size;
    if (st.st_size == 0 || begins_as_ours(f)) return QR_OK;
    return leave_alone(f, err, "a file that is none of ours is there; it is left alone");
}

static enum qr_status begin(struct tier_file *f, uint64_t bytes, struct qr_error *err)
{
    const char *why;
    if (!is_kept(f)) {
        if (pwrite(f->fd, magic, sizeof magic, 0) != (ssize_t)sizeof magic) return refuse(f, err, "cannot write");
        return QR_OK;
    }
    if (bytes > 0 && keep_read(&f->keep, f->fd, bytes, whole_bytes(f), &why)) {
        for (uint32_t i = 0; i < f->conf.n_slots; i++) f->sums[i] = keep_sum(&f->keep, i);
        QR_INFO("exec", "%s: %u KV blocks of cached prefixes from before", f->path, f->keep.n_found);
        return QR_OK;
    }
    if (bytes > 0) QR_WARN("exec", "--%s %s is begun anew: %s", f->conf.flag, f->path, why);
    return keep_begin(&f->keep, f->fd) == QR_OK ? QR_OK : refuse(f, err, "cannot write");
}

// Takes the space now, so that a full disk is known at the start.
static enum qr_status take_space(struct tier_file *f, struct qr_error *err)
{
    off_t bytes = (off_t)whole_bytes(f);
    if (fallocate(f->fd, 0, 0, bytes) == 0) return QR_OK;
    if (errno != ENOSPC && errno != EFBIG && ftruncate(f->fd, bytes) == 0) return QR_OK;
    return qr_fail_param(err, QR_EIO, f->conf.flag, "--%s %.100s: %lld bytes for %u KV blocks: %s", f->conf.flag,
                         f->path, (long long)bytes, f->conf.n_slots, strerror(errno));
}

static enum qr_status open_file(struct tier_file *f, struct qr_error *err)
{
    uint64_t bytes = 0;
    f->fd = open(f->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (f->fd < 0) return refuse(f, err, "cannot open it");
    enum qr_status st = check_owned(f, &bytes, err);
    if (st != QR_OK) return st;
    f->is_ours = true;
    if ((st = begin(f, bytes, err)) != QR_OK || (st = take_space(f, err)) != QR_OK) return st;
    int flags = fcntl(f->fd, F_GETFL);
    f->is_direct = flags >= 0 && fcntl(f->fd, F_SETFL, flags | O_DIRECT) == 0;
    return QR_OK;
}

// The filesystem took O_DIRECT and refuses it now: the page cache it is.
static bool give_up_direct(struct tier_file *f)
{
    if (!f->is_direct) return false;
    int flags = fcntl(f->fd, F_GETFL);
    f->is_direct = false;
    return flags >= 0 && fcntl(f->fd, F_SETFL, flags & ~O_DIRECT) == 0;
}

// All of these bytes, or an error.
static enum qr_status transfer(struct tier_file *f, enum qr_io_kind kind, uint8_t *p, size_t bytes, off_t at)
{
    size_t n = 0;
    while (n < bytes) {
        ssize_t got = kind == QR_IO_READ ? pread(f->fd, p + n, bytes - n, at + (off_t)n)
                                         : pwrite(f->fd, p + n, bytes - n, at + (off_t)n);
        if (got > 0)
            n += (size_t)got;
        else if (got == 0)
            return QR_EIO; // the file is shorter than it was
        else if (errno != EINTR && !(errno == EINVAL && give_up_direct(f)))
            return QR_EIO;
    }
    return QR_OK;
}

static enum qr_status work_on(struct tier_file *f, const struct qr_io *io)
{
    struct kvmem *m = io->kind == QR_IO_READ ? f->conf.pool : f->conf.ram;
    uint8_t *block = m->base + (size_t)io->mem * f->conf.block_bytes;
    bool aligned = f->stride == f->conf.block_bytes && (uintptr_t)block % PAGE == 0;
    uint8_t *p = aligned ? block : f->bounce;
    off_t at = (off_t)(f->slots_at + io->file * f->stride);
    if (io->kind == QR_IO_WRITE) {
        if (!aligned) memcpy(p, block, f->conf.block_bytes);
        f->sums[io->file] = qr_hash_words(io->file, p, f->conf.block_bytes);
        enum qr_status written = transfer(f, QR_IO_WRITE, p, f->stride, at);
        if (written != QR_OK || !is_kept(f)) return written;
        size_t note_at, note_bytes;
        keep_note(&f->keep, io->file, f->sums[io->file], io->tag, &note_at, &note_bytes);
        return transfer(f, QR_IO_WRITE, f->keep.records + (note_at - PAGE), note_bytes, (off_t)note_at);
    }
    enum qr_status st = transfer(f, QR_IO_READ, p, f->stride, at);
    if (st != QR_OK) return st;
    if (qr_hash_words(io->file, p, f->conf.block_bytes) != f->sums[io->file]) return QR_EFORMAT;
    if (!aligned) memcpy(block, p, f->conf.block_bytes);
    return QR_OK;
}

static void *run(void *arg)
{
    struct tier_file *f = arg;
    struct qr_clock *clock = qr_clock_wall();
    pthread_setname_np(pthread_self(), "quire-file");
    pthread_mutex_lock(&f->lock);
    for (;;) {
        while (f->n_todo == 0 && !f->stop) pthread_cond_wait(&f->todo_cond, &f->lock);
        if (f->stop) break;
        struct qr_io io = f->todo[f->first];
        f->first = (f->first + 1) % f->conf.n_slots;
        f->n_todo--;
        pthread_mutex_unlock(&f->lock);
        uint64_t start = clock->now_ns(clock);
        enum qr_status st = work_on(f, &io);
        uint64_t end = clock->now_ns(clock);
        pthread_mutex_lock(&f->lock);
        f->done[f->n_done++] = (struct qr_io_done){io, st, end - start};
        pthread_cond_signal(&f->done_cond);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

static enum qr_status allocate(struct tier_file *f)
{
    size_t n = f->conf.n_slots;
    f->sums = qr_calloc(QR_MEM_EXEC, n, sizeof *f->sums);
    f->todo = qr_malloc(QR_MEM_EXEC, n * sizeof *f->todo);
    f->done = qr_malloc(QR_MEM_EXEC, n * sizeof *f->done);
    f->bounce = qr_pages_alloc(QR_MEM_EXEC, f->stride);
    f->slots_at = PAGE;
    if (is_kept(f)) {
        const struct tier_file_conf *c = &f->conf;
        if (keep_init(&f->keep, c->n_slots, c->block_bytes, c->tag_bytes, c->identity) != QR_OK) return QR_ENOMEM;
        f->slots_at = keep_head_bytes(&f->keep);
    }
    return f->sums && f->todo && f->done && f->bounce ? QR_OK : QR_ENOMEM;
}

enum qr_status tier_file_new(const struct tier_file_conf *conf, struct tier_file **out, struct qr_error *err)
{
    QR_ASSERT(conf->n_slots >= 1 && conf->block_bytes >= 1);
    struct tier_file *f = qr_calloc(QR_MEM_EXEC, 1, sizeof *f);
    if (!f) return qr_fail(err, QR_ENOMEM, "KV file: no memory");
    f->conf = *conf;
    f->fd = -1;
    f->stride = (conf->block_bytes + PAGE - 1) / PAGE * PAGE;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->todo_cond, NULL);
    pthread_cond_init(&f->done_cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
    f->path = qr_strdup(QR_MEM_EXEC, conf->path);
    enum qr_status st = QR_OK;
    if (!f->path || allocate(f) != QR_OK)
        st = qr_fail(err, QR_ENOMEM, "KV file: no memory for the list of %u blocks", conf->n_slots);
    if (st == QR_OK) st = open_file(f, err);
    if (st == QR_OK && !(f->has_thread = pthread_create(&f->thread, NULL, run, f) == 0))
        st = qr_fail(err, QR_ENOMEM, "KV file: its thread did not start");
    if (st != QR_OK) {
        tier_file_free(&f);
        return st;
    }
    if (!f->is_direct) QR_INFO("exec", "%s: no O_DIRECT here, so it goes through the page cache", f->path);
    *out = f;
    return QR_OK;
}

void tier_file_free(struct tier_file **file)
{
    struct tier_file *f = *file;
    if (!f) return;
    if (f->has_thread) {
        pthread_mutex_lock(&f->lock);
        f->stop = true;
        pthread_cond_signal(&f->todo_cond);
        pthread_mutex_unlock(&f->lock);
        pthread_join(f->thread, NULL);
    }
    if (f->is_ours && !is_kept(f)) unlink(f->path); // while its lock is held: nobody else has taken it over
    if (f->fd >= 0) close(f->fd);
    pthread_mutex_destroy(&f->lock);
    pthread_cond_destroy(&f->todo_cond);
    pthread_cond_destroy(&f->done_cond);
    qr_pages_free(QR_MEM_EXEC, f->bounce, f->stride);
    keep_fini(&f->keep);
    qr_free(f->path);
    qr_free(f->sums);
    qr_free(f->todo);
    qr_free(f->done);
    qr_free(f);
    *file = NULL;
}

void tier_file_submit(struct tier_file *f, const struct qr_io *io, int32_t n)
{
    pthread_mutex_lock(&f->lock);
    QR_ASSERT(f->n_busy + (uint32_t)n <= f->conf.n_slots);
    for (int32_t i = 0; i < n; i++) {
        QR_ASSERT(io[i].file < f->conf.n_slots);
        f->todo[(f->first + f->n_todo++) % f->conf.n_slots] = io[i];
    }
    f->n_busy += (uint32_t)n;
    pthread_cond_signal(&f->todo_cond);
    pthread_mutex_unlock(&f->lock);
}

int32_t tier_file_poll(struct tier_file *f, struct qr_io_done *out, int32_t cap, int timeout_ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)timeout_ms * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&f->lock);
    while (timeout_ms > 0 && f->n_done == 0 && f->n_busy > 0)
        if (pthread_cond_timedwait(&f->done_cond, &f->lock, &until) != 0) break;
    uint32_t n = f->n_done < (uint32_t)cap ? f->n_done : (uint32_t)cap;
    memcpy(out, f->done, n * sizeof *out);
    memmove(f->done, f->done + n, (f->n_done - n) * sizeof *out);
    f->n_done -= n;
    f->n_busy -= n;
    pthread_mutex_unlock(&f->lock);
    return (int32_t)n;
}

bool tier_file_is_direct(const struct tier_file *f)
{
    return f->is_direct;
}

const void *tier_file_tag(const struct tier_file *f, uint32_t slot)
{
    return keep_tag(&f->keep, slot);
}

const uint64_t *tier_file_key(const struct tier_file *f)
{
    return f->keep.key;
}
