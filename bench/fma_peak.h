/*
 * fma_peak.h - how many floating-point operations a second the processor's fused multiply-add can
 * do in f32: a loop of that instruction on registers alone, on several threads at once.
 */
#ifndef BENCH_FMA_PEAK_H
#define BENCH_FMA_PEAK_H

#include <stdlib.h>
#include <threads.h>

#include "timing.h"

#define PEAK_SUMS 12 /* independent ones: an instruction's latency times two a cycle, and more */
#define PEAK_TURNS 4000000
#define PEAK_THREADS 64

/* What makes one instruction of a product and a sum. */
#if defined(__clang__)
#define PEAK_FAST
#define PEAK_CONTRACT _Pragma("clang fp contract(fast)")
#else
#define PEAK_FAST , optimize("fp-contract=fast")
#define PEAK_CONTRACT
#endif

/* Returns a number, so that the loop is not left out. */
#define PEAK_LOOP(name, attribute, lanes)                                                          \
    typedef float name##_vector __attribute__((vector_size(4 * (lanes))));                         \
    attribute static double name(void)                                                             \
    {                                                                                              \
        PEAK_CONTRACT                                                                              \
        name##_vector sum[PEAK_SUMS], x = 0.999f - (name##_vector){0}, y = 1 - x;                  \
        double total = 0;                                                                          \
                                                                                                   \
        for (int k = 0; k < PEAK_SUMS; k++)                                                        \
            sum[k] = x;                                                                            \
        for (int turn = 0; turn < PEAK_TURNS; turn++) {                                            \
            for (int k = 0; k < PEAK_SUMS; k++)                                                    \
                sum[k] = sum[k] * x + y;                                                           \
        }                                                                                          \
        for (int k = 0; k < PEAK_SUMS; k++)                                                        \
            total += (double)sum[k][0];                                                            \
        return total;                                                                              \
    }

PEAK_LOOP(peak_portable, __attribute__((noinline)), 4)
#if defined(__x86_64__)
PEAK_LOOP(peak_avx2, __attribute__((noinline, target("avx2,fma") PEAK_FAST)), 8)
PEAK_LOOP(peak_avx512, __attribute__((noinline, target("avx512f,fma") PEAK_FAST)), 16)
#endif

typedef struct peak_result {
    int lanes;
    double sum;
} peak_result;

static int peak_run(void *result)
{
    peak_result *r = result;

#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        *r = (peak_result){16, peak_avx512()};
        return 0;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        *r = (peak_result){8, peak_avx2()};
        return 0;
    }
#endif
    *r = (peak_result){4, peak_portable()};
    return 0;
}

/* The best of a few tries. */
static double fma_peak_flops(int threads)
{
    double best = 0;

    threads = threads < PEAK_THREADS ? threads : PEAK_THREADS;
    for (int round = 0; round < 3; round++) {
        thrd_t other[PEAK_THREADS];
        peak_result results[PEAK_THREADS];
        int started = 1;
        double seconds, flops, begin = cost_us();

        while (started < threads &&
               thrd_create(&other[started], peak_run, &results[started]) == thrd_success)
            started++;
        (void)peak_run(&results[0]);
        for (int t = 1; t < started; t++)
            (void)thrd_join(other[t], NULL);
        seconds = (cost_us() - begin) / 1e6;
        flops = 2.0 * PEAK_SUMS * PEAK_TURNS * (double)results[0].lanes * (double)started / seconds;
        if (flops > best && results[0].sum > 0) /* or the loop would be left out */
            best = flops;
    }
    return best;
}

#endif
