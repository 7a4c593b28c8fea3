#include "exec/tier_file.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/test.h"

enum { SLOTS = 6 };

struct rig {
    struct kvmem pool, ram;
    char path[200];
    struct tier_file_conf conf;
    char tags[SLOTS][12];
};

static const char *here(void)
{
    return qr_test_build_path(".");
}

static void open_rig(struct rig *r, const char *dir, size_t block_bytes)
{
    assert_int_equal(kvmem_init(&r->pool, 8, block_bytes), QR_OK);
    assert_int_equal(kvmem_init(&r->ram, SLOTS, block_bytes), QR_OK);
    snprintf(r->path, sizeof r->path, "%s/quire-swap-test-%d", dir, (int)getpid());
    unlink(r->path);
    r->conf = (struct tier_file_conf){
        .path = r->path, .flag = "swap-file", .n_slots = SLOTS, .pool = &r->pool, .ram = &r->ram, .block_bytes = block_bytes};
}

static void close_rig(struct rig *r)
{
    kvmem_fini(&r->pool);
    kvmem_fini(&r->ram);
    unlink(r->path);
}

static struct tier_file *open_file(struct rig *r)
{
    struct tier_file *f = NULL;
    struct qr_error err = {0};
    if (tier_file_new(&r->conf, &f, &err) != QR_OK) fail_msg("%s", err.msg);
    return f;
}

static void wait_for(struct tier_file *f, int n, enum qr_status want)
{
    struct qr_io_done done[SLOTS];
    while (n > 0) {
        int got = tier_file_poll(f, done, SLOTS, 5000);
        assert_in_range(got, 1, n);
        for (int i = 0; i < got; i++) assert_int_equal(done[i].status, want);
        n -= got;
    }
    assert_int_equal(tier_file_poll(f, done, SLOTS, 0), 0);
    assert_int_equal(tier_file_poll(f, done, SLOTS, 5000), 0); // nothing is under way: no wait
}

static uint8_t *slot_of(struct kvmem *m, uint32_t i)
{
    return m->base + (size_t)i * m->block_bytes;
}

static void fill(uint8_t *p, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) p[i] = (uint8_t)qr_rand_u64(seed, 0, i / 8 * 8) ^ (uint8_t)i;
}

static bool holds(const uint8_t *p, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != (uint8_t)((uint8_t)qr_rand_u64(seed, 0, i / 8 * 8) ^ (uint8_t)i)) return false;
    return true;
}

static void write_all(struct rig *r, struct tier_file *f)
{
    struct qr_io io[SLOTS];
    for (uint32_t i = 0; i < SLOTS; i++) {
        snprintf(r->tags[i], sizeof r->tags[i], "holds %u", i);
        fill(slot_of(&r->ram, i), r->conf.block_bytes, i);
        io[i] = (struct qr_io){QR_IO_WRITE, SLOTS - 1 - i, i, r->tags[i]};
    }
    tier_file_submit(f, io, SLOTS);
}

static void round_trip(const char *dir, size_t block_bytes)
{
    struct rig r;
    open_rig(&r, dir, block_bytes);
    struct tier_file *f = open_file(&r);
    write_all(&r, f);
    wait_for(f, SLOTS, QR_OK);
    struct qr_io io[2] = {{QR_IO_READ, 0, 7, NULL}, {QR_IO_READ, 4, 2, NULL}};
    tier_file_submit(f, io, 2);
    wait_for(f, 2, QR_OK);
    assert_true(holds(slot_of(&r.pool, 7), block_bytes, 5));
    assert_true(holds(slot_of(&r.pool, 2), block_bytes, 1));
    fill(slot_of(&r.ram, 3), block_bytes, 99); // a slot is used again
    io[0] = (struct qr_io){QR_IO_WRITE, 4, 3, NULL};
    tier_file_submit(f, io, 1);
    wait_for(f, 1, QR_OK);
    tier_file_submit(f, io + 1, 1);
    wait_for(f, 1, QR_OK);
    assert_true(holds(slot_of(&r.pool, 2), block_bytes, 99));
    tier_file_free(&f);
    assert_int_equal(access(r.path, F_OK), -1); // it leaves nothing behind
    close_rig(&r);
}

