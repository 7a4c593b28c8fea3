/* Calls: their slots, their count of holders, the queue to the workers.
 *
 * A client that leaves is reported on the I/O thread with the call's key (a slot and its turn), never with a
 * pointer: the call may just have been answered and freed by another thread. */
#define _GNU_SOURCE // pthread_setname_np
#include "api/api_internal.h"

#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"

static bool slot_take(struct api *a, struct call *c)
{
    pthread_mutex_lock(&a->slots_lock);
    bool ok = a->n_free_slots > 0;
    if (ok) {
        uint32_t i = a->free_slots[--a->n_free_slots];
        a->slots[i] = c;
        c->key = (uint64_t)++a->slot_turn[i] << 32 | i;
    }
    pthread_mutex_unlock(&a->slots_lock);
    return ok;
}

static void slot_give(struct api *a, struct call *c)
{
    uint32_t i = (uint32_t)c->key;
    pthread_mutex_lock(&a->slots_lock);
    QR_ASSERT(a->slots[i] == c);
    a->slots[i] = NULL;
    a->free_slots[a->n_free_slots++] = i;
    pthread_mutex_unlock(&a->slots_lock);
}

struct call *call_new(struct api *a, struct http_req *req, const struct route *route, const char *path)
{
    struct call *c = qr_calloc(QR_MEM_REQ, 1, sizeof *c);
    if (!c) return NULL;
    c->api = a;
    c->req = req;
    c->route = route;
    c->path = path;
    atomic_init(&c->refs, 1);
    c->arrival_ns = qr_clock_wall()->now_ns(qr_clock_wall());
    if (!slot_take(a, c)) {
        qr_free(c);
        return NULL;
    }
    http_req_ref(req);
    http_req_set_user(req, (void *)(uintptr_t)c->key);
    atomic_fetch_add(&a->n_live, 1);
    return c;
}

void call_ref(struct call *c)
{
    atomic_fetch_add(&c->refs, 1);
}

void call_unref(struct call **cp)
{
    struct call *c = *cp;
    *cp = NULL;
    if (!c || atomic_fetch_sub(&c->refs, 1) != 1) return;
    slot_give(c->api, c); // from here on `gone` cannot find it
    struct api_gen *gen = atomic_load(&c->gen);
    gen_free(&gen);
    http_req_unref(&c->req);
    atomic_fetch_sub(&c->api->n_live, 1);
    qr_free(c);
}

void call_client_gone(struct api *a, uint64_t key)
{
    uint32_t i = (uint32_t)key;
    pthread_mutex_lock(&a->slots_lock);
    struct call *c = i < API_CALLS_MAX ? a->slots[i] : NULL;
    if (c && c->key == key) {
        atomic_store(&c->gone, true);
        qr_metric_add(a->metrics, QR_METRIC_CANCELLED, 1);
        gen_abandon(c);
    }
    pthread_mutex_unlock(&a->slots_lock);
}

bool call_enqueue(struct call *c)
{
    struct api *a = c->api;
    pthread_mutex_lock(&a->queue_lock);
    bool ok = a->n_queued < API_QUEUE_MAX && !atomic_load(&a->stopping);
    if (ok) {
        c->next = NULL;
        *a->queue_tail = c;
        a->queue_tail = &c->next;
        a->n_queued++;
        pthread_cond_signal(&a->queue_cond);
    }
    pthread_mutex_unlock(&a->queue_lock);
    return ok;
}

// The oldest queued call; NULL when the server stops and the queue is empty.
static struct call *dequeue(struct api *a)
{
    pthread_mutex_lock(&a->queue_lock);
    while (!a->queue_head && !atomic_load(&a->stopping)) pthread_cond_wait(&a->queue_cond, &a->queue_lock);
    struct call *c = a->queue_head;
    if (c) {
        a->queue_head = c->next;
        if (!a->queue_head) a->queue_tail = &a->queue_head;
        a->n_queued--;
    }
    pthread_mutex_unlock(&a->queue_lock);
    return c;
}

void *call_worker(void *api)
{
    struct api *a = api;
    pthread_setname_np(pthread_self(), "quire-api");
    for (struct call *c; (c = dequeue(a));) {
        if (atomic_load(&a->stopping))
            call_error(c, 503, NULL, "The server is shutting down.");
        else if (!atomic_load(&c->gone))
            c->route->handler(c);
        call_unref(&c);
    }
    return NULL;
}

void calls_fail_all(struct api *a)
{
    for (uint32_t i = 0; i < API_CALLS_MAX; i++) {
        pthread_mutex_lock(&a->slots_lock);
        struct call *c = a->slots[i];
        // A count that has reached zero belongs to a thread that waits for slots_lock to free the call.
        int refs = c ? atomic_load(&c->refs) : 0;
        while (refs > 0 && !atomic_compare_exchange_weak(&c->refs, &refs, refs + 1)) {
        }
        pthread_mutex_unlock(&a->slots_lock);
        if (refs == 0) continue;
        struct api_gen *gen = atomic_load(&c->gen);
        if (gen) {
            pthread_mutex_lock(&gen->lock);
            gen_fail(c, 503, NULL, "The server is shutting down.");
            pthread_mutex_unlock(&gen->lock);
            gen_abandon(c);
        }
        call_unref(&c);
    }
}
