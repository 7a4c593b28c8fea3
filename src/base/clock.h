/* Time as a value. One of the six vtables: the wall clock, and the simulator's virtual clock.
 *
 * Owns: nothing. Refuses to know: calendars, but for the log. Threads: now_ns may be called by any.
 * Lifetime: the wall clock is static; a virtual one belongs to its test or simulation. */
#ifndef QR_BASE_CLOCK_H
#define QR_BASE_CLOCK_H

#include <stdint.h>

struct qr_clock {
    uint64_t (*now_ns)(struct qr_clock *c);              // monotonic
    void (*advance_ns)(struct qr_clock *c, uint64_t ns); // virtual clocks only; NULL for the wall clock
};

struct qr_clock *qr_clock_wall(void);

struct qr_clock_virtual {
    struct qr_clock face;
    uint64_t ns;
};
void qr_clock_virtual_init(struct qr_clock_virtual *c);

#endif
