#include "core/batch.h"

#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/test.h"

static uint64_t mem[512];

// Two sequences: slot 3 computes 2 prompt tokens at 16.., slot 1 generates at 5; slot 1's block was copied.
static struct qr_batch *example(void)
{
    struct qr_batch_caps caps = {.n_seqs = 2, .n_tokens = 3, .n_table = 3, .n_copies = 1};
    assert_true(qr_batch_bytes(&caps) <= sizeof mem);
    memset(mem, 0xEE, sizeof mem);
    struct qr_batch *b = qr_batch_init(mem, &caps);
    b->n_seqs = 2, b->n_tokens = 3, b->n_table = 3, b->n_copies = 1;
    qr_batch_seqs(b)[0] = (struct qr_batch_seq){3, 2, 16, 20, 0, 0, 2, QR_BATCH_SCORE};
    qr_batch_seqs(b)[1] = (struct qr_batch_seq){1, 1, 5, 5, 2, 2, 1, QR_BATCH_SAMPLE};
    memcpy(qr_batch_ids(b), (int32_t[]){7, 8, 9}, 12);
    memcpy(qr_batch_table(b), (uint32_t[]){0, 1, 4}, 12);
    qr_batch_copies(b)[0] = (struct qr_batch_copy){.src = 2, .dst = 4};
    return b;
}

// Whether the check aborts; in a child, with its message thrown away.
static bool aborts(const struct qr_batch *b)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL);
        if (!freopen("/dev/null", "w", stderr)) _exit(2);
        qr_batch_check(b, 16, 8);
        _exit(0);
    }
    int st = 0;
    waitpid(pid, &st, 0);
    return WIFSIGNALED(st) && WTERMSIG(st) == SIGABRT;
}

QR_TEST(batch_parts_do_not_overlap_and_fill_the_buffer)
{
    struct qr_batch *b = example();
    assert_true(b->seqs_at >= sizeof *b);
    assert_int_equal(b->ids_at, b->seqs_at + 64);
    assert_int_equal(b->table_at, b->ids_at + 16); // three ids, rounded up to 8 bytes
    assert_int_equal(b->copies_at, b->table_at + 16);
    assert_int_equal(b->bytes, b->copies_at + 16); // one of 12 bytes
    qr_batch_check(b, 16, 8);
}

QR_TEST(batch_check_aborts_on_contradictions)
{
    struct qr_batch *b = example();
    assert_false(aborts(b));
    b = example(), qr_batch_seqs(b)[0].pos0 = 31; // 33 tokens in two blocks of 16
    assert_true(aborts(b));
    b = example(), qr_batch_seqs(b)[1].slot = 3; // the same slot twice
    assert_true(aborts(b));
    b = example(), qr_batch_table(b)[1] = 8; // block ids run to 7
    assert_true(aborts(b));
    b = example(), qr_batch_seqs(b)[1].n_tokens = 2; // leaves ids[]
    assert_true(aborts(b));
    b = example(), qr_batch_copies(b)[0].dst = 2; // onto itself
    assert_true(aborts(b));
    b = example(), b->n_copies = 3; // leaves the buffer
    assert_true(aborts(b));
    b = example(), qr_batch_copies(b)[0].dst_tier = QR_TIERS;
    assert_true(aborts(b));
    b = example(), qr_batch_copies(b)[0].src_tier = qr_batch_copies(b)[0].dst_tier = QR_TIER_RAM;
    assert_true(aborts(b)); // what waits elsewhere is not moved about there
    b = example(), qr_batch_copies(b)[0].dst_tier = QR_TIER_RAM, qr_batch_copies(b)[0].dst = 99;
    assert_false(aborts(b)); // slots of other tiers are the executor's to know
}

QR_TEST(batch_copies_go_by_phases)
{
    struct qr_batch_caps caps = {.n_copies = 3};
    struct qr_batch *b = qr_batch_init(mem, &caps);
    b->n_copies = 3;
    struct qr_batch_copy *c = qr_batch_copies(b);
    c[0] = (struct qr_batch_copy){4, 0, QR_TIER_POOL, QR_TIER_RAM}; // out of block 4, which
    c[1] = (struct qr_batch_copy){1, 4, QR_TIER_RAM, QR_TIER_POOL}; // another one comes back to,
    c[2] = (struct qr_batch_copy){4, 5, QR_TIER_POOL, QR_TIER_POOL}; // and is copied on write
    assert_false(aborts(b));
    struct qr_batch_copy first = c[0];
    c[0] = c[1], c[1] = first;
    assert_true(aborts(b));
    c[0] = first, c[1] = (struct qr_batch_copy){5, 0, QR_TIER_POOL, QR_TIER_RAM}; // two to one slot
    assert_true(aborts(b));
}
