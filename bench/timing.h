/*
 * timing.h - the clocks of the programs here, and the median of what they read.
 */
#ifndef BENCH_TIMING_H
#define BENCH_TIMING_H

#include <stdlib.h>
#include <time.h>

static inline double clock_us(clockid_t clock)
{
    struct timespec t;

    (void)clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* The same clock in all processes of the host. */
static inline double now_us(void)
{
    return clock_us(CLOCK_MONOTONIC);
}

/* With BENCH_CPU=1 the processor time of all threads of this process, for busy machines. */
static inline double cost_us(void)
{
    return clock_us(getenv("BENCH_CPU") != NULL ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC);
}

static inline int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static inline void sort(double *samples, int n)
{
    qsort(samples, (size_t)n, sizeof(*samples), by_value);
}

/* Sorts them. */
static inline double median(double *samples, int n)
{
    sort(samples, n);
    return samples[n / 2];
}

#endif
