/*
 * clock.h - time. Durations and deadlines are int64 nanoseconds on the monotonic clock;
 * wall time is for names and reports only.
 */
#ifndef TRII_CLOCK_H
#define TRII_CLOCK_H

#include <stdint.h>

#define TRII_NS_PER_MS INT64_C(1000000)
#define TRII_NS_PER_S INT64_C(1000000000)

/* A deadline that never comes. */
#define TRII_NO_DEADLINE INT64_MAX

/* Monotonic; about 25 ns. */
int64_t trii_now_ns(void);
/* The same clock as the kernel last wrote it down: up to 4 ms (a tick) old, about 5 ns. */
int64_t trii_coarse_ns(void);
/* Seconds since 1970, for file names and reports: never for waiting. */
int64_t trii_wall_ns(void);
/* The moment timeout_ms from now; negative (TRI_FOREVER) or too large = TRII_NO_DEADLINE. */
int64_t trii_deadline_ms(int64_t timeout_ms);
/* Until the deadline, for poll: rounded up, 0 if it has passed, -1 if there is none. */
int trii_deadline_left_ms(int64_t deadline_ns);
/* Sleeps until the deadline (TRII_NO_DEADLINE is not allowed): for back-off, never to wait for
 * something that could be waited for. */
void trii_sleep_until(int64_t deadline_ns);

#endif
