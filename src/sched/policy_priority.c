/* Lower `priority` first, also against what already runs; keys share among equals. Nothing starves: the queue
 * ages the oldest request of each key. */
#include "sched/policy.h"

static int64_t class_of(const struct qr_req *r)
{
    return r->priority;
}

static int64_t same(const struct qr_req *r)
{
    (void)r;
    return 0;
}

const struct qr_policy qr_policy_priority = {.name = "priority",
                                             .about = "lower priority values first; among equals, API keys share",
                                             .takes_priority = true,
                                             .by_key = true,
                                             .makes_way = true,
                                             .class_of = class_of,
                                             .rank_of = same};
