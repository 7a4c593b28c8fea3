#define _GNU_SOURCE
#include "base/clock.h"

#include <stddef.h>
#include <time.h>

static uint64_t wall_now(struct qr_clock *c)
{
    (void)c;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct qr_clock *qr_clock_wall(void)
{
    static struct qr_clock wall = {wall_now, NULL};
    return &wall;
}

static uint64_t virtual_now(struct qr_clock *c)
{
    return ((struct qr_clock_virtual *)c)->ns;
}

static void virtual_advance(struct qr_clock *c, uint64_t ns)
{
    ((struct qr_clock_virtual *)c)->ns += ns;
}

void qr_clock_virtual_init(struct qr_clock_virtual *c)
{
    c->face = (struct qr_clock){virtual_now, virtual_advance};
    c->ns = 0;
}
