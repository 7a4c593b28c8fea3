#include "base/ring.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/test.h"

struct record {
    int producer, number, check;
};

QR_TEST(ring_is_first_in_first_out_and_bounded)
{
    struct qr_ring *r = NULL;
    struct record x;
    assert_int_equal(qr_ring_new(5, sizeof x, &r), QR_OK); // rounded up to 8
    for (int round = 0; round < 100; round++) {
        int n = round % 9;
        for (int i = 0; i < n; i++) assert_true(qr_ring_push(r, &(struct record){round, i, -i}));
        assert_int_equal(qr_ring_len(r), n);
        if (n == 8) assert_false(qr_ring_push(r, &x));
        for (int i = 0; i < n; i++) {
            assert_true(qr_ring_pop(r, &x));
            assert_true(x.producer == round && x.number == i && x.check == -i);
        }
        assert_false(qr_ring_pop(r, &x));
    }
    qr_ring_free(&r);
    assert_null(r);
    qr_ring_free(&r);
}

QR_TEST(ring_new_reports_no_memory)
{
    struct qr_ring *r = NULL;
    for (uint64_t n = 1; n <= 2; n++) {
        qr_mem_fail_at(n, 0);
        assert_int_equal(qr_ring_new(16, 8, &r), QR_ENOMEM);
        qr_mem_fail_at(0, 0);
        assert_null(r);
    }
}

#define PRODUCERS 4
#define EACH 20000

struct crowd {
    struct qr_ring *ring;
    int producer;
};

static void *produce(void *arg)
{
    struct crowd *c = arg;
    for (int i = 0; i < EACH; i++) {
        struct record x = {c->producer, i, c->producer * EACH + i};
        while (!qr_ring_push(c->ring, &x)) sched_yield();
        if (i % 16 == 15) qr_ring_wake(c->ring);
    }
    qr_ring_wake(c->ring);
    return NULL;
}

QR_TEST(ring_loses_nothing_of_many_producers)
{
    struct qr_ring *r = NULL;
    struct crowd c[PRODUCERS];
    pthread_t t[PRODUCERS];
    int next[PRODUCERS] = {0};
    assert_int_equal(qr_ring_new(64, sizeof(struct record), &r), QR_OK);
    for (int i = 0; i < PRODUCERS; i++) {
        c[i] = (struct crowd){r, i};
        assert_int_equal(pthread_create(&t[i], NULL, produce, &c[i]), 0);
    }
    for (int got = 0; got < PRODUCERS * EACH;) {
        struct record x;
        if (!qr_ring_pop(r, &x)) {
            qr_ring_wait(r, 1000);
            continue;
        }
        assert_in_range(x.producer, 0, PRODUCERS - 1);
        assert_int_equal(x.number, next[x.producer]++);
        assert_int_equal(x.check, x.producer * EACH + x.number);
        got++;
    }
    for (int i = 0; i < PRODUCERS; i++) pthread_join(t[i], NULL);
    qr_ring_free(&r);
}

static void *wake_once(void *arg)
{
    struct crowd *c = arg;
    assert_true(qr_ring_push(c->ring, &(struct record){1, 2, 3}));
    qr_ring_wake(c->ring);
    return NULL;
}

QR_TEST(ring_wait_ends_with_a_wake_or_in_time)
{
    struct qr_ring *r = NULL;
    struct qr_clock *clock = qr_clock_wall();
    assert_int_equal(qr_ring_new(4, sizeof(struct record), &r), QR_OK);
    uint64_t start = clock->now_ns(clock);
    qr_ring_wait(r, 5);
    assert_true(clock->now_ns(clock) - start >= 4000000);
    for (int round = 0; round < 200; round++) {
        pthread_t t;
        struct crowd c = {r, 0};
        struct record x;
        assert_int_equal(pthread_create(&t, NULL, wake_once, &c), 0);
        while (!qr_ring_pop(r, &x)) qr_ring_wait(r, 60000); // a lost wake would hang here for a minute
        pthread_join(t, NULL);
        assert_int_equal(x.check, 3);
    }
    assert_true(clock->now_ns(clock) - start < 50000000000u);
    qr_ring_wake(r); // nobody sleeps
    qr_ring_free(&r);
}
