/* API keys share the machine, whoever floods the queue. A priority orders the requests of its own key only, so
 * that nobody gains by claiming one. */
#include "sched/policy.h"

static int64_t same(const struct qr_req *r)
{
    (void)r;
    return 0;
}

static int64_t rank_of(const struct qr_req *r)
{
    return r->priority;
}

const struct qr_policy qr_policy_fair = {.name = "fair",
                                         .about = "API keys share equally; priority orders a key's own requests",
                                         .takes_priority = true,
                                         .by_key = true,
                                         .class_of = same,
                                         .rank_of = rank_of};