QR_TEST(tier_file_gives_back_what_was_written)
{
    round_trip(here(), 4096 * 3); // straight from memory
    round_trip(here(), 10000);    // by way of a page of its own
    if (access("/dev/shm", W_OK) == 0) round_trip("/dev/shm", 8192); // perhaps without O_DIRECT
}

QR_TEST(tier_file_damage_is_an_error_and_no_answer)
{
    struct rig r;
    open_rig(&r, here(), 4096);
    struct tier_file *f = open_file(&r);
    write_all(&r, f);
    wait_for(f, SLOTS, QR_OK);
    FILE *other = fopen(r.path, "r+");
    assert_non_null(other);
    fseek(other, 4096 * 3 + 77, SEEK_SET); // a bit of slot 2 flips
    int c = fgetc(other);
    fseek(other, -1, SEEK_CUR);
    fputc(c ^ 4, other);
    fclose(other);
    tier_file_submit(f, &(struct qr_io){QR_IO_READ, 2, 0, NULL}, 1);
    wait_for(f, 1, QR_EFORMAT);
    tier_file_submit(f, &(struct qr_io){QR_IO_READ, 1, 0, NULL}, 1);
    wait_for(f, 1, QR_OK);
    assert_int_equal(truncate(r.path, 4096 * 5), 0); // slots 4 and 5 are gone
    tier_file_submit(f, &(struct qr_io){QR_IO_READ, 5, 0, NULL}, 1);
    wait_for(f, 1, QR_EIO);
    tier_file_free(&f);
    close_rig(&r);
}

QR_TEST(tier_file_leaves_other_peoples_files_alone)
{
    struct rig r;
    struct tier_file *f = NULL, *second = NULL;
    struct qr_error err;
    open_rig(&r, here(), 4096);
    FILE *theirs = fopen(r.path, "w");
    fputs("important, and longer than a page's name", theirs);
    fclose(theirs);
    assert_int_equal(tier_file_new(&r.conf, &f, &err), QR_EINVAL);
    assert_non_null(strstr(err.msg, "is none of ours is there; it is left alone"));
    struct stat st;
    assert_int_equal(stat(r.path, &st), 0);
    assert_int_equal(st.st_size, 40);
    unlink(r.path);

    f = open_file(&r);
    assert_int_equal(tier_file_new(&r.conf, &second, &err), QR_EINVAL);
    assert_non_null(strstr(err.msg, "another process uses it"));
    assert_int_equal(access(r.path, F_OK), 0);
    tier_file_free(&f);

    theirs = fopen(r.path, "w"); // one that a crash left behind
    fwrite("quire swap 1\n\0\0\0", 1, 16, theirs);
    fclose(theirs);
    f = open_file(&r);
    write_all(&r, f);
    tier_file_free(&f); // with I/O under way
    r.conf.path = "/nowhere/at/all";
    assert_int_equal(tier_file_new(&r.conf, &f, &err), QR_EIO);
    assert_non_null(strstr(err.msg, "--swap-file /nowhere/at/all: cannot open it"));
    r.conf.path = here();
    assert_int_equal(tier_file_new(&r.conf, &f, &err), QR_EIO);
    close_rig(&r);
}

QR_TEST(tier_file_new_survives_no_memory)
{
    struct rig r;
    open_rig(&r, here(), 4096);
    size_t live = qr_mem_live_bytes(QR_MEM_EXEC);
    for (uint64_t at = 1; at <= 5; at++) {
        struct tier_file *f = NULL;
        qr_mem_fail_at(at, 0);
        assert_int_equal(tier_file_new(&r.conf, &f, NULL), QR_ENOMEM);
        qr_mem_fail_at(0, 0);
        assert_null(f);
        assert_int_equal(qr_mem_live_bytes(QR_MEM_EXEC), live);
    }
    close_rig(&r);
}

// ---- Files that are kept ----

static void open_kept(struct rig *r, size_t block_bytes)
{
    open_rig(r, here(), block_bytes);
    r->conf.tag_bytes = sizeof r->tags[0];
    r->conf.flag = "prefix-cache-file";
    r->conf.identity[0] = 77;
}

