/*
 * slow_wire.h - an Ethernet wire that is slow or bad: two TAP interfaces and a process that carries
 * frames from one to the other, late, some later than those that follow them, so many bits a
 * second, and drops some and what its queue has no room for. (The kernel's netem does the same,
 * where there is one.) Tests only.
 */
#ifndef TEST_SLOW_WIRE_H
#define TEST_SLOW_WIRE_H

#include <stdbool.h>

typedef struct slow_wire {
    int holder;              /* process in whose network namespace the far end is */
    int delay_ms, jitter_ms; /* each frame takes so long, and up to the second more */
    int loss_per_mille;
    int kbit; /* a second; 0 = as many as come */
    int queue_bytes;
} slow_wire;

/* The near end is interface `near` in the caller's namespace, the far one `far`. The process ends
 * with its parent; *pid_out is to be killed and waited for. False: no /dev/net/tun for us. */
bool slow_wire_start(const slow_wire *w, const char *near, const char *far, int *pid_out);

#endif
