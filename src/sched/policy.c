#include "sched/policy.h"

#include <string.h>

static const struct qr_policy *const policies[] = {
#define QR_POLICY(name) &qr_policy_##name,
#include "sched/policies.def"
#undef QR_POLICY
};

const struct qr_policy *qr_policy_at(size_t i)
{
    return i < sizeof policies / sizeof policies[0] ? policies[i] : NULL;
}

const struct qr_policy *qr_policy_find(const char *name)
{
    for (size_t i = 0; qr_policy_at(i); i++)
        if (strcmp(policies[i]->name, name) == 0) return policies[i];
    return NULL;
}
