#include "sched/queue.h"

#include <string.h>

#include "base/hash.h"
#include "base/test.h"

enum { N = 48 };
static struct qr_req reqs[N];
static struct qr_sched_req rs[N];
static struct qr_queue q;

static void begin(const char *policy, int32_t starve_steps)
{
    memset(reqs, 0, sizeof reqs);
    memset(rs, 0, sizeof rs);
    qr_queue_init(&q, qr_policy_find(policy), starve_steps);
}

// Request i, which arrives as the i-th.
static void put(uint64_t i, int32_t priority, uint64_t key)
{
    reqs[i] = (struct qr_req){.priority = priority, .fair_key = key, .n_prompt = 10};
    rs[i] = (struct qr_sched_req){.id = i, .req = &reqs[i], .order = i + 1, .arrival_ns = 100 + i, .state = QR_SCHED_WAITING};
    qr_queue_insert(&q, &rs[i]);
    qr_queue_check(&q);
}

// Takes the head, as admission does; it computes so many tokens. Returns its id.
static qr_req_id take(int64_t n_tokens)
{
    static uint64_t turn;
    struct qr_sched_req *r = q.head;
    qr_queue_remove(&q, r);
    if (!r->turn) r->turn = ++turn;
    qr_queue_charge(&q, r, n_tokens);
    qr_queue_settle(&q);
    qr_queue_passed(&q, r->order);
    qr_queue_check(&q);
    return r->id;
}

static const char *order(void)
{
    static char text[N * 4];
    int n = 0;
    text[0] = 0;
    while (q.n > 0) n += sprintf(text + n, "%s%d", n ? " " : "", (int)take(10));
    return text;
}

QR_TEST(queue_fcfs_goes_by_arrival_and_lets_the_preempted_back_first)
{
    begin("fcfs", 0);
    for (uint64_t i = 0; i < 6; i++) put(i, 0, i % 3);
    assert_int_equal(q.n_tokens, 60);
    assert_int_equal(take(10), 0);
    assert_int_equal(take(10), 1);
    qr_queue_insert(&q, &rs[1]); // preempted
    qr_queue_insert(&q, &rs[0]);
    qr_queue_check(&q);
    assert_int_equal(q.n_begun, 2);
    assert_int_equal(q.n_tokens, 40);
    assert_int_equal(qr_queue_oldest_ns(&q), 100);
    qr_queue_remove(&q, &rs[3]); // cancelled
    assert_string_equal(order(), "0 1 2 4 5");
    assert_int_equal(qr_queue_oldest_ns(&q), 0);
}

QR_TEST(queue_priority_orders_by_value_then_arrival)
{
    static const int32_t priority[] = {0, 5, 0, -1, 5, 0};
    begin("priority", 0);
    for (uint64_t i = 0; i < 6; i++) put(i, priority[i], 0);
    assert_int_equal(take(10), 3);
    qr_queue_insert(&q, &rs[3]);
    put(6, -1, 0);
    assert_string_equal(order(), "3 6 0 2 5 1 4"); // the preempted one before its equal that never ran
}

QR_TEST(queue_priority_shares_among_equals)
{
    begin("priority", 0);
    for (uint64_t i = 0; i < 4; i++) put(i, 0, 1);
    put(4, 0, 2);
    put(5, 0, 2);
    put(6, 1, 3);
    assert_string_equal(order(), "0 4 1 5 2 3 6");
}

QR_TEST(queue_fair_serves_the_key_that_was_served_least)
{
    begin("fair", 0);
    for (uint64_t i = 0; i < 5; i++) put(i, 0, 1); // floods
    assert_int_equal(take(100), 0);
    put(5, 0, 2); // comes when key 1 has been served 100 tokens: begins there
    put(6, 0, 2);
    assert_int_equal(take(30), 1); // equal: the older
    assert_int_equal(take(10), 5); // 130 : 100
    assert_int_equal(take(100), 6); // 130 : 110
    assert_string_equal(order(), "2 3 4");
    put(7, 0, 2); // key 2 stands at 210, key 1 at 160
    put(8, 0, 1); // comes back: what it missed while nobody waited for it is not made up for
    assert_string_equal(order(), "7 8");
}

