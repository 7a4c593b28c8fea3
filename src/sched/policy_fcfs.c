/* First come, first served: nobody is ever passed over. */
#include "sched/policy.h"

static int64_t same(const struct qr_req *r)
{
    (void)r;
    return 0;
}

const struct qr_policy qr_policy_fcfs = {
    .name = "fcfs", .about = "first come, first served", .class_of = same, .rank_of = same};
