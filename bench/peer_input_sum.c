/*
 * peer_input_sum.c - the floor under every all_reduce of two ranks in shared memory: two processes
 * on two cores, each adds its half of two vectors and stores it into both, so that every byte is
 * read once and written once by one core. Nothing but that is timed, and one meeting at the end.
 *
 *   build/bench/peer_input_sum [MAX_BYTES]     a line "bare sum SIZE\tMICROSECONDS" for each size
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "timing.h"

enum { MOST = 301 };

typedef struct meeting {
    _Alignas(128) _Atomic uint64_t arrived[2];
    _Alignas(128) _Atomic uint64_t other;
    double took[2];
} meeting;

static const struct {
    const char *name;
    size_t bytes;
} sizes[] = {{"16 KiB", (size_t)16 << 10},   {"64 KiB", (size_t)64 << 10},
             {"256 KiB", (size_t)256 << 10}, {"1 MiB", (size_t)1 << 20},
             {"4 MiB", (size_t)4 << 20},     {"16 MiB", (size_t)16 << 20},
             {"64 MiB", (size_t)64 << 20},   {"256 MiB", (size_t)256 << 20}};

static void meet(_Atomic uint64_t *count, uint64_t number)
{
    atomic_fetch_add(count, 1);
    while (atomic_load_explicit(count, memory_order_acquire) < 2 * number)
        ;
}

static void sum(float *restrict a, float *restrict b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float s = a[i] + b[i];

        a[i] = s;
        b[i] = s;
    }
}

static double once(meeting *m, float *const x[2], int rank, size_t n, uint64_t *number)
{
    size_t half = n / 2;
    double start;

    for (size_t i = 0; i < n; i++)
        x[rank][i] = (float)(*number & 7);
    meet(&m->other, ++*number);
    start = now_us();
    sum(x[0] + (size_t)rank * half, x[1] + (size_t)rank * half, half);
    meet(&m->arrived[0], *number);
    return now_us() - start;
}

int main(int argc, char **argv)
{
    size_t most = argc > 1 ? (size_t)strtoull(argv[1], NULL, 10) : (size_t)256 << 20;
    meeting *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    static double samples[MOST];
    uint64_t number = 0;
    float *x[2];
    cpu_set_t cpu;
    int rank;

    for (int i = 0; i < 2; i++)
        x[i] = mmap(NULL, most, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED || x[0] == MAP_FAILED || x[1] == MAP_FAILED)
        return 1;
    rank = fork() == 0;
    CPU_ZERO(&cpu);
    CPU_SET((size_t)rank, &cpu);
    (void)sched_setaffinity(0, sizeof(cpu), &cpu);
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]) && sizes[s].bytes <= most; s++) {
        size_t n = sizes[s].bytes / sizeof(float);
        int rounds = sizes[s].bytes > ((size_t)4 << 20) ? 21 : MOST;

        for (int i = -3; i < rounds; i++) {
            double took = once(m, x, rank, n, &number);

            if (i >= 0)
                samples[i] = took;
        }
        m->took[rank] = median(samples, rounds);
        meet(&m->other, ++number);
        meet(&m->arrived[0], number);
        if (rank == 0)
            printf("bare sum %s\t%.4f\n", sizes[s].name,
                   m->took[0] > m->took[1] ? m->took[0] : m->took[1]);
    }
    if (rank != 0)
        _exit(0);
    wait(NULL);
    return 0;
}
