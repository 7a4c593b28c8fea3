/* Scheduling policies: who is served before whom. One of the six vtables.
 *
 * Owns: the meaning of each answer; the implementations are policy_<name>.c, one line each in policies.def.
 * Refuses to know: blocks, budgets, time. Threads: pure functions. Lifetime: static.
 *
 * A policy does not sort. It gives each request two numbers when it arrives, and sched/queue.h makes one
 * order of them, the same for every policy: class first; within a class who already ran, in the order in
 * which they began; then, with `by_key`, the key that was served least; then the rank; then arrival. */
#ifndef QR_SCHED_POLICY_H
#define QR_SCHED_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/req.h"

struct qr_policy {
    const char *name;
    const char *about;     // one line for people
    bool takes_priority;   // a request's priority means something; where not, others than 0 are refused
    bool by_key;           // requests of one class share by fair_key, over the tokens computed for each
    bool makes_way;        // a request takes the slots and blocks of running ones of a later class
    int64_t (*class_of)(const struct qr_req *r); // lower goes first, whoever else waits
    int64_t (*rank_of)(const struct qr_req *r);  // lower goes first among one key's requests of one class
};

#define QR_POLICY(name) extern const struct qr_policy qr_policy_##name;
#include "sched/policies.def"
#undef QR_POLICY

const struct qr_policy *qr_policy_find(const char *name); // NULL: there is none of that name
const struct qr_policy *qr_policy_at(size_t i);           // in the order of policies.def; NULL behind the last

#endif