QR_TEST(queue_fair_lets_a_key_order_its_own_requests_only)
{
    begin("fair", 0);
    put(0, 0, 1);
    put(1, -9, 1);
    put(2, 0, 2);
    put(3, -9, 1);
    assert_string_equal(order(), "1 2 3 0"); // key 2 loses nothing by key 1's claims
}

// S4: whoever is the oldest of its lane is passed over `starve_steps` times and no more.
QR_TEST(queue_ages_the_oldest_of_each_lane)
{
    begin("priority", 4);
    put(0, 9, 1);
    put(1, 9, 1);
    int n_before = 0, n_between = 0;
    uint64_t i = 2;
    for (;; i++, n_before++) {
        put(i, 0, 2);
        if (take(10) == 0) break;
    }
    assert_int_equal(n_before, 4);
    assert_true(rs[0].aged);
    assert_int_equal(q.n_aged, 1);
    for (i++;; i++, n_between++) {
        put(i, 0, 2);
        if (take(10) == 1) break;
    }
    assert_int_equal(n_between, 4); // it counts from the time when it is the oldest
}

QR_TEST(queue_aged_requests_run_before_all_others)
{
    struct qr_sched_req a = {.aged = true, .class = 9, .turn = 7, .order = 1}, b = {.class = -5, .turn = 1, .order = 2},
                        c = {.aged = true, .class = 0, .turn = 3, .order = 5};
    assert_true(qr_sched_before(&a, &b) && !qr_sched_before(&b, &a));
    assert_true(qr_sched_before(&a, &c) && !qr_sched_before(&c, &a));
    assert_false(qr_sched_before(&a, &a));
}

QR_TEST(queue_finds_what_came_too_late)
{
    begin("fcfs", 0);
    for (uint64_t i = 0; i < 4; i++) put(i, 0, 0);
    assert_null(qr_queue_expired(&q, UINT64_MAX - 1));
    for (uint64_t i = 0; i < 4; i++) qr_queue_remove(&q, &rs[i]);
    static const uint64_t at[] = {0, 50, 30, 40};
    for (uint64_t i = 0; i < 4; i++) {
        reqs[i].deadline_ns = at[i];
        qr_queue_insert(&q, &rs[i]);
    }
    assert_int_equal(q.deadline_ns, 30);
    assert_null(qr_queue_expired(&q, 29));
    assert_ptr_equal(qr_queue_expired(&q, 40), &rs[2]);
    qr_queue_remove(&q, &rs[2]);
    assert_ptr_equal(qr_queue_expired(&q, 40), &rs[3]);
    qr_queue_remove(&q, &rs[3]);
    assert_null(qr_queue_expired(&q, 40));
    assert_int_equal(q.deadline_ns, 50);
    qr_queue_remove(&q, &rs[1]);
    rs[1].turn = 1; // it ran: no deadline ends it
    qr_queue_insert(&q, &rs[1]);
    assert_null(qr_queue_expired(&q, 1000));
    qr_queue_check(&q);
}

QR_TEST(queue_random_inserts_and_removals_stay_sorted)
{
    for (size_t p = 0; qr_policy_at(p); p++) {
        bool in[N] = {0};
        begin(qr_policy_at(p)->name, 3);
        for (uint64_t i = 0, order = 0; i < 4000; i++) {
            uint64_t x = qr_rand_u64(3, p, i), k = x % N;
            if (in[k] && x >> 32 & 1) {
                in[q.head->id] = false;
                take((int64_t)(x >> 40 & 63));
            } else if (in[k]) {
                qr_queue_remove(&q, &rs[k]);
                in[k] = false;
            } else if (rs[k].turn && x >> 33 & 1) {
                qr_queue_insert(&q, &rs[k]); // preempted
                in[k] = true;
            } else {
                reqs[k] = (struct qr_req){.priority = (int32_t)(x >> 8 & 3), .fair_key = x >> 16 & 7, .n_prompt = 1};
                rs[k] = (struct qr_sched_req){.id = k, .req = &reqs[k], .order = ++order, .state = QR_SCHED_WAITING};
                qr_queue_insert(&q, &rs[k]);
                in[k] = true;
            }
            qr_queue_check(&q);
        }
    }
}

QR_TEST(policy_names_are_found)
{
    assert_string_equal(qr_policy_at(0)->name, "fcfs");
    assert_ptr_equal(qr_policy_find("fair"), &qr_policy_fair);
    assert_null(qr_policy_find("lottery"));
}
