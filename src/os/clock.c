/*
 * clock.c - see clock.h.
 */
/* build: leaf */
#include "os/clock.h"

#include <errno.h>
#include <limits.h>
#include <time.h>

static int64_t read_clock(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now); /* cannot fail for the clocks used here */
    return (int64_t)now.tv_sec * TRII_NS_PER_S + now.tv_nsec;
}

int64_t trii_now_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

int64_t trii_coarse_ns(void)
{
    return read_clock(CLOCK_MONOTONIC_COARSE);
}

int64_t trii_wall_ns(void)
{
    return read_clock(CLOCK_REALTIME);
}

int64_t trii_deadline_ms(int64_t timeout_ms)
{
    int64_t ns;

    if (timeout_ms < 0 || __builtin_mul_overflow(timeout_ms, TRII_NS_PER_MS, &ns) ||
        __builtin_add_overflow(ns, trii_now_ns(), &ns))
        return TRII_NO_DEADLINE;
    return ns;
}

int trii_deadline_left_ms(int64_t deadline_ns)
{
    int64_t left;

    if (deadline_ns == TRII_NO_DEADLINE)
        return -1;
    left = deadline_ns - trii_now_ns();
    if (left <= 0)
        return 0;
    left = (left - 1) / TRII_NS_PER_MS + 1;
    return left < INT_MAX ? (int)left : INT_MAX;
}

void trii_sleep_until(int64_t deadline_ns)
{
    const struct timespec until = {.tv_sec = deadline_ns / TRII_NS_PER_S,
                                   .tv_nsec = deadline_ns % TRII_NS_PER_S};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
}
