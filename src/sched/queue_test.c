#include "sched/queue.h"

#include "base/hash.h"
#include "base/test.h"

QR_TEST(queue_orders_by_priority_then_arrival)
{
    enum { N = 6 };
    struct qr_req reqs[N] = {{.priority = 0},  {.priority = 5}, {.priority = 0},
                             {.priority = -1}, {.priority = 5}, {.priority = 0}};
    struct qr_sched_req rs[N] = {0};
    struct qr_queue q = {0};
    for (uint64_t i = 0; i < N; i++) {
        rs[i] = (struct qr_sched_req){.id = i, .req = &reqs[i], .order = i + 1, .state = QR_SCHED_WAITING};
        qr_queue_insert(&q, &rs[i]);
        qr_queue_check(&q);
    }
    static const qr_req_id want[N] = {3, 0, 2, 5, 1, 4};
    int i = 0;
    for (const struct qr_sched_req *r = q.head; r; r = r->next) assert_int_equal(r->id, want[i++]);
    assert_int_equal(i, N);
    qr_queue_remove(&q, &rs[2]); // from the middle, the head, the tail
    qr_queue_remove(&q, &rs[3]);
    qr_queue_remove(&q, &rs[4]);
    qr_queue_check(&q);
    assert_int_equal(q.head->id, 0);
    assert_int_equal(q.tail->id, 1);
    qr_queue_insert(&q, &rs[2]); // a preempted request goes back before what came after it
    assert_int_equal(q.head->next->id, 2);
    qr_queue_check(&q);
}

QR_TEST(queue_random_inserts_and_removals_stay_sorted)
{
    enum { N = 40 };
    static struct qr_req reqs[N];
    static struct qr_sched_req rs[N];
    bool in[N] = {0};
    struct qr_queue q = {0};
    for (uint64_t i = 0; i < 4000; i++) {
        uint64_t k = qr_rand_u64(3, 0, i) % N;
        if (in[k]) {
            qr_queue_remove(&q, &rs[k]);
        } else {
            reqs[k].priority = (int32_t)(k % 3);
            rs[k] = (struct qr_sched_req){
                .id = k, .req = &reqs[k], .order = 1 + k * 7 % N, .state = QR_SCHED_WAITING};
            qr_queue_insert(&q, &rs[k]);
        }
        in[k] = !in[k];
        qr_queue_check(&q);
    }
}