static int count_tags(struct tier_file *f)
{
    int n = 0;
    for (uint32_t i = 0; i < SLOTS; i++) n += tier_file_tag(f, i) != NULL;
    return n;
}

static void write_and_close(struct rig *r)
{
    struct tier_file *f = open_file(r);
    assert_int_equal(count_tags(f), 0);
    write_all(r, f);
    wait_for(f, SLOTS, QR_OK);
    tier_file_free(&f);
    assert_int_equal(access(r->path, F_OK), 0);
    memset(r->pool.base, 0, r->conf.block_bytes * 8);
}

QR_TEST(tier_file_that_is_kept_is_found_again)
{
    for (size_t bytes = 4096; bytes < 12000; bytes += 3000) {
        struct rig r;
        open_kept(&r, bytes);
        write_and_close(&r);
        struct tier_file *f = open_file(&r);
        assert_int_equal(count_tags(f), SLOTS);
        for (uint32_t i = 0; i < SLOTS; i++) assert_string_equal(tier_file_tag(f, SLOTS - 1 - i), r.tags[i]);
        tier_file_submit(f, &(struct qr_io){QR_IO_READ, 4, 2, NULL}, 1);
        wait_for(f, 1, QR_OK);
        assert_true(holds(slot_of(&r.pool, 2), bytes, 1));
        tier_file_free(&f);
        close_rig(&r);
    }
}

// Changes one byte of the file.
static void flip(const char *path, long at)
{
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    fseek(f, at, SEEK_SET);
    int c = fgetc(f);
    fseek(f, at, SEEK_SET);
    fputc(c ^ 0x10, f);
    fclose(f);
}

QR_TEST(tier_file_that_is_kept_trusts_nothing_that_is_not_whole)
{
    static const struct {
        long flip_at, cut_to;
        int n_tags;
    } want[] = {
        {20, -1, 0},                // the head's identity
        {4096 + 32 * 2 + 20, -1, 5}, // a record's tag: 16 bytes of sums, 12 of tag, rounded up to 32
        {4096 * 2 + 4096, -1, 6},   // a block: known when it is read
        {-1, 4096 * 4, 0},          // cut short
        {-1, 100, 0},
        {-1, 10, -1}, // not even the first words: nobody knows whose that is
    };
    qr_log_set_level(QR_LOG_ERROR);
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        struct rig r;
        struct tier_file *f = NULL;
        struct qr_error err;
        open_kept(&r, 4096);
        write_and_close(&r);
        if (want[i].flip_at >= 0) flip(r.path, want[i].flip_at);
        if (want[i].cut_to >= 0) assert_int_equal(truncate(r.path, want[i].cut_to), 0);
        assert_int_equal(tier_file_new(&r.conf, &f, &err), want[i].n_tags < 0 ? QR_EINVAL : QR_OK);
        if (f) {
            assert_int_equal(count_tags(f), want[i].n_tags);
            tier_file_submit(f, &(struct qr_io){QR_IO_READ, 1, 0, NULL}, 1);
            wait_for(f, 1, i == 1 ? QR_OK : QR_EFORMAT);
        }
        tier_file_free(&f);
        close_rig(&r);
    }
    qr_log_set_level(QR_LOG_INFO);
}

QR_TEST(tier_file_that_is_kept_is_begun_anew_for_another_model)
{
    struct rig r;
    open_kept(&r, 4096);
    write_and_close(&r);
    qr_log_set_level(QR_LOG_ERROR);
    r.conf.identity[1] = 5;
    struct tier_file *f = open_file(&r);
    assert_int_equal(count_tags(f), 0);
    uint64_t key = tier_file_key(f)[0];
    tier_file_free(&f);
    f = open_file(&r);
    assert_int_equal(tier_file_key(f)[0], key); // the same as long as it lives
    tier_file_free(&f);
    r.conf.identity[1] = 0;
    f = open_file(&r);
    assert_int_equal(count_tags(f), 0); // and the first one's blocks are gone
    tier_file_free(&f);
    qr_log_set_level(QR_LOG_INFO);
    close_rig(&r);
}
