/*
 * peer_line_exchange.c - the floor under every all_reduce: two processes on two cores each
 * write a cache line and wait until they see the other's. Prints microseconds per exchange.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "timing.h"

enum { ROUNDS = 500, SAMPLES = 1001 };

typedef struct line {
    _Alignas(128) _Atomic uint64_t seq;
    uint64_t value;
} line;

int main(void)
{
    line *lines = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    double samples[SAMPLES];
    uint64_t seq = 0, sum = 0;
    cpu_set_t cpu;
    int rank;

    if (lines == MAP_FAILED)
        return 1;
    rank = fork() == 0;
    CPU_ZERO(&cpu);
    CPU_SET((size_t)rank, &cpu);
    (void)sched_setaffinity(0, sizeof(cpu), &cpu);
    for (int s = 0; s < SAMPLES; s++) {
        double start = now_us();

        for (int i = 0; i < ROUNDS; i++) {
            int slot = (int)(++seq & 1); /* two lines in turn: the reader may be one behind */
            line *mine = &lines[2 * rank + slot], *theirs = &lines[2 * (1 - rank) + slot];

            mine->value = seq;
            atomic_store_explicit(&mine->seq, seq, memory_order_release);
            while (atomic_load_explicit(&theirs->seq, memory_order_acquire) < seq)
                ;
            sum += theirs->value;
        }
        samples[s] = (now_us() - start) / ROUNDS;
    }
    if (rank == 1)
        _exit(sum == 0);
    wait(NULL);
    printf("bare line exchange\t%.4f\n", median(samples, SAMPLES));
    return 0;
}
